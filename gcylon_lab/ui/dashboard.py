"""The dashboard: cluster, tuner, figure, plan and numbers in one widget, live."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import ipywidgets as w

from .controls.cluster_box import ClusterBox
from .controls.tuner import TunerBox
from .figures.figures import memory_dict, rest_dict, time_dict
from .figures.finalize_dead_ranks import with_dead_ended
from .figures.numbers import html_table, operation_table, pool_table
from .figures.panels.memory import near_budget
from .figures.theme import Theme
from .figures.view import View
from .live.following import WINDOWS, FollowingWidget
from .live.live_widget import UPDATE_EVERY_S, set_html
from .live.source import as_source
from .report import html_report

__all__ = ["UPDATE_EVERY_S", "WINDOWS", "Dashboard", "as_source"]

_SHOWN_OPERATIONS = 6


class Dashboard(FollowingWidget):
    """What the ranks of a cluster do, live, and the settings of their next operation.

    On top are the ranks and what frees them: interrupt ends the operation that runs, revoke frees ranks that wait for
    others, restart starts all anew. Below are a plan and the settings at the left, which hold for the next operation.
    Drag over a panel to look closer and double-click to go back; freeze keeps the figures while the ranks go on.

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
        self.cluster = ClusterBox(self._source, self._hands, self._forget)
        self.headline, self.chips = self.cluster.headline, self.cluster.chips
        self.interrupt, self.revoke, self.restart = self.cluster.interrupt, self.cluster.revoke, self.cluster.restart
        self.tuner = TunerBox(self._source, self._worker, lambda: self._snapshots)
        self.numbers = w.HTML()
        self._make_buttons()
        memory, others, rest = (live.widget for live in self.lives)
        # Beside them there is room where titles are longer than these figures are wide.
        for widget in (memory, others):
            widget.add_class("gcylon-time")
        over_time = w.VBox([memory, others], layout=w.Layout(flex="60 1 0", min_width="0", overflow="visible"))
        beside = w.VBox([rest], layout=w.Layout(flex="40 1 0", min_width="0"))
        figure_side = w.HBox([over_time, beside], layout=w.Layout(flex="1 1 520px", min_width="0", overflow="visible"))
        left = w.VBox([self.tuner.box, self._view_box], layout=w.Layout(flex="0 0 auto"))
        self._compose(
            self.cluster.box,
            self.tuner.plan_box,
            self.saved,
            w.HBox([left, figure_side], layout=w.Layout(width="100%", flex_flow="row wrap")),
            self.numbers,
        )

    # --- parts ---

    def _make_buttons(self) -> None:
        self.save = w.Button(
            description="report", icon="file-text-o", layout=w.Layout(width="88px"),
            tooltip="Write gcylon_lab_report.html: one file with these figures and numbers, readable offline",
        )  # fmt: skip
        self.saved = w.HTML(layout=w.Layout(display="none"))  # under the button, and no room before it is pressed
        # It stands with the other buttons of the plan's row.
        buttons = self.tuner.planner.buttons
        buttons.children = (*buttons.children, self.save)
        self._view_box = w.VBox(
            [w.HTML('<span class="gcylon-heading">What is shown</span>'), w.HBox([self.window, self.freeze])],
            layout=w.Layout(width="266px"),
        )
        self.save.on_click(self._save_clicked)

    def figures(self, view: View, theme: Theme) -> Iterator[dict[str, Any]]:
        """Return what the figures show: memory, below it what else has the time axis, beside both what has none."""
        memory = memory_dict(view, theme)
        yield memory
        others = time_dict(view, theme)
        yield others
        yield rest_dict(view, theme, memory["layout"]["height"] + others["layout"]["height"])

    def _free(self) -> None:
        self.tuner.close()
        super()._free()

    # --- callbacks: short, from any thread; the work is done on the workers ---

    def _save_clicked(self, _button: Any) -> None:
        self._eyes.request("save", self._save)

    # --- on the workers ---

    def _forget(self) -> None:
        """Other processes: nothing that was known of those before holds."""
        self._snapshots, self._origin, self._status = [], None, {}
        self.errors.value = ""
        self._ask_for_drawing()

    def _save(self) -> None:
        path = html_report("gcylon_lab_report.html", with_dead_ended(self._snapshots, self._dead))
        self.saved.layout.display = ""
        self.saved.value = f'<div class="gcylon-note">written: {escape(str(path))}</div>'

    def _draw(self) -> None:
        view = self.draw_figure()
        self.cluster.show(self._snapshots, self._status, near_budget(view), age_s=self._age_s)
        self._ask_for_status()
        if self.all_due:
            table = operation_table(self._snapshots, last=_SHOWN_OPERATIONS)
            text = html_table(table, caption="The latest operations") if table[1] else ""
            pools = pool_table(self._snapshots)
            text += html_table(pools, caption="Memory that is kept to be used again, now") if text and pools[1] else ""
            set_html(self.numbers, f'<div class="gcylon-scroll">{text}</div>')
            self.tuner.refresh()

    def _may_look(self) -> bool:
        return not self.cluster.restarting
