"""Pure: the ranks' snapshots on one time axis, and their operations side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...profiling.events import hidden_share
from ...profiling.gpus import GpuSeries, gpus_of
from ...profiling.traffic import Traffic, traffic_of
from .series import Floats, clean, on_grid

Snapshot = dict[str, Any]

# About how wide panels are beside the settings and a file browser.
NARROW_PLOT_PX = 260.0
_OVERVIEW_CELLS = 200
_STEPS_S = (1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0)
_SERIES = ("used_bytes", "limit_bytes", "disk_bytes", "pinned_bytes", "rss_bytes")
_FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class RankSeries:
    """One rank's samples: times in seconds on the common axis, values in bytes."""

    rank: int
    host: str
    series: dict[str, tuple[Floats, Floats]]

    def of(self, name: str) -> tuple[Floats, Floats]:
        """Return times and values of a series.

        It is used_bytes, limit_bytes (what held at that moment), budget_bytes (what operations keep: between two of
        them that of the last one, where a rank has its ceiling again), disk_bytes, pinned_bytes or rss_bytes.
        """
        return self.series[name]


@dataclass(frozen=True, slots=True)
class GpuLines:
    """One GPU, however many ranks share it: times in seconds, bytes outside the budgets, percent busy."""

    told: GpuSeries
    outside: tuple[Floats, Floats]
    busy: tuple[Floats, Floats]

    @property
    def label(self) -> str:
        """Return what it is called where ranks are: ``rank 0's GPU``."""
        ranks = self.told.ranks
        return f"rank {ranks[0]}'s GPU" if len(ranks) == 1 else f"GPU of ranks {', '.join(map(str, ranks))}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation over all ranks; ``records`` maps a rank to its record.

    It is ``complete`` once it has ended on all ranks, and none of them has yet to tell of it.
    """

    number: int
    verb: str
    start_s: float
    end_s: float
    running: bool
    records: dict[int, dict[str, Any]]
    progress: dict[str, Any] = field(default_factory=dict)
    complete: bool = True

    @property
    def name(self) -> str:
        """Return the short name, for example ``#7 shuffle``."""
        return f"#{self.number} {self.verb}"

    @property
    def strategy(self) -> str:
        """Return the strategy that the ranks agreed on; empty if none was."""
        return next((str(r["strategy"]) for r in self.records.values() if r.get("strategy")), "")

    @property
    def error(self) -> str:
        """Return the first rank's error, empty if there was none."""
        return next((str(r["error"]) for r in self.records.values() if r.get("error")), "")

    @property
    def seconds(self) -> float:
        """Return the time from the first rank's start to the last rank's end."""
        return max(self.end_s - self.start_s, 0.0)

    def largest(self, name: str) -> tuple[int, int]:
        """Return the largest value of a field over ranks, and the rank that has it."""
        value, rank = max((_int(record.get(name)), -rank) for rank, record in self.records.items())
        return value, -rank

    def total(self, name: str) -> int:
        """Return the sum of a field over ranks."""
        return sum(_int(record.get(name)) for record in self.records.values())

    @property
    def traffic(self) -> Traffic | None:
        """Return who sent how much to whom; None where it is not known."""
        return traffic_of(self.records)

    @property
    def hidden(self) -> float | None:
        """Return the part of all ranks' transfers that was not waited for; None where none were timed."""
        copies, waits = (
            sum(self.total(f"{kind}_{what}_ns") for kind in ("exchange", "staging")) for what in ("copy", "wait")
        )
        return hidden_share(copies, waits)


@dataclass(frozen=True, slots=True)
class View:
    """What the panels draw: a stretch of time, the ranks in it, the operations in it.

    Times are seconds since ``origin_ns`` of the ranks' common clock. ``overview`` is the
    most that any rank had in use of its budget, in bytes, over all time that is known.
    What a person chose: ``operation``, whose peaks and traffic are shown (None: see
    `followed`), and whether only the memory of the worst rank is. ``until_s`` is where the
    axis ends, if not at ``end_s``; ``plot_px`` is about how wide it is on the screen. ``latest`` is the
    operation that began last, also where it ended before that stretch.
    """

    origin_ns: int
    start_s: float
    end_s: float
    ranks: list[RankSeries]
    operations: list[Operation]
    snapshots: list[Snapshot]
    gpus: list[GpuLines] = field(default_factory=list)
    overview: tuple[Floats, Floats] = (np.zeros(0), np.zeros(0))
    operation: int | None = None
    worst_only: bool = False
    until_s: float | None = None
    plot_px: float = NARROW_PLOT_PX
    latest: Operation | None = None

    @property
    def right_s(self) -> float:
        """Return where the axis ends: now, or for a figure that is drawn again and again some way on."""
        return self.end_s if self.until_s is None else max(self.until_s, self.end_s)

    @property
    def empty(self) -> bool:
        """Return whether no rank has a sample."""
        return not any(len(rank.of("used_bytes")[0]) for rank in self.ranks)

    @property
    def hosts(self) -> list[str]:
        """Return the hosts, each once, in rank order."""
        return list(dict.fromkeys(self.host_names()))

    def host_names(self) -> list[str]:
        """Return each rank's host."""
        return [rank.host for rank in self.ranks]

    def host_starts(self) -> list[int]:
        """Return the places of the first rank of each host after the first one, for lines between hosts.

        Of one host, and where the ranks of a host do not follow each other, there are none.
        """
        hosts = self.host_names()
        starts = [place for place in range(1, len(hosts)) if hosts[place] != hosts[place - 1]]
        return starts if len(starts) + 1 == len(set(hosts)) else []

    @property
    def told(self) -> list[Operation]:
        """Return the operations of which panels without the time axis tell: where nothing ran in this stretch, the
        latest."""
        return self.operations or ([] if self.latest is None else [self.latest])

    def followed(self, able: Sequence[Operation]) -> Operation | None:
        """Return the operation that panels of one operation show, of those that are able to: the one chosen; else the
        one that runs; else the one that took longest, so that a `head` at the end hides nothing."""
        named = [op for op in able if op.number == self.operation] or [op for op in able if op.running]
        if named:
            return named[-1]
        return max(able, key=lambda op: op.seconds, default=None)

    def seconds(self, t_ns: float) -> float:
        """Return a time of the ranks' clock on the axis."""
        return (t_ns - self.origin_ns) / 1e9


