"""Snapshots as a Chrome trace, which Perfetto's page (ui.perfetto.dev) opens.

A rank is a process. Its threads are the operations, then the spans of each
thread that recorded; spans that overlap without nesting get lanes of their
own, since the format knows only nested ones. Memory is a counter track. What
NVML tells of a GPU has tracks of its own, once for each GPU: at its lowest rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

from ..errors import WriteError
from ..whole_files import write_whole
from .gpus import GpuSeries, gpus_of
from .snapshot import RankSnapshot

Row = dict[str, Any]

_OPERATIONS_TID = 0
_COUNTERS = {
    "used_bytes": "memory: used of the budget",
    "limit_bytes": "memory: budget",
    "disk_bytes": "memory: staged to disk",
    "pinned_bytes": "memory: staged to pinned memory",
    "rss_bytes": "memory: resident",
}


def chrome_trace(snapshots: Sequence[RankSnapshot]) -> dict[str, Any]:
    """Make a trace with the times of all ranks on one axis.

    Parameters
    ----------
    snapshots : sequence of RankSnapshot
        One a rank.

    Returns
    -------
    dict
        In the Trace Event Format: ``traceEvents`` holds names first, then events in order
        of time; ``ts`` and ``dur`` are microseconds since the earliest event.
    """
    start_ns = min((t for snapshot in snapshots for t in _times(snapshot)), default=0)
    names = [row for snapshot in snapshots for row in _names(snapshot)]
    events = [row for snapshot in snapshots for row in _events(snapshot, start_ns)]
    events += [row for gpu in gpus_of(snapshots) for row in _gpu_events(gpu, start_ns)]
    # Of those that begin together the longest must come first, else it would be drawn inside the others.
    events.sort(key=lambda row: (row["ts"], -row.get("dur", 0)))
    return {
        "traceEvents": [*names, *events],
        "displayTimeUnit": "ms",
        "otherData": {
            "producer": "gcylon_lab",
            "ranks": len(snapshots),
            "dropped_events": sum(snapshot["dropped_events"] for snapshot in snapshots),
        },
    }


def write_chrome_trace(path: str | PathLike[str], snapshots: Sequence[RankSnapshot]) -> None:
    """Write `chrome_trace` as a JSON file that only this user reads.

    Raises
    ------
    WriteError
        If the file cannot be written.
    """
    text = json.dumps(chrome_trace(snapshots), allow_nan=False, separators=(",", ":"))
    try:
        write_whole(path, text)
    except OSError as error:
        raise WriteError(
            f"The trace of {len(text):,} bytes cannot be written to {path}: {error.strerror}.",
            advice="Choose a path in a folder that exists, may be written and has room.",
            path=str(path),
        ) from error


def _times(snapshot: RankSnapshot) -> Iterator[int]:
    yield from (row["start_ns"] for row in snapshot["operations"])
    yield from (row[2] for row in snapshot["spans"])
    yield from (row[2] for row in snapshot["marks"])
    yield from snapshot["samples"]["t_ns"][:1]
    yield from (snapshot.get("gpu") or {"samples": {"t_ns": []}})["samples"]["t_ns"][:1]


def _lanes(snapshot: RankSnapshot) -> tuple[list[int], dict[int, str]]:
    """The tid of each span, and the tids' names."""
    spans, threads = snapshot["spans"], snapshot["span_threads"]
    order = sorted(range(len(spans)), key=lambda i: (spans[i][2], -spans[i][3]))
    tids = [0] * len(spans)
    names: dict[int, str] = {}
    for thread in sorted(set(threads)):
        open_ends: list[list[int]] = []
        first = max(names, default=_OPERATIONS_TID) + 1
        for i in order:
            if threads[i] == thread:
                tids[i] = first + _lane_for(open_ends, spans[i][2], spans[i][3])
        for lane in range(len(open_ends)):
            names[first + lane] = snapshot["threads"][thread] + (f", overlapping {lane}" if lane else "")
    return tids, names


