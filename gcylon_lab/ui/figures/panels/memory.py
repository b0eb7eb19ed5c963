"""Memory: how close is each rank to its budget?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..series import MAX_POINTS, Floats, decimate, memory_unit, on_grid, percent, rank_ticks, readable, steps
from ..theme import BUDGET_COLOUR, BUDGET_DASH, Theme, rank_sign, rank_style
from ..view import GpuLines, Operation, RankSeries, View
from .panel import Panel, Trace, corner_note, host_lines, line, rounded
from .phases import NAMES, grid_of, phase_at, phase_scale, spans_of

TITLE = "Memory: how close to the budget?"
MOST_LINES = 8
NEAR = 0.9
_EMPTY = "Each rank's memory appears here, live,<br>as soon as the ranks report: run any cell with %%px."
_MOST_SHADED = 40
_NEAR_NOTE = "▲ over 90%: raise limit or lower chunk size"
# Below this part of the height there is no room for a number at each quarter of the budget.
_LOW = 0.25
# How much of the height the strip of phases takes.
_STRIP = 0.045
# From here on the key has room for numbers only.
_MOST_NAMED = 4
_CHARACTER_PX = 6.4  # of text 11 pixels high


def memory_panel(view: View, theme: Theme) -> Panel:
    """Return the panel: a line a rank (above 8 ranks median, band and worst), the budget, the operations shaded.

    Where NVML tells of GPUs, a thin line is what the GPU with the most of it has in use outside the budgets.
    """
    limit = _latest(view, "budget_bytes")
    peak = _peak_of(view)
    top, hidden = _top(limit, peak.nbytes)
    unit, name = memory_unit(top)
    near = _near_marks(view, unit)
    traces = [
        *_lines(view, unit, theme),
        *_phase_strip(view, top / unit),
        _budget_line(view, unit, np.inf if hidden else top),
        near,
        _peak_mark(peak, unit, theme),
        _percent_axis_holder(),
        *_outside_line(view, unit, theme),
    ]
    said = _said(view, limit, peak, theme, hidden=hidden, near=bool(near["x"]))
    return Panel(
        "memory",
        TITLE,
        traces,
        {"title": "s"},
        {"title": name, "range": [0.0, round(top / unit, 6)]},
        right_axis=_percent_axis(limit, top, hidden),
        shapes=[_shade(op, view, theme) for op in view.operations[-_MOST_SHADED:]],
        annotations=[*_operation_names(view, theme), *_outside_note(view, top, theme)],
        lead="" if view.empty else f"{_key(view)}<br>{said}",
        empty=_EMPTY if view.empty else "",
    )


def near_budget(view: View) -> list[tuple[int, float]]:
    """Return (rank, share of the budget) for each rank whose latest sample is above 90% of its budget."""
    found = []
    for rank in view.ranks:
        used, limit = rank.of("used_bytes")[1], rank.of("limit_bytes")[1]
        if len(used) and len(limit) and limit[-1] > 0 and used[-1] > NEAR * limit[-1]:
            found.append((rank.rank, float(used[-1] / limit[-1])))
    return found


def _latest(view: View, name: str) -> float:
    return max((float(y[-1]) for y in (r.of(name)[1] for r in view.ranks) if len(y)), default=0.0)


def _top(limit: float, used: float) -> tuple[float, bool]:
    """Return where the axis ends, and whether the budget lies beyond it (a budget far above hides what moves)."""
    if limit > 4 * used > 0:
        return 1.35 * used, True
    return (1.25 * max(limit, used) or 1.0), False


def _lines(view: View, unit: float, theme: Theme) -> list[Trace]:
    if view.worst_only and view.ranks:
        return [_worst_line(view, unit)]
    return _rank_lines(view, unit) if len(view.ranks) <= MOST_LINES else _band_lines(view, unit, theme)


def _phase_strip(view: View, top: float) -> list[Trace]:
    """Colour the foot of the panel by what ranks are in: the worst one where only it is shown, else most of them."""
    spans = spans_of(view)
    if view.worst_only and view.ranks:
        spans = {rank: by for rank, by in spans.items() if rank == _worst(view.ranks).rank}
    edges = grid_of(view)
    rows = np.array([phase_at(by, edges) for by in spans.values()] or [np.full(len(edges) - 1, -1)])
    votes = np.array([(rows == place).sum(axis=0) for place in range(len(NAMES))])
    phase = np.where(votes.max(axis=0) > 0, votes.argmax(axis=0), -1)
    strip = {
        "type": "heatmap",
        "meta": "phase-strip",
        "name": "phase",
        "x": [round(float(t), 3) for t in (edges[1:] + edges[:-1]) / 2],
        "y": [0.0, round(_STRIP * top, 6)],
        "z": [[None if p < 0 else p for p in phase.tolist()]],
        "text": [["" if p < 0 else NAMES[p] for p in phase.tolist()]],
        "hovertemplate": "%{text}<extra></extra>",
        **phase_scale(),
    }
    return [strip] if (phase >= 0).any() else [strip | {"x": [], "y": [], "z": []}]


def _worst_line(view: View, unit: float) -> Trace:
    worst = _worst(view.ranks)
    colour, _, _ = rank_style(worst.rank)
    return line(
        "worst", f"worst: rank {worst.rank}", decimate(*worst.of("used_bytes")), unit=unit, legend=False,
        line={"color": colour, "width": 2}, hovertemplate=f"rank {worst.rank}: %{{y:.3~g}}<extra></extra>",
    )  # fmt: skip


def _rank_lines(view: View, unit: float) -> list[Trace]:
    lines: list[Trace] = []
    for series in view.ranks:
        colour, dash, _ = rank_style(series.rank)
        style = {"color": colour, "dash": dash, "width": 2}
        hover = f"rank {series.rank}: %{{y:.3~g}}<extra></extra>"
        more: dict[str, Any] = {"hovertemplate": hover, "hoverlabel": {"bordercolor": colour}}
        xy = decimate(*series.of("used_bytes"))
        lines.append(line(f"rank{series.rank}", f"rank {series.rank}", xy, unit=unit, legend=False, line=style, **more))
    return lines


def _key(view: View) -> str:
    """Return the lines' key as text above the panel: a legend of several rows would hide some of them."""
    if view.worst_only or len(view.ranks) > MOST_LINES:
        worst = _worst(view.ranks).rank
        one = f"{rank_sign(worst)} worst: rank {worst}"
        return one if view.worst_only else f"▒ all {len(view.ranks)}  ┅┅ median  {one}"
    if len(view.ranks) <= _MOST_NAMED:
        return "  ".join(f"{rank_sign(series.rank)} rank {series.rank}" for series in view.ranks)
    return "rank " + "  ".join(f"{rank_sign(series.rank)} {series.rank}" for series in view.ranks)


