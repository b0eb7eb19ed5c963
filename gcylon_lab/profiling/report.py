"""What was measured, as rows and as text. Pure functions of snapshots.

A rank's *busy* time is its time without waiting in agreements; the slowest rank is
the busiest one, since in an operation that ends with an agreement all end together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args

from gcylon_lab.errors import ArgumentError
from gcylon_lab.units import format_bytes, format_rate, format_seconds

from .events import PHASES, CopyKind, hidden_share
from .gpus import GpuSeries, gpus_of
from .snapshot import RankSnapshot, take_snapshot
from .spans import current_recorder
from .trace import chrome_trace, write_chrome_trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["chrome_trace", "format_summary", "summary", "write_chrome_trace"]

Row = dict[str, Any]

HIDDEN_MEANS = (
    "of the time in which transfers were under way, once ranks had queued them, the part that ranks did not spend "
    "waiting for them"
)

_RANK_FIELDS = (
    "strategy", "rounds", "rounds_done", "rows_in", "rows_out", "bytes_in", "bytes_out", "sent_bytes",
    "received_bytes", "staged_bytes", "unstaged_bytes", "budget_bytes", "predicted_peak_bytes",
    "measured_peak_bytes", "error",
)  # fmt: skip
_SUMMED = (
    "rows_in", "rows_out", "bytes_in", "bytes_out", "sent_bytes", "received_bytes", "staged_bytes", "unstaged_bytes",
)  # fmt: skip


def summary(snapshots: Sequence[RankSnapshot]) -> dict[str, list[Row]]:
    """Rows for tables: of each operation, of each rank in it, of each phase on each rank.

    Parameters
    ----------
    snapshots : sequence of RankSnapshot
        One a rank.

    Returns
    -------
    dict of str to list of dict
        ``operations``: number, verb, strategy, rounds, ranks, done, seconds (of the rank that took longest),
        gb_per_s (input GB a rank over seconds), slowest_rank and skew (its busy time over the mean one), the largest
        measured_peak_bytes with its peak_rank, the largest predicted_peak_bytes, the smallest budget_bytes,
        sums of rows and bytes, hidden (of all ranks' transfer_s together), error.
        ``ranks``: number, verb, rank, host, done, seconds, busy_s, waiting_s, other_s (in no phase), gb_per_s,
        transfer_s (copies between GPUs or of staging were under way; each kind in full), transfer_wait_s (of it
        the rank did nothing but wait for them), hidden (the rest's share), and the record's own fields.
        ``phases``: number, verb, rank, phase, seconds, bytes, gb_per_s, measured_peak_bytes, staged_bytes (the last
        two of the whole operation).
        ``traffic``: of each operation whose exchanges are known: number, verb, sent (a list a sender, with the bytes to
        each rank; a sender that has not told is None), between_bytes (from one rank to another), within_hosts_bytes
        (the part of these that did not leave its host), kept_bytes (on their own rank), heaviest_from, heaviest_to and
        heaviest_bytes (the most from one rank to another), most_to (the rank that got most), most_to_bytes, and
        receive_skew (that over the mean).
        What cannot be said (a rate without bytes or of a failure, a skew without work, how much was hidden where
        no copy goes on by itself, as on CPU engines) is None. An operation still
        running counts up to the snapshot. All are in the order of number, then rank.
    """
    ranks = sorted(
        (_rank_row(snapshot, record) for snapshot in snapshots for record in snapshot["operations"]),
        key=lambda row: (row["number"], row["verb"], row["rank"]),
    )
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in ranks:
        groups.setdefault((row["number"], row["verb"]), []).append(row)
    return {
        "operations": [_operation_row(rows) for rows in groups.values()],
        "ranks": [{name: value for name, value in row.items() if name != "phases"} for row in ranks],
        "phases": [phase for row in ranks for phase in row["phases"]],
        "traffic": _traffic_rows(snapshots),
    }


def _gb_per_s(nbytes: float, seconds: float) -> float | None:
    return nbytes / seconds / 1e9 if nbytes > 0 and seconds > 0 else None


def _rank_row(snapshot: RankSnapshot, record: Row) -> Row:
    end_ns = record["end_ns"] or snapshot["now_ns"]
    # Differences in whole ns, so that what is zero shows as zero.
    total_ns = max(0, end_ns - record["start_ns"])
    waiting_ns = record["phases"].get("waiting", 0)
    seconds = total_ns / 1e9
    row = {"number": record["number"], "verb": record["verb"], "rank": snapshot["rank"]}
    phases = [_phase_row(row, record, name) for name in sorted(record["phases"], key=phase_order)]
    return {
        **row,
        "host": snapshot["host"],
        "done": bool(record["end_ns"]),
        "seconds": seconds,
        "busy_s": max(0, total_ns - waiting_ns) / 1e9,
        "waiting_s": waiting_ns / 1e9,
        "other_s": max(0, total_ns - sum(record["phases"].values())) / 1e9,
        "gb_per_s": None if record["error"] else _gb_per_s(record["bytes_in"], seconds),
        **_transfers(record),
        **{name: record[name] for name in _RANK_FIELDS},
        "phases": phases,
    }


def _transfers(record: Row) -> Row:
    copy_s, wait_s = (
        sum(record.get(f"{kind}_{what}_ns", 0) for kind in get_args(CopyKind)) / 1e9 for what in ("copy", "wait")
    )
    return {"transfer_s": copy_s, "transfer_wait_s": wait_s, "hidden": hidden_share(copy_s, wait_s)}


def _phase_row(row: Row, record: Row, name: str) -> Row:
    seconds = record["phases"][name] / 1e9
    nbytes = record["phase_bytes"].get(name, 0)
    return {
        **row,
        "phase": name,
        "seconds": seconds,
        "bytes": nbytes,
        "gb_per_s": _gb_per_s(nbytes, seconds),
        "measured_peak_bytes": record["measured_peak_bytes"],
        "staged_bytes": record["staged_bytes"],
    }


def _traffic_rows(snapshots: Sequence[RankSnapshot]) -> list[Row]:
    records: dict[tuple[int, str], dict[int, Row]] = {}
    for snapshot in snapshots:
        for record in snapshot["operations"]:
            records.setdefault((record["number"], record["verb"]), {})[snapshot["rank"]] = record
    hosts = hosts_of(snapshots)
    return [row for key in sorted(records) if (row := _traffic_row(*key, records[key], hosts)) is not None]


def hosts_of(snapshots: Sequence[RankSnapshot]) -> list[str]:
    """Return each rank's host; "" of ranks that have not told."""
    told = {int(snapshot["rank"]): str(snapshot["host"]) for snapshot in snapshots}
    return [told.get(rank, "") for rank in range(max(told, default=-1) + 1)]


def _traffic_row(number: int, verb: str, records: dict[int, Row], hosts: Sequence[str]) -> Row | None:
    from .traffic import traffic_of  # it loads numpy

    traffic = traffic_of(records)
    if traffic is None:
        return None
    sender, receiver, nbytes = traffic.heaviest()
    most_to = int(traffic.received.argmax())
    return {
        "number": number,
        "verb": verb,
        "sent": [row if told else None for row, told in zip(traffic.sent.tolist(), traffic.known, strict=True)],
        "between_bytes": traffic.between_bytes,
        "within_hosts_bytes": traffic.within_hosts_bytes(hosts),
        "kept_bytes": traffic.kept_bytes,
        "heaviest_from": sender,
        "heaviest_to": receiver,
        "heaviest_bytes": nbytes,
        "most_to": most_to,
        "most_to_bytes": int(traffic.received[most_to]),
        "receive_skew": traffic.receive_skew,
    }


def phase_order(name: str) -> tuple[int, str]:
    """A sort key: the phases of `PHASES` in their order, others after them by name."""
    return (PHASES.index(name) if name in PHASES else len(PHASES), name)


def _operation_row(rows: Sequence[Row]) -> Row:
    seconds = max(row["seconds"] for row in rows)
    slowest = max(rows, key=lambda row: row["busy_s"])
    peak = max(rows, key=lambda row: row["measured_peak_bytes"])
    mean_busy = sum(row["busy_s"] for row in rows) / len(rows)
    sums = {name: sum(row[name] for row in rows) for name in _SUMMED}
    error = next((row["error"] for row in rows if row["error"]), "")
    return {
        "number": rows[0]["number"],
        "verb": rows[0]["verb"],
        "strategy": rows[0]["strategy"],
        "rounds": max(row["rounds"] for row in rows),
        "ranks": len(rows),
        "done": all(row["done"] for row in rows),
        "seconds": seconds,
        "gb_per_s": None if error else _gb_per_s(sums["bytes_in"] / len(rows), seconds),
        "slowest_rank": slowest["rank"],
        "skew": slowest["busy_s"] / mean_busy if mean_busy > 0 else None,
        "measured_peak_bytes": peak["measured_peak_bytes"],
        "peak_rank": peak["rank"],
        "predicted_peak_bytes": max(row["predicted_peak_bytes"] for row in rows),
        "budget_bytes": min(row["budget_bytes"] for row in rows),
        **sums,
        "hidden": hidden_share(sum(row["transfer_s"] for row in rows), sum(row["transfer_wait_s"] for row in rows)),
        "error": error,
    }


def format_summary(snapshots: Sequence[RankSnapshot]) -> str:
    """The summary as text: tables of operations, of where each rank's time went, of what ranks sent; a line a GPU.

    Parameters
    ----------
    snapshots : sequence of RankSnapshot
        One a rank.

    Returns
    -------
    str
        Lines without a newline at the end.
    """
    rows = summary(snapshots)
    if not rows["operations"]:
        return "No operations were recorded."
    errors = [f"operation {row['number']}: {row['error']}" for row in rows["operations"] if row["error"]]
    dropped = sum(snapshot["dropped_events"] for snapshot in snapshots)
    if dropped:
        errors.append(f"{dropped:,} older events were dropped; the times above count them all the same.")
    notes = [gpu_sentence(gpu) for gpu in gpus_of(snapshots)]
    if any(row["hidden"] is not None for row in rows["operations"]):
        notes.insert(0, f"hidden: {HIDDEN_MEANS}")
    traffic = ["", *_traffic_table(rows["traffic"])] if rows["traffic"] else []
    return "\n".join([*_operations_table(rows["operations"]), "", *_phases_table(rows), *traffic, *notes, *errors])


def gpu_sentence(gpu: GpuSeries) -> str:
    """Return what NVML told of a GPU last, and how busy it was on average, in a line."""
    several = len(gpu.ranks) > 1
    told = [f"GPU {gpu.short_uuid} of rank{'s' * several} {', '.join(map(str, gpu.ranks))}:"]
    used, outside, busy = gpu.latest_used_bytes, gpu.latest_outside_bytes, gpu.mean_utilisation
    if used is not None and outside is not None:
        told.append(f"{format_bytes(used)} in use by all programs,")
        told.append(f"{format_bytes(outside)} of it outside the budget{'s' * several};")
    told.append("utilisation not reported" if busy is None else f"{busy:.0f}% busy on average")
    return " ".join(told)


_OPERATION_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("operation", lambda row: f"{row['number']} {row['verb']}"),
    ("strategy", lambda row: row["strategy"] or "-"),
    ("rounds", lambda row: f"{row['rounds']:,}"),
    ("time", lambda row: format_seconds(row["seconds"]) + ("" if row["done"] else " so far")),
    ("a rank", lambda row: _rate(row["gb_per_s"])),
    ("peak", lambda row: format_bytes(row["measured_peak_bytes"])),
    ("predicted", lambda row: _planned(row["predicted_peak_bytes"])),
    ("budget", lambda row: format_bytes(row["budget_bytes"])),
    ("staged", lambda row: format_bytes(row["staged_bytes"])),
    ("hidden", lambda row: _share(row["hidden"])),
    ("slowest", lambda row: f"rank {row['slowest_rank']}"),
    ("skew", lambda row: "-" if row["skew"] is None else f"{row['skew']:.2f}"),
)


# In characters, of a cell's output at a laptop's size.
_WIDEST = 116


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _planned(predicted_bytes: int) -> str:
    """What reads files, or looks at each row alone, predicts no peak: it holds what fits."""
    return format_bytes(predicted_bytes) if predicted_bytes else "-"


def _rate(gb_per_s: float | None) -> str:
    return "-" if gb_per_s is None else format_rate(gb_per_s * 1e9)


def _operations_table(rows: Sequence[Row]) -> list[str]:
    head = [name for name, _ in _OPERATION_COLUMNS]
    return format_table(head, ([show(row) for _, show in _OPERATION_COLUMNS] for row in rows))


def _phases_table(rows: dict[str, list[Row]]) -> list[str]:
    """All in one table, or where that is wider than a notebook one for each verb, whose phases are few."""
    lines = _phases_of(rows, rows["ranks"])
    if max(map(len, lines), default=0) <= _WIDEST:
        return lines
    verbs = dict.fromkeys(row["verb"] for row in rows["ranks"])
    parts = [_phases_of(rows, [row for row in rows["ranks"] if row["verb"] == verb]) for verb in verbs]
    return [line for part in parts for line in ("", *part)][1:]


def _phases_of(rows: dict[str, list[Row]], ranks: Sequence[Row]) -> list[str]:
    verbs = {row["verb"] for row in ranks}
    names = sorted({row["phase"] for row in rows["phases"] if row["verb"] in verbs}, key=phase_order)
    times = {(row["number"], row["verb"], row["rank"], row["phase"]): row["seconds"] for row in rows["phases"]}
    lines = []
    for row in ranks:
        key = (row["number"], row["verb"], row["rank"])
        spent = [times.get((*key, name)) for name in names]
        cells = ["-" if seconds is None else format_seconds(seconds) for seconds in spent]
        cells += [format_seconds(row["other_s"]), _share(row["hidden"])]
        lines.append([f"{row['number']} {row['verb']}", f"{row['rank']}", *cells])
    return format_table(["operation", "rank", *names, "other", "hidden"], lines)


_TRAFFIC_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("operation", lambda row: f"{row['number']} {row['verb']}"),
    ("between ranks", lambda row: format_bytes(row["between_bytes"])),
    ("within hosts", lambda row: format_bytes(row["within_hosts_bytes"])),
    ("kept", lambda row: format_bytes(row["kept_bytes"])),
    ("heaviest", lambda row: _heaviest(row)),
    ("most to", lambda row: f"rank {row['most_to']}, {format_bytes(row['most_to_bytes'])}"),
    ("of the mean", lambda row: _share(row["receive_skew"])),
)


