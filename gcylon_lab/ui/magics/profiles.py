"""``%%lab_profile``: what the ranks did during a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ...profiling.report import format_summary, summary
from ...profiling.snapshot import RankSnapshot
from ...units import format_bytes, format_count, format_seconds
from ..figures.numbers import html_table, operation_table
from .shown import Shown

_BAR_PX = 240


def since(snapshots: Sequence[RankSnapshot], marks: Mapping[int, int]) -> list[RankSnapshot]:
    """What was recorded after a time, of each rank.

    Parameters
    ----------
    snapshots : sequence of RankSnapshot
    marks : mapping of int to int
        By rank, the ``now_ns`` of an earlier snapshot; ranks that are not there are kept whole.
    """
    return [_cut(snapshot, marks.get(snapshot["rank"], 0)) for snapshot in snapshots]


def _cut(snapshot: RankSnapshot, start_ns: int) -> RankSnapshot:
    kept = [i for i, span in enumerate(snapshot["spans"]) if span[2] >= start_ns]
    samples, gpu = snapshot["samples"], snapshot.get("gpu")
    return snapshot | {
        "samples": _samples(samples, start_ns),
        "gpu": gpu and gpu | {"samples": _samples(gpu["samples"], start_ns)},
        "operations": [row for row in snapshot["operations"] if row["start_ns"] >= start_ns],
        "spans": [snapshot["spans"][i] for i in kept],
        "span_threads": [snapshot["span_threads"][i] for i in kept],
        "marks": [mark for mark in snapshot["marks"] if mark[2] >= start_ns],
    }


def _samples(columns: Mapping[str, list[Any]], start_ns: int) -> dict[str, list[Any]]:
    """Samples from a time on, and the one before it: what was in use when it began."""
    times = columns["t_ns"]
    first = max(0, next((i for i, t in enumerate(times) if t >= start_ns), len(times)) - 1)
    return {name: column[first:] for name, column in columns.items()}


def profile(snapshots: Sequence[RankSnapshot], seconds: float, notes: Sequence[str] = ()) -> Shown:
    """The operations of a cell, and how evenly the ranks worked.

    Parameters
    ----------
    snapshots : sequence of RankSnapshot
        As `since` gives them.
    seconds : float
        That the cell took.
    notes : sequence of str
        Lines below it.
    """
    rows = summary(snapshots)
    count, inside = len(rows["operations"]), sum(row["seconds"] for row in rows["operations"])
    done = f"{format_count(count)} operation{'s' * (count != 1)} took {format_seconds(inside)} of it"
    head = f"The cell took {format_seconds(seconds)}; {done if count else 'no operation ran on the ranks'}."
    text = "\n".join([head, *([format_summary(snapshots)] if count else []), *notes])
    if not count:
        return Shown(text, "".join(f"<div>{escape(line)}</div>" for line in (head, *notes)))
    html = f'<div class="gcylon-scroll">{html_table(operation_table(snapshots))}</div>'
    below = "".join(f"<div>{escape(line)}</div>" for line in notes)
    return Shown(text, f"<div>{escape(head)}</div>{html}{_bars(rows['ranks'])}{below}")


def _bars(rows: Sequence[Mapping[str, Any]]) -> str:
    """Each rank's time in operations, busy and waiting, as bars beside each other, so that skew is seen."""
    ranks = sorted({row["rank"] for row in rows})
    busy = {rank: sum(row["busy_s"] for row in rows if row["rank"] == rank) for rank in ranks}
    waiting = {rank: sum(row["waiting_s"] for row in rows if row["rank"] == rank) for rank in ranks}
    most = max((busy[rank] + waiting[rank] for rank in ranks), default=0.0) or 1.0
    lines = []
    for rank in ranks:
        mine = [row for row in rows if row["rank"] == rank]
        parts = "".join(
            f'<span style="display:inline-block;height:9px;width:{_BAR_PX * part / most:.1f}px;'
            f'background:{colour}"></span>'
            for part, colour in ((busy[rank], "#4477AA"), (waiting[rank], "rgba(128,128,128,0.4)"))
        )
        cells = [
            f"busy {format_seconds(busy[rank])}",
            f"waiting {format_seconds(waiting[rank])}",
            f"received {format_bytes(sum(row['received_bytes'] for row in mine))}",
            f"peak {format_bytes(max(row['measured_peak_bytes'] for row in mine))}",
        ]
        texts = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        bar = f'<td style="text-align:left;min-width:{_BAR_PX}px">{parts}</td>'
        lines.append(f"<tr><th>rank {rank}</th>{bar}{texts}</tr>")
    return f'<table class="gcylon-numbers">{"".join(lines)}</table>'