def _said(view: View, limit: float, peak: _Peak, theme: Theme, *, hidden: bool, near: bool) -> str:
    """Return the measured peak and the budget in words, with what helps where a rank came near it."""
    of = f" in #{peak.operation}" if peak.operation else ""
    text = f"○ peak {readable(peak.nbytes)}{of}"
    if limit <= 0:
        return text
    op = _kept_by(view, limit)
    most = op.largest("measured_peak_bytes")[0] if op else peak.nbytes
    budget = f"╌╌ budget{f' of #{op.number}' if op else ''} {readable(limit)}"
    above = ", above this scale" if hidden else ""
    share = f"; {percent(most / limit)} used" if most <= limit and not near else ""
    help_ = f"<br>{_NEAR_NOTE}" if near else ""
    return f'{text}  <span style="color:{theme.budget}">{budget}{above}{share}{help_}</span>'


def _kept_by(view: View, limit: float) -> Operation | None:
    """Return the operation whose budget it is, where that is not the ranks' usual one."""
    op = next((o for o in reversed(view.operations) if o.largest("budget_bytes")[0]), None)
    return None if op is None or limit >= _latest(view, "limit_bytes") else op


@dataclass(frozen=True, slots=True)
class _Peak:
    """The most that a rank had in use; samples may miss what an operation itself has measured."""

    nbytes: float = 0.0
    rank: int = 0
    at_s: float | None = None
    operation: int = 0


def _peak_of(view: View) -> _Peak:
    found = _Peak()
    for series in view.ranks:
        times, values = series.of("used_bytes")
        if len(values) and values.max() > found.nbytes:
            at = int(values.argmax())
            found = _Peak(float(values[at]), series.rank, float(times[at]))
    by_rank = {series.rank: series.of("used_bytes") for series in view.ranks}
    for op in view.operations:
        nbytes, rank = op.largest("measured_peak_bytes")
        if nbytes >= found.nbytes > 0 and rank in by_rank:
            times, values = by_rank[rank]
            within = np.flatnonzero((times >= op.start_s) & (times <= op.end_s))
            at_s = float(times[within[values[within].argmax()]]) if len(within) else (op.start_s + op.end_s) / 2
            found = _Peak(float(nbytes), rank, at_s, op.number)
    return found


