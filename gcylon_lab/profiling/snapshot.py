"""One rank's recordings as plain JSON, on rank 0's clock, and how later ones are added to earlier ones."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from time import perf_counter_ns
from typing import Any

from .cost import event_cost_ns
from .events import Numbered, OperationRecord, Recorder
from .gpus import GPU_COLUMNS
from .sampler import Sample, Sampler, Timed

RankSnapshot = dict[str, Any]
"""What `take_snapshot` returns."""

VERSION = 1
SAMPLE_COLUMNS = ("t_ns", *Sample._fields)

# An event is recorded a moment after its end; one that a snapshot just missed is in the next.
_SLACK_NS = 50_000_000
_TIMES = ("start_ns", "end_ns")
_SAMPLE_BYTES, _EVENT_BYTES, _NUMBER_BYTES = 80, 100, 9  # about, as JSON
# A number for each pair of ranks: kept of so many operations only, the latest.
TRAFFIC_OPERATIONS = 64
_PLAIN = tuple(
    (f.name, str if f.type == "str" else int) for f in fields(OperationRecord) if f.type in ("str", "int")
)  # fmt: skip


def take_snapshot(
    recorder: Recorder,
    sampler: Sampler | None,
    rank: int,
    host: str,
    since_ns: int = 0,
    *,
    max_events: int | None = None,
    max_bytes: int | None = None,
    oldest: bool = False,
    copy_rates: Mapping[str, Mapping[str, float]] | None = None,
    uses: Mapping[str, int] | None = None,
    pools: Sequence[Mapping[str, Any]] | None = None,
) -> RankSnapshot:
    """Everything recorded since a time, of one rank, as JSON values.

    Parameters
    ----------
    recorder : Recorder
    sampler : Sampler or None
        None leaves the samples empty.
    rank : int
    host : str
    since_ns : int, optional
        The ``now_ns`` of the snapshot before; 0 for everything kept.
    max_events : int, optional
        Spans and marks, the newest, that the snapshot holds at most.
    max_bytes : int, optional
        About how long it may be as JSON: samples are thinned, and the newest operations and events told; at least one
        operation is.
    oldest : bool, optional
        Tell the oldest that ``max_bytes`` leaves room for instead.
    copy_rates : mapping, optional
        By tier, the bytes a second that this machine copies ``down`` and ``up``, where that was measured.
    uses : mapping, optional
        Bytes of the budget by what they are for; None where that was not found out now.
    pools : sequence of mapping, optional
        What `Context.pools` tells; None as for ``uses``.

    Returns
    -------
    dict
        version, rank, host, pid, clock_offset_ns, now_ns, limit_bytes; samples, as lists of
        equal length by `SAMPLE_COLUMNS`; gpu, None on CPU engines and where NVML tells nothing, else
        what `GpuProbe.as_dict` tells and samples by `GPU_COLUMNS`, with None for what was not told;
        operations, as the fields of `OperationRecord`, with the running one last (``end_ns`` 0),
        ``sent_to`` as a list, which is empty but for the latest `TRAFFIC_OPERATIONS`;
        spans, as [name, category, start_ns, end_ns, operation, bytes, tier], and span_threads, the
        thread of each by its position in ``threads``; marks, as [name, category, t_ns, operation,
        bytes, tier]; progress or None; copy_rates, uses and pools as given; dropped_events,
        event_cost_ns, sampler_cpu_ns. All times in ns on rank 0's clock. With ``max_bytes`` also complete_ns: what
        ended from ``since_ns`` until then is told; ``now_ns`` if nothing was left out.
    """
    offset = int(recorder.clock_offset_ns)
    since = since_ns + offset if since_ns else 0
    now = perf_counter_ns()
    samples = sampler.samples(since) if sampler is not None else []
    events = recorder.numbered(max(0, since - _SLACK_NS))
    if max_events is not None:
        events = events[max(0, len(events) - max_events) :]
    operations = [record_as_dict(record, offset) for record in _operations(recorder, since)]
    cut: dict[str, int] = {}
    if max_bytes is not None:
        samples = _thinned(samples, max_bytes // 4 // _SAMPLE_BYTES)
        operations, events, until = _fitting(operations, events, max_bytes, offset, oldest=oldest)
        if until is None:
            until = now - offset
        elif oldest:  # the next one begins so much earlier
            until = min(until + _SLACK_NS, now - offset - 1)
        else:
            until = since_ns
        cut = {"complete_ns": until}
    return cut | {
        "version": VERSION,
        "rank": int(rank),
        "host": host,
        "pid": os.getpid(),
        "clock_offset_ns": offset,
        "now_ns": now - offset,
        "limit_bytes": _limit_bytes(sampler),
        "samples": _sample_columns(samples, offset),
        "gpu": _gpu(sampler, since, offset),
        "operations": _with_latest_traffic(operations),
        **_event_lists(events, recorder, offset),
        "progress": _progress(recorder, offset),
        "copy_rates": {tier: dict(rates) for tier, rates in (copy_rates or {}).items() if rates},
        "uses": None if uses is None else dict(uses),
        "pools": None if pools is None else [dict(pool) for pool in pools],
        "dropped_events": recorder.dropped,
        "event_cost_ns": event_cost_ns(),
        "sampler_cpu_ns": sampler.cpu_ns if sampler is not None else 0,
    }


def _thinned(samples: Sequence[Timed], most: int) -> list[Timed]:
    """Of several samples that follow each other the one with the most in use, so that peaks stay."""
    step = -(-len(samples) // max(1, most))
    return [max(samples[i : i + step], key=lambda sample: sample[1]) for i in range(0, len(samples), max(1, step))]


def _fitting(
    operations: list[dict[str, Any]], events: list[Numbered], room: int, offset: int, *, oldest: bool
) -> tuple[list[dict[str, Any]], list[Numbered], int | None]:
    """The operations and events that fit, half of the room for each, and when the first one ended that does not."""
    running = [row for row in operations if not row["end_ns"]]
    ended = [row for row in operations if row["end_ns"]]
    for row in operations:
        if len(row["sent_to"]) * _NUMBER_BYTES > room // 4:  # of very many ranks
            row["sent_to"] = []
    left = room // 2 - sum(len(json.dumps(row)) for row in running)
    told = 0
    for row in ended if oldest else reversed(ended):
        left -= len(json.dumps(row))
        if left < 0 and told:
            break
        told += 1
    most = min(len(events), (room - room // 2 + max(left, 0)) // _EVENT_BYTES)
    if oldest:
        lost = [int(row["end_ns"]) for row in ended[told:]] + [int(event[3]) - offset for event in events[most:]]
        return [*ended[:told], *running], events[:most], min(lost, default=None)
    lost = [0] * (told < len(ended) or most < len(events))
    return [*ended[len(ended) - told :], *running], events[len(events) - most :], min(lost, default=None)


def record_as_dict(record: OperationRecord, clock_offset_ns: int = 0) -> dict[str, Any]:
    """An operation record as JSON values, with its times moved by the clock's offset."""
    row: dict[str, Any] = {name: kind(getattr(record, name)) for name, kind in _PLAIN}
    for name in _TIMES:
        if row[name]:
            row[name] -= clock_offset_ns
    phases, phase_bytes = record.all_phases()
    row["phases"] = {name: int(ns) for name, ns in phases.items()}
    row["phase_bytes"] = {name: int(nbytes) for name, nbytes in phase_bytes.items() if nbytes}
    row["sent_to"] = [] if record.sent_to is None else record.sent_to.tolist()
    return row


