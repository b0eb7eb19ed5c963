"""In a real Chromium: the report offline, and the dashboard under a hand, in JupyterLab's dark theme."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from jupyter_page import SELDOM, jupyter
from plotly.graph_objects import FigureWidget
from replay import Replay

from gcylon_lab.ui import html_report
from gcylon_lab.ui.figures.theme import DARK, LIGHT
from gcylon_lab.ui.live.figure_widget import SCRIPT

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(400)]

_SCREEN, _LAPTOP = {"width": 1440, "height": 900}, {"width": 1366, "height": 768}
_CELLS = [
    "from replay import Replay, ReplaySource\n"
    "from gcylon_lab.ui import Dashboard\n"
    "source = ReplaySource(Replay(4, busy=40)).start()\n"  # goes on for longer than a slow machine takes here
    "dashboard = Dashboard(source)\n"
    "dashboard",
    "print('SENT', sum(live.messages for live in dashboard.lives))",
    "import time\n"
    "until = time.monotonic() + 30\n"
    "while source.calls != ['interrupt'] and time.monotonic() < until: time.sleep(0.1)\n"
    "print('HEARD', source.calls)",
    "dashboard",
    "dashboard.dock()",
]
# All controls, and what they are called.
_UNNAMED = """[...document.querySelectorAll('.gcylon-dashboard :is(input, select, button, [role=slider])')]
  .filter((one) => !(one.ariaLabel || one.title || one.textContent.trim())).map((one) => one.outerHTML)"""
# Of the plots on the screen: how wide each is drawn, and how wide its place is.
_WIDTHS = """[...document.querySelectorAll('.gcylon-dashboard .js-plotly-plot')]
  .filter((plot) => plot.offsetParent).map((plot) => [plot._fullLayout.width, plot.clientWidth])"""
# Of every view of the figure of memory: what is in it, and up to when.
_VIEWS = """[...document.querySelectorAll('.gcylon-dashboard')]
  .map((view) => view.querySelector('.js-plotly-plot')?.data || [])
  .map((data) => [data.map((t) => t.meta).join(), data[0]?.x?.at(-1) ?? -1])"""
_PLOT = "document.querySelector('.gcylon-dashboard .js-plotly-plot')"


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
    page.wait_for_selector("#figure .rangeslider-container .scatterlayer path", state="attached")
    keep(page, tmp_path, f"report {theme.name}")
    assert asked == [path.as_uri()]
    assert wrong == []
    assert page.evaluate("document.getElementById('figure')._fullLayout.font.color") == theme.text
    assert page.evaluate("document.getElementById('figure')._fullData.length") > 15
    # As after all traces were replaced: plotly forgets the type, and ranks must not become a scale with -0.5 and 0.5.
    types = """async () => {
      const figure = document.getElementById("figure");
      await Plotly.relayout(figure, { "xaxis2.type": null, "xaxis3.type": null });
      return [figure._fullLayout.xaxis2.type, figure._fullLayout.xaxis3.type];
    }"""
    assert page.evaluate(types) == ["category", "category"]


# A kernel that is slow to hear: what the widget's script says is kept, and nothing answers by itself.
_SLOW_KERNEL = """async ([ours, script, figure]) => {
  const state = { script, _widget_data: [], _widget_layout: {}, _config: {}, heard: "" };
  const handlers = {};
  const model = {
    get: (name) => state[name] ?? null,
    set: (name, value) => { state[name] = value; },
    on: (event, handler) => { (handlers[event] ??= []).push(handler); },
    off: (event, handler) => { handlers[event] = (handlers[event] || []).filter((known) => known !== handler); },
    save_changes: () => {},
  };
  window.tell = (name, value) => { state[name] = value; (handlers[`change:${name}`] || []).forEach((f) => f()); };
  window.update = (end) => window.tell("_py2js_update", {
    style_data: { x: [[0, end]] }, style_traces: [0],
    layout_data: { "xaxis.autorange": false, "xaxis.range": [0, end] },
  });
  window.state = state;
  const made = (await import(URL.createObjectURL(new Blob([ours], { type: "text/javascript" })))).default;
  const plot = "<div class='js-plotly-plot' style='width: 800px'></div>";
  document.body.innerHTML = `<div class='gcylon-dashboard'>${plot}</div>`;
  await made.render({ model, el: document.querySelector(".js-plotly-plot") });
  Object.assign(state, { _widget_data: figure.data, _widget_layout: figure.layout });
  window.tell("answered", state.asked);
}"""


def test_an_update_that_crosses_a_hand_leaves_the_axis_to_it(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 500})
    page.set_default_timeout(60_000)
    hand = Hand(page, tmp_path)
    axes = {"xaxis": {"range": [0, 10]}, "yaxis": {"fixedrange": True}}
    figure = {"data": [{"type": "scatter", "x": [0, 10], "y": [0, 1]}], "layout": {"height": 400, **axes}}
    page.evaluate(_SLOW_KERNEL, [SCRIPT, str(FigureWidget._esm), figure])
    page.wait_for_selector(".nsewdrag")

    page.evaluate("update(11)")
    hand.until(lambda: hand.stretch() == [0, 11], "the axis to follow time")
    chosen = hand.zoom(meanwhile=lambda: page.evaluate("update(12)"))
    assert chosen == pytest.approx([2.2, 5.28], rel=0.05), "the axis moved under a hand that drew a stretch"

    page.evaluate("update(13)")  # sent before the kernel heard of the stretch
    assert hand.drawn() == 13
    assert hand.stretch() == chosen
    assert page.evaluate("state.hand.zoomed")
    page.evaluate("tell('heard', 'another page 1')")
    page.evaluate("update(14)")
    assert hand.stretch() == chosen

    page.evaluate("tell('heard', state.hand.said)")
    page.evaluate("update(15)")  # whoever has heard of the stretch decides
    assert hand.stretch() == [0, 15]

    hand.until(lambda: page.evaluate("state.hand.zoomed") is False, "a double click to be said", hand.double_click)
    page.evaluate("tell('heard', state.hand.said)")
    page.evaluate("update(16)")
    assert hand.stretch() == [0, 16]


def test_the_dashboard_under_a_hand(browser: Any, tmp_path: Path) -> None:
    with jupyter(tmp_path, _CELLS, dark=True) as url, closing(browser.new_page(viewport=_SCREEN)) as page:
        page.set_default_timeout(60_000)
        hand = Hand(page, tmp_path)
        hand.show(url)
        hand.until(lambda: page.evaluate(f"{_PLOT}._fullLayout.font.color") == DARK.text, "the dark theme")
        keep(page, tmp_path, "dashboard dark")

        before = hand.drawn()
        hand.until(lambda: hand.drawn() >= before + 1, "a second more, live")

        hand.until(hand.rests, "a plot under a moving pointer to be left alone", hand.hover)
        hand.until(hand.says_one_instant, "the same instant in both figures that have time", hand.hover)
        held = hand.drawn()
        hand.leave()
        hand.until(lambda: hand.drawn() > held, "the figure to go on once the pointer has left")

        for _ in range(2):  # what ended the first stretch must not end the second
            chosen = hand.zoom()
            hand.leave()
            aligned = lambda chosen=chosen: hand.stretches() == [pytest.approx(chosen)] * 2  # noqa: E731
            hand.until(aligned, "the other figure to show the same stretch")
            seen = hand.drawn()
            hand.until(lambda seen=seen: hand.drawn() > seen + 1, "more in the figure after zooming in")
            assert hand.stretch() == pytest.approx(chosen)
            follows = lambda chosen=chosen: hand.stretch()[1] > chosen[1] + 1  # noqa: E731
            hand.until(follows, "the axis to follow time again", hand.double_click)
            seen = hand.stretch()[1]
            hand.until(lambda seen=seen: min(end for _, end in hand.stretches()) > seen, "both axes to go on")
        keep(page, tmp_path, "dashboard after zooming")

        hand.run(2)
        page.locator(".gcylon-dashboard button:has-text('interrupt')").click()
        heard = page.locator(".jp-Notebook .jp-CodeCell").nth(2).locator(".jp-OutputArea-output")
        hand.until(lambda: "HEARD" in "".join(heard.all_inner_texts()), "the end of a cell that waits for a button")
        assert "HEARD ['interrupt']" in heard.first.inner_text(), "a button was not heard while a cell ran"

        page.locator(".gcylon-dashboard").evaluate("node => { node.style.display = 'none' }")
        hand.until(lambda: hand.sent() == hand.sent(after_ms=1500), "no update to be sent that nobody can see")

        hand.run(3)
        views = lambda: page.evaluate(_VIEWS)  # noqa: E731
        hand.until(lambda: len(views()) == 2 and views()[1][1] > 0, "a second view of the figure, with points")
        assert len({traces for traces, _ in views()}) == 1
        seen = views()[1][1]
        hand.until(lambda: views()[1][1] > seen, "the figure to go on where one of its views is on the screen")


def test_it_fits_where_it_is(browser: Any, tmp_path: Path) -> None:
    cells = [SELDOM + _CELLS[0], *_CELLS[1:]]
    with jupyter(tmp_path, cells, dark=False) as url, closing(browser.new_page(viewport=_LAPTOP)) as page:
        page.set_default_timeout(60_000)
        hand = Hand(page, tmp_path)
        hand.show(url)
        fitted = lambda plots: [at == place for at, place in page.evaluate(_WIDTHS)] == [True] * plots  # noqa: E731
        hand.until(lambda: fitted(3), "three plots as wide as their places")
        hand.until(lambda: page.evaluate(_UNNAMED) == [], "a name for every control")

        page.locator(".gcylon-dashboard button:has-text('compact')").click()
        hand.until(lambda: fitted(2), "two plots, as wide as there is room")
        high = "document.querySelector('.gcylon-dashboard').getBoundingClientRect().height"
        hand.until(lambda: page.evaluate(high) < 640, "all of it on one screen, below JupyterLab's own bars")
        page.locator(".gcylon-dashboard button:has-text('compact')").click()
        hand.until(lambda: fitted(3), "three plots again")

        row = page.locator(".gcylon-dashboard tbody tr:has-text('#1 ')")
        row.click()
        hand.until(lambda: page.locator("text=Peaks: which rank in #1?").count(), "panels that follow a click")

        page.keyboard.press("Control+b")  # the file browser goes
        page.set_viewport_size({"width": 640, "height": 900})
        below = "[...document.querySelectorAll('.gcylon-dashboard .js-plotly-plot')].map((p) => p.offsetLeft)"
        hand.until(lambda: fitted(3) and len(set(page.evaluate(below))) == 1, "one column")
        keep(page, tmp_path, "dashboard narrow")

        pytest.importorskip("sidecar", reason="pip install '.[dock]' brings sidecar")
        page.set_viewport_size(_LAPTOP)
        hand.run(4)
        docked = "[...document.querySelectorAll('.gcylon-dashboard')].filter((d) => !d.closest('.jp-NotebookPanel'))"
        hand.until(lambda: page.evaluate(f"{docked}.length") == 1, "a panel beside the notebook")
        hand.until(lambda: page.evaluate(f"{docked}[0].querySelectorAll('.js-plotly-plot').length") == 3, "its plots")
        keep(page, tmp_path, "dashboard docked")


class Hand:
    """What a person does with a notebook's first cell and the dashboard in its output."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.page, self.folder = page, folder
        self._moves = 0
        self._instants: list[float | None] = []
        self._last: tuple[float, float] = (-1.0, 0.0)

    def show(self, url: str) -> None:
        self.page.goto(url, wait_until="domcontentloaded")
        self.page.wait_for_selector(".jp-NotebookPanel-toolbar [data-status='idle']", state="attached")
        # A notebook says idle a moment before it takes a cell; what was asked for then is lost.
        self.until(lambda: self.drawn() > 0, "a figure with points", self._run_unless_taken)
        self.page.locator(".gcylon-dashboard").evaluate("node => node.scrollIntoView()")

    def _run_unless_taken(self) -> None:
        if self._prompt(0).inner_text() == "[ ]:":
            self.run(0)

    def run(self, number: int) -> None:
        dialog = self.page.locator("dialog.jp-Dialog")
        # Of a kernel that died, say. A click would wait for it in vain.
        assert dialog.count() == 0, dialog.first.inner_text()
        self.page.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(number).click()
        self.page.keyboard.press("Control+Enter")
        self.page.wait_for_timeout(500)

    def _prompt(self, number: int) -> Any:
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(number).locator(".jp-InputArea-prompt").first

    def drawn(self) -> float:
        """Up to when the figure has been drawn; the number of points goes down again when they get too many."""
        return float(self.page.evaluate(f"Array.from({_PLOT}?.data?.[0]?.x || []).at(-1) ?? -1"))

    def rests(self, for_s: float = 1.0) -> bool:
        """Whether the figure has not changed for so long, each time it was looked at."""
        drawn, now = self.drawn(), time.monotonic()
        if drawn != self._last[0]:
            self._last = (drawn, now)
        return now - self._last[1] >= for_s

    def stretch(self) -> list[float]:
        found: list[float] = self.page.evaluate(f"{_PLOT}._fullLayout.xaxis.range")
        return found

    def stretches(self) -> list[list[float]]:
        """Of both figures that have the time axis."""
        found: list[list[float]] = self._of_both("plot._fullLayout.xaxis.range")
        return found

    def says_one_instant(self) -> bool:
        """Whether both say what was at about the same time; their points are not the same."""
        found = self._instants = self._of_both("plot._hoverdata?.[0]?.x ?? null")
        return None not in found and max(found) - min(found) < 0.5

    def _of_both(self, what: str) -> Any:
        return self.page.evaluate(f"[...document.querySelectorAll('.gcylon-time')].map((plot) => {what})")

    def sent(self, after_ms: int = 0) -> int:
        """Run the second cell, which prints how many messages were sent."""
        self.page.wait_for_timeout(after_ms)
        cell = self.page.locator(".jp-Notebook .jp-CodeCell").nth(1)
        before = self._prompt(1).inner_text()
        self.run(1)
        self.until(lambda: self._prompt(1).inner_text() not in (before, "[*]:"), "the cell's end")
        return int(cell.locator(".jp-OutputArea-output").first.inner_text().split("SENT")[1])

    def _at(self, across: float) -> tuple[float, float]:
        box = self.page.locator(".gcylon-dashboard .js-plotly-plot .nsewdrag").first.bounding_box()
        return box["x"] + across * box["width"], box["y"] + 0.5 * box["height"]

    def hover(self) -> None:
        """Move the pointer a little, and after some time far: where lines are straight they have few points."""
        place, self._moves = self._moves // 10 % 5, self._moves + 1
        self.page.mouse.move(*self._at(0.4 + 0.1 * place + 0.01 * (self._moves % 2)))

    def leave(self) -> None:
        self.page.mouse.move(3, 3)

    def zoom(self, meanwhile: Callable[[], Any] = lambda: None) -> list[float]:
        """Draw a stretch, as fast as a hand can: what is on its way from the kernel arrives during it or after."""
        whole = self.stretch()
        self.page.mouse.move(*self._at(0.2))
        self.page.mouse.down()
        meanwhile()
        for step in range(8):
            self.page.mouse.move(*self._at(0.2 + 0.04 * step))
        self.page.mouse.up()
        self.until(lambda: self._wide(self.stretch()) < 0.5 * self._wide(whole), "a stretch to be chosen")
        return self.stretch()

    @staticmethod
    def _wide(stretch: list[float]) -> float:
        return stretch[1] - stretch[0]

    def double_click(self) -> None:
        self.page.mouse.dblclick(*self._at(0.5))
        self.leave()
        self.page.wait_for_timeout(1000)

    def until(
        self, condition: Callable[[], Any], what: str, doing: Callable[[], Any] = lambda: None, timeout_s: float = 60.0
    ) -> None:
        """Wait for a condition, doing something again and again, as a person would."""
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                keep(self.page, self.folder, "waited in vain")
                raise AssertionError(f"waited {timeout_s:g} s for {what}; instants pointed at: {self._instants}")
            doing()
            self.page.wait_for_timeout(50)
