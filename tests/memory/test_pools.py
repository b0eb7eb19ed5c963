"""What is kept of memory to be used again: told by numbers, and given back."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.backends.host.keys.scratch_pool import bound_scratch, scratch, scratch_state, trim_scratch
from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.tiers.disk_tier import SpillStore
from gcylon_lab.memory.tiers.pinned_pool import Pageable, PinnedPool
from gcylon_lab.runtime.context import current
from gcylon_lab.runtime.memory_info import pools_of, trim
from gcylon_lab.units import MIB


def in_a_thread(body: Any) -> Any:
    """Scratch memory is a thread's own."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(body()))
    thread.start()
    thread.join()
    return found[0]


def test_scratch_arrays_are_counted_and_given_up_once_nobody_refers_to_them() -> None:
    bound_scratch(2**30)  # else that of the context that was open last holds

    def body() -> tuple[Any, ...]:
        held = scratch(2**17, np.dtype(np.int64))
        scratch(2**16, np.dtype(np.int64))
        scratch(2**16, np.dtype(np.int64))
        before = scratch_state()
        freed = trim_scratch()
        after = scratch_state()
        held[:] = 7
        return before, freed, after, trim_scratch(), int(held.sum())

    before, freed, after, again, total = in_a_thread(body)
    assert (before.held_bytes, before.used_bytes) == (2**20 + 2**19, 2**20) and before.largest_free_bytes == 2**19
    assert (before.hits, before.misses, before.drops) == (1, 2, 0)
    assert freed == 2**19 and again == 0 and total == 7 * 2**17
    assert (after.held_bytes, after.used_bytes, after.largest_free_bytes, after.drops) == (2**20, 2**20, 0, 1)


def test_the_pinned_pool_tells_its_pieces_and_gives_back_what_is_idle() -> None:
    pool = PinnedPool(8 * MIB, block_bytes=MIB, step_bytes=2 * MIB, memory=Pageable())
    device = SimpleNamespace(slab=SimpleNamespace(nbytes=100), used_bytes=40, allocation_count=3)
    equipment: Any = SimpleNamespace(pool=pool, device=device, tiers=SpillStore(), transport=SimpleNamespace(rank=5))
    first, second, third = (pool.take(MIB) for _ in range(3))  # steps of 1, 1 and 2 MiB
    second.release()
    scratch_row, pinned, on_gpu = pools_of(equipment)
    assert [row["pool"] for row in (scratch_row, pinned, on_gpu)] == ["scratch", "pinned", "device"]
    assert (pinned["rank"], pinned["held_bytes"], pinned["used_bytes"]) == (5, 4 * MIB, 2 * MIB)
    assert pinned["largest_free_bytes"] == MIB and pinned["fragmentation"] == 0.5
    assert (pinned["misses"], pinned["growths"], pinned["drops"]) == (3, 3, 0) and pinned["hit_rate"] == 0
    assert (on_gpu["held_bytes"], on_gpu["used_bytes"], on_gpu["fragmentation"]) == (100, 40, None)
    assert pool.take(MIB).pinned and pools_of(equipment)[1]["hit_rate"] == 0.25
    freed = trim(equipment)
    assert freed["pinned_bytes"] == MIB and freed["rank"] == 5, "the second step alone is idle"
    assert (pool.held_bytes, pool.used_bytes, pool.drops) == (3 * MIB, 2 * MIB, 1)
    first.release()
    third.release()
    assert trim(equipment)["pinned_bytes"] == 3 * MIB and pool.held_bytes == 0


def kept_and_trimmed() -> tuple[Any, ...]:
    context = current()
    table = gl.from_local(pd.DataFrame({"k": np.arange(50_000), "v": 0.5}))
    table.shuffle("k").release()
    table._part.stage(context.workspace, 2**40, MIB)
    table.unstage()
    kept = table.tiers["also on disk"]
    freed = context.trim()
    return kept, freed, table.tiers, context.spill.used_bytes, int(table.sum("k")), context.pools()


def test_copies_of_rows_that_came_back_are_trimmed_too() -> None:
    for kept, freed, tiers, below, total, pools in World("threads", 2).run(kept_and_trimmed):
        assert freed["kept_bytes"] == kept > 0 == below and "also on disk" not in tiers
        assert total == 2 * sum(range(50_000)) and freed["scratch_bytes"] >= 0 == freed["pinned_bytes"]
        assert [row["pool"] for row in pools] == ["scratch"] and pools[0]["hits"] + pools[0]["misses"] > 0


@pytest.mark.gpu
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_pools_of_a_gpu_engine() -> None:
    with gl.initialize(gl.GcylonConfig(gpu_memory_limit="64MiB"), sample_hz=0, engine="gpu") as context:
        found = {row["pool"]: row for row in context.pools()}
        assert found["device"]["held_bytes"] >= 64 * MIB and found["pinned"]["held_bytes"] > 0
        assert context.trim()["pinned_bytes"] > 0
