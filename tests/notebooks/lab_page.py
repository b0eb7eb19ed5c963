"""A notebook in JupyterLab, driven as a person does: run cells, type, move sliders, read what is shown."""

from __future__ import annotations

import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

_POINTS = """() => [...document.querySelectorAll('.gcylon-dashboard .js-plotly-plot')]
    .flatMap(plot => plot._fullData || []).reduce((sum, trace) => sum + (trace.x ? trace.x.length : 0), 0)"""
_CELL_S = 150
_TAKEN_S = 4.0
_START_S = 150.0


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers, whatever it says."""
    until = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"The server does not answer (exit status {process.poll()}):\n{log.read_text()[-3000:]}")


class LabPage:
    """One open notebook.

    Parameters
    ----------
    page : playwright page
    screenshots : Path
        A folder for pictures.
    """

    def __init__(self, page: Any, screenshots: Path) -> None:
        self.page = page
        self.screenshots = screenshots
        screenshots.mkdir(parents=True, exist_ok=True)

    def open(self, server: tuple[str, str], notebook: str, cells: int) -> None:
        """Open a notebook of so many code cells; wait for its kernel, and for cells further down, which come later."""
        url, token = server
        self.page.goto(f"{url}/lab/tree/{notebook}?reset&token={token}", wait_until="domcontentloaded")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.page.wait_for_selector(".jp-NotebookPanel-toolbar [data-status='idle']", state="attached")
        self.until(lambda: len(self.sources()) == cells and all(self.sources()), "the text of all cells")

    def code_cells(self) -> list[Any]:
        """The code cells now in the notebook, in order."""
        return list(self.page.locator(".jp-Notebook .jp-CodeCell").all())

    def sources(self) -> list[str]:
        """The text of the code cells, "" where it is not in the page yet; outputs are left out."""
        editors = "cells => cells.map(cell => cell.querySelector('.cm-content')?.textContent || '')"
        return list(self.page.locator(".jp-Notebook .jp-CodeCell").evaluate_all(editors))

    def run(self, cell: Any) -> str:
        """Run a cell, wait for its end, and return the text of its output.

        Raises
        ------
        AssertionError
            If it takes too long, or shows an error.
        """
        prompt = cell.locator(".jp-InputArea-prompt").first
        what = f"the end of {cell.inner_text()[:60]!r}"
        asked = [0.0]

        def ended() -> bool:
            text = prompt.inner_text()
            # A notebook says idle a moment before it takes cells; what was asked for then is lost.
            if text in ("[ ]:", "") and time.monotonic() - asked[0] > _TAKEN_S:
                cell.locator(".cm-content").first.click()
                self.page.keyboard.press("Control+Enter")
                asked[0] = time.monotonic()
            return re.search(r"\[\d+\]", text) is not None

        if prompt.inner_text() not in ("[ ]:", ""):  # it was run before
            cell.locator(".cm-content").first.click()
            self.page.keyboard.press("Control+Enter")
            self.page.wait_for_timeout(300)
        self.until(ended, what, _CELL_S)
        error = cell.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']")
        assert error.count() == 0, error.first.inner_text()
        return "\n".join(area.inner_text() for area in cell.locator(".jp-OutputArea-output").all())

    def add_and_run(self, after: Any, code: str) -> str:
        """Type code into a new cell below another, run it and return its output."""
        after.locator(".jp-InputArea-prompt").first.click()
        self.page.keyboard.press("b")
        new = self.page.locator(".jp-Notebook .jp-CodeCell.jp-mod-selected")
        new.locator(".cm-content").click()
        self.page.keyboard.insert_text(code.strip())
        number = [cell.evaluate("node => node.classList.contains('jp-mod-selected')") for cell in self.code_cells()]
        return self.run(self.code_cells()[number.index(True)])

    def save(self, path: Path) -> Any:
        """Save the notebook, all of whose cells have run, and return it as it stands on disk."""
        import nbformat

        def ran() -> bool:
            return all(cell.execution_count for cell in nbformat.read(path, 4).cells if cell.cell_type == "code")

        self.page.keyboard.press("Control+s")
        self.until(ran, f"{path.name} to be saved with its outputs")
        return nbformat.read(path, 4)

    def points(self) -> int:
        """Points in the dashboard's figure."""
        return int(self.page.evaluate(_POINTS))

    def plan(self) -> str:
        """The plan that the dashboard shows."""
        return str(self.page.locator(".gcylon-dashboard .gcylon-plan").inner_text())

    def press_on_slider(self, number: int, key: str, times: int) -> None:
        """Move one of the dashboard's sliders by keys."""
        self.page.locator(".gcylon-dashboard .noUi-handle").nth(number).focus()
        for _ in range(times):
            self.page.keyboard.press(key)

    def use_application(self, engines: Callable[[], Any] = lambda: True) -> None:
        """Start the application's processes, choose a file and a verb, run, see rows and a figure, and end."""
        page = self.page
        buttons = page.locator(".jupyter-button:visible")
        press = lambda name: buttons.filter(has_text=re.compile(rf"^\s*{name}$")).click()  # noqa: E731
        page.wait_for_selector("text=Nothing runs yet")
        press("start")
        page.wait_for_selector("text=Ready after")
        assert engines(), "there are ranks"
        page.locator("select[title^='A file to read']").select_option("orders")
        page.wait_for_selector("text=/orders: 75,000 rows of orders.parquet/")
        page.locator("select[title^='The operation to plan']").select_option("sort_values")
        page.wait_for_selector(".gcylon-plan >> text=/^direct/")
        press("run")
        page.wait_for_selector("text=/result = orders.sort_values\\(by='o_orderkey'\\): 75,000 rows in/")
        assert page.locator(".gcylon-plan-box table tbody tr").count() == 8, "the first rows"
        self.until(lambda: self.points() > 0, "a figure with points")
        page.wait_for_selector(".gcylon-running >> text=/last: #\\d+ sort_values/")  # not a look at its first rows
        page.wait_for_timeout(500)
        self.shoot("application")
        press("end")
        page.wait_for_selector("text=The processes have ended")

    def shoot(self, name: str) -> None:
        """Keep a picture, for a person to look at."""
        self.page.screenshot(path=str(self.screenshots / f"{name}.png"))

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = 150.0) -> None:
        """Wait until a condition holds.

        Raises
        ------
        AssertionError
            If it does not in time; a picture is kept.
        """
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                self.shoot("waited in vain")
                raise AssertionError(f"waited {timeout_s:g} s for {what}; see {self.screenshots}")
            self.page.wait_for_timeout(100)
