"""Peaks: each rank's in one operation, and predicted beside measured over operations."""

from __future__ import annotations

from typing import Any

from ..series import memory_unit, readable
from ..theme import BUDGET_COLOUR, BUDGET_DASH, Theme, rank_style
from ..view import Operation, View
from .panel import CATEGORIES, Panel, Trace, corner_note, rank_names, rounded

RANKS_TITLE = "Peaks: which rank?"
PLAN_TITLE = "Peaks: was the plan right?"
_RANKS_EMPTY = 'Each rank\'s peak beside the<br>predicted one and the budget.<br>Run t.shuffle("key").'
_PLAN_EMPTY = "Predicted beside measured<br>peak of each operation.<br>Run one, or more."
MOST_OPERATIONS = 5
_MOST_NAMED_RANKS = 5
_MOST_NAMED_VERBS = 3
# While an operation runs. Where a text was empty plotly draws none later.
_UNKNOWN = "…"
_FAILED = "✗"
# The scale ends so far above all there is; numbers stand in between, under the note on a budget out of sight.
_ROOM, _NUMBERS_AT = 1.45, 0.78


def peak_ranks_panel(view: View, theme: Theme) -> Panel:
    """Return the panel of one operation: measured peak, predicted peak and budget of each rank.

    The operation is the one chosen, else the one that runs, else the one that took longest.
    """
    op = _chosen(view)
    records = dict(sorted(op.records.items())) if op else {}
    values = {name: [_bytes(r, name) for r in records.values()] for name in _FIELDS}
    top, unit, name, _ = _scale(values)
    ranks = list(records)
    x = [str(r) for r in ranks]
    bars = _bars("peak-measured", "measured", x, values["measured_peak_bytes"], unit)
    bars["marker"] = {"color": [rank_style(r)[0] for r in ranks]}
    few = len(ranks) <= _MOST_NAMED_RANKS
    numbers = _numbers(
        "peak-numbers",
        x,
        [_so_far(r, unit) for r in records.values()],
        top,
        theme,
        few,
    )
    predicted = _diamonds("peak-predicted", x, values["predicted_peak_bytes"], unit, theme, few=len(ranks) <= 8)
    budget = _budget("peak-budget", x, values["budget_bytes"], unit, top, named=True)
    notes = _notes(values, top * unit, theme)
    if op and not few:
        notes = [_most_note(op, unit, theme)]
    return Panel(
        "peak_ranks", f"Peaks: which rank in #{op.number}?" if op else RANKS_TITLE, [bars, predicted, budget, numbers],
        {"title": "rank" if ranks else "", **CATEGORIES, **rank_names(ranks)},
        {"title": name, "range": [0.0, top]}, annotations=notes,
        empty="" if records else _RANKS_EMPTY,
    )  # fmt: skip


def plan_panel(view: View, theme: Theme) -> Panel:
    """Return the panel over the latest operations: predicted and measured peak of the worst rank, and the budget."""
    ops = [op for op in view.told if op.largest("predicted_peak_bytes")[0]][-MOST_OPERATIONS:]
    values = {name: [float(op.largest(name)[0]) for op in ops] for name in _FIELDS}
    top, unit, name, hidden = _scale(values)
    # Verbs stand under the bars while there is room for them.
    x = [f"#{op.number}<br>{op.verb}" if len(ops) <= _MOST_NAMED_VERBS else f"#{op.number}" for op in ops]
    measured = _bars("plan-measured", "measured, worst rank", x, values["measured_peak_bytes"], unit)
    measured["marker"] = {"color": theme.bar}
    ratios = _numbers("plan-ratios", x, [_judged(op) for op in ops], top, theme)
    predicted = _diamonds("plan-predicted", x, values["predicted_peak_bytes"], unit, theme)
    budget = _budget("plan-budget", x, values["budget_bytes"], unit, top, named=not hidden)
    return Panel(
        "plan", PLAN_TITLE, [measured, predicted, budget, ratios],
        {"title": "above: % of predicted, worst rank", **CATEGORIES},
        {"title": name, "range": [0.0, top]}, annotations=_notes(values, top * unit, theme),
        empty="" if ops else _PLAN_EMPTY,
    )  # fmt: skip


_FIELDS = ("measured_peak_bytes", "predicted_peak_bytes", "budget_bytes")


def _has_peak(op: Operation) -> bool:
    return bool(op.largest("measured_peak_bytes")[0] or op.largest("predicted_peak_bytes")[0])


def _chosen(view: View) -> Operation | None:
    return view.followed([op for op in view.told if _has_peak(op)])


def _bytes(record: dict[str, Any], name: str) -> float:
    return float(record.get(name) or 0)