def _lane_for(open_ends: list[list[int]], start: int, end: int) -> int:
    """The first lane in which the span nests; each lane is a stack of ends of open spans."""
    for lane, ends in enumerate(open_ends):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1]:
            ends.append(end)
            return lane
    open_ends.append([end])
    return len(open_ends) - 1


def _names(snapshot: RankSnapshot) -> Iterator[Row]:
    rank = snapshot["rank"]

    def name(kind: str, tid: int, **args: Any) -> Row:
        return {"ph": "M", "name": kind, "pid": rank, "tid": tid, "ts": 0, "args": args}

    yield name("process_name", 0, name=f"rank {rank} on {snapshot['host']} (pid {snapshot['pid']})")
    yield name("process_sort_index", 0, sort_index=rank)
    for tid, thread in {_OPERATIONS_TID: "operations", **_lanes(snapshot)[1]}.items():
        yield name("thread_name", tid, name=thread)
        yield name("thread_sort_index", tid, sort_index=tid)


def _events(snapshot: RankSnapshot, start_ns: int) -> Iterator[Row]:
    rank = snapshot["rank"]

    def event(ph: str, name: str, category: str, tid: int, t_ns: int, **more: Any) -> Row:
        return {"ph": ph, "name": name, "cat": category, "pid": rank, "tid": tid, "ts": (t_ns - start_ns) / 1e3, **more}

    for row in snapshot["operations"]:
        end_ns = row["end_ns"] or max(row["start_ns"], snapshot["now_ns"])
        name = f"{row['verb']} {row['number']}"
        duration = (end_ns - row["start_ns"]) / 1e3
        yield event("X", name, "operation", _OPERATIONS_TID, row["start_ns"], dur=duration, args=_arguments(row))
    for (name, category, start, end, number, nbytes, tier), tid in zip(
        snapshot["spans"], _lanes(snapshot)[0], strict=True
    ):
        args = {"operation": number, "bytes": nbytes, "tier": tier}
        yield event("X", name, category, tid, start, dur=(end - start) / 1e3, args=args)
    for name, category, t, number, nbytes, tier in snapshot["marks"]:
        args = {"operation": number, "bytes": nbytes, "tier": tier}
        yield event("i", name, category, _OPERATIONS_TID, t, s="t", args=args)
    for column, track in _COUNTERS.items():
        values = snapshot["samples"][column]
        if any(values):
            for t, value in zip(snapshot["samples"]["t_ns"], values, strict=True):
                yield event("C", track, "memory", _OPERATIONS_TID, t, args={"bytes": value})


def _gpu_events(gpu: GpuSeries, start_ns: int) -> Iterator[Row]:
    tracks = {
        "GPU memory: in use, all programs": ("bytes", gpu.used_bytes),
        "GPU memory: outside the budget": ("bytes", gpu.outside_bytes),
        "GPU utilisation": ("percent", gpu.utilisation),
    }
    for track, (unit, values) in tracks.items():
        for t, value in zip(gpu.t_ns, values, strict=True):
            if value is not None:
                place = {"pid": gpu.ranks[0], "tid": _OPERATIONS_TID, "ts": (t - start_ns) / 1e3}
                yield {"ph": "C", "name": track, "cat": "gpu", **place, "args": {unit: value}}


def _arguments(row: Row) -> Row:
    """An operation's fields, without what the event says itself; times in ms."""
    plain = {name: value for name, value in row.items() if not name.endswith("_ns") and not name.startswith("phase")}
    copies = {f"{name[:-3]}_ms": row[name] / 1e6 for name in row if name.endswith(("_copy_ns", "_wait_ns"))}
    phases = {f"{name}_ms": ns / 1e6 for name, ns in row["phases"].items()}
    return plain | copies | phases | {"running": not row["end_ns"]}
