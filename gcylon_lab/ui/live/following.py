"""What the dashboard and a panel share: figures that follow the ranks, and rest while a hand is on them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import ipywidgets as w

from ..figures.downsampling import Downsampler
from ..figures.finalize_dead_ranks import with_dead_ended
from ..figures.theme import NEUTRAL, THEMES, Theme
from ..figures.view import NARROW_PLOT_PX, View, make_view, provenance_of
from .live import LiveFigure
from .live_widget import LiveWidget

# While an operation runs a page has no time to draw all at each news.
_ALL_EVERY_S = 1.5
_BETWEEN_S = 0.06
MARGINS_PX = 108

WINDOWS: dict[str, float | None] = {"last 30 s": 30.0, "last 2 min": 120.0, "last 10 min": 600.0, "everything": None}


class FollowingWidget(LiveWidget):
    """A live widget with figures of one time axis: its window of time, its theme, and whether they are drawn now.

    What inherits from it says by `figures` what is shown.

    Parameters
    ----------
    source : Cluster or Source
        Whose ranks to show.
    """

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._origin: tuple[tuple[int, ...], int] | None = None
        self._thinner = Downsampler()
        self._late = False
        self.all_due = True
        self._all_shown: tuple[float, tuple[Any, ...]] = (0.0, ())
        self.window = w.Dropdown(
            options=list(WINDOWS), value="last 2 min", layout=w.Layout(width="124px"), tooltip="How far back"
        )
        self.freeze = w.ToggleButton(
            description="freeze", tooltip="Keep the figure as it is now", layout=w.Layout(width="124px")
        )
        self.window.observe(self._shown_changed, "value")
        self.freeze.observe(self._shown_changed, "value")
        first, *rest = list(self.figures(make_view([]), NEUTRAL))
        self.live = LiveFigure(first)
        self.lives = [self.live, *(LiveFigure(figure, beside=self.live) for figure in rest)]
        for live in self.lives:
            live.widget.on_hand = partial(self._hand_moved, live)

    def figures(self, view: View, theme: Theme) -> Iterator[dict[str, Any]]:
        """Return what the figures show: the first at each drawing, the others less often while ranks work."""
        raise NotImplementedError

    def _free(self) -> None:
        self._thinner = Downsampler()
        for live in self.lives:
            live.close()

    def _matters(self, change: Any) -> bool:
        # Nothing is to be done when a pointer begins to move, or a page keeps up.
        return not {"busy": change["new"], "tock": not self._late}.get(change["name"], False)

    def _shown_changed(self, _change: Any) -> None:
        self._all_shown = (0.0, ())  # a hand waits for none of them
        self._ask_for_drawing()

    # --- on the worker ---

    def draw_figure(self, **chosen: Any) -> View:
        """Draw what is known now, unless the figures are in use; returns it, with what of it a person chose."""
        self._late = self.page.behind
        window_s = self._window_s()
        thin = with_dead_ended(self._thinner.thin(self._snapshots, window_s), self._dead)
        running = any(s.get("progress") for s in thin)
        # While an operation runs its latest moments matter, and the brush would take half of the page's time.
        brush = self.live.zoomed or not running
        view = make_view(
            thin, window_s=window_s, origin_ns=self._axis_origin(), brush=brush, ahead=True,
            plot_px=self._plot_px(), **chosen,
        )  # fmt: skip
        self.all_due = self._all_due(view, running=running)
        if not (self.page.busy or self.page.behind or self.freeze.value):
            figures = self.figures(view, self._theme())
            self.live.show(next(figures))
            self.page.ask()
            if self.all_due and len(self.lives) > 1:
                self._all_shown = (time.monotonic(), self._state(view))
                self._ask_for_next(iter(self.lives[1:]), figures)
        return view

    def _ask_for_next(self, lives: Iterator[LiveFigure], figures: Iterator[dict[str, Any]]) -> None:
        # One by one, so that a page may show the first again in between.
        self._worker.request("next", partial(self._draw_next, lives, figures), delay_s=_BETWEEN_S)

    def _draw_next(self, lives: Iterator[LiveFigure], figures: Iterator[dict[str, Any]]) -> None:
        # What was begun is done also if a pointer moves meanwhile: else the axes were not aligned under it.
        if self._closed:
            return
        if not self.page.behind:
            live = next(lives, None)
            if live is None:
                return
            figure = next(figures, None)
            if figure is None:
                return  # the others are not on the page
            live.show(figure)
            self.page.ask()
        self._ask_for_next(lives, figures)

    def _all_due(self, view: View, *, running: bool) -> bool:
        """Whether all that is shown is to be drawn now, or only what changes from moment to moment."""
        then, state = self._all_shown
        return not running or time.monotonic() - then >= _ALL_EVERY_S or state != self._state(view)

    def _state(self, view: View) -> tuple[Any, ...]:
        """What all figures have in common, and which operations there are."""
        return view.start_s, view.right_s, self._theme().name, len(view.ranks), len(view.operations)

    def _hand_moved(self, live: LiveFigure, stretch: list[float] | None) -> None:
        self._worker.request("stretch", partial(self._align, live, stretch))

    def _align(self, moved: LiveFigure, stretch: list[float] | None) -> None:
        for live in self.lives:
            if live is not moved:
                live.follow(stretch)
        self._all_shown = (0.0, ())
        self._ask_for_drawing()

    @property
    def _dead(self) -> set[int]:
        """The ranks that are gone, as far as is known: they tell nothing more, not even that they ended."""
        return {int(row["rank"]) for row in self._status.get("dead", ())}

    def _axis_origin(self) -> int | None:
        """The axis begins where it began at first, also when old samples fall out; other processes, another axis."""
        if not self._snapshots:
            return None
        processes = tuple(int(s["pid"]) for s in self._snapshots)
        if self._origin is None or self._origin[0] != processes:
            self._origin = (processes, provenance_of(self._snapshots))
        return self._origin[1]

    def _plot_px(self) -> float:
        """About how wide a panel is on the screen."""
        return max(float(self.page.width) - MARGINS_PX, NARROW_PLOT_PX)

    def _window_s(self) -> float | None:
        # Whoever has zoomed in may look at what a window would drop.
        return None if self.live.zoomed else WINDOWS[self.window.value]

    def _theme(self) -> Theme:
        return THEMES.get(self.page.theme, NEUTRAL)
