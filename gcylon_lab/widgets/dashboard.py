"""The dashboard: strip, tuner, figure, plan and numbers in one widget, live."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import ipywidgets as w

from ..errors import GcylonError
from .figures import figure_dict
from .hearing import hear_at_once
from .live import LiveFigure
from .memory_panel import near_budget
from .numbers import html_table, operation_table
from .page import PageWatcher
from .report import html_report
from .source import Source
from .strip import chips_html, headline_html, rank_states
from .style import CSS
from .theme import NEUTRAL, THEMES, Theme
from .thinning import Thinner
from .tuner import Tuner, close_tree
from .view import Snapshot, View, make_view, origin_of
from .worker import Worker

UPDATE_EVERY_S = 0.1
_STATUS_EVERY_S = 2.0
_CONFIRM_S = 5.0
_SHOWN_OPERATIONS = 6
WINDOWS: dict[str, float | None] = {"last 30 s": 30.0, "last 2 min": 120.0, "last 10 min": 600.0, "everything": None}


class Dashboard:
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
        self._source = as_source(source)
        self._worker, self._hands = Worker(self._failed), Worker(self._failed)
        self._snapshots: list[Snapshot] = []
        self._origin: tuple[tuple[int, ...], int] | None = None
        self._status: dict[str, Any] = {}
        self._thinner = Thinner()
        self._unsubscribe: Callable[[], None] | None = None
        self._restart_armed = 0.0
        self._late = False
        self._closed = False
        self.draws = 0
        self._make_widgets()

    # --- parts ---

    def _make_widgets(self) -> None:
        self.page = PageWatcher()
        ranks = self._source.ranks
        on_cpu = all(str(r.get("device", "cpu")).startswith("cpu") for r in ranks)
        ceiling = min((int(r.get("ceiling_bytes") or 0) for r in ranks), default=0)
        self.tuner = Tuner(self._source, self._worker, ceiling_bytes=ceiling, on_cpu=on_cpu)
        self.live = LiveFigure(figure_dict(make_view([]), NEUTRAL))
        self.headline, self.chips, self.numbers, self.errors = (w.HTML() for _ in range(4))
        self._make_buttons()
        figure_side = w.VBox([self.live.widget], layout=w.Layout(flex="1 1 auto", min_width="0"))
        left = w.VBox([self.tuner.box, self._view_box], layout=w.Layout(flex="0 0 auto"))
        top = w.HBox(
            [self.headline, w.HBox([self.interrupt, self.restart], layout=w.Layout(flex="0 0 auto"))],
            layout=w.Layout(justify_content="space-between", align_items="flex-start"),
        )
        self._root = w.VBox(
            [
                w.HTML(CSS, layout=w.Layout(display="none")), self.page, top, self.chips,
                w.HBox([left, figure_side], layout=w.Layout(width="100%")),
                self.tuner.plan_box, self.numbers, self.errors,
            ],
            layout=w.Layout(width="100%"),
        )  # fmt: skip
        self._root.add_class("gcylon-dashboard")

    def _make_buttons(self) -> None:
        layout = w.Layout(width="118px")
        self.interrupt = w.Button(
            description="interrupt", icon="pause", layout=layout,
            tooltip="The running operation ends with an error on all ranks. Tables stay as they are.",
        )  # fmt: skip
        self.restart = w.Button(
            description="restart", icon="refresh", layout=layout,
            tooltip="All ranks start anew. Every table on them is lost.",
        )  # fmt: skip
        self.window = w.Dropdown(options=list(WINDOWS), value="last 2 min", layout=w.Layout(width="124px"))
        self.freeze = w.ToggleButton(
            description="freeze", tooltip="Keep the figure as it is now", layout=w.Layout(width="124px")
        )
        self.save = w.Button(
            description="write HTML report", tooltip="One file with these figures and numbers, readable offline",
            layout=w.Layout(width="254px"),
        )  # fmt: skip
        self.saved = w.HTML()
        self._view_box = w.VBox(
            [
                w.HTML('<span class="gcylon-heading">What is shown</span>'), w.HBox([self.window, self.freeze]),
                self.save, self.saved,
            ],
            layout=w.Layout(width="266px"),
        )  # fmt: skip
        self.interrupt.on_click(self._interrupt_clicked)
        self.restart.on_click(self._restart_clicked)
        self.save.on_click(self._save_clicked)
        self.window.observe(self._shown_changed, "value")
        self.freeze.observe(self._shown_changed, "value")
        self.page.observe(self._page_changed, ["theme", "visible", "busy", "tock"])

    @property
    def widget(self) -> Any:
        """The composed widget; asking for it begins the live view."""
        self.start()
        return self._root

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        if self._closed:
            return {"text/plain": "<Dashboard, closed>"}
        self.start()
        bundle = dict(self._root._repr_mimebundle_(**kwargs))
        # What a saved notebook shows where there is no kernel behind it.
        ranks = len(self._source.ranks)
        return bundle | {"text/plain": f"<Dashboard of {ranks} ranks, live while its kernel runs; see html_report>"}

    # --- life ---

    def start(self) -> None:
        """Begin to listen; done by showing it. Idempotent."""
        if self._closed or self._unsubscribe is not None:
            return
        hear_at_once(self._root)
        # The cluster must not keep a dashboard alive that nobody has any more.
        mine = weakref.WeakMethod(self._news)

        def tell(snapshots: Sequence[Snapshot]) -> None:
            news = mine()
            if news is not None:
                news(snapshots)

        self._unsubscribe = self._source.subscribe(tell)
        self._worker.request("first", self._fetch_first)

    def close(self) -> None:
        """End the live view, take it off the page, free everything. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._worker.close()
        self._hands.close()
        self.live.close()
        self.tuner.close()
        close_tree(self._root)
        self._snapshots, self._thinner = [], Thinner()

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    # --- callbacks: short, from any thread; the work is done on the workers ---

    def _news(self, snapshots: Sequence[Snapshot]) -> None:
        self._snapshots = list(snapshots)
        if self.page.visible:
            self._ask_for_drawing()

    def _ask_for_drawing(self) -> None:
        self._worker.request("draw", self.draw, every_s=UPDATE_EVERY_S)

    def _page_changed(self, change: Any) -> None:
        # Nothing is to be done when a pointer begins to move, or a page keeps up.
        idle = {"busy": change["new"], "tock": not self._late}.get(change["name"], False)
        if self.page.visible and not idle:
            self._ask_for_drawing()

    def _shown_changed(self, _change: Any) -> None:
        self._ask_for_drawing()

    def _interrupt_clicked(self, _button: Any) -> None:
        self._hands.request("interrupt", self._interrupt)

    def _restart_clicked(self, _button: Any) -> None:
        now = time.monotonic()
        if now - self._restart_armed > _CONFIRM_S:
            self._restart_armed = now
            self.restart.description, self.restart.button_style = "lose tables?", "danger"
            self._worker.request("disarm", self._disarm, delay_s=_CONFIRM_S)
            return
        self._restart_armed = 0.0
        self.restart.disabled = True
        self._hands.request("restart", self._restart)

    def _save_clicked(self, _button: Any) -> None:
        self._hands.request("save", self._save)

    def _failed(self, error: Exception) -> None:
        self.errors.value = f'<div class="gcylon-error">{escape(type(error).__name__)}: {escape(str(error))}</div>'

    # --- on the workers ---

    def _interrupt(self) -> None:
        self._source.interrupt()

    def _disarm(self) -> None:
        self._restart_armed = 0.0
        self.restart.description, self.restart.button_style, self.restart.disabled = "restart", "", False

    def _restart(self) -> None:
        self.restart.description = "restarting …"
        try:
            self._source.restart()
            self._snapshots, self._origin, self._status = [], None, {}
            self.errors.value = ""
        finally:
            self._disarm()
        self._ask_for_drawing()

    def _save(self) -> None:
        path = html_report("gcylon_lab_report.html", self._snapshots)
        self.saved.value = f'<div class="gcylon-note">written: {escape(str(path))}</div>'

    def _fetch_first(self) -> None:
        known = list(self._source.snapshots())
        self._snapshots = self._snapshots or known
        self.draw()

    def draw(self) -> None:
        """Bring everything shown up to date with the latest snapshots; runs on the worker."""
        if self._closed:
            return
        self._late = self.page.behind
        window_s = self._window_s()
        thin = self._thinner.thin(self._snapshots, window_s)
        view = make_view(thin, window_s=window_s, origin_ns=self._axis_origin())
        if not (self.page.busy or self.page.behind or self.freeze.value):
            self.live.show(figure_dict(view, self._theme()))
            self.page.ask()
        self._show_texts(view)
        self._worker.request("status", self._ask_status, every_s=_STATUS_EVERY_S)
        self.tuner.refresh()
        self.draws += 1

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

    def _ask_status(self) -> None:
        before, self._status = self._status, dict(self._source.status())
        if self._status != before:
            self._ask_for_drawing()
        # A cluster that has ended, or a rank that hangs, sends no news of it.
        if self.page.visible and self._status.get("state") != "closed":
            self._worker.request("status", self._ask_status, every_s=_STATUS_EVERY_S)

    def _show_texts(self, view: View) -> None:
        states = rank_states(self._source.ranks, self._snapshots, self._status.get("dead", ()))
        _set(self.headline, headline_html(states, self._snapshots, self._status, near_budget(view)))
        _set(self.chips, chips_html(states))
        table = operation_table(self._snapshots, last=_SHOWN_OPERATIONS)
        text = html_table(table, caption="The latest operations") if table[1] else ""
        _set(self.numbers, f'<div class="gcylon-scroll">{text}</div>')


def _set(widget: Any, html: str) -> None:
    if widget.value != html:
        widget.value = html


def as_source(thing: Any) -> Source:
    """Return what the dashboard needs of a cluster.

    Raises
    ------
    GcylonError
        If it is neither a cluster nor a source.
    """
    from .cluster_source import ClusterSource

    if hasattr(thing, "feed"):
        return ClusterSource(thing)
    if all(hasattr(thing, name) for name in ("snapshots", "subscribe", "ranks", "config", "tables")):
        return thing  # type: ignore[no-any-return]
    raise GcylonError(f"{thing!r} is no cluster.", advice="Give what gl.Cluster(n) returned.")
