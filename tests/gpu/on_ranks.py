"""What the tests of a cluster on GPUs run on its ranks; the engines import this module by its name."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np

import gcylon_lab as gl


def state() -> dict[str, int]:
    """What is held on this rank: claims, device memory that is allocated, staged bytes, exposed buffers."""
    gc.collect()
    context = gl.current()
    context.spill.poll()
    context.budget.start_window()
    device = context.equipment.device
    return {
        "claimed": context.budget.used_bytes,
        "allocated": 0 if device is None else device.used_bytes,
        "staged": context.spill.used_bytes,
        "exposed": len(getattr(context.transport, "_kept", ())),
    }


def agree() -> list[int]:
    context = gl.current()
    return [int(rank) for rank in context.transport.agree(np.array([context.rank], dtype=np.int64))[:, 0]]


def rank_1_raises() -> list[int]:
    if gl.current().rank == 1:
        raise ValueError("on purpose")
    return agree()


def rank_1_sleeps(seconds: float) -> list[int]:
    if gl.current().rank == 1:
        time.sleep(seconds)
    return agree()


def big_table(rows: int) -> Any:
    """A table that takes a while to move: its rows are numbered over all ranks."""
    import pandas as pd

    rank = gl.current().rank
    position = np.arange(rows) + rows * rank
    frame = pd.DataFrame({"k": position * 7919 % 100_003, "position": position, "v": position / 8})
    return gl.from_local(frame)


def shuffle_on_and_on(table: Any, strategy: str, seconds: float) -> int:
    """Shuffle for some time, so that whatever comes from outside comes in the middle of it; returns how often."""
    count = 0
    until = time.monotonic() + seconds
    # All ranks leave in the same turn: rank 0 says when.
    while gl.current().transport.agree(np.array([time.monotonic() < until], dtype=np.int64))[0, 0]:
        table.shuffle("k", strategy=strategy).release()
        count += 1
    return count


def shuffled_rows(rows: int, strategy: str) -> int:
    """Shuffle a new table; this rank's rows of the result."""
    table = big_table(rows)
    shuffled = table.shuffle("k", strategy=strategy)
    found = int(shuffled.num_rows)
    shuffled.release()
    table.release()
    return found


def arm(rank: int, target: str, method: str, nth: int, before: bool, kind: str) -> None:
    """Let a rank's backend or transport raise at the nth call of a method: before it does its work, or after."""
    context = gl.current()
    if context.rank != rank:
        return
    thing = context.workspace.backend if target == "backend" else context.workspace.transport
    if not hasattr(thing, method):
        return
    original = getattr(thing, method)
    calls = [0]

    def broken(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] != nth:
            return original(*args, **kwargs)
        if not before:
            original(*args, **kwargs)
        raise {"OSError": OSError, "MemoryError": MemoryError, "KeyboardInterrupt": KeyboardInterrupt}[kind](
            f"injected into {method}, call {nth}"
        )

    setattr(thing, method, broken)


def disarm() -> None:
    """Take the faults away."""
    workspace = gl.current().workspace
    for thing in (workspace.backend, workspace.transport):
        for method in (
            "partition",
            "partition_ids",
            "pack_variable",
            "allocate",
            "pack",
            "exchange",
            "finish",
            "scattering",
            "writing",
        ):
            vars(thing).pop(method, None)
