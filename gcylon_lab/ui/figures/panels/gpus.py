"""GPUs: how busy is each rank's? Only where ranks work on GPUs."""

from __future__ import annotations

import numpy as np

from ..series import decimate, on_grid
from ..theme import Theme, rank_sign, rank_style
from ..view import GpuLines, View
from .panel import Panel, Trace, line

TITLE = "GPUs: how busy is each rank's?"
MOST_LINES = 8
_EMPTY = "How busy each GPU is appears here<br>where ranks work on GPUs."
_CELLS = 300
# From here on a legend would need several rows, and then there is room for short names only.
_MOST_IN_LEGEND, _SHORT_NAMES = 3, 4


def gpus_panel(view: View, theme: Theme) -> Panel:
    """Return the panel: a line a GPU, in its lowest rank's colour; above 8 GPUs their mean and the least busy one."""
    told = [gpu for gpu in view.gpus if len(gpu.busy[0])]
    if len(view.gpus) > MOST_LINES:
        traces = _few_lines(told, view, theme)
    else:
        traces = [_line(gpu, legend=len(view.gpus) <= _MOST_IN_LEGEND) for gpu in view.gpus]
    if not view.gpus:
        traces = [line("gpu-none", "", (np.array([]), np.array([])), legend=False)]
    return Panel(
        "gpus",
        TITLE,
        traces,
        {"title": "s"},
        {"title": "% busy", "range": [0.0, 108.0], "tickvals": [0, 50, 100]},
        empty="" if told else _EMPTY,
        lead=_key(view) if _MOST_IN_LEGEND < len(view.gpus) <= MOST_LINES else "",
    )


def _key(view: View) -> str:
    short = len(view.gpus) > _SHORT_NAMES
    names = [str(gpu.told.ranks[0]) if short else _name(gpu) for gpu in view.gpus]
    return "  ".join(f"{rank_sign(gpu.told.ranks[0])} {name}" for gpu, name in zip(view.gpus, names, strict=True))


def _name(gpu: GpuLines) -> str:
    busy = gpu.busy[1]
    return ", ".join(map(str, gpu.told.ranks)) + (f": {busy[-1]:.0f}%" if len(busy) else ": not reported")


def _line(gpu: GpuLines, *, legend: bool) -> Trace:
    t, y = decimate(*gpu.busy)
    rank = gpu.told.ranks[0]
    colour, dash, _ = rank_style(rank)
    style = {"color": colour, "dash": dash, "width": 1.5, "shape": "hv"}
    hover = f"{gpu.label}: %{{y:.0f}}% busy<extra></extra>"
    return line(f"gpu{rank}", _name(gpu), (t, y), legend=legend, line=style, hovertemplate=hover)


def _few_lines(told: list[GpuLines], view: View, theme: Theme) -> list[Trace]:
    edges = np.linspace(view.start_s, max(view.end_s, view.start_s + 1e-3), _CELLS + 1)
    rows = np.array([on_grid(*gpu.busy, edges) for gpu in told] or [np.zeros(_CELLS)])
    idle = int(rows.mean(axis=1).argmin())
    name = told[idle].label if told else "none"
    colour = rank_style(told[idle].told.ranks[0])[0] if told else theme.faint
    hover = "%{y:.0f}% busy<extra></extra>"
    return [
        line(
            "gpu-mean", f"mean of {len(view.gpus)} GPUs", (edges[1:], rows.mean(axis=0)),
            line={"color": theme.text, "width": 2, "dash": "dot"}, hovertemplate=f"mean: {hover}",
        ),
        line(
            "gpu-least", f"least busy: {name}", (edges[1:], rows[idle]),
            line={"color": colour, "width": 2}, hovertemplate=f"{name}: {hover}",
        ),
    ]  # fmt: skip
