"""A dashboard whose page is opened again, in JupyterLab in Chromium: its figure comes back whole, and lives.

It takes a minute, and runs only where it is asked for: ``python -m pytest tests/notebooks --all-browsers``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab_page import LabPage
from test_every_tutorial_in_a_browser import FOREIGN_IN_LOG, Listener, complaints, without
from test_notebooks import FOLDER, code_cells

pytestmark = [pytest.mark.browser, pytest.mark.mpi, pytest.mark.slow, pytest.mark.timeout(400)]

_NOTEBOOK = FOLDER / "05_larger_than_memory.ipynb"
_TRACES = """() => [...document.querySelectorAll('.gcylon-dashboard .js-plotly-plot')].flatMap(plot => plot.data || [])
    .map(trace => [trace.meta, (trace.x || trace.z || []).length])"""
_END = "Array.from(document.querySelector('.gcylon-dashboard .js-plotly-plot')?.data?.[0]?.x || []).at(-1) ?? -1"
# The server's, where a page goes with messages to it under way.
_CLOSED = (r"Got events for closed stream", r"Traceback|WebSocketClosedError|StreamClosedError")
# JupyterLab's own, where a tab is closed with an output in it; a page that goes ends its own requests.
_FOREIGN = (r"reading 'changed'", r"net::ERR_ABORTED")


def test_the_figure_comes_back(asked_for: None, jupyter: tuple[str, str], page: Any, tmp_path: Path):
    page.set_viewport_size({"width": 1366, "height": 768})
    said, lab = Listener(page), LabPage(page, tmp_path / "screenshots")
    count = code_cells(_NOTEBOOK)
    lab.open(jupyter, _NOTEBOOK.name, cells=count)
    for cell in lab.code_cells()[:4]:
        lab.run(cell)
    lab.run(lab.code_cells()[4])
    lab.until(lambda: "peak-measured" in _drawn(page), "the peaks of the join")
    drawn = _drawn(page)
    for open_again in (_reload, _close_and_open):
        page.keyboard.press("Control+s")
        copy = tmp_path / "tutorials" / _NOTEBOOK.name
        lab.until(lambda copy=copy: "widget-view" in copy.read_text(), "the notebook to be saved")  # type: ignore[misc]
        open_again(page)
        page.wait_for_selector(".gcylon-dashboard")
        lab.until(lambda: drawn <= _drawn(page), "all traces that were drawn before")
        before = page.evaluate(_END)
        lab.run(lab.code_cells()[4])
        lab.until(lambda before=before: page.evaluate(_END) > before, "the figure to go on")  # type: ignore[misc]
        lab.shoot(open_again.__name__)
    assert without(_FOREIGN, said.said) == []
    assert without((*FOREIGN_IN_LOG, *_CLOSED), complaints(tmp_path / "jupyter.log")) == []


def _drawn(page: Any) -> set[str]:
    """The traces that have points."""
    return {name for name, points in page.evaluate(_TRACES) if points}


def _reload(page: Any) -> None:
    page.on("dialog", lambda dialog: dialog.accept())
    page.reload(wait_until="domcontentloaded")
    page.wait_for_selector(".jp-NotebookPanel-toolbar [data-status='idle']", state="attached")


def _close_and_open(page: Any) -> None:
    page.locator(f".lm-DockPanel-tabBar .lm-TabBar-tab:has-text('{_NOTEBOOK.name}') .lm-TabBar-tabCloseIcon").click()
    page.wait_for_timeout(500)
    page.locator(f".jp-DirListing-item:has-text('{_NOTEBOOK.name}')").dblclick()
