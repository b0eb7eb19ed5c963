"""Two ranks whose operations were timed by a hand-turned clock, for the report tests."""

from __future__ import annotations

from typing import Any

from gcylon_lab.profiling import (
    RankSnapshot,
    Recorder,
    mark,
    operation,
    recording,
    snapshot,
    span,
    take_snapshot,
)

MS = 1_000_000


def two_ranks(clock: Any) -> list[RankSnapshot]:
    """A shuffle of 4 and 2 MB: exchange takes 10 ms on rank 0 and 30 ms on rank 1, all 50 ms on both. Then a gather."""
    return [_rank(0, clock, 10, 4_000_000), _rank(1, clock, 30, 2_000_000)]


def _rank(rank: int, clock: Any, exchange_ms: int, bytes_in: int) -> RankSnapshot:
    recorder = Recorder()
    begin = clock.now_ns
    # Rank 1 runs after rank 0 here; its offset lays both on one axis.
    recorder.clock_offset_ns = begin - 1_000
    with recording(recorder):
        _shuffle(clock, rank, exchange_ms, bytes_in)
        clock.pass_ns(5 * MS)
        with operation("gather", 2) as record:
            record.error = "" if rank == 0 else "RankError: it broke"
    taken = take_snapshot(recorder, None, rank, f"host{rank}")
    times = [1_000, 1_000 + 20 * MS, 1_000 + 50 * MS]
    samples: dict[str, list[int]] = {name: [rank, 0, 7] for name in snapshot.SAMPLE_COLUMNS}
    return taken | {"samples": samples | {"t_ns": times, "pinned_bytes": [0, 0, 0]}, "event_cost_ns": 1_000}


def _shuffle(clock: Any, rank: int, exchange_ms: int, bytes_in: int) -> None:
    with operation("shuffle", 1, arguments="on='k'") as record:
        record.strategy, record.rounds, record.rounds_done = "staged", 4, 4
        record.bytes_in, record.staged_bytes, record.budget_bytes = bytes_in, 100 * (rank + 1), 1000 - rank
        record.predicted_peak_bytes, record.measured_peak_bytes = 800 + rank, 700 + rank
        with span("exchange", "transfer", bytes=bytes_in, tier="device"):
            clock.pass_ns(exchange_ms * MS)
            with span("hash", "kernel"):
                clock.pass_ns(2 * MS)
        mark("spill", "memory", bytes=64, tier="disk")
        with span("waiting", "sync"):
            clock.pass_ns((45 - exchange_ms) * MS)
        clock.pass_ns(3 * MS)


def on_gpus(ranks: list[RankSnapshot]) -> list[RankSnapshot]:
    """The two ranks as if they shared a GPU: its figures, held 400 B by each, and the times of the shuffle's copies."""
    copies = [(30, 10, 10, 0), (0, 0, 10, 10)]
    for rank, (exchange, exchange_wait, staging, staging_wait) in zip(ranks, copies, strict=True):
        times = rank["samples"]["t_ns"]
        samples = {"t_ns": times, "used_bytes": [850, None, 900], "utilisation": [None, 40, 80]}
        rank["gpu"] = {
            "uuid": "GPU-3f2a91c0-5d6e", "name": "H100", "total_bytes": 2000, "held_bytes": 400, "samples": samples,
        }  # fmt: skip
        rank["operations"][0] |= {
            "exchange_copy_ns": exchange * MS, "exchange_wait_ns": exchange_wait * MS,
            "staging_copy_ns": staging * MS, "staging_wait_ns": staging_wait * MS,
        }  # fmt: skip
    return ranks
