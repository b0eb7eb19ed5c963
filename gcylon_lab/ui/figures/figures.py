"""Figures from the ranks' snapshots: every panel in one figure, or one panel alone.

Pure: `figure_dict` and `panel_dict` return plain values and load no plotly;
`dashboard_figure` and `panel_figure` return `plotly.graph_objects.Figure`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...config import nearest
from ...errors import ArgumentError
from .layout import BESIDE_TIME, LEFT, MARGIN, RIGHT, Column, compose, slots_of
from .panels.brush import brush_panel
from .panels.gpus import gpus_panel
from .panels.memory import MOST_LINES, memory_panel, memory_ranks_panel
from .panels.panel import Panel
from .panels.peaks import peak_ranks_panel, plan_panel
from .panels.phases import lanes_height, phases_panel
from .panels.staging import staged_ranks_panel, staging_panel
from .panels.traffic import traffic_panel
from .panels.uses import pools_panel, uses_panel
from .theme import NEUTRAL, Theme
from .view import Snapshot, View, make_view

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PANELS: dict[str, Callable[[View, Theme], Panel]] = {
    "memory": memory_panel,
    "memory_ranks": memory_ranks_panel,
    "brush": brush_panel,
    "phases": phases_panel,
    "staging": staging_panel,
    "gpus": gpus_panel,
    "staged_ranks": staged_ranks_panel,
    "peak_ranks": peak_ranks_panel,
    "plan": plan_panel,
    "uses": uses_panel,
    "pools": pools_panel,
    "traffic": traffic_panel,
}

# What stands alone, from the top; a panel that stands for a large number of ranks only is left out below it.
PAGES: dict[str, tuple[str, ...]] = {
    "memory": ("memory", "memory_ranks", "brush"),
    "peaks": ("peak_ranks", "plan"),
    "staging": ("staging", "staged_ranks"),
    "phases": ("phases",),
    "traffic": ("traffic",),
    "gpus": ("gpus",),
    "peak_ranks": ("peak_ranks",),
    "plan": ("plan",),
    "uses": ("uses",),
    "pools": ("pools",),
}
_MEMORY_KEYS = ("memory", "memory_ranks", "brush")
_TIME_KEYS = ("phases", "staging", "gpus", "staged_ranks")
# Without anything to show they fold where they stand among others: a title says enough.
_FOLDING = frozenset({"staging", "gpus", "staged_ranks", "uses", "peak_ranks", "plan", "traffic"})
_COMPACT = frozenset({"memory", "memory_ranks", "phases"})
_LEFT_KEYS = (*_MEMORY_KEYS, *_TIME_KEYS)
_RIGHT_KEYS = ("uses", "peak_ranks", "plan", "traffic")
_WHOLE, _BESIDE_BAR, _NARROW = (0.0, 1.0), (0.0, 0.94), (0.0, 0.5)
_ALONE_HEIGHT = 300


def dashboard_figure(snapshots: Sequence[Snapshot], *, theme: Theme = NEUTRAL, window_s: float | None = None) -> Figure:
    """Return the figure with all panels.

    Parameters
    ----------
    snapshots : sequence of dict
        One a rank, as `profiling.snapshot.take_snapshot` makes them.
    theme : Theme, optional
        Colours of text and grid; by default a grey that is read on light and dark.
    window_s : float, optional
        Only the last so many seconds.
    """
    from plotly.graph_objects import Figure

    return Figure(figure_dict(make_view(snapshots, window_s=window_s), theme))


def panel_figure(
    key: str,
    snapshots: Sequence[Snapshot],
    *,
    theme: Theme = NEUTRAL,
    window_s: float | None = None,
    operation: int | None = None,
    ranks: str = "all",
) -> Figure:
    """Return a figure with one panel: memory, peaks, staging, phases, traffic, gpus, peak_ranks,
    plan, uses or pools.

    Parameters
    ----------
    key : str
    snapshots, theme, window_s
        As of `dashboard_figure`.
    operation : int, optional
        The operation whose peaks or traffic to show; by default the one that runs, else the one that took longest.
    ranks : {"all", "worst"}, optional
        Whose memory to show: "worst" is the rank that came closest to its budget.

    Raises
    ------
    ArgumentError
        If there is no such panel, or no such choice of ranks.
    """
    from plotly.graph_objects import Figure

    view = make_view(snapshots, window_s=window_s, operation=operation, worst_only=only_worst(ranks))
    return Figure(panel_dict(key, view, theme))


def only_worst(ranks: str) -> bool:
    """Return whether only the worst rank is meant.

    Raises
    ------
    ArgumentError
        If neither all nor the worst are.
    """
    if ranks not in ("all", "worst"):
        raise ArgumentError(f"ranks={ranks!r} is invalid.", advice="Expected 'all' or 'worst'.")
    return ranks == "worst"


def check_panel(key: str) -> str:
    """Return the name of a panel that can stand alone.

    Raises
    ------
    ArgumentError
        If there is none of that name.
    """
    if key not in PAGES:
        meant = nearest(str(key), PAGES)
        advice = f"Did you mean {meant}? " if meant else ""
        raise ArgumentError(f"There is no panel {key!r}.", advice=f"{advice}The panels are {', '.join(PAGES)}.")
    return key


def figure_dict(view: View, theme: Theme, *, narrow: bool = False) -> dict[str, Any]:
    """Return data and layout of all panels in one figure, or narrow one below the other.

    That of GPUs is there where a rank works on one.
    """
    left = _present(_LEFT_KEYS, view)
    columns: list[Column] = [(_BESIDE_BAR, (*left, *_RIGHT_KEYS))] if narrow else [(LEFT, left), (RIGHT, _RIGHT_KEYS)]
    return _figure(view, theme, columns)


def memory_dict(view: View, theme: Theme, *, compact: bool = False) -> dict[str, Any]:
    """Return data and layout of the figure of memory alone, for a dashboard; compact is without the overview."""
    columns: list[Column] = [(_WHOLE, _present(_MEMORY_KEYS, view))]
    return _figure(view, theme, columns, numbered=False, right=BESIDE_TIME, compact=compact)


def time_dict(view: View, theme: Theme, *, compact: bool = False) -> dict[str, Any]:
    """Return data and layout of the figure of all else that has the time axis; it stands below that of memory."""
    columns: list[Column] = [(_WHOLE, _present(_TIME_KEYS, view))]
    return _figure(view, theme, columns, right=BESIDE_TIME, compact=compact)


def rest_dict(view: View, theme: Theme, height: int = 0) -> dict[str, Any]:
    """Return data and layout of the figure of what has no time axis; it stands beside the other two."""
    return _figure(view, theme, [(_WHOLE, _RIGHT_KEYS)], height)


def panel_dict(key: str, view: View, theme: Theme, *, height: int = 0) -> dict[str, Any]:
    """Return data and layout of a figure with one panel that stands alone; 0 is as high as it needs."""
    keys = PAGES[check_panel(key)]
    keys = keys if key == "gpus" else _present(keys, view)
    across = {"memory": _BESIDE_BAR, "traffic": _NARROW}.get(keys[0], _WHOLE)
    return _figure(view, theme, [(across, keys)], height or _ALONE_HEIGHT, folds=False)


def _present(keys: Sequence[str], view: View) -> tuple[str, ...]:
    absent = set() if view.gpus else {"gpus"}
    if len(view.ranks) <= MOST_LINES or view.worst_only:
        absent.add("memory_ranks")
    return tuple(key for key in keys if key not in absent)


def _figure(
    view: View,
    theme: Theme,
    columns: list[Column],
    height: int = 0,
    *,
    numbered: bool = True,
    right: int = MARGIN["r"],
    compact: bool = False,
    folds: bool = True,
) -> dict[str, Any]:
    keys = [key for _, column in columns for key in column]
    hidden = {key for key in keys if compact and key not in _COMPACT}
    # What is hidden keeps its axes, and draws nothing.
    nothing = make_view([])
    panels = {key: PANELS[key](nothing if key in hidden else view, theme) for key in PANELS if key in keys}
    panels |= {key: replace(panels[key], title="", lead="", empty="") for key in hidden}
    folded = {key for key in _FOLDING - hidden if folds and key in panels and panels[key].empty}
    slots, height = slots_of(
        columns, tall={"phases": lanes_height(view)}, height=height, numbered=numbered, folded=folded, hidden=hidden
    )
    return compose(view, panels, slots, height, theme, numbered=numbered, right=right)
