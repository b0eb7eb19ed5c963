"""Phases: where does the time go? A lane a rank; skew is a ragged right edge."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from ....units import format_seconds
from ..series import Floats, few_of, merge_intervals, percent
from ..theme import PHASES, Theme, phase_of, phase_style
from ..view import Snapshot, View
from .panel import Panel, Trace, host_lines, rounded

TITLE = "Phases: where does the time go?"
OTHER = "your own"
NAMES = (*PHASES, OTHER)
MOST_LANES = 8
_EMPTY = 'What each rank does, a lane a rank: it appears<br>while an operation runs, for example t.shuffle("key").'
_ROWS = 4
_THINNEST = 0.2
_RESOLUTION = 200
_CELLS = 160
_IN_A_ROW = 4
_LEAST = 1e-3
_LONGEST_HOST = 8
# Of the patterns of `PHASES`.
_SIGNS = {"": "■", "/": "▨", "\\": "▧", "x": "▩", "+": "▦", ".": "▒", "-": "▤", "|": "▥"}

Spans = dict[str, list[tuple[float, float]]]
Intervals = dict[str, list[tuple[float, float, float]]]


def phases_panel(view: View, theme: Theme) -> Panel:
    """Return the panel: bars in a lane for each rank; above 8 ranks a thin lane each, in the colour of its phase."""
    spans = spans_of(view)
    ranks = list(spans)
    many = len(ranks) > MOST_LANES
    gap = (view.end_s - view.start_s) / _RESOLUTION
    lanes: dict[int, Intervals] = {
        rank: {} if many else {name: merge_intervals(found, gap) for name, found in by.items()}
        for rank, by in spans.items()
    }
    traces = [_trace(name, {r: by.get(name, []) for r, by in lanes.items()}) for name in NAMES]
    traces += [_map(spans, view)] if many else []
    present = [name for name in NAMES if any(by.get(name) for by in spans.values())]
    starts = view.host_starts()
    ticks: dict[float, str] = {place: f"rank {ranks[place]}" for place in few_of(len(ranks))}
    if many and starts:  # each host's name in the middle of its lanes
        bounds = [0, *starts, len(ranks)]
        ticks = {(bounds[i] + bounds[i + 1] - 1) / 2: _short(view.hosts[i]) for i in few_of(len(starts) + 1)}
    return Panel(
        "phases",
        TITLE,
        traces,
        {"title": "s"},
        {
            "title": "",
            "range": [max(len(ranks), 1) - 0.5, -0.5],
            "tickvals": list(ticks),
            "ticktext": list(ticks.values()),
        },
        shapes=host_lines(starts, theme),
        empty="" if present else _EMPTY,
        note=_hidden_note(view),
        lead=_key(present),
    )


def _short(host: str) -> str:
    """Return as much of a host's name as stands beside a lane."""
    name = host.partition(".")[0] or host
    return name if len(name) <= _LONGEST_HOST else f"…{name[1 - _LONGEST_HOST :]}"


def _key(names: list[str]) -> str:
    """Return what a legend would say; plotly's own knows no columns, and runs into the panel beside it."""
    signs = []
    for name in names:
        style = phase_style(name)
        signs.append(f'<span style="color:{style.colour}">{_SIGNS[style.pattern]}</span> {name}')
    rows = [signs[at : at + _IN_A_ROW] for at in range(0, len(signs), _IN_A_ROW)]
    return "<br>".join("   ".join(row) for row in rows if row)


def _hidden_note(view: View) -> str:
    """Say of the latest operation with transfers beside its work how much of them was hidden."""
    known = ((op.name, op.hidden) for op in reversed(view.operations))
    return next((f"transfers hidden in {name}: {percent(share)}" for name, share in known if share is not None), "")


def lanes_height(view: View) -> int:
    """Return the pixels that a lane for each rank needs."""
    return 0 if len(view.ranks) <= MOST_LANES else min(3 * len(view.ranks), 260)


