"""What the dashboard and a panel share: a figure that follows the ranks, and rests while a hand is on it."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from .live import LiveFigure
from .live_widget import LiveWidget
from .theme import NEUTRAL, THEMES, Theme
from .thinning import Thinner
from .view import View, make_view, origin_of

WINDOWS: dict[str, float | None] = {"last 30 s": 30.0, "last 2 min": 120.0, "last 10 min": 600.0, "everything": None}


class FollowingWidget(LiveWidget):
    """A live widget with a figure: its window of time, its theme, and whether it is drawn now.

    What inherits from it says by `figure` what is shown.

    Parameters
    ----------
    source : Cluster or Source
        Whose ranks to show.
    """

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._origin: tuple[tuple[int, ...], int] | None = None
        self._thinner = Thinner()
        self._late = False
        self.window = w.Dropdown(options=list(WINDOWS), value="last 2 min", layout=w.Layout(width="124px"))
        self.freeze = w.ToggleButton(
            description="freeze", tooltip="Keep the figure as it is now", layout=w.Layout(width="124px")
        )
        self.window.observe(self._shown_changed, "value")
        self.freeze.observe(self._shown_changed, "value")
        self.live = LiveFigure(self.figure(make_view([]), NEUTRAL))

    def figure(self, view: View, theme: Theme) -> dict[str, Any]:
        """Return what the figure shows."""
        raise NotImplementedError

    def _free(self) -> None:
        self._thinner = Thinner()
        self.live.close()

    def _matters(self, change: Any) -> bool:
        # Nothing is to be done when a pointer begins to move, or a page keeps up.
        return not {"busy": change["new"], "tock": not self._late}.get(change["name"], False)

    def _shown_changed(self, _change: Any) -> None:
        self._ask_for_drawing()

    # --- on the worker ---

    def draw_figure(self, **chosen: Any) -> View:
        """Draw what is known now, unless the figure is in use; returns it, with what of it a person chose."""
        self._late = self.page.behind
        window_s = self._window_s()
        thin = self._thinner.thin(self._snapshots, window_s)
        # While an operation runs its latest moments matter, and the brush would take half of the page's time.
        brush = self.live.zoomed or not any(s.get("progress") for s in thin)
        view = make_view(thin, window_s=window_s, origin_ns=self._axis_origin(), brush=brush, **chosen)
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
