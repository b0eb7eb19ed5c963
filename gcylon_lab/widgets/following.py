"""What the dashboard and a panel share: to listen to a source, draw at a pace, and rest when nobody looks."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self

import ipywidgets as w

from .live import LiveFigure
from .page import PageWatcher
from .source import Source
from .theme import NEUTRAL, THEMES, Theme
from .view import Snapshot, View, make_view, origin_of
from .worker import Worker

UPDATE_EVERY_S = 0.1
WINDOWS: dict[str, float | None] = {"last 30 s": 30.0, "last 2 min": 120.0, "last 10 min": 600.0, "everything": None}


class Follower:
    """Follows a source with a figure.

    It begins to listen when it is first shown, draws at most ten times a second, and never
    while it is off the screen or a pointer is at work on it. What inherits from it makes
    ``live``, and says by `figure` and `draw` what is shown.

    Parameters
    ----------
    source : Source
        Whose ranks to show.
    """

    live: LiveFigure

    def __init__(self, source: Source) -> None:
        self._source = source
        self._worker = Worker(self._failed)
        self._snapshots: list[Snapshot] = []
        self._origin: tuple[tuple[int, ...], int] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._late = False
        self._closed = False
        self.draws = 0
        self.page = PageWatcher()
        self.window = w.Dropdown(options=list(WINDOWS), value="last 2 min", layout=w.Layout(width="124px"))
        self.freeze = w.ToggleButton(
            description="freeze", tooltip="Keep the figure as it is now", layout=w.Layout(width="124px")
        )
        self.window.observe(self._shown_changed, "value")
        self.freeze.observe(self._shown_changed, "value")
        self.page.observe(self._page_changed, ["theme", "visible", "busy", "tock"])

    def figure(self, view: View, theme: Theme) -> dict[str, Any]:
        """Return what the figure shows."""
        raise NotImplementedError

    def draw(self) -> None:
        """Bring everything shown up to date with the latest snapshots; runs on the worker."""
        raise NotImplementedError

    def close(self) -> None:
        """End the live view, take it off the page, free everything. Idempotent."""
        raise NotImplementedError

    def _failed(self, error: Exception) -> None:
        raise NotImplementedError

    # --- life ---

    def start(self) -> None:
        """Begin to listen; done by showing it. Idempotent."""
        if self._closed or self._unsubscribe is not None:
            return
        # The cluster must not keep a view alive that nobody has any more.
        mine = weakref.WeakMethod(self._news)

        def tell(snapshots: Sequence[Snapshot]) -> None:
            news = mine()
            if news is not None:
                news(snapshots)

        self._unsubscribe = self._source.subscribe(tell)
        self._worker.request("first", self._fetch_first)

    def stop_following(self) -> None:
        """End listening and drawing, and free the figure."""
        self._closed = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._worker.close()
        self.live.close()
        self._snapshots = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    # --- callbacks: short, from any thread ---

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

    # --- on the worker ---

    def _fetch_first(self) -> None:
        known = list(self._source.snapshots())
        self._snapshots = self._snapshots or known
        self.draw()

    def draw_figure(self, **chosen: Any) -> View:
        """Draw what is known now, unless the figure is in use; returns it, with what of it a person chose."""
        self._late = self.page.behind
        view = make_view(self._snapshots, window_s=self._window_s(), origin_ns=self._axis_origin(), **chosen)
        if not (self.page.busy or self.page.behind or self.freeze.value):
            self.live.show(self.figure(view, self._theme()))
            self.page.ask()
        return view

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