def phase_at(spans: Spans, edges: Floats) -> npt.NDArray[np.int64]:
    """Return for each cell of a grid the place in `NAMES` of what took most of it; -1 where nothing was done."""
    spent = np.zeros((len(NAMES), len(edges) - 1))
    for name, found in spans.items():
        begun, ended = (np.sort(np.array(side)) for side in zip(*found, strict=True))
        spent[NAMES.index(name)] = np.diff(_passed(begun, edges) - _passed(ended, edges))
    most = spent.argmax(axis=0)
    # What is left of sums of many numbers is no time in which something was done.
    return np.where(spent.max(axis=0) > _LEAST * np.diff(edges), most, -1)


def _passed(times: Floats, edges: Floats) -> Floats:
    """Return for each edge the sum of the time since all that lies before it."""
    before = np.searchsorted(times, edges)
    sums = np.concatenate(([0.0], np.cumsum(times)))
    passed: Floats = before * edges - sums[before]
    return passed


def grid_of(view: View) -> Floats:
    """Return where the cells begin and end that a map over the view's time has."""
    return np.linspace(view.start_s, max(view.end_s, view.start_s + 1e-3), _CELLS + 1)


def spans_of(view: View) -> dict[int, Spans]:
    """Return each rank's spans by phase, on the view's axis."""
    return {int(s["rank"]): _spans(s, view) for s in view.snapshots}


def phase_scale() -> dict[str, Any]:
    """Return what a heat map of places in `NAMES` needs for its colours."""
    scale = [[edge / len(NAMES), phase_style(name).colour] for i, name in enumerate(NAMES) for edge in (i, i + 1)]
    return {"zmin": -0.5, "zmax": len(NAMES) - 0.5, "colorscale": scale, "showscale": False, "hoverongaps": False}


def _map(spans: dict[int, Spans], view: View) -> Trace:
    edges = grid_of(view)
    rows = [[None if p < 0 else p for p in phase_at(by, edges).tolist()] for by in spans.values()]
    return {
        "type": "heatmap",
        "meta": "phase-map",
        "name": "phases",
        "x": rounded((edges[1:] + edges[:-1]) / 2, 3),
        "y": list(range(len(rows))),
        "z": rows,
        "hovertemplate": "rank %{y}<extra></extra>",
        **phase_scale(),
    }


def _spans(snapshot: Snapshot, view: View) -> Spans:
    found: Spans = defaultdict(list)
    older = 0
    for name, category, start_ns, end_ns, *_ in reversed(snapshot["spans"]):
        end = view.seconds(end_ns)
        if end < view.start_s:
            # They come about in the order of their ends.
            if (older := older + 1) > 256:
                break
            continue
        key = phase_of(name, category) or OTHER
        found[key].append((max(view.seconds(start_ns), view.start_s), end))
    current = snapshot.get("progress")
    if current and current.get("phase"):
        started = view.seconds(current["since_ns"])
        until = max(view.seconds(snapshot["now_ns"]), started)
        found[phase_of(current["phase"], "algorithm")].append((max(started, view.start_s), until))
    return found


def _trace(name: str, by_lane: dict[int, list[tuple[float, float, float]]]) -> Trace:
    """Return all bars of a phase as one outline: a page draws one path much faster than a thousand bars.

    A bar is as thick as the part of its time that was spent in the phase.
    """
    style = phase_style(name)
    x: list[float | None] = []
    y: list[float | None] = []
    said: list[str] = []
    for lane, (rank, spans) in enumerate(by_lane.items()):
        middle = lane + (style.row - 1.5) * 0.84 / _ROWS
        for start, end, covered in spans:
            half = 0.4 / _ROWS * max(_THINNEST, covered)
            a, b = round(start, 5), round(max(end, start), 5)
            low, high = round(middle - half, 4), round(middle + half, 4)
            x += [a, b, b, a, a, None]
            y += [low, low, high, high, low, None]
            said += [f"rank {rank}: {name}, {percent(covered)} of {format_seconds(end - start)}"] * 6
    strokes = {"size": 5, "solidity": 0.25, "fgcolor": "rgba(0,0,0,0.45)"}
    pattern = {"shape": style.pattern, "bgcolor": style.colour, **strokes}
    return {
        "type": "scatter",
        "mode": "lines",
        "meta": f"phase-{name}",
        "name": name,
        "x": x,
        "y": y,
        "fill": "toself",
        "fillcolor": style.colour,
        "fillpattern": pattern if style.pattern else None,
        "line": {"width": 0, "color": style.colour},
        "text": said,
        "hoveron": "points",
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
    }