def _scale(values: dict[str, list[float]]) -> tuple[float, float, str, bool]:
    """Return the axis' end in its unit, the unit, its name, and whether a budget lies beyond the end."""
    peak = max(values["measured_peak_bytes"] + values["predicted_peak_bytes"], default=0.0)
    budgets = values["budget_bytes"]
    shown = [nbytes for nbytes in budgets if nbytes <= 4 * peak or not peak]
    end = _ROOM * max(peak, *shown, 0.0) or 1.0
    unit, name = memory_unit(end)
    return round(end / unit, 6), unit, name, len(shown) < len(budgets)


def _so_far(record: dict[str, Any], unit: float) -> str:
    """Return a rank's peak once it is its peak: while it works that may still grow."""
    measured = _bytes(record, "measured_peak_bytes")
    return f"{measured / unit:.3g}" if measured and record.get("end_ns") else _UNKNOWN


def _judged(op: Operation) -> str:
    """Return measured in percent of predicted; what did not come to its end says nothing of its plan."""
    if op.error:
        return _FAILED
    measured, predicted = (op.largest(f"{name}_peak_bytes")[0] for name in ("measured", "predicted"))
    return f"{measured / predicted:.0%}" if op.complete and predicted and measured else _UNKNOWN


def _bars(key: str, name: str, x: list[str], y: list[float], unit: float) -> Trace:
    return {
        "type": "bar", "meta": key, "name": name, "x": x, "width": 0.72,
        # What is not known yet is not none.
        "y": [v or None for v in rounded([v / unit for v in y])],
        "hovertemplate": "measured: %{y:.3~g}<extra></extra>", "showlegend": False,
    }  # fmt: skip


def _numbers(key: str, x: list[str], texts: list[str], top: float, theme: Theme, shown: bool = True) -> Trace:
    """Write a number over each bar, in a row of its own: a low bar has no room for one under its diamond."""
    return {
        "type": "scatter", "mode": "text", "meta": key, "name": "numbers", "x": x if shown else [],
        "y": [round(_NUMBERS_AT * top, 6)] * len(x) if shown else [], "text": texts if shown else [],
        "textfont": {"size": 10, "color": theme.text}, "hoverinfo": "skip", "showlegend": False,
    }  # fmt: skip


def _diamonds(key: str, x: list[str], y: list[float], unit: float, theme: Theme, *, few: bool = True) -> Trace:
    known = [(a, b) for a, b in zip(x, y, strict=True) if b > 0]
    return {
        "type": "scatter", "mode": "markers", "meta": key, "name": "predicted", "x": [a for a, _ in known],
        "y": rounded([b / unit for _, b in known]), "showlegend": bool(known),
        "marker": {
            "symbol": "diamond-open" if few else "line-ew-open", "size": 11 if few else 8, "color": theme.text,
            "line": {"width": 2},
        },
        "hovertemplate": "predicted: %{y:.3~g}<extra></extra>",
    }  # fmt: skip


def _budget(key: str, x: list[str], y: list[float], unit: float, top: float, *, named: bool) -> Trace:
    """Draw the budgets that are on the scale; ``named`` is whether the note in the corner says what it is."""
    # Reading has no plan, so no budget stands in its record.
    known = [(a, b) for a, b in zip(x, y, strict=True) if 0 < b <= top * unit]
    joined = 1 < len(known) == sum(b > 0 for b in y)
    return {
        "type": "scatter", "mode": "lines" if joined else "markers", "meta": key, "name": "budget",
        "x": [a for a, _ in known], "y": rounded([b / unit for _, b in known]),
        "line": {"color": BUDGET_COLOUR, "dash": BUDGET_DASH, "width": 2, "shape": "hvh"},
        "marker": {"symbol": "line-ew-open", "size": 14, "color": BUDGET_COLOUR, "line": {"width": 2}},
        "hovertemplate": "budget: %{y:.3~g}<extra></extra>",
        "showlegend": bool(known) and not named,
    }  # fmt: skip


def _notes(values: dict[str, list[float]], top_bytes: float, theme: Theme) -> list[dict[str, Any]]:
    """What stands in the corner: the latest budget, for which a legend that names the diamonds has no room."""
    told = [nbytes for nbytes in values["budget_bytes"] if nbytes > 0]
    if not told:
        return []
    if told[-1] > top_bytes:
        return [corner_note(f"budget {readable(told[-1])} ↑ off the scale", theme, colour=theme.budget)]
    now = " now" if max(told) > told[-1] else ""
    return [corner_note(f"budget {readable(told[-1])}{now}, dashed", theme, colour=theme.budget)]


def _most_note(op: Operation, unit: float, theme: Theme) -> dict[str, Any]:
    """What bars without numbers come to, and what the dash is."""
    value, rank = op.largest("measured_peak_bytes")
    budget = op.largest("budget_bytes")[0]
    size = f"{value / unit:.3g}" if memory_unit(budget)[0] == unit else readable(value)
    of = f"{size} of {readable(budget)}" if budget else readable(value)
    return corner_note(f"most: rank {rank}, {of}", theme)
