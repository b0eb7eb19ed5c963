"""Staging by rank: what went down a tier and came back, and how fast."""

from __future__ import annotations

from typing import Any

from ..series import few_of, memory_unit, round_step
from ..theme import TIER_COLOURS, Theme
from ..tier_traffic import DIRECTIONS, TIERS, Moved, RankMoves, moves_of, sentence
from ..view import View
from .panel import Panel, Trace, rounded

TITLE = "Staging: what moved, by rank?"
_EMPTY = 'Bytes moved down and up, by rank and tier:<br>lower the limit, or ask strategy="staged".'
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
        TITLE,
        [_bars(direction, tier, moves if moved else {}, unit) for direction in DIRECTIONS for tier in TIERS],
        {"title": "rank · above 0: came back, below: went down" if moved else "", **_NAMED, **_rank_ticks(list(moves))},
        {"title": name, "zeroline": moved, "tickvals": ticks, "ticktext": [f"{abs(tick):.4g}" for tick in ticks]},
        empty="" if moved else _EMPTY,
        lead="<br>".join(said),
    )


def _rank_ticks(ranks: list[int]) -> dict[str, Any]:
    return {"tickmode": "array", "tickvals": [str(ranks[i]) for i in few_of(len(ranks), 16)]}


_NAMED = {"type": "category", "autotypenumbers": "strict"}


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
