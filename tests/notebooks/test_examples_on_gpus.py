"""What the guide and the tutorials show, run on GPU engines: `python -m pytest -m gpu tests/notebooks`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from test_notebooks import APPLICATION, NOTEBOOKS, check_outputs, printed

from gcylon_lab.tutorials import make_tpch

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

GUIDE = (Path(__file__).parents[2] / "notebooks" / "guide_start.md").read_text()


@pytest.fixture(autouse=True)
def gpu_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCYLON_ENGINE", "gpu")  # an error where they are not, rather than engines without
    monkeypatch.setenv("GCYLON_GPU_MEMORY_FRACTION", "0.2")


def test_the_ten_lines_of_the_guide(tmp_path: Path) -> None:
    make_tpch(tmp_path, 0.02)
    code = GUIDE.partition("```python\n")[2].partition("```")[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "shuffle: staged" in done.stdout and "l_orderkey" in done.stdout and "pinned" in done.stdout


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if path != APPLICATION], ids=lambda path: path.stem)
def test_a_tutorial(path: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    import nbformat

    notebook = nbformat.read(path, 4)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(
        notebook, timeout=240, store_widget_state=False, coalesce_streams=True, resources=place
    ).execute()
    assert "Traceback" not in printed(notebook)
    check_outputs(path.stem, notebook, tmp_path)