def _peak_mark(peak: _Peak, unit: float, theme: Theme) -> Trace:
    known = peak.at_s is not None
    marker = {"symbol": "circle-open", "size": 10, "color": theme.text, "line": {"width": 2}}
    return {
        "type": "scatter", "mode": "markers", "meta": "peak", "name": "peak", "marker": marker, "showlegend": False,
        "x": rounded([peak.at_s or 0.0] * known), "y": rounded([peak.nbytes / unit] * known), "cliponaxis": False,
        "hovertemplate": f"peak: {readable(peak.nbytes)}, rank {peak.rank}<extra></extra>",
    }  # fmt: skip


def _band_lines(view: View, unit: float, theme: Theme) -> list[Trace]:
    edges = np.linspace(view.start_s, max(view.end_s, view.start_s + 1e-3), min(MAX_POINTS, 300) + 1)
    rows = np.array([on_grid(*r.of("used_bytes"), edges) for r in view.ranks])
    t = edges[1:]
    edge: dict[str, Any] = {"color": theme.faint, "width": 0.5}
    count = len(view.ranks)
    return [
        line("low", "lowest", (t, rows.min(axis=0)), unit=unit, legend=False, line=edge, hoverinfo="skip"),
        line(
            "high", f"all {count}", (t, rows.max(axis=0)), unit=unit, legend=False, line=edge,
            fill="tonexty", fillcolor=theme.shade[1], hovertemplate="highest: %{y:.3~g}<extra></extra>",
        ),
        line(
            "median", "median", (t, np.median(rows, axis=0)), unit=unit, legend=False,
            line={"color": theme.text, "width": 2, "dash": "dot"}, hovertemplate="median: %{y:.3~g}<extra></extra>",
        ),
        _worst_line(view, unit),
    ]  # fmt: skip


def _worst(ranks: list[RankSeries]) -> RankSeries:
    """Return the rank that came closest to its budget."""

    def share(series: RankSeries) -> float:
        used, limit = series.of("used_bytes")[1], series.of("budget_bytes")[1]
        if not len(used):
            return -1.0
        return float(used.max()) / (float(limit[-1]) if len(limit) and limit[-1] > 0 else 1.0)

    return max(ranks, key=share)


def _budget_line(view: View, unit: float, top: float) -> Trace:
    """The largest budget of any rank, where it is on the scale: a higher one of before would end in mid-air."""
    limits = [r.of("budget_bytes") for r in view.ranks if len(r.of("budget_bytes")[0])]
    none: tuple[Floats, Floats] = (np.array([]), np.array([]))
    shown = max((steps(*xy) for xy in limits), key=lambda xy: float(xy[1][-1]), default=none)
    style = {"color": BUDGET_COLOUR, "dash": BUDGET_DASH, "width": 2, "shape": "hv"}
    made = line(
        "budget", "budget", shown, unit=unit, line=style, hovertemplate="budget: %{y:.3~g}<extra></extra>",
        legend=False,
    )  # fmt: skip
    return made | {"y": [None if y > top / unit else y for y in made["y"]]}


def outside_most(view: View) -> GpuLines | None:
    """Return the GPU on which most is in use outside the ranks' budgets; None where none is told of."""
    told = [gpu for gpu in view.gpus if len(gpu.outside[1])]
    return max(told, key=lambda gpu: float(gpu.outside[1][-1]), default=None)


def _outside_line(view: View, unit: float, theme: Theme) -> list[Trace]:
    if not view.gpus:
        return []
    most = outside_most(view)
    xy = most.outside if most else (np.array([]), np.array([]))
    style = {"color": theme.faint, "width": 1, "shape": "hv"}
    hover = f"outside the budget, {most.label}: %{{y:.3~g}}<extra></extra>" if most else ""
    return [line("outside", "outside", decimate(*xy), unit=unit, legend=False, line=style, hovertemplate=hover)]


def _outside_note(view: View, top: float, theme: Theme) -> list[dict[str, Any]]:
    """Name the line where it ends; one that lies above the scale is said instead."""
    most = outside_most(view)
    if most is None:
        return []
    now = float(most.outside[1][-1])
    text = f"outside the budget: {f'up to {readable(now)} a GPU' if len(view.gpus) > 1 else readable(now)}"
    if now > top:
        return [corner_note(f"{text}, above this scale", theme, y=0.88) | {"xshift": -2}]
    return [corner_note(text, theme, y=now / top) | {"yanchor": "bottom", "xshift": -2}]


