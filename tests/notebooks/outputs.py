"""Outputs that tutorials keep for readers on the web: texts as they were, and pictures of what is drawn.

``python -m pytest tests/notebooks --keep-outputs`` runs all tutorials in Chromium, and writes them.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

_DRAWN_TYPES = {"application/vnd.jupyter.widget-view+json", "application/vnd.plotly.v1+json"}
_DRAWN = ("<svg", "gcylon", "<details")  # in HTML; a frame of pandas or a line of progress is no picture
_LOWEST = 8  # pixels: what takes less shows nothing


def digest(notebook: Any) -> str:
    """What stands for the code of a notebook."""
    code = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def pictures_of(cell: Any) -> list[bytes]:
    """A picture of each output of a cell in the page, empty where it shows nothing."""
    found = []
    for output in cell.locator(".jp-OutputArea-child").all():
        box = output.bounding_box()
        found.append(output.screenshot() if box and box["height"] >= _LOWEST else b"")
    return found


def keep(ran: Any, pictures: list[list[bytes]], path: Path) -> None:
    """Write the outputs of a notebook that ran into the one at a path, whose cells stay as they are.

    Parameters
    ----------
    ran : notebook
    pictures : list
        `pictures_of` each of its code cells.
    path : Path
    """
    import nbformat

    notebook = nbformat.read(path, 4)
    cells = [[cell for cell in one.cells if cell.cell_type == "code"] for one in (notebook, ran)]
    for kept, done, shown in zip(*cells, pictures, strict=True):
        outputs = [output for output in done.outputs if output.output_type != "error"]
        assert len(outputs) == len(done.outputs), "a tutorial ends without an error"
        if len(shown) != len(outputs):  # they cannot be told apart
            shown = [b""] * len(outputs)
        kept.outputs = [_kept(output, picture) for output, picture in zip(outputs, shown, strict=True)]
        kept.execution_count = None
    notebook.metadata["gcylon_lab"] = {"outputs_of": digest(notebook)}
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def _kept(output: Any, picture: bytes) -> Any:
    import nbformat

    data = output.get("data", {})
    html = "".join(data.get("text/html", ""))
    if not _DRAWN_TYPES & set(data) and not any(word in html for word in _DRAWN):
        if "execution_count" in output:
            output.execution_count = None
        return output
    kept = {"text/plain": "".join(data.get("text/plain", ""))}
    if picture:
        kept["image/png"] = base64.b64encode(picture).decode()
    return nbformat.v4.new_output("display_data", data=kept)
