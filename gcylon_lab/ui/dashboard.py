"""The dashboard: cluster, tuner, figure, plan and numbers in one widget, live."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import anywidget
import ipywidgets as w
import traitlets

from ..backends.protocol.scalars import check_choice
from ..errors import GcylonError
from .controls.cluster_box import ClusterBox
from .controls.running import running_html
from .controls.tuner import TunerBox
from .figures.figures import memory_dict, rest_dict, time_dict
from .figures.finalize_dead_ranks import with_dead_ended
from .figures.numbers import html_table, operation_table, pool_table
from .figures.panels.memory import near_budget
from .figures.theme import Theme
from .figures.view import NARROW_PLOT_PX, View
from .live.following import MARGINS_PX, WINDOWS, FollowingWidget
from .live.live_widget import UPDATE_EVERY_S, set_html
from .live.scripts import script
from .live.source import as_source
from .report import facts, html_report

__all__ = ["UPDATE_EVERY_S", "WINDOWS", "Dashboard", "as_source"]

_SHOWN_OPERATIONS = 6
# As in dashboard.css: below, all panels stand in one column; above, beside the settings, and these have most of it.
ONE_COLUMN_PX = 600
_SETTINGS_PX, _TIME_SHARE = 280, 0.6
_CAPTION = "The latest operations: click one to see it in the panels"


class ChosenTable(anywidget.AnyWidget):
    """Tables as HTML. ``chosen`` is the number of the operation whose row was clicked last; -1 is none."""

    _esm = script("table.js")
    html: Any = traitlets.Unicode("").tag(sync=True)
    chosen: Any = traitlets.Int(-1).tag(sync=True)

    @property
    def operation(self) -> int | None:
        """The operation that was chosen."""
        return None if self.chosen < 0 else int(self.chosen)


class Dashboard(FollowingWidget):
    """What the ranks of a cluster do, live, and the settings of their next operation.

    On top are the ranks and what frees them: interrupt ends the operation that runs, revoke frees ranks that wait for
    others, restart starts all anew. Below are a plan and the settings at the left, which hold for the next operation.
    Drag over a panel to look closer and double-click to go back; freeze keeps the figures while the ranks go on.
    A click on a row of the table below lets the panels of one operation show that one. Compact is one screen: memory,
    phases, and what runs.

    It begins to listen when it is first shown, sends at most ten updates a
    second, none while it is off the screen, and is freed by `close`.

    Parameters
    ----------
    source : Cluster or Source
        Whose ranks to show.
    compact : bool, default False
        One screen: memory, phases, and what runs. A button changes it.

    Examples
    --------
    >>> gl.Dashboard(lab)                                            # doctest: +SKIP
    >>> gl.Dashboard(lab).dock()                                     # doctest: +SKIP
    """

    def __init__(self, source: Any = None, *, compact: bool = False) -> None:
        self.compact = w.ToggleButton(
            value=compact, description="compact", layout=w.Layout(width="84px"),
            tooltip="One screen: memory, phases, and what runs",
        )  # fmt: skip
        super().__init__(source)
        self.cluster = ClusterBox(self._source, self._hands, self._forget)
        self.headline, self.chips = self.cluster.headline, self.cluster.chips
        self.interrupt, self.revoke, self.restart = self.cluster.interrupt, self.cluster.revoke, self.cluster.restart
        self.tuner = TunerBox(self._source, self._worker, lambda: self._snapshots)
        self.running = w.HTML()
        self.numbers = ChosenTable()
        self.numbers.add_class("gcylon-numbers-box")
        self._docked: Any = None
        self._make_buttons()
        memory, others, rest = (live.widget for live in self.lives)
        # Beside them there is room where titles are longer than these figures are wide.
        for widget in (memory, others):
            widget.add_class("gcylon-time")
        self.tuner.plan_box.add_class("gcylon-plan-box")
        figures = _box(w.HBox, "figures", _box(w.VBox, "over-time", memory, others), _box(w.VBox, "beside", rest))
        left = _box(w.VBox, "settings", self.tuner.box, self._view_box)
        self._compose(
            self.cluster.box, self.running, self.tuner.plan_box, self.saved, _box(w.HBox, "body", left, figures),
            self.numbers,
        )  # fmt: skip
        self._mark_compact()
        self.compact.observe(self._compact_changed, "value")
        self.numbers.observe(self._shown_changed, "chosen")

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
        self.cluster.buttons.children = (*self.cluster.buttons.children, self.compact)

    def figures(self, view: View, theme: Theme) -> Iterator[dict[str, Any]]:
        """Return what the figures show: memory, below it what else has the time axis, beside both what has none."""
        compact = self.compact.value
        memory = memory_dict(view, theme, compact=compact)
        yield memory
        others = time_dict(view, theme, compact=compact)
        yield others
        if not compact:
            # As high as the two beside it, where it stands beside them.
            alone = 0 < self.page.width < ONE_COLUMN_PX
            height = 0 if alone else memory["layout"]["height"] + others["layout"]["height"]
            yield rest_dict(view, theme, height)

    def dock(self, where: str = "right", *, compact: bool = True) -> None:
        """Show it in a panel of JupyterLab beside the notebook, where it stays while cells scroll away.

        It needs the extension `sidecar` of jupyter-widgets (``pip install 'gcylon-lab[dock]'``). Without it, a click
        with the right button on the output of a cell, and *Create New View for Output*, do the same by hand.

        Parameters
        ----------
        where : {"right", "left", "top", "bottom", "sidebar"}, default "right"
            Beside the notebook, or in the bar at the right edge.
        compact : bool, default True
            One screen: memory, phases, and what runs.

        Raises
        ------
        ArgumentError
            If there is no such place.
        GcylonError
            If sidecar is not installed.
        """
        self.compact.value = compact
        self._docked = dock(self, where, self._docked)

    def _plot_px(self) -> float:
        if self.compact.value or self.page.width < ONE_COLUMN_PX:
            return super()._plot_px()
        return max(_TIME_SHARE * float(self.page.width - _SETTINGS_PX) - MARGINS_PX, NARROW_PLOT_PX)

    def _free(self) -> None:
        if self._docked is not None:
            self._docked.close()
        self.tuner.close()
        super()._free()

    # --- callbacks: short, from any thread; the work is done on the workers ---

    def _mark_compact(self) -> None:
        (self._root.add_class if self.compact.value else self._root.remove_class)("gcylon-compact")

    def _compact_changed(self, change: Any) -> None:
        self._mark_compact()
        self._shown_changed(change)

    def _save_clicked(self, _button: Any) -> None:
        self._eyes.request("save", self._save)

    # --- on the workers ---

    def _forget(self) -> None:
        """Other processes: nothing that was known of those before holds."""
        self._snapshots, self._origin, self._status = [], None, {}
        self.errors.value = ""
        self._ask_for_drawing()

    def _save(self) -> None:
        path = html_report(
            "gcylon_lab_report.html", with_dead_ended(self._snapshots, self._dead), tables=facts(self._source)
        )
        self.saved.layout.display = ""
        self.saved.value = f'<div class="gcylon-note">written: {escape(str(path))}</div>'

    def _draw(self) -> None:
        view = self.draw_figure(operation=self.numbers.operation)
        set_html(self.running, running_html(view))
        self.cluster.show(self._snapshots, self._status, near_budget(view), age_s=self._age_s)
        self._ask_for_status()
        if self.all_due:
            self._draw_rest()

    def _draw_rest(self) -> None:
        if not self.compact.value:
            table = operation_table(self._snapshots, last=_SHOWN_OPERATIONS)
            text = html_table(table, caption=_CAPTION) if table[1] else ""
            pools = pool_table(self._snapshots)
            text += html_table(pools, caption="Memory that is kept to be used again, now") if text and pools[1] else ""
            if self.numbers.html != text:
                self.numbers.html = text
            self.tuner.refresh()

    def _may_look(self) -> bool:
        return not self.cluster.restarting


def _box(kind: Any, name: str, *children: Any) -> Any:
    """A box whose place the style sheet says: it depends on the width there is."""
    made = kind(list(children))
    made.add_class(f"gcylon-{name}")
    return made


PLACES = {
    "right": "split-right", "left": "split-left", "top": "split-top", "bottom": "split-bottom", "sidebar": "right",
}  # fmt: skip
TITLE = "gcylon_lab"


def dock(shown: Any, where: str, before: Any = None) -> Any:
    """Show a live widget in a panel, and return the panel; one that it stood in before is closed."""
    check_choice("where", where, tuple(PLACES))
    try:
        from sidecar import Sidecar
    except ImportError:
        raise GcylonError(
            "sidecar, which docks widgets in JupyterLab, is not installed.",
            advice="pip install 'gcylon-lab[dock]' where JupyterLab runs, and load its page again; or show the widget "
            "in a cell, click its output with the right button, and choose Create New View for Output.",
        ) from None
    from IPython.display import display

    if before is not None:
        before.close()
    panel = Sidecar(title=TITLE, anchor=PLACES[where])
    bundle = shown._repr_mimebundle_()
    # As state of the panel: a page that is loaded again finds it there.
    panel.outputs = ({"output_type": "display_data", "data": bundle, "metadata": {}},)
    display(panel)  # type: ignore[no-untyped-call]
    return panel
