"""Bodies for kinds of fault that users of distributed frames have reported, run on every rank."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from exchanges import held, more_held
from same_frames import assert_frames_equal

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import GcylonError
from gcylon_lab.runtime.context import Context, current, set_current


def spread(
    parts: list[pd.DataFrame], verb: str, arguments: dict[str, Any], strategy: str, config: GcylonConfig | None
) -> pd.DataFrame:
    """Run a verb on given parts; ranks beyond them hold no rows."""
    rank = current().rank
    table = gl.from_local(parts[rank] if rank < len(parts) else parts[-1].iloc[:0])
    frame: pd.DataFrame = getattr(table, verb)(**arguments, strategy=strategy, config=config).local()
    return frame


def rows(n: int, rank: int, turn: int) -> pd.DataFrame:
    texts = pd.array([f"{turn}/{rank}/{i}" for i in range(n)], dtype="str")
    return pd.DataFrame({"turn": turn, "rank": rank, "i": np.arange(n), "s": texts})


def back_to_back(turns: int) -> int:
    """Collectives with no barrier between them, on ranks that are late now and then; returns rows that were right."""
    context = current()
    size, rank, right = context.size, context.rank, 0
    random = np.random.default_rng(rank)
    for turn in range(turns):
        if random.random() < 0.2:
            time.sleep(random.random() * 0.01)
        counts = [(turn * 3 + r * 5) % 11 for r in range(size)]
        table = gl.from_local(rows(counts[rank], rank, turn))
        everything = pd.concat([rows(n, r, turn) for r, n in enumerate(counts)], ignore_index=True)
        gathered = table.allgather().local()
        assert_frames_equal(gathered, everything, check_column_type=False)
        shuffled = table.shuffle("i").local()
        assert (shuffled["turn"] == turn).all()
        assert [f"{turn}/{r}/{i}" for r, i in zip(shuffled["rank"], shuffled["i"], strict=True)] == list(shuffled["s"])
        root = turn % size
        sent = table.broadcast(root).local()
        assert_frames_equal(sent, rows(counts[root], root, turn), check_column_type=False)
        right += len(gathered) + len(shuffled) + len(sent)
    return right


def every_verb(frame_rows: int) -> dict[str, pd.DataFrame]:
    """The results of all verbs on this rank."""
    rank, size = current().rank, current().size
    g = np.arange(frame_rows) * size + rank
    texts = [None if i % 7 == 0 else "x" * (i % 40) for i in g.tolist()]
    table = gl.from_local(pd.DataFrame({"g": g, "k": g % 13, "s": pd.array(texts, dtype="str"), "x": g / 3}))
    return {
        "shuffle": table.shuffle("k").local().sort_values("g", ignore_index=True),
        "allgather": table.allgather().local(),
        "gather": table.gather(size - 1).local(),
        "broadcast": table.broadcast(0).local(),
        "repartition": table.repartition([frame_rows * size, *[0] * (size - 1)]).local(),
    }


def every_verb_in_short_messages(frame_rows: int, limit: int) -> dict[str, pd.DataFrame]:
    """The same on MPI where no message may be longer than so many bytes."""
    from gcylon_lab.comm.mpi import MpiTransport

    shared = current()
    context = Context(MpiTransport(max_message_bytes=limit), sample_hz=0)
    set_current(context)
    try:
        return every_verb(frame_rows)
    finally:
        context.close()
        set_current(shared)


def more_than_the_limit(verb: str, allow: bool, strategy: str) -> dict[str, Any]:
    """Work of 3.2 MB a rank under 4 MiB in chunks of 512 KiB; then something small in the same context."""
    context = current()
    n = 100_000
    g = np.arange(n) + n * context.rank
    table = gl.from_local(pd.DataFrame({"g": g, "k": g % 1009, "x": g / 2, "y": g % 7}))
    config = GcylonConfig(
        gpu_memory_limit="4 MiB", chunk_size_bytes="512 KiB", allow_cpu_staging=allow, allow_disk_spill=allow
    )
    seen: dict[str, Any] = {"limit": config.gpu_memory_limit}
    before = held(context)
    try:
        result = getattr(table, verb)(**({"on": "k"} if verb == "shuffle" else {}), strategy=strategy, config=config)
    except GcylonError as error:
        if allow:
            raise
        seen["error"] = error
        more = more_held(context, before)
        assert more == (0, 0), f"the error keeps {more} bytes in memory and below"
    else:
        record = context.recorder.operations[-1]
        frame = result.local()
        seen |= {"sum": int(frame["g"].sum()), "rows": len(frame), "peak": record.measured_peak_bytes}
        seen["strategy"] = record.strategy
        result.release()
    seen["later"] = len(table.gather(0, config=config.with_values(gpu_memory_limit=0)).local())
    return seen


def skewed(share: float, text: bool, strategy: str, limit: int, staged_input: bool) -> dict[str, Any]:
    """Shuffle where one key holds a share of all rows, within a tight budget."""
    context = current()
    n = 6000
    random = np.random.default_rng(context.rank)
    hot = random.random(n) < share
    keys = np.where(hot, 7, random.integers(100, 10**6, n))
    frame = pd.DataFrame({"k": keys, "g": np.arange(n) + n * context.rank, "x": random.random(n)})
    if text:
        frame["s"] = ["x" * 40 if h else "cold" for h in hot]
    table = gl.from_local(frame)
    config = GcylonConfig(gpu_memory_limit=limit, chunk_size_bytes="32 KiB", min_chunk_rows=256)
    if staged_input:
        staged = table.repartition(strategy="staged", config=config)
        table.release()
        table = staged
    result = table.shuffle("k", strategy=strategy, config=config)
    record = context.recorder.operations[-1]
    again = result.shuffle("g", config=config)  # what was staged in large chunks can be worked on
    last = context.recorder.operations[-1]
    return {
        "given": table.local(), "got": result.local(), "again": again.local(), "tiers": result.tiers,
        "peaks": (record.measured_peak_bytes, last.measured_peak_bytes), "strategy": record.strategy,
    }  # fmt: skip


def sums_with_a_late_rank(turns: int) -> list[bytes]:
    """The bits of sums of floats that no order but one adds up alike; in each turn another rank comes late."""
    context = current()
    rank, size, seen = context.rank, context.size, []
    values = [(1e16, 0.1), (1.0, 0.2), (-1e16, 0.3), (1.0, 0.4)]
    for turn in range(turns):
        table = gl.from_local(pd.DataFrame({"k": ["a", "b"], "v": values[rank % 4]}))
        if turn % size == rank:
            time.sleep(0.005)
        whole = table.groupby("k").agg({"v": "sum"}).to_pandas().sort_values("k")
        seen.append(whole["v"].to_numpy().tobytes() + np.float64(table.select(["v"]).sum()["v"]).tobytes())
    return seen
