"""Staging: what went down a tier, and what rests there?"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..series import Floats, memory_unit, on_grid, readable, round_step
from ..theme import TIER_COLOURS, TIER_DASHES, Theme
from ..tier_traffic import DIRECTIONS, TIERS, Moved, RankMoves, moves_of, sentence
from ..view import View
from .panel import CATEGORIES, Panel, Trace, line, rank_names, rounded

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


_RANKS_TITLE = "Staging: what moved, by rank?"
_RANKS_AXIS = "rank · above 0: came back, below: went down"
_NOTHING_MOVED = 'Bytes moved down and up, by rank and tier:<br>lower the limit, or ask strategy="staged".'
_PATTERNS = {"down": "", "up": "/"}


def staged_ranks_panel(view: View, theme: Theme) -> Panel:
    """Return the panel: a bar down and one up for each rank, in parts by tier; in words how fast a rank moved them."""
    moves = {int(s["rank"]): moves_of(s) for s in view.snapshots}
    moved = any(moves.values())
    heights = [sum(m.nbytes for (d, _), m in by.items() if d == way) for by in moves.values() for way in DIRECTIONS]
    unit, name = memory_unit(max(heights, default=0))
    step = round_step(max(heights, default=0) / unit)
    ticks = [round(k * step, 6) for k in range(-3, 4)]
    # At most four lines stand above the plot.
    said = [text for tier in TIERS if (text := sentence(view.snapshots, list(moves.values()), tier))]
    return Panel(
        "staged_ranks",
        _RANKS_TITLE,
        [_bars(direction, tier, moves if moved else {}, unit) for direction in DIRECTIONS for tier in TIERS],
        {
            "title": "rank · above 0: came back, below: went down" if moved else "",
            **CATEGORIES,
            **rank_names(list(moves), 16),
        },
        {"title": name, "zeroline": moved, "tickvals": ticks, "ticktext": [f"{abs(tick):.4g}" for tick in ticks]},
        empty="" if moved else _NOTHING_MOVED,
        lead="<br>".join(said),
    )


def _bars(direction: str, tier: str, moves: dict[int, RankMoves], unit: float) -> Trace:
    sign = -1.0 if direction == "down" else 1.0
    values = [by.get((direction, tier), Moved()).nbytes / unit for by in moves.values()]
    below = [by.get((direction, "pinned"), Moved()).nbytes / unit * (tier == "disk") for by in moves.values()]
    # Over the tier's colour: strokes alone, which a bar has by default, are not seen on a dark page.
    pattern: dict[str, Any] = {"shape": _PATTERNS[direction], "size": 5, "solidity": 0.3, "fillmode": "overlay"}
    pattern["fgcolor"] = "rgba(0,0,0,0.5)"
    return {
        "type": "bar",
        "meta": f"moved-{direction}-{tier}",
        "name": f"{tier} {direction}",
        "x": [str(rank) for rank in moves],
        "y": rounded([sign * value for value in values]),
        "base": rounded([sign * value for value in below]),
        "width": 0.72,
        "marker": {"color": TIER_COLOURS[tier], "pattern": pattern},
        "hovertemplate": f"rank %{{x}}: %{{customdata:.3~g}} {direction}, {tier}<extra></extra>",
        "customdata": rounded(values),
        "showlegend": False,
    }
