"""The tutorials run from top to bottom, and are kept with outputs of the code that stands there.

Those that run in Chromium in every run of the tests run there alone; without Chromium all run here. What reads and
runs notebooks is imported by those tests alone: it takes seconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import outputs
import pytest

from gcylon_lab.bench.dashboard.page import find_chromium

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 1_500_000  # bytes, with its pictures
APPLICATION = FOLDER / "dashboard.ipynb"  # its buttons start and close the cluster

# What each must have shown: that rows were right, budgets held, errors were those that are explained.
SHOWN = {
    "01_start_here": [
        "rank 0 of 2", "rank 1 of 2", "the same rows on the same ranks: True", "shuffle: staged", "shuffle: chunked",
    ],
    "02_from_files_to_answers": ["120,515 line items", "all the same: True", "read back by pandas: 2,000 customers"],
    "03_chunks_and_staging": ["shuffle: staged", "from disk:   1500122892", "from memory: 1500122892", "is enough"],
    "04_tuning_a_budget": ["every peak under its budget: True", "staged", "is enough", "above the ceiling"],
    "05_larger_than_memory": ["join: staged", "sort_values: staged", "the same, row by row: True"],
    "06_profiling": ["the same sums: True for the same keys: True", "my model", "skew"],
    "07_gpu_engines": ["This notebook runs on", "shuffle: staged"],
    "08_on_a_cluster": ["rank 0 of 2", "rank 1 of 2", "5 write_parquet"],
    "dashboard": [],
}  # fmt: skip
WRITTEN = {
    "01_start_here": ["start_here_report.html"],
    "06_profiling": ["profile.html", "profile.trace.json"],
    "08_on_a_cluster": ["batch.html"],
}

# Which run in Chromium in every run of the tests: what a person does first, and one that takes little time there.
FIRST, IN_CHROMIUM = "01_start_here", ("08_on_a_cluster",)
HERE = [path for path in NOTEBOOKS if find_chromium() is None or path.stem not in (FIRST, *IN_CHROMIUM)]

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path: Path) -> int:
    """How many a tutorial has."""
    return sum(cell["cell_type"] == "code" for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])


def printed(notebook: Any) -> str:
    found = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in found]
    return "\n".join(texts)


def check_outputs(name: str, notebook: Any, folder: Path) -> None:
    """A notebook that ran in a folder shows, and has written there, what it must."""
    text = printed(notebook)
    assert "Traceback" not in text
    for expected in SHOWN[name]:
        assert expected in text
    for file in WRITTEN.get(name, ()):
        assert (folder / file).stat().st_size > 10_000


@every_notebook
def test_its_outputs_are_those_of_its_code(path):
    import nbformat

    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    assert notebook.metadata.kernelspec.name == "python3"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not [cell.id for cell in code if cell.execution_count]
    kept = [output for cell in code for output in cell.outputs]
    if path == APPLICATION:
        assert not kept
        return
    assert code[-1].source.rstrip().endswith("lab.close()"), "no engines are left behind"
    of = notebook.metadata.get("gcylon_lab", {}).get("outputs_of")
    assert of == outputs.digest(notebook), "python -m pytest tests/notebooks --keep-outputs writes them anew"
    assert not [output for output in kept if output.output_type == "error"]
    assert all(expected in printed(notebook) for expected in SHOWN[path.stem])
    assert kept and all("application/vnd.jupyter.widget-view+json" not in output.get("data", {}) for output in kept)
    assert path.stat().st_size < LARGEST


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", HERE, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path):
    import nbclient
    import nbformat

    notebook = nbformat.read(path, 4)
    # One print may come as several messages, where the kernel sends what it has in the middle of it.
    client = nbclient.NotebookClient(
        notebook,
        timeout=120,
        store_widget_state=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    check_outputs(path.stem, notebook, tmp_path)