def kept_budget(snapshot: Snapshot) -> int:
    """Return the budget of a rank's latest operation, in bytes: between two of them a rank has its ceiling alone."""
    limit = int(snapshot["limit_bytes"])
    asked = (int(record.get("budget_bytes") or 0) for record in reversed(snapshot["operations"]))
    return min(limit, next(filter(None, asked), limit))


def with_latest_operations(snapshots: Sequence[Snapshot], count: int, verb: str = "") -> list[Snapshot]:
    """Return the snapshots with the latest operations only, of one verb or of all.

    What is made of all of them, many times a second, grows with them, and so does the memory it needs for a moment.
    """

    def latest(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = [record for record in records if record["verb"] == verb] if verb else records
        return found[max(0, len(found) - count) :]

    return [snapshot | {"operations": latest(snapshot["operations"])} for snapshot in snapshots]


def provenance_of(snapshots: Sequence[Snapshot]) -> int:
    """Return the time at which the axis begins: the earliest sample or operation, in ns; 0 if there is none."""
    firsts = [int(s["samples"]["t_ns"][0]) for s in snapshots if s["samples"]["t_ns"]]
    firsts += [int(s["operations"][0]["start_ns"]) for s in snapshots if s["operations"]]
    return min(firsts, default=0)


def make_view(
    snapshots: Sequence[Snapshot],
    *,
    window_s: float | None = None,
    origin_ns: int | None = None,
    operation: int | None = None,
    worst_only: bool = False,
    brush: bool = True,
    ahead: bool = False,
    plot_px: float = NARROW_PLOT_PX,
) -> View:
    """Return the view of the ranks' snapshots.

    Parameters
    ----------
    snapshots : sequence of dict
        One a rank, in any order, as `profiling.snapshot.take_snapshot` makes them.
    window_s : float, optional
        Show only the last so many seconds; all by default.
    origin_ns : int, optional
        Where the axis begins, for a view that is drawn again and again while old
        samples fall out; by default the earliest of the samples.
    operation, worst_only : optional
        What a person chose, see `View`.
    brush : bool, optional
        Whether all of the run is to be shown beside it; a page takes about as long to draw that as all the rest.
    ahead : bool, optional
        Let the axis end at the next whole step, so that it stays where it is from one drawing to most next ones.
    plot_px : float, optional
        About how wide a panel with the time axis is on the screen: how many names there is room for.
    """
    ordered = sorted(snapshots, key=lambda s: int(s["rank"]))
    origin = provenance_of(ordered) if origin_ns is None else origin_ns
    end = max(((int(s["now_ns"]) - origin) / 1e9 for s in ordered), default=0.0)
    until = _next_step(end, end if window_s is None else window_s) if ahead else end
    start = 0.0 if window_s is None else max(0.0, until - window_s)
    whole = [_rank_series(s, origin) for s in ordered]
    ranks = [RankSeries(r.rank, r.host, {name: _since(start, *xy) for name, xy in r.series.items()}) for r in whole]
    known = _operations(ordered, origin, end)
    operations = [op for op in known if op.end_s >= start]
    if window_s is None:
        firsts = [float(r.of("used_bytes")[0][0]) for r in ranks if len(r.of("used_bytes")[0])]
        start = min(firsts + [op.start_s for op in operations], default=0.0)
    gpus = [_gpu_lines(told, origin, start) for told in gpus_of(ordered)]
    overview = _overview(whole if brush else [], end)
    end = max(end, start)
    until = max(until, end)
    return View(
        origin, start, end, ranks, operations, ordered, gpus, overview, operation, worst_only, until, plot_px,
        known[-1] if known else None,
    )  # fmt: skip


def _next_step(end: float, shown: float) -> float:
    """Return the next whole step: of a second, and if much is shown of more, about a 60th of that."""
    step = next((s for s in _STEPS_S if s >= min(shown, end) / 60), _STEPS_S[-1])
    return (end // step + 1) * step


def _overview(whole: Sequence[RankSeries], end: float) -> tuple[Floats, Floats]:
    told = [r for r in whole if len(r.of("used_bytes")[0])]
    if not told:
        return np.zeros(0), np.zeros(0)
    start = min(float(r.of("used_bytes")[0][0]) for r in told)
    edges = np.linspace(start, max(end, start + 1e-3), _OVERVIEW_CELLS + 1)
    most = np.zeros(_OVERVIEW_CELLS)
    for series in told:
        most = np.maximum(most, on_grid(*series.of("used_bytes"), edges))
    return edges[1:], most


def _rank_series(snapshot: Snapshot, origin: int) -> RankSeries:
    samples = snapshot["samples"]
    t = _seconds(samples["t_ns"], origin)
    series = {name: clean(t, samples.get(name) or np.zeros(len(t))) for name in _SERIES}
    series["budget_bytes"] = clean(t, _kept_budget(samples["t_ns"], samples["limit_bytes"], snapshot["operations"]))
    return RankSeries(int(snapshot["rank"]), str(snapshot["host"]), series)


def _kept_budget(t_ns: Sequence[int], limits: Sequence[float], operations: Sequence[dict[str, Any]]) -> Floats:
    """Return at each sample the budget that operations keep; what holds between two of them limits nothing."""
    limit = np.asarray(limits, dtype=np.float64)
    budgets = [o.get("budget_bytes") or np.inf for o in operations]
    if not len(limit) or min(budgets, default=np.inf) >= limit.max():
        return limit
    t = np.asarray(t_ns, dtype=np.int64)
    starts = np.array([o.get("start_ns") or 0 for o in operations], dtype=np.int64)
    order = np.argsort(starts, kind="stable")
    last = np.searchsorted(starts[order], t, side="right") - 1
    ends = np.array([o.get("end_ns") or _FOREVER for o in operations], dtype=np.int64)[order]
    asked = np.array(budgets, dtype=np.float64)[order]
    kept = np.where(last >= 0, asked[last], np.inf)
    # Where a record has none, the samples within it tell.
    kept = np.where(np.isinf(kept) & (last >= 0) & (t <= ends[last]), limit, kept)
    known = np.maximum.accumulate(np.where(np.isinf(kept), -1, np.arange(len(t))))
    return np.minimum(limit, np.where(known >= 0, kept[known], np.inf))


def _gpu_lines(told: GpuSeries, origin: int, start: float) -> GpuLines:
    t = _seconds(told.t_ns, origin)
    outside, busy = (
        _since(start, *clean(t, [np.nan if value is None else value for value in values]))
        for values in (told.outside_bytes, told.utilisation)
    )
    return GpuLines(told, outside, busy)


def _seconds(t_ns: Sequence[int], origin: int) -> Floats:
    # Subtracting before the division keeps nanoseconds that a float64 cannot hold.
    return (np.asarray(t_ns, dtype=np.int64) - origin) / 1e9


def _since(start: float, times: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Leave out what ended before a time; the last sample before it says what was then."""
    first = max(int(np.searchsorted(times, start)) - 1, 0)
    return times[first:], values[first:]


def _operations(snapshots: Sequence[Snapshot], origin: int, now_s: float) -> list[Operation]:
    records: dict[tuple[int, str], dict[int, dict[str, Any]]] = {}
    progress: dict[tuple[int, str], dict[str, Any]] = {}
    for snapshot in snapshots:
        rank, current = int(snapshot["rank"]), snapshot.get("progress")
        for record in snapshot["operations"]:
            records.setdefault((int(record["number"]), str(record["verb"])), {})[rank] = record
        if current:
            key = (int(current["number"]), str(current["verb"]))
            progress[key] = current
            records.setdefault(key, {}).setdefault(rank, {})
    told = {int(s["rank"]): int(s["now_ns"]) for s in snapshots}
    made = [_operation(*key, by_rank, progress.get(key, {}), told, origin, now_s) for key, by_rank in records.items()]
    return sorted(made, key=lambda op: (op.start_s, op.number))


def _operation(
    number: int, verb: str, records: dict[int, dict[str, Any]], progress: dict[str, Any], told: Mapping[int, int],
    origin: int, now_s: float,
) -> Operation:  # fmt: skip
    starts = [_int(r.get("start_ns")) for r in records.values() if r.get("start_ns")]
    ends = [_int(r.get("end_ns")) for r in records.values()]
    running = bool(progress) or not all(ends)
    since = min(starts) if starts else _int(progress.get("since_ns")) or origin
    end_s = now_s if running else (max(ends) - origin) / 1e9
    start_s = (since - origin) / 1e9
    # A rank whose news are older than the end has a record that is on its way; from later ones it has fallen out.
    awaited = any(rank not in records and now < max(ends) for rank, now in told.items())
    complete = not (running or awaited)
    return Operation(number, verb, start_s, max(end_s, start_s), running, records, progress, complete)


def _int(value: object) -> int:
    if isinstance(value, (int, float)) and np.isfinite(value):
        return int(value)
    return 0
