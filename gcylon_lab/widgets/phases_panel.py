"""Phases: where does the time go? A lane a rank; skew is a ragged right edge."""

from __future__ import annotations

from collections import defaultdict

from ..units import format_seconds
from .panel import Panel, Trace, empty_note
from .series import merge_intervals, percent
from .theme import PHASES, Theme, phase_style
from .view import Snapshot, View

TITLE = "Phases: where does the time go?"
OTHER = "your own"
MOST_LANES = 8
_EMPTY = 'What each rank does, a lane a rank: it appears<br>while an operation runs, for example t.shuffle("key").'
_ROWS = 4
_THINNEST = 0.2
_RESOLUTION = 500

Spans = dict[str, list[tuple[float, float]]]
Intervals = dict[str, list[tuple[float, float, float]]]


def phases_panel(view: View, theme: Theme) -> Panel:
    """Return the panel; above 8 ranks only the lanes of the 8 that were busy longest."""
    intervals = {int(s["rank"]): _intervals(s, view) for s in view.snapshots}
    lanes = _lanes(intervals)
    title = TITLE if len(lanes) == len(intervals) else f"{TITLE} (the {len(lanes)} busiest of {len(intervals)} ranks)"
    traces = [_trace(name, {r: intervals[r].get(name, []) for r in lanes}) for name in (*PHASES, OTHER)]
    nothing = not any(trace["x"] for trace in traces)
    return Panel(
        "phases",
        title,
        traces,
        {"title": "s"},
        {
            "title": "",
            "range": [max(len(lanes), 1) - 0.5, -0.5],
            "tickvals": list(range(len(lanes))),
            "ticktext": [f"rank {rank}" for rank in lanes],
        },
        annotations=[empty_note(_EMPTY, theme)] if nothing else [],
        note=_hidden_note(view),
    )


def _hidden_note(view: View) -> str:
    """Say of the latest operation with transfers beside its work how much of them was hidden."""
    known = ((op.name, op.hidden) for op in reversed(view.operations))
    return next((f"transfers hidden in {name}: {percent(share)}" for name, share in known if share is not None), "")


def _intervals(snapshot: Snapshot, view: View) -> Intervals:
    found: Spans = defaultdict(list)
    for name, category, start_ns, end_ns, *_ in snapshot["spans"]:
        end = view.seconds(end_ns)
        if end < view.start_s or not (name in PHASES or category == "user"):
            continue
        key = name if name in PHASES else OTHER
        found[key].append((max(view.seconds(start_ns), view.start_s), end))
    current = snapshot.get("progress")
    if current and current.get("phase") in PHASES:
        started = view.seconds(current["since_ns"])
        found[current["phase"]].append((max(started, view.start_s), max(view.seconds(snapshot["now_ns"]), started)))
    gap = (view.end_s - view.start_s) / _RESOLUTION
    return {name: merge_intervals(spans, gap) for name, spans in found.items()}


def _lanes(intervals: dict[int, Intervals]) -> list[int]:
    if len(intervals) <= MOST_LANES:
        return sorted(intervals)

    def busy(rank: int) -> float:
        worked = [spans for name, spans in intervals[rank].items() if name != "waiting"]
        return sum((b - a) * part for spans in worked for a, b, part in spans)

    return sorted(sorted(intervals, key=lambda r: (-busy(r), r))[:MOST_LANES])


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
        "showlegend": bool(x),
    }
