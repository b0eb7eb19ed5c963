"""The tutorials run from top to bottom, and are kept without outputs."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def printed(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = [output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs]
    return "\n".join(texts)


@every_notebook
def test_it_is_kept_clean(path):
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    assert notebook.metadata.kernelspec.name == "python3"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not [cell.id for cell in code if cell.outputs or cell.execution_count]
    assert code[-1].source.rstrip().endswith("lab.close()"), "no engines are left behind"


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.timeout(300)
@every_notebook
def test_it_runs(path, tmp_path):
    notebook = nbformat.read(path, 4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, store_widget_state=False, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    text = printed(notebook)
    assert "Traceback" not in text
    if path.stem == "01_start_here":
        assert "rank 0 of 2" in text and "rank 1 of 2" in text
        assert "the same rows on the same ranks: True" in text
        assert "shuffle: staged" in text
        assert (tmp_path / "start_here_report.html").stat().st_size > 1e6
