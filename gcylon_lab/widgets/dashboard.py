"""The dashboard: cluster, tuner, figure, plan and numbers in one widget, live."""

from __future__ import annotations

from html import escape
from typing import Any

import ipywidgets as w

from .cluster_box import ClusterBox
from .figures import figure_dict
from .live import LiveFigure
from .live_widget import UPDATE_EVERY_S, LiveWidget, set_html
from .memory_panel import near_budget
from .numbers import html_table, operation_table
from .report import html_report
from .source import as_source
from .theme import NEUTRAL, THEMES, Theme
from .tuner import TunerBox
from .view import make_view, origin_of

__all__ = ["UPDATE_EVERY_S", "WINDOWS", "Dashboard", "as_source"]

_SHOWN_OPERATIONS = 6
WINDOWS: dict[str, float | None] = {"last 30 s": 30.0, "last 2 min": 120.0, "last 10 min": 600.0, "everything": None}


class Dashboard(LiveWidget):
    """What the ranks of a cluster do, live, and the settings of their next operation.

    It begins to listen when it is first shown, sends at most ten updates a
    second, none while it is off the screen, and is freed by `close`.

    Parameters
    ----------
    source : Cluster or Source
        Whose ranks to show.

    Examples
    --------
    >>> gl.Dashboard(lab)                                            # doctest: +SKIP
    """

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._origin: tuple[tuple[int, ...], int] | None = None
        self._late = False
        self.cluster = ClusterBox(self._source, self._hands, self._forget)
        self.headline, self.chips = self.cluster.headline, self.cluster.chips
        self.interrupt, self.revoke, self.restart = self.cluster.interrupt, self.cluster.revoke, self.cluster.restart
        self.tuner = TunerBox(self._source, self._worker, lambda: self._snapshots)
        self.live = LiveFigure(figure_dict(make_view([]), NEUTRAL))
        self.numbers = w.HTML()
        self._make_buttons()
        figure_side = w.VBox([self.live.widget], layout=w.Layout(flex="1 1 auto", min_width="0"))
        left = w.VBox([self.tuner.box, self._view_box], layout=w.Layout(flex="0 0 auto"))
        self._compose(
            self.cluster.box,
            w.HBox([left, figure_side], layout=w.Layout(width="100%")),
            self.tuner.plan_box,
            self.saved,
            self.numbers,
        )

    # --- parts ---

    def _make_buttons(self) -> None:
        self.window = w.Dropdown(options=list(WINDOWS), value="last 2 min", layout=w.Layout(width="124px"))
        self.freeze = w.ToggleButton(
            description="freeze", tooltip="Keep the figure as it is now", layout=w.Layout(width="124px")
        )
        self.save = w.Button(
            description="report", icon="file-text-o", layout=w.Layout(width="88px"),
            tooltip="Write gcylon_lab_report.html: one file with these figures and numbers, readable offline",
        )  # fmt: skip
        self.saved = w.HTML()
        # It stands with the other buttons of the plan's row.
        buttons = self.tuner.planner.buttons
        buttons.children = (*buttons.children, self.save)
        self._view_box = w.VBox(
            [w.HTML('<span class="gcylon-heading">What is shown</span>'), w.HBox([self.window, self.freeze])],
            layout=w.Layout(width="266px"),
        )
        self.save.on_click(self._save_clicked)
        self.window.observe(self._shown_changed, "value")
        self.freeze.observe(self._shown_changed, "value")

    def _free(self) -> None:
        self.tuner.close()
        self.live.close()

    # --- callbacks: short, from any thread; the work is done on the workers ---

    def _matters(self, change: Any) -> bool:
        # Nothing is to be done when a pointer begins to move, or a page keeps up.
        return not {"busy": change["new"], "tock": not self._late}.get(change["name"], False)

    def _shown_changed(self, _change: Any) -> None:
        self._ask_for_drawing()

    def _save_clicked(self, _button: Any) -> None:
        self._eyes.request("save", self._save)

    # --- on the workers ---

    def _forget(self) -> None:
        """Other processes: nothing that was known of those before holds."""
        self._snapshots, self._origin, self._status = [], None, {}
        self.errors.value = ""
        self._ask_for_drawing()

    def _save(self) -> None:
        path = html_report("gcylon_lab_report.html", self._snapshots)
        self.saved.value = f'<div class="gcylon-note">written: {escape(str(path))}</div>'

    def _draw(self) -> None:
        self._late = self.page.behind
        view = make_view(self._snapshots, window_s=self._window_s(), origin_ns=self._axis_origin())
        if not (self.page.busy or self.page.behind or self.freeze.value):
            self.live.show(figure_dict(view, self._theme()))
            self.page.ask()
        self.cluster.show(self._snapshots, self._status, near_budget(view), age_s=self._age_s)
        table = operation_table(self._snapshots, last=_SHOWN_OPERATIONS)
        text = html_table(table, caption="The latest operations") if table[1] else ""
        set_html(self.numbers, f'<div class="gcylon-scroll">{text}</div>')
        self._ask_for_status()
        self.tuner.refresh()

    def _may_look(self) -> bool:
        return not self.cluster.restarting

    def _axis_origin(self) -> int | None:
        """The axis begins where it began at first, also when old samples fall out; other processes, another axis."""
        if not self._snapshots:
            return None
        processes = tuple(int(s["pid"]) for s in self._snapshots)
        if self._origin is None or self._origin[0] != processes:
            self._origin = (processes, origin_of(self._snapshots))
        return self._origin[1]

    def _window_s(self) -> float | None:
        # Whoever has zoomed in may look at what a window would drop.
        return None if self.live.zoomed else WINDOWS[self.window.value]

    def _theme(self) -> Theme:
        return THEMES.get(self.page.theme, NEUTRAL)
