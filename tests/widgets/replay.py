"""Snapshots of a made-up run that obeys the snapshot contract, cut off at any time, so that it can be played back."""

from __future__ import annotations

import bisect
import copy
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from gcylon_lab.config import GcylonConfig
from gcylon_lab.units import MIB

Snapshot = dict[str, Any]
CEILING = 512 * MIB
START_NS = 5_000_000_000_000
_RUN = (
    ("shuffle", "direct", 4, 0.55), ("shuffle", "chunked", 16, 0.32), ("allgather", "chunked", 12, 0.40),
    ("shuffle", "staged", 24, 0.22), ("repartition", "staged", 10, 0.2),
)  # fmt: skip


class Replay:
    """A run of ``ranks`` ranks and five operations: samples, spans and records, all times known beforehand.

    With ``gpus`` the ranks work on so many of them in turn: copies are timed, staging goes to
    pinned memory first, and the driver tells of each GPU.
    """

    def __init__(
        self, ranks: int = 4, *, seed: int = 1, budget: int = 64 * MIB, hz: int = 20, busy: float = 1.0, gpus: int = 0
    ) -> None:
        self.ranks, self.budget, self.hz, self.busy, self.gpus = ranks, budget, hz, busy, gpus
        self._random = random.Random(seed)
        self.operations: list[list[dict[str, Any]]] = [[] for _ in range(ranks)]
        self.spans: list[list[list[Any]]] = [[] for _ in range(ranks)]
        clock = 1.0
        for number, (verb, strategy, rounds, share) in enumerate(_RUN, start=1):
            clock = self._operation(number, verb, strategy, rounds, share, clock) + 1.2
        self.length_s = clock
        self._sampled: dict[int, dict[str, list[int]]] = {}

    def _operation(self, number: int, verb: str, strategy: str, rounds: int, share: float, clock: float) -> float:
        per_round = 0.1 * self.busy
        for rank in range(self.ranks):
            skew = 1.0 + 0.25 * (rank == self.ranks - 1) + 0.05 * self._random.random()
            t = clock + 0.01 * rank
            record = self._record(rank, number, verb, strategy, rounds, share, t)
            for _ in range(rounds):
                t = self._round(rank, number, strategy, t, per_round * skew, record)
            record["end_ns"] = ns(clock + rounds * per_round * 1.35)
            self._span(rank, number, "waiting", "sync", t, clock + rounds * per_round * 1.35, record, 0, "")
            self.operations[rank].append(record)
        return clock + rounds * per_round * 1.35

    def _record(
        self, rank: int, number: int, verb: str, strategy: str, rounds: int, share: float, t: float
    ) -> dict[str, Any]:
        spread = ((rank * 7 + number) % self.ranks) / self.ranks
        peak = int(self.budget * min(0.98, share * (1.35 + 0.5 * spread) + 0.1))
        predicted = int(self.budget * min(0.98, share * 1.65 + 0.1))
        return {
            "number": number, "verb": verb, "arguments": "on=['l_orderkey']", "strategy": strategy,
            "reason": "the result and one chunk fit", "start_ns": ns(t), "end_ns": 0, "rounds": rounds,
            "rounds_done": rounds, "budget_bytes": self.budget, "used_before_bytes": int(self.budget * 0.1),
            "predicted_peak_bytes": predicted, "measured_peak_bytes": peak, "rows_in": 1_000_000,
            "rows_out": 1_000_000, "bytes_in": 32 * MIB, "bytes_out": 32 * MIB, "sent_bytes": 24 * MIB,
            "received_bytes": 24 * MIB, "staged_bytes": 32 * MIB if strategy == "staged" else 0,
            "unstaged_bytes": 0, "error": "", "phases": {}, "phase_bytes": {},
            "sent_to": self._sent_to(rank, number),
            **self._copies(rank, strategy, rounds),
        }  # fmt: skip

    def _sent_to(self, rank: int, number: int) -> list[int]:
        """24 MiB in all; in the third operation half of it to rank 1, else even but for what stays."""
        weights = [4 + 2 * (to == rank) + (rank + to) % 3 for to in range(self.ranks)]
        if number == 3 and self.ranks > 1:
            weights[1] = sum(weights)
        sent = [24 * MIB * weight // sum(weights) for weight in weights]
        return [*sent[:-1], 24 * MIB - sum(sent[:-1])]

    def _copies(self, rank: int, strategy: str, rounds: int) -> dict[str, int]:
        """What a record says of copies: on GPUs 60 ms of exchange a round, a third of it or more waited for."""
        exchange = 60_000_000 * rounds if self.gpus else 0
        staging = 20_000_000 * rounds if self.gpus and strategy == "staged" else 0
        return {
            "exchange_copy_ns": exchange, "exchange_wait_ns": exchange // (3 - rank % 2), "staging_copy_ns": staging,
            "staging_wait_ns": staging // 10,
        }  # fmt: skip

    def _round(self, rank: int, number: int, strategy: str, t: float, length: float, record: dict[str, Any]) -> float:
        self._span(rank, number, "partition", "algorithm", t, t + 0.3 * length, record, MIB, "device")
        self._span(rank, number, "exchange", "transfer", t + 0.3 * length, t + length, record, MIB, "device")
        if strategy == "staged":
            self._span(rank, number, "stage", "io", t + 0.5 * length, t + 0.9 * length, record, MIB, "disk")
        return t + length

    def _span(
        self, rank: int, number: int, name: str, category: str, start: float, end: float, record: dict[str, Any],
        nbytes: int, tier: str,
    ) -> None:  # fmt: skip
        self.spans[rank].append([name, category, ns(start), ns(end), number, nbytes, tier])
        record["phases"][name] = record["phases"].get(name, 0) + ns(end) - ns(start)
        record["phase_bytes"][name] = record["phase_bytes"].get(name, 0) + nbytes

    def at(self, seconds: float) -> list[Snapshot]:
        """Return what the ranks would say so many seconds after the start."""
        # A caller may change what it gets.
        return copy.deepcopy([self._snapshot(rank, seconds) for rank in range(self.ranks)])

    def _snapshot(self, rank: int, seconds: float) -> Snapshot:
        now = ns(seconds)
        whole = self._samples(rank)
        count = int(seconds * self.hz) + 1
        done = [r for r in self.operations[rank] if r["end_ns"] <= now]
        running = [r for r in self.operations[rank] if r["start_ns"] <= now < r["end_ns"]]
        samples = {name: column[:count] for name, column in whole.items()}
        spans = [s for s in self.spans[rank] if s[3] <= now]
        made = {
            "version": 1, "rank": rank, "host": f"h{1 + rank // 4}", "pid": 4000 + rank, "clock_offset_ns": 0,
            "now_ns": now, "limit_bytes": self.budget, "samples": samples,
            "operations": done + [dict(r, end_ns=0) for r in running],
            "gpu": self._gpu(rank, seconds) if self.gpus else None,
            "spans": spans, "span_threads": [0] * len(spans), "threads": ["main"], "marks": [],
            "progress": self._progress(rank, running[0], now) if running else None,
            "copy_rates": {"disk": {"down": 1.9e9, "up": 3.1e9}}, "dropped_events": 0,
            "uses": self._uses(rank, samples["used_bytes"][-1] if samples["used_bytes"] else 0, bool(running)),
            "pools": self._pools(rank),
            "event_cost_ns": 900, "sampler_cpu_ns": 1000,
        }  # fmt: skip
        return made

    @staticmethod
    def _uses(rank: int, used: int, running: bool) -> dict[str, int]:
        """Who holds what is in use: tables, a part of it handed over by others on rank 0, and while it works claims."""
        external = used // 4 if rank == 0 else 0
        claims = {"Received rows": used // 5, "Reading a staged chunk": used // 8} if running else {}
        found = {"tables": used - external - sum(claims.values()), "external": external, **claims}
        return {what: nbytes for what, nbytes in found.items() if nbytes}

    def _pools(self, rank: int) -> list[dict[str, Any]]:
        """16 MiB of scratch memory, and on GPUs 300 MiB that is page-locked."""

        def pool(name: str, held: int, used: int, hits: int, misses: int) -> dict[str, Any]:
            free, rate = held - used, hits / (hits + misses)
            return {
                "rank": rank, "pool": name, "held_bytes": held, "used_bytes": used, "largest_free_bytes": free // 2,
                "fragmentation": 0.5, "hits": hits, "misses": misses, "hit_rate": rate, "growths": misses, "drops": 0,
            }  # fmt: skip

        pinned = [pool("pinned", 300 * MIB, (40 + 10 * rank) * MIB, 90, 10)] if self.gpus else []
        return [pool("scratch", 16 * MIB, (3 + rank) * MIB, 970, 30), *pinned]

    def _samples(self, rank: int) -> dict[str, list[int]]:
        if rank not in self._sampled:
            t = [k / self.hz for k in range(int((self.length_s + 60) * self.hz))]
            self._sampled[rank] = {
                "t_ns": [ns(x) for x in t],
                "used_bytes": [self._used(rank, x) for x in t],
                "limit_bytes": [self.budget] * len(t),
                **self._lower(rank, t),
                "rss_bytes": [300 * MIB] * len(t),
            }
        return self._sampled[rank]

    def _progress(self, rank: int, record: dict[str, Any], now: int) -> dict[str, Any]:
        current = [s for s in self.spans[rank] if s[4] == record["number"] and s[2] <= now < s[3]]
        rounds = sum(s[0] == "exchange" and s[4] == record["number"] and s[3] <= now for s in self.spans[rank])
        phase, since = (current[0][0], current[0][2]) if current else ("waiting", now)
        return {
            "verb": record["verb"], "number": record["number"], "round": rounds, "rounds": record["rounds"],
            "phase": phase, "since_ns": since,
        }  # fmt: skip

    def _used(self, rank: int, x: float) -> int:
        base = 0.1 * self.budget
        for record in self.operations[rank]:
            start, end = (record["start_ns"] - START_NS) / 1e9, (record["end_ns"] - START_NS) / 1e9
            if start <= x <= end:
                done = (x - start) / (end - start)
                wave = 0.85 + 0.15 * (int((x - start) * 20) % 2)
                return int(base + (record["measured_peak_bytes"] - base) * min(1.0, 1.3 * done) * wave)
        return int(base)

    def _lower(self, rank: int, t: list[float]) -> dict[str, list[int]]:
        staged = self._disk(rank, t)
        if not self.gpus:
            return {"disk_bytes": staged, "pinned_bytes": [0] * len(t)}
        room = 300 * MIB
        return {"disk_bytes": [max(0, n - room) for n in staged], "pinned_bytes": [min(n, room) for n in staged]}

    def _gpu(self, rank: int, seconds: float) -> dict[str, Any]:
        """A rank's GPU, told of four times a second: busy in operations, 20 MiB outside the budgets, later 26."""
        place = rank % self.gpus
        sharing = sum(other % self.gpus == place for other in range(self.ranks))
        t = [k / 4 for k in range(int(seconds * 4) + 1)]
        spans = [(r["start_ns"], r["end_ns"]) for r in self.operations[rank]]
        busy = [88 - 9 * (place % 8) if any(a <= ns(x) <= b for a, b in spans) else 0 for x in t]
        return {
            "uuid": f"GPU-{place}f2a91c0-5d6e", "name": "NVIDIA H100 80GB HBM3", "total_bytes": 80 * 1024 * MIB,
            "held_bytes": self.budget + 32 * MIB,
            "samples": {
                "t_ns": [ns(x) for x in t],
                "used_bytes": [sharing * (self.budget + 32 * MIB) + (20 + 6 * (x > 5) + place) * MIB for x in t],
                "utilisation": busy,
            },
        }  # fmt: skip

    def _disk(self, rank: int, t: list[float]) -> list[int]:
        ends = sorted(s[3] for s in self.spans[rank] if s[0] == "stage")
        return [20 * MIB * bisect.bisect_right(ends, ns(x)) for x in t]


def ns(seconds: float) -> int:
    """Return a time of the run on the ranks' clock."""
    return START_NS + int(seconds * 1e9)


class ReplaySource:
    """What the dashboard needs of a cluster, played back from a `Replay` by the clock on the wall."""

    def __init__(self, replay: Replay | None = None, *, speed: float = 1.0, hz: float = 20.0) -> None:
        self.replay = replay or Replay()
        self.speed, self.hz = speed, hz
        self._config = GcylonConfig(gpu_memory_limit=64 * MIB)
        self.configs: list[GcylonConfig] = []
        self.ceiling_bytes = CEILING
        self.refuse: Exception | None = None
        self.calls: list[str] = []
        self.callbacks: list[Any] = []
        self.at_s = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def config(self) -> GcylonConfig:
        return self._config

    @config.setter
    def config(self, value: GcylonConfig) -> None:
        if self.refuse is not None:
            raise self.refuse
        self._config = value
        self.configs.append(value)

    @property
    def ranks(self) -> list[dict[str, Any]]:
        return [
            {
                "rank": r,
                "host": f"h{1 + r // 4}",
                "device": self._device(r),
                "pid": 4000 + r,
                "ceiling_bytes": self.ceiling_bytes,
            }
            for r in range(self.replay.ranks)
        ]

    def _device(self, rank: int) -> str:
        gpus = self.replay.gpus
        return f"NVIDIA H100 80GB HBM3 {rank % gpus}f2a91c0" if gpus else "cpu"

    def snapshots(self) -> list[Snapshot]:
        return self.replay.at(self.at_s)

    def subscribe(self, callback: Any) -> Any:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        info = {
            "columns": ["k", "a", "b", "c"], "dtypes": ["int64", *["float64"] * 3], "rows": 1_000_000,
            "nbytes": 32_000_000, "tiers": {"device": 32_000_000, "disk": 0}, "chunks": 1, "largest_staged_bytes": 0,
            "partitioning": None, "row_bytes": 32, "used_bytes": 32_000_000, "limit_bytes": self.replay.budget,
            "ceiling_bytes": CEILING, "free_at_start_bytes": 2 * CEILING, "index_row_bytes": 112,
            "match_row_bytes": 67, "pair_bytes": 32,
        }  # fmt: skip
        return {"lineitem": [info] * self.replay.ranks}

    def tell(self, at_s: float | None = None) -> None:
        """Move to a time and tell the subscribers."""
        self.at_s = self.at_s if at_s is None else at_s
        for callback in list(self.callbacks):
            callback(self.snapshots())

    def interrupt(self) -> None:
        self.calls.append("interrupt")

    def revoke(self) -> None:
        self.calls.append("revoke")

    def handles(self) -> dict[str, Any]:
        return {}

    def restart(self) -> None:
        self.calls.append("restart")

    def status(self) -> dict[str, Any]:
        return {"state": "ready", "dead": [], "transport": "MPI"}

    def start(self) -> ReplaySource:
        """Play, from the start, over and over."""
        began = time.monotonic()

        def play() -> None:
            while not self._stop.wait(1 / self.hz):
                self.tell(min((time.monotonic() - began) * self.speed, self.replay.length_s))

        self._thread = threading.Thread(target=play, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()


def settle(count: Callable[[], object], still_s: float = 0.3, timeout_s: float = 20.0) -> None:
    """Wait until what is under way is over: until a count has not changed for a while."""
    end = time.monotonic() + timeout_s
    seen, since = count(), time.monotonic()
    while time.monotonic() - since < still_s:
        assert time.monotonic() < end, f"it still changes: {seen}"
        time.sleep(0.01)
        if count() != seen:
            seen, since = count(), time.monotonic()


def eventually(condition: Callable[[], object], timeout_s: float = 20.0) -> bool:
    """Wait until a condition holds; return whether it did in time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())