def _heaviest(row: Row) -> str:
    if not row["heaviest_bytes"]:
        return "-"
    return f"{row['heaviest_from']} to {row['heaviest_to']}, {format_bytes(row['heaviest_bytes'])}"


def _traffic_table(rows: Sequence[Row]) -> list[str]:
    head = [name for name, _ in _TRAFFIC_COLUMNS]
    return format_table(head, ([show(row) for _, show in _TRAFFIC_COLUMNS] for row in rows))


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines with aligned columns: the first to the left, the others to the right."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return [text[0], "  ".join("-" * width for width in widths), *text[1:]]


def by_span(snapshots: Sequence[RankSnapshot] | None = None) -> pd.DataFrame:
    """How often each span ran, and how long it took.

    Parameters
    ----------
    snapshots : sequence of RankSnapshot, optional
        One a rank; what this rank has recorded by default.

    Returns
    -------
    pandas.DataFrame
        One row for each name, category and rank (the index): count, and in seconds total_s, mean_s, p50_s, p95_s,
        max_s, of whole spans, with those inside them. It is of the spans that are kept, the latest;
        ``attrs["dropped_events"]`` says how many events were dropped before.

    Raises
    ------
    ArgumentError
        If no snapshots are given where nothing is recorded.

    Examples
    --------
    >>> from gcylon_lab.profiling import Recorder, by_span, recording, span
    >>> @span("load", "io")
    ... def load(n):
    ...     return sum(range(n))
    >>> with recording(Recorder()):
    ...     _ = [load(n) for n in range(10)]
    ...     times = by_span()
    >>> times.index.tolist(), times["count"].tolist()
    ([('load', 'io', 0)], [10])
    """
    import pandas as pd

    if snapshots is None:
        recorder = current_recorder()
        if recorder is None:
            raise ArgumentError(
                "This thread records nothing.",
                advice="Call it on a rank (%px), after gl.initialize(), or give it lab.snapshots().",
            )
        snapshots = [take_snapshot(recorder, None, recorder.rank, "")]
    rows = [(s[0], s[1], snapshot["rank"], (s[3] - s[2]) / 1e9) for snapshot in snapshots for s in snapshot["spans"]]
    spans = pd.DataFrame(rows, columns=["name", "category", "rank", "seconds"])
    by = spans.groupby(["name", "category", "rank"])["seconds"]
    frame = pd.DataFrame(
        {
            "count": by.count(), "total_s": by.sum(), "mean_s": by.mean(),
            "p50_s": by.quantile(0.5), "p95_s": by.quantile(0.95), "max_s": by.max(),
        }
    )  # fmt: skip
    frame.attrs["dropped_events"] = sum(snapshot["dropped_events"] for snapshot in snapshots)
    return frame
