"""What a chunk has below the device tier when it comes back: kept, counted, used again, and the first to go."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import SpillError
from gcylon_lab.memory.tiers import disk_tier
from gcylon_lab.memory.tiers.disk_tier import SpillStore
from gcylon_lab.runtime.context import current

TIGHT = GcylonConfig(gpu_memory_limit=40_000, min_chunk_rows=1)


def table_of(rows: int) -> gl.Table:
    return gl.from_local(pd.DataFrame({"k": np.arange(rows) % 50, "v": np.arange(rows) / 7}))


def evicted_twice() -> list[dict[str, Any]]:
    """A table that gives way to each tight operation on another one, and comes back when it is used between them."""
    context = current()
    table, other, seen = table_of(4000), table_of(500), []
    frame = table.local()
    for _ in range(2):
        written, number = context.spill.written_bytes, len(context.recorder.operations)
        result = other.shuffle("k", config=TIGHT)
        records = list(context.recorder.operations)[number:]
        seen.append({
            "below": table.tiers, "written": context.spill.written_bytes - written,
            "peak": max(record.measured_peak_bytes for record in records),
            "told": [(record.staged_bytes, record.restaged_bytes) for record in records if record.verb == "shuffle"],
        })  # fmt: skip
        result.release()
        table.count_rows()
        pd.testing.assert_frame_equal(table.local(), frame)
        seen[-1]["back"] = table.tiers
    table.release()
    return [*seen, {"left": context.spill.used_bytes}]


def test_a_second_eviction_writes_nothing() -> None:
    for first, second, last in World("threads", 2).run(evicted_twice):
        nbytes = first["written"]
        assert nbytes == first["below"]["disk"] >= 64_000 and first["told"] == [(nbytes, 0)]
        assert second["written"] == 0 and second["told"] == [(0, nbytes)]
        assert first["below"] == second["below"] and first["peak"] == second["peak"]
        assert first["back"] == second["back"] == {"device": 64_000, "disk": 0, "also on disk": nbytes}
        assert last["left"] == 0, "a copy outlived its table"


def at_the_end(limit: int) -> dict[str, Any]:
    """A table whose copy is on a disk that takes no more than so many bytes of this rank."""
    context = current()
    table, other = table_of(4000), table_of(3000)
    table._part.stage(context.workspace, 2**40, 2**40)
    table.unstage()
    seen = {"before": table.tiers}
    real, store = os.pwritev, context.spill

    def full(fd: int, vectors: list[Any], offset: int) -> int:
        if store.used_bytes + sum(memoryview(one).nbytes for one in vectors) > limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, vectors, offset)

    os.pwritev = full
    try:
        other._part.stage(context.workspace, 2**40, 2**40)
    except SpillError as error:
        seen["error"] = error
    finally:
        os.pwritev = real
    return seen | {"after": table.tiers, "other": other.tiers, "used": store.used_bytes, "same": len(table.local())}


@pytest.mark.cpu_alone("what is kept of few rows is in page-locked memory there")
def test_where_the_disk_is_full_what_was_kept_goes_first() -> None:
    [seen] = World("single", 1).run(at_the_end, 70_000)
    assert seen["before"]["also on disk"] == 64_000 and seen["after"] == {"device": 64_000, "disk": 0}
    assert seen["other"] == {"device": 0, "disk": 48_000} and seen["used"] == 48_000 and seen["same"] == 4000
    [seen] = World("single", 1).run(at_the_end, 40_000)
    assert seen["error"].numbers["errno"] == errno.ENOSPC and seen["after"] == {"device": 64_000, "disk": 0}
    [seen] = World("single", 1).run(at_the_end, 200_000)
    assert seen["after"] == seen["before"] and seen["used"] == 112_000


def told_by_one(rank: int) -> dict[str, Any]:
    context = current()
    table, other = table_of(4000), table_of(8000)
    table._part.stage(context.workspace, 2**40, 2**40)
    table.unstage()
    real = context.spill.new_file

    def none() -> Any:
        raise SpillError("full", advice="", errno=errno.ENOSPC)

    if context.rank == rank:
        context.spill.new_file = none
    with pytest.raises(SpillError, match="full"):
        other.shuffle("k", strategy="staged")
    context.spill.new_file = real
    return table.tiers


@pytest.mark.cpu_alone("what is kept of few rows is in page-locked memory there")
def test_a_disk_that_is_full_for_one_rank_is_made_free_by_all() -> None:
    assert World("threads", 2).run(told_by_one, 1) == [{"device": 64_000, "disk": 0}] * 2


def test_copies_are_kept_where_the_disk_has_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, free = SpillStore(str(tmp_path)), [4096]
    monkeypatch.setattr(disk_tier, "free_bytes", lambda folder: free[0])
    region = store.new_file().append([memoryview(bytes(1024))])
    kept = store.kept.keep([region])
    assert kept is not None and kept.tiers == {"disk": 1024} and store.kept.nbytes("disk") == 1024
    assert store.kept.keep([region]) is None, "of a disk with 4 KiB free no more than one is taken"
    free[0] = 8192
    second = store.kept.keep([region])
    assert second is not None and store.kept.drop("disk", 1000)
    assert (len(kept.slices), len(second.slices)) == (0, 1), "the oldest goes first, and no more than is needed"
    assert store.kept.drop("disk") and not store.kept.drop("disk")
    del region
    gc.collect()
    assert store.used_bytes == store.kept.nbytes("disk") == 0