def _near_marks(view: View, unit: float) -> Trace:
    t: list[float] = []
    y: list[float] = []
    for series in view.ranks:
        times, used = decimate(*series.of("used_bytes"), 200)
        limit_t, limit = series.of("limit_bytes")
        if len(times) and len(limit_t):
            at = limit[np.clip(np.searchsorted(limit_t, times, side="right") - 1, 0, len(limit) - 1)]
            near = (at > 0) & (used > NEAR * at)
            t += times[near].tolist()
            y += used[near].tolist()
    marks = line("near", "over 90%", (np.array(t), np.array(y)), unit=unit, legend=False, hoverinfo="skip")
    marker = {"symbol": "triangle-up", "color": BUDGET_COLOUR, "size": 7}
    return marks | {"mode": "markers", "marker": marker}


def _percent_axis_holder() -> Trace:
    # An axis is drawn only where a trace uses it.
    return {
        "type": "scatter", "meta": "percent", "x": [None], "y": [None], "yaxis": "right",
        "showlegend": False, "hoverinfo": "skip", "mode": "lines", "name": "percent",
    }  # fmt: skip


def _percent_axis(limit: float, top: float, hidden: bool) -> dict[str, Any]:
    share = 100 * top / limit if limit > 0 else 100.0
    return {
        "title": "% of budget", "range": [0.0, round(share, 4)], "visible": limit > 0 and not hidden,
        "tickvals": [0, 25, 50, 75, 100] if limit > _LOW * top else [0, 100],
    }  # fmt: skip


def _shade(op: Operation, view: View, theme: Theme) -> dict[str, Any]:
    return {
        "type": "rect",
        "xref": "x",
        "yref": "y domain",
        "x0": round(max(op.start_s, view.start_s), 4),
        "x1": round(op.end_s, 4),
        "y0": 0,
        "y1": 1,
        "fillcolor": theme.shade[op.number % 2],
        "line": {"width": 0},
        "layer": "below",
    }


def _operation_names(view: View, theme: Theme) -> list[dict[str, Any]]:
    """Return the names of the operations, or their numbers where there is no room: the table below tells the rest.

    First each gets its number, what runs and what took longest before others; then, in this order, more where it fits.
    """
    character = max(view.right_s - view.start_s, 1e-9) * _CHARACTER_PX / view.plot_px
    ops = sorted(view.operations[-_MOST_SHADED:], key=lambda op: (not op.running, -op.seconds))
    placed: dict[int, tuple[float, float, str]] = {}

    def fits(at: int, text: str) -> bool:
        op, need = ops[at], character * len(text)
        left = min(max(op.start_s, view.start_s), view.right_s - need)
        end = left + need + character
        others = (place for other, place in placed.items() if other != at)
        if not all(left >= known_end or end <= known_left for known_left, known_end, _ in others):
            return False
        if text == operation_label(op) != short_label(op) and need > op.end_s - op.start_s:
            return False
        placed[at] = left, end, text
        return True

    for at, op in enumerate(ops):
        fits(at, _labels(op)[-1])
    for at in list(placed):
        any(fits(at, text) for text in _labels(ops[at]))
    found = []
    for at, (left, _, text) in sorted(placed.items(), key=lambda item: item[1]):
        # One that was pushed to the left ends with the panel.
        pushed = left < max(ops[at].start_s, view.start_s)
        found.append(_name_at(view.right_s if pushed else left, "right" if pushed else "left", text, theme))
    return found


def _name_at(x: float, anchor: str, text: str, theme: Theme) -> dict[str, Any]:
    return {
        "text": text, "xref": "x", "yref": "y domain", "x": round(x, 4), "y": 1.0, "xanchor": anchor,
        "yanchor": "top", "showarrow": False, "font": {"size": 11, "color": theme.text},
    }  # fmt: skip


def _labels(op: Operation) -> list[str]:
    """Return what an operation may be called, the longest first, which must fit above it alone."""
    return [operation_label(op), short_label(op), f"#{op.number} ✗" if op.error else f"#{op.number}"]


def short_label(op: Operation) -> str:
    """Return an operation's name, with a mark if it failed."""
    return f"{op.name} ✗" if op.error else op.name


def operation_label(op: Operation) -> str:
    """Return what stands above a shaded operation; a running one says its round and phase."""
    if not op.running:
        return short_label(op)
    rounds, phase = op.progress.get("rounds"), op.progress.get("phase")
    text = f"{op.name} · round {op.progress.get('round')}/{rounds}" if rounds else op.name
    return f"{text} · {phase}" if phase else text


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
