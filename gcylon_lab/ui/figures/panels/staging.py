"""Staging: what went down a tier, and what rests there?"""

from __future__ import annotations

import numpy as np

from ..series import Floats, memory_unit, on_grid, readable
from ..theme import TIER_COLOURS, TIER_DASHES, Theme
from ..view import View
from .panel import Panel, Trace, line

TITLE = "Staging: what left the budget?"
_EMPTY = (
    "Nothing has been staged. What does not fit the<br>budget goes down to pinned memory or disk:<br>"
    'lower the limit, or ask strategy="staged".'
)
_CELLS = 300


def staging_panel(view: View, theme: Theme) -> Panel:
    """Return the panel: the bytes in each tier below the device, summed over ranks, over time."""
    levels = {tier: _level(view, f"{tier}_bytes") for tier in TIER_COLOURS}
    largest = max((float(y.max()) for _, y in levels.values() if len(y)), default=0.0)
    unit, name = memory_unit(largest)
    several = all(bool(len(y)) and bool(y.max() > 0) for _, y in levels.values())
    return Panel(
        "staging",
        TITLE,
        [_trace(tier, xy, unit, short=several) for tier, xy in levels.items()],
        {"title": "s"},
        {"title": name, "range": [0.0, round(1.15 * largest / unit, 6) or 1.0]},
        empty="" if largest else _EMPTY,
    )


def _level(view: View, name: str) -> tuple[Floats, Floats]:
    if view.empty:
        return np.array([]), np.array([])
    edges = np.linspace(view.start_s, max(view.end_s, view.start_s + 1e-3), _CELLS + 1)
    total = np.zeros(_CELLS)
    for series in view.ranks:
        # Maxima of a cell are summed though they need not be at one instant: never less than what was there.
        total += on_grid(*series.of(name), edges)
    return edges[1:], total


def _trace(tier: str, xy: tuple[Floats, Floats], unit: float, *, short: bool) -> Trace:
    t, y = xy
    used = bool(len(y)) and bool(y.max() > 0)
    label = tier
    if used:
        now, most = readable(float(y[-1])), readable(float(y.max()))
        label = f"{tier}: {now}" if short else f"{tier}: now {now}, most {most}"
    style = {"color": TIER_COLOURS[tier], "dash": TIER_DASHES[tier], "width": 2, "shape": "hv"}
    shown = (t, y) if used else (np.array([]), np.array([]))
    trace = line(f"tier-{tier}", label, shown, unit=unit, legend=used, line=style, fill="tozeroy")
    return trace | {"hovertemplate": f"{tier}: %{{y:.3~g}}<extra></extra>"}
