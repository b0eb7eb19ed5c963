"""Every tutorial under JupyterLab in Chromium, cell by cell, with an eye on the console and the server's log.

One runs always. All take minutes, and run only where that is asked for:
``python -m pytest tests/notebooks --all-browsers``; with ``--keep-outputs`` they are written, too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import outputs
import pytest
from lab_page import LabPage
from test_notebooks import APPLICATION, NOTEBOOKS, check_outputs, code_cells

pytestmark = [pytest.mark.browser, pytest.mark.mpi, pytest.mark.slow, pytest.mark.timeout(500)]

# What JupyterLab, its extensions and the servers behind it say by themselves, without a table or a widget of ours.
FOREIGN_IN_CONSOLE: tuple[str, ...] = ()
FOREIGN_IN_LOG = (
    r"A `_jupyter_server_extension_points` function was not found in ipyparallel\.",
    r"Notebook [\w.]+ is not trusted",  # it has no outputs that could be
    r"The websocket_ping_timeout \(90000\) cannot be longer than the websocket_ping_interval \(30000\)\.",
    r"\[IPKernelApp\] WARNING \| Kernel is running over TCP without encryption\.",
)


class Listener:
    """What a page says beside what it shows."""

    def __init__(self, page: Any) -> None:
        self.said: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.said.append(f"uncaught {error}"))
        page.on("requestfailed", lambda request: self.said.append(f"not loaded: {request.url} {request.failure}"))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning", "trace"):
            self.said.append(f"{message.type}: {message.text}")


def without(foreign: tuple[str, ...], lines: list[str]) -> list[str]:
    return [line for line in lines if not any(re.search(pattern, line) for pattern in foreign)]


def complaints(log: Path) -> list[str]:
    """Warnings and errors in a Jupyter server's log, with the tracebacks below them."""
    lines = log.read_text().splitlines()
    told = re.compile(r"\[[WEC] |\s*Traceback|\w*Error\b|.*\| *(WARNING|ERROR|CRITICAL)")
    return [line for line in lines if told.match(line)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_cells_run(
    path: Path, chosen: None, jupyter: tuple[str, str], page: Any, tmp_path: Path, pytestconfig: pytest.Config
):
    pictures = Path(os.environ.get("GCYLON_SCREENSHOTS", tmp_path / "screenshots")) / path.stem
    page.set_viewport_size({"width": 1366, "height": 768})
    said = Listener(page)
    lab = LabPage(page, pictures)
    count = code_cells(path)
    lab.open(jupyter, path.name, cells=count)
    keeps, shown = pytestconfig.getoption("--keep-outputs", default=False) and path != APPLICATION, []
    for number, cell in enumerate(lab.code_cells(), 1):
        if keeps and number == count:  # the last one ends the ranks, and all that is live
            page.set_viewport_size({"width": 1366, "height": 2600})  # what is scrolled away is in no picture
            page.wait_for_timeout(2500)
            shown = [outputs.pictures_of(one) for one in lab.code_cells()[:-1]]
        lab.run(cell)
        cell.evaluate("node => node.scrollIntoView({block: 'end'})")
        page.wait_for_timeout(200)
        lab.shoot(f"{number:02}")
    page.wait_for_timeout(700)  # what is drawn late may complain too
    if path == APPLICATION:
        lab.use_application()
    ran = lab.save(tmp_path / "tutorials" / path.name)
    check_outputs(path.stem, ran, tmp_path / "tutorials")
    (pictures / "said.txt").write_text("\n".join(said.said))
    assert without(FOREIGN_IN_CONSOLE, said.said) == []
    assert without(FOREIGN_IN_LOG, complaints(tmp_path / "jupyter.log")) == []
    if keeps:
        outputs.keep(ran, [*shown, outputs.pictures_of(lab.code_cells()[-1])], path)
