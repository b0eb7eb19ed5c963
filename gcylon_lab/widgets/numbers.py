"""The numbers behind the figures as text: a screenshot of them, or a copy, says it all."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ..profiling.report import summary
from ..units import format_count, format_rate, format_seconds
from .series import percent, readable
from .view import Snapshot

Row = dict[str, Any]
Table = tuple[list[str], list[list[str]]]

_HEAD = [
    "operation", "strategy", "rounds", "time", "rate a rank", "peak (worst rank)", "predicted", "of predicted",
    "budget", "staged", "slowest", "skew",
]  # fmt: skip


def operation_table(snapshots: Sequence[Snapshot], *, last: int | None = None) -> Table:
    """Return head and rows, one an operation, the latest ``last`` of them (all by default)."""
    rows = summary(snapshots)["operations"]
    return list(_HEAD), [_operation_cells(row) for row in (rows if last is None else rows[-last:])]


def rank_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows, one an operation and rank: what each rank held, sent and waited."""
    head = ["operation", "rank", "host", "time", "busy", "waiting", "rows in", "rows out", "peak", "staged", "error"]
    rows = [
        [
            f"#{r['number']} {r['verb']}", str(r["rank"]), str(r["host"]), format_seconds(r["seconds"]),
            format_seconds(r["busy_s"]), format_seconds(r["waiting_s"]), format_count(r["rows_in"]),
            format_count(r["rows_out"]), readable(r["measured_peak_bytes"]), readable(r["staged_bytes"]), r["error"],
        ]
        for r in summary(snapshots)["ranks"]
    ]  # fmt: skip
    return head, rows


def phase_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows, one an operation, rank and phase."""
    head = ["operation", "rank", "phase", "time", "bytes", "rate"]
    rows = [
        [
            f"#{r['number']} {r['verb']}", str(r["rank"]), r["phase"], format_seconds(r["seconds"]),
            readable(r["bytes"]) if r["bytes"] else "", _rate(r["gb_per_s"]),
        ]
        for r in summary(snapshots)["phases"]
    ]  # fmt: skip
    return head, rows


def html_table(table: Table, *, caption: str = "") -> str:
    """Return an HTML table; the first column is a heading, everything else stands to the right."""
    head, rows = table
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr><th>{escape(row[0])}</th>" + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<table class="gcylon-numbers">{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def _operation_cells(row: Row) -> list[str]:
    peak, predicted, budget = row["measured_peak_bytes"], row["predicted_peak_bytes"], row["budget_bytes"]
    done = format_seconds(row["seconds"]) + ("" if row["done"] else " so far")
    return [
        f"#{row['number']} {row['verb']}" + (" ✖ failed" if row["error"] else ""),
        row["strategy"],
        format_count(row["rounds"]) if row["rounds"] else "",
        done,
        _rate(row["gb_per_s"]),
        f"{readable(peak)} (rank {row['peak_rank']})" if peak else "",
        readable(predicted) if predicted else "",
        percent(peak / predicted) if predicted and peak else "",
        f"{readable(budget)}, {percent(peak / budget)} used" if budget else "",
        readable(row["staged_bytes"]) if row["staged_bytes"] else "nothing",
        f"rank {row['slowest_rank']}",
        f"{row['skew']:.2f} ×" if row["skew"] is not None else "",
    ]


def _rate(gb_per_s: float | None) -> str:
    return "" if gb_per_s is None else format_rate(gb_per_s * 1e9)