def _with_latest_traffic(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    old = max(0, len(rows) - TRAFFIC_OPERATIONS)
    return [row | {"sent_to": []} if row.get("sent_to") else row for row in rows[:old]] + rows[old:]


def _operations(recorder: Recorder, since: int) -> list[OperationRecord]:
    """The records that ended since a time, the running ones last."""
    running = recorder.running()
    ended = recorder.ended(since - _SLACK_NS)
    return ended + [record for record in running if not any(record is other for other in ended)]


def _limit_bytes(sampler: Sampler | None) -> int:
    latest = sampler.latest() if sampler is not None else None
    return int(latest[2]) if latest is not None else 0


def _sample_columns(samples: Sequence[Timed], offset: int) -> dict[str, list[int]]:
    columns = {name: [int(sample[i]) for sample in samples] for i, name in enumerate(SAMPLE_COLUMNS)}
    columns["t_ns"] = [t - offset for t in columns["t_ns"]]
    return columns


def _gpu(sampler: Sampler | None, since: int, offset: int) -> dict[str, Any] | None:
    if sampler is None or sampler.gpu is None:
        return None
    taken = sampler.gpu_samples(since)
    columns: dict[str, list[int | None]] = {name: [s[i] for s in taken] for i, name in enumerate(GPU_COLUMNS)}
    return sampler.gpu.as_dict() | {"samples": columns | {"t_ns": [s[0] - offset for s in taken]}}


def _event_lists(events: Sequence[Numbered], recorder: Recorder, offset: int) -> dict[str, Any]:
    spans: list[list[Any]] = []
    marks: list[list[Any]] = []
    threads: list[int] = []
    positions = _Positions(recorder)
    for name, category, start, end, operation, nbytes, tier, thread, _ in events:
        if end == start:
            marks.append([name, category, start - offset, int(operation), int(nbytes), tier])
        else:
            spans.append([name, category, start - offset, end - offset, int(operation), int(nbytes), tier])
            threads.append(positions[thread])
    return {"spans": spans, "span_threads": threads, "threads": recorder.thread_names(), "marks": marks}


class _Positions(dict[int, int]):
    """The positions of threads, each asked for once."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __missing__(self, ident: int) -> int:
        name = next((thread.name for thread in threading.enumerate() if thread.ident == ident), "")
        position = self[ident] = self._recorder.thread_position(ident, name)
        return position


def _progress(recorder: Recorder, offset: int) -> dict[str, Any] | None:
    progress = recorder.progress
    if progress is None:
        return None
    row = {name: value if isinstance(value, str) else int(value) for name, value in progress._asdict().items()}
    return row | {"since_ns": progress.since_ns - offset}


def merge(
    old: Sequence[RankSnapshot],
    new: Sequence[RankSnapshot],
    *,
    max_samples: int = 4096,
    max_events: int = 20_000,
    max_operations: int = 256,
) -> list[RankSnapshot]:
    """Add later snapshots (taken with ``since_ns``) to earlier ones, rank by rank.

    Parameters
    ----------
    old, new : sequence of RankSnapshot
        At most one a rank each; neither is changed. A rank in only one of them is kept as it is;
        a rank whose process is another one starts anew.
    max_samples, max_events, max_operations : int, optional
        What is kept of a rank, the latest; spans and marks ``max_events`` each.

    Returns
    -------
    list of RankSnapshot
        In rank order.
    """
    merged = {snapshot["rank"]: snapshot for snapshot in old}
    for snapshot in new:
        snapshot = snapshot | {name: _with_shared_texts(snapshot[name]) for name in ("operations", "spans", "marks")}
        before = merged.get(snapshot["rank"])
        if before is not None and (before["pid"], before["host"]) == (snapshot["pid"], snapshot["host"]):
            snapshot = _joined(_on_clock(before, snapshot["clock_offset_ns"]), snapshot)
        merged[snapshot["rank"]] = snapshot
    return [_bounded(merged[rank], max_samples, max_events, max_operations) for rank in sorted(merged)]


@lru_cache(maxsize=1024)
def _shared(text: str) -> str:
    return text


def _with_shared_texts(value: Any) -> Any:
    """The same JSON, in which equal texts are one object.

    Each text and each name of a field that was read from JSON is an object of its own; events and records are kept by
    the ten thousand, and that would be much of their memory.
    """
    if isinstance(value, str):
        return _shared(value)
    if isinstance(value, list):
        return [_with_shared_texts(v) for v in value]
    if isinstance(value, dict):
        return {_shared(name): _with_shared_texts(v) for name, v in value.items()}
    return value


def _on_clock(snapshot: RankSnapshot, clock_offset_ns: int) -> RankSnapshot:
    """The snapshot as if it had been taken with another offset."""
    shift = snapshot["clock_offset_ns"] - clock_offset_ns
    if shift == 0:
        return snapshot
    samples, gpu = _shifted(snapshot["samples"], shift), snapshot.get("gpu")
    operations = [row | {name: row[name] + shift for name in _TIMES if row[name]} for row in snapshot["operations"]]
    spans = [[*s[:2], s[2] + shift, s[3] + shift, *s[4:]] for s in snapshot["spans"]]
    marks = [[*m[:2], m[2] + shift, *m[3:]] for m in snapshot["marks"]]
    moved = {"samples": samples, "operations": operations, "spans": spans, "marks": marks}
    return snapshot | moved | {"gpu": gpu and gpu | {"samples": _shifted(gpu["samples"], shift)}}


def _shifted(samples: dict[str, list[Any]], shift: int) -> dict[str, list[Any]]:
    return samples | {"t_ns": [t + shift for t in samples["t_ns"]]}


def _joined(old: RankSnapshot, new: RankSnapshot) -> RankSnapshot:
    operations = {(row["number"], row["verb"]): row for row in [*old["operations"], *new["operations"]]}
    spans = _unseen(old["spans"], new["spans"], 3)
    marks = _unseen(old["marks"], new["marks"], 2)
    threads = [*old["span_threads"], *(new["span_threads"][i] for i in spans)]
    joined, threads = _in_order([*old["spans"], *(new["spans"][i] for i in spans)], threads, len(old["spans"]))
    return new | {
        "limit_bytes": new["limit_bytes"] or old["limit_bytes"],
        **{name: old.get(name) if new.get(name) is None else new[name] for name in ("uses", "pools")},
        "samples": _joined_samples(old["samples"], new["samples"], SAMPLE_COLUMNS),
        "gpu": _joined_gpu(old.get("gpu"), new.get("gpu")),
        "operations": sorted(operations.values(), key=lambda row: int(row["start_ns"])),
        "spans": joined,
        "span_threads": threads,
        "marks": [*old["marks"], *(new["marks"][i] for i in marks)],
    }


def _in_order(spans: list[list[Any]], threads: list[int], old: int) -> tuple[list[list[Any]], list[int]]:
    """Spans by their ends, of which the first ``old`` are: later ones may be older than these."""
    first = min((int(span[3]) for span in spans[old:]), default=0)
    start = old
    while start and first and spans[start - 1][3] > first:
        start -= 1
    order = sorted(range(start, len(spans)), key=lambda i: int(spans[i][3]))
    return [*spans[:start], *(spans[i] for i in order)], [*threads[:start], *(threads[i] for i in order)]


def _joined_samples(
    old: dict[str, list[Any]], new: dict[str, list[Any]], columns: Sequence[str]
) -> dict[str, list[Any]]:
    last = old["t_ns"][-1] if old["t_ns"] else None
    first = next((i for i, t in enumerate(new["t_ns"]) if last is None or t > last), len(new["t_ns"]))
    return {name: [*old[name], *new[name][first:]] for name in columns}


def _joined_gpu(old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any] | None:
    if old is None or new is None:
        return new or old
    return new | {"samples": _joined_samples(old["samples"], new["samples"], GPU_COLUMNS)}


def _unseen(old: Sequence[list[Any]], new: Sequence[list[Any]], end: int) -> list[int]:
    """Positions in ``new`` of what is not in ``old``; both about in the order of the time at ``end``."""
    if not new:
        return []
    first = min(event[end] for event in new)
    seen, older = set(), 0
    for event in reversed(old):
        if event[end] >= first:
            seen.add(tuple(event))
        elif (older := older + 1) > 256:
            break
    return [i for i, event in enumerate(new) if tuple(event) not in seen]


def _bounded(snapshot: RankSnapshot, max_samples: int, max_events: int, max_operations: int) -> RankSnapshot:
    samples, gpu = _latest_samples(snapshot["samples"], max_samples), snapshot.get("gpu")
    gpu = gpu and gpu | {"samples": _latest_samples(gpu["samples"], max_samples)}
    lists = {name: _latest(snapshot[name], max_events) for name in ("spans", "span_threads", "marks")}
    operations = _with_latest_traffic(_latest(snapshot["operations"], max_operations))
    return snapshot | lists | {"samples": samples, "gpu": gpu, "operations": operations}


def _latest_samples(samples: dict[str, list[Any]], limit: int) -> dict[str, list[Any]]:
    return {name: _latest(column, limit) for name, column in samples.items()}


def _latest(values: list[Any], limit: int) -> list[Any]:
    return values[max(0, len(values) - limit) :]
