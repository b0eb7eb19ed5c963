"""In a real Chromium: the report offline, and the dashboard under a hand, in JupyterLab's dark theme."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_page import FLAGS, find_chromium, jupyter
from replay import Replay

from gcylon_lab.widgets import html_report
from gcylon_lab.widgets.theme import DARK, LIGHT

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]

_CELLS = [
    "from replay import Replay, ReplaySource\n"
    "from gcylon_lab.widgets import Dashboard\n"
    "source = ReplaySource(Replay(4, busy=10)).start()\n"
    "dashboard = Dashboard(source)\n"
    "dashboard",
    "print('SENT', dashboard.live.messages)",
]
_PLOT = "document.querySelector('.gcylon-dashboard .js-plotly-plot')"


@pytest.fixture
def browser() -> Iterator[Any]:
    """A Chromium; without it these tests are skipped, but never in CI."""
    chromium = find_chromium()
    if chromium is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no Chromium here (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=chromium, headless=True, args=FLAGS)
        yield made
        made.close()


def keep(page: Any, folder: Path, name: str) -> None:
    """Keep a picture, for a person to look at."""
    folder = Path(os.environ.get("GCYLON_SCREENSHOTS", folder / "screenshots"))
    page.screenshot(path=str(folder / f"{name}.png"))


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
def test_the_report_opens_offline_and_draws(browser: Any, tmp_path: Path, theme: Any) -> None:
    path = html_report(tmp_path / "report.html", Replay(4).at(16.0))
    page = browser.new_context(offline=True, color_scheme=theme.name).new_page()
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(path.as_uri(), timeout=90_000)
    page.wait_for_selector("#figure .scatterlayer path")
    keep(page, tmp_path, f"report {theme.name}")
    assert asked == [path.as_uri()]
    assert wrong == []
    assert page.evaluate("document.getElementById('figure')._fullLayout.font.color") == theme.text
    assert page.evaluate("document.getElementById('figure')._fullData.length") > 15


def test_the_dashboard_under_a_hand(browser: Any, tmp_path: Path) -> None:
    with jupyter(tmp_path, _CELLS, dark=True) as url:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(60_000)
        hand = Hand(page, tmp_path)
        hand.show(url)
        hand.until(lambda: page.evaluate(f"{_PLOT}._fullLayout.font.color") == DARK.text, "the dark theme")
        keep(page, tmp_path, "dashboard dark")

        before = hand.points()
        hand.until(lambda: hand.points() >= before + 20, "a second's points, live")

        hand.hover()
        page.wait_for_timeout(700)  # what was under way arrives
        held = hand.points()
        page.wait_for_timeout(700)
        assert hand.points() == held, "a plot under a moving pointer was redrawn"
        hand.leave()
        hand.until(lambda: hand.points() > held, "the figure to go on once the pointer has left")

        chosen = hand.zoom()
        hand.leave()
        seen = hand.points()
        hand.until(lambda: hand.points() > seen, "points after zooming in")
        assert hand.stretch() == pytest.approx(chosen)
        hand.double_click()
        hand.leave()
        hand.until(lambda: hand.stretch()[1] > chosen[1], "the axis to follow time again")
        keep(page, tmp_path, "dashboard after zooming")

        page.locator(".gcylon-dashboard").evaluate("node => { node.style.display = 'none' }")
        page.wait_for_timeout(1500)
        first, second = hand.sent(), hand.sent(after_ms=1500)
        assert first == second, "updates were sent though nobody could see them"


class Hand:
    """What a person does with a notebook's first cell and the dashboard in its output."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.page, self.folder = page, folder

    def show(self, url: str) -> None:
        self.page.goto(url, wait_until="domcontentloaded")
        self.page.wait_for_selector(".jp-NotebookPanel-toolbar [data-status='idle']", state="attached")
        self.run(0)
        self.until(lambda: self.points() > 0, "a figure with points")
        self.page.locator(".gcylon-dashboard").evaluate("node => node.scrollIntoView()")

    def run(self, number: int) -> None:
        self.page.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(number).click()
        self.page.keyboard.press("Control+Enter")

    def points(self) -> int:
        return int(self.page.evaluate(f"{_PLOT} && {_PLOT}.data[0] ? ({_PLOT}.data[0].x || []).length : 0"))

    def stretch(self) -> list[float]:
        found: list[float] = self.page.evaluate(f"{_PLOT}._fullLayout.xaxis.range")
        return found

    def sent(self, after_ms: int = 0) -> int:
        """Run the second cell, which prints how many messages were sent."""
        self.page.wait_for_timeout(after_ms)
        cell = self.page.locator(".jp-Notebook .jp-CodeCell").nth(1)
        count = cell.locator(".jp-InputArea-prompt").first
        before = count.inner_text()
        self.run(1)
        self.until(lambda: count.inner_text() not in (before, "[*]:"), "the cell's end")
        return int(cell.locator(".jp-OutputArea-output").first.inner_text().split("SENT")[1])

    def _at(self, across: float) -> tuple[float, float]:
        box = self.page.locator(".gcylon-dashboard .js-plotly-plot .nsewdrag").first.bounding_box()
        return box["x"] + across * box["width"], box["y"] + 0.5 * box["height"]

    def hover(self) -> None:
        for across in (0.4, 0.41, 0.42):
            self.page.mouse.move(*self._at(across))

    def leave(self) -> None:
        self.page.mouse.move(3, 3)

    def zoom(self) -> list[float]:
        # Under the pointer nothing is redrawn; an update that left the kernel before that would undo the zoom.
        self.hover()
        self.page.wait_for_timeout(1500)
        self.page.mouse.move(*self._at(0.2))
        self.page.mouse.down()
        for step in range(8):
            self.page.mouse.move(*self._at(0.2 + 0.04 * step))
            self.page.wait_for_timeout(60)
        self.page.mouse.up()
        self.page.wait_for_timeout(400)
        return self.stretch()

    def double_click(self) -> None:
        self.page.mouse.dblclick(*self._at(0.5))

    def until(self, condition: Callable[[], Any], what: str, timeout_s: float = 90.0) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                keep(self.page, self.folder, "waited in vain")
                raise AssertionError(f"waited {timeout_s:g} s for {what}")
            self.page.wait_for_timeout(50)
