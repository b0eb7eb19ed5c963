"""Memory of many ranks, rank by time."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..series import Floats, on_grid, rank_ticks
from ..theme import BUDGET_COLOUR, Theme
from ..view import View
from .panel import Panel, host_lines

_CELLS = 160
# From pale to full, and red from 90% of the budget on; on any background.
_SCALE = [[0.0, "rgba(0,114,178,0.04)"], [0.899, "rgba(0,114,178,1)"], [0.9, BUDGET_COLOUR], [1.0, BUDGET_COLOUR]]


def memory_ranks_panel(view: View, theme: Theme) -> Panel:
    """Return the heat map that stands under the memory of more than 8 ranks: percent of the budget, rank by time."""
    edges = np.linspace(view.start_s, max(view.end_s, view.start_s + 1e-3), _CELLS + 1)
    rows = [_share(series.of("used_bytes"), series.of("budget_bytes"), edges) for series in view.ranks]
    count, starts = len(rows), view.host_starts()
    ticks = {"tickvals": rank_ticks(count, starts, 6)} if starts else {}
    heat: dict[str, Any] = {
        "type": "heatmap",
        "meta": "memory-heat",
        "name": "percent of the budget",
        "x": [round(float(t), 3) for t in (edges[1:] + edges[:-1]) / 2],
        "y": [series.rank for series in view.ranks],
        "z": rows,
        "zmin": 0,
        "zmax": 100,
        "colorscale": _SCALE,
        "colorbar": bar("%", theme) | {"tickvals": [0, 50, 90]},
        "hovertemplate": "rank %{y}: %{z}% of its budget<extra></extra>",
        "hoverongaps": False,
    }
    return Panel(
        "memory_ranks",
        "",
        [heat],
        {"title": "s"},
        {"title": "rank", "range": [count - 0.5, -0.5], "nticks": 6, **ticks},
        shapes=host_lines(starts, theme),
        lead="each rank's share of its budget; red is over 90%",
    )


def bar(title: str, theme: Theme) -> dict[str, Any]:
    """Return the settings of a scale of colours beside a heat map."""
    return {
        "title": {"text": title, "side": "top", "font": {"size": 11, "color": theme.text}},
        "tickfont": {"size": 10, "color": theme.text},
        "outlinewidth": 0,
        "nticks": 4,
    }


def _share(used: tuple[Floats, Floats], limit: tuple[Floats, Floats], edges: Floats) -> list[int]:
    bytes_used, budget = on_grid(*used, edges), on_grid(*limit, edges)
    share = np.divide(100 * bytes_used, budget, out=np.zeros_like(budget), where=budget > 0)
    return [int(value) for value in share]
