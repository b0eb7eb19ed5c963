"""The checks find what they are for, and leave right programs right."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fake_cuda import FakeArray, FakeCupy

import gcylon_lab as gl
from gcylon_lab.errors import ConfigError
from gcylon_lab.memory import debug_checks
from gcylon_lab.memory.budget import MemoryBudget
from gcylon_lab.memory.debug_checks import (
    NEW_BYTE,
    NO_CHECKS,
    POISON_BYTE,
    CheckedResource,
    Checks,
    LiveExtents,
    MemoryMisused,
)
from gcylon_lab.memory.device import open_device, why_unavailable
from gcylon_lab.memory.tiers.device_tiers import DeviceTiers
from gcylon_lab.memory.tiers.disk_tier import SpillStore
from gcylon_lab.memory.tiers.pinned_pool import Pageable, PinnedPool
from gcylon_lab.runtime.context import current, run_threads
from gcylon_lab.units import GIB, MIB

BOTH = Checks(poison=True, overlap=True)
POISONED = bytes([POISON_BYTE])
on_gpu = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())


def gpu(test: Any) -> Any:
    return pytest.mark.gpu(on_gpu(test))


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)  # type: ignore[arg-type]
    return fake


def pool_of(wanted: Checks, cap_bytes: int = 8 * MIB) -> PinnedPool:
    return PinnedPool(cap_bytes, block_bytes=MIB, memory=Pageable(), checks=wanted)


def bytes_of(nbytes: int, seed: int = 0) -> FakeArray:
    return np.random.default_rng(seed).integers(0, 200, nbytes, dtype=np.uint8).view(FakeArray)


# ---- extents in use


@pytest.mark.parametrize("start, nbytes", [(100, 50), (100, 1), (149, 1), (90, 11), (90, 100), (120, 10), (149, 500)])
def test_an_overlap_names_both(start: int, nbytes: int) -> None:
    live = LiveExtents("a place")
    live.add(100, 50, "the first")
    live.add(300, 50, "another")
    with pytest.raises(MemoryMisused, match=f"In a place {nbytes} B at .* for 'the second' overlaps 50 B at 0x64"):
        live.add(start, nbytes, "the second")


def test_neighbours_and_empty_extents_do_not_overlap() -> None:
    live = LiveExtents("a place")
    for start, nbytes in ((100, 50), (150, 50), (50, 50), (120, 0), (0, 50)):
        live.add(start, nbytes, "one")
    live.remove(100, 50)
    live.remove(120, 0)
    live.add(110, 40, "what is free again")


def test_what_is_given_back_twice_or_in_part() -> None:
    live = LiveExtents("a place")
    live.add(100, 50, "one")
    live.remove(100, 20)
    with pytest.raises(MemoryMisused, match="20 B at 0x64 was given back.*50 B there are, for 'one'"):
        live.add(500, 1, "another")
    live.remove(100, 50)
    live.remove(100, 50)
    with pytest.raises(MemoryMisused, match="not in use"):
        live.add(500, 1, "another")


# ---- page-locked buffers


def test_a_staging_buffer_read_after_it_was_given_back_is_poison(cupy: FakeCupy, tmp_path: Path) -> None:
    """A copy up that runs after its buffer was given back, as if nobody had kept it."""
    got = {}
    for wanted in (NO_CHECKS, Checks(poison=True)):
        tiers = DeviceTiers(pool_of(wanted), str(tmp_path))
        source = bytes_of(MIB)
        region: Any = tiers.new_file().append([source])
        tiers.flush()
        [view] = region.read()
        region._blocks[0].release()  # the fault: the copy has not run yet
        cupy.cuda.current.synchronize()
        got[wanted] = view.tobytes() == source.tobytes(), view.tobytes() == POISONED * MIB
        tiers.flush()
    assert got == {NO_CHECKS: (True, False), Checks(poison=True): (False, True)}


def test_a_buffer_that_was_given_back_holds_poison() -> None:
    pool = pool_of(Checks(poison=True), MIB)
    buffers = [pool.take(MIB)]
    with pytest.warns(RuntimeWarning):
        buffers.append(pool.take(1000))  # ordinary memory
    for buffer in buffers:
        view = buffer.view
        view[:] = bytes(buffer.nbytes)
        buffer.release()
        assert bytes(view) == POISONED * len(view)
    assert bytes(pool.take(MIB).view) == POISONED * MIB


def test_without_poison_nothing_is_written() -> None:
    pool = pool_of(NO_CHECKS)
    buffer = pool.take(MIB)
    buffer.view[:] = bytes(MIB)
    buffer.release()
    assert bytes(pool.take(MIB).view) == bytes(MIB)


def test_the_way_to_disk_leaves_poison(cupy: FakeCupy, tmp_path: Path) -> None:
    tiers = DeviceTiers(pool_of(BOTH, 2 * MIB), str(tmp_path))
    source = bytes_of(5 * MIB + 3)
    region = tiers.new_file().append([source])
    assert region.tier == "disk"
    for buffer in tiers._bounce._buffers:
        assert bytes(buffer.view) == POISONED * buffer.nbytes
    [view] = region.read()
    cupy.cuda.current.synchronize()
    assert view.tobytes() == source.tobytes()
    tiers.close()


def test_a_pool_that_lends_bytes_twice_is_found() -> None:
    pool = pool_of(Checks(overlap=True))
    kept = pool.take(MIB, "a staged chunk")
    pool._free.give(kept.pointer, MIB)  # the fault
    with pytest.raises(MemoryMisused, match="1 MiB at .* for 'the way to disk' overlaps 1 MiB at .*'a staged chunk'"):
        pool.take(MIB, "the way to disk")


def test_a_buffer_given_back_twice_is_found() -> None:
    pool = pool_of(Checks(overlap=True))
    pool.take(MIB).release()
    kept = pool.take(2 * MIB)
    pool._give(kept.pointer, 2 * MIB, pinned=True)
    pool._give(kept.pointer, 2 * MIB, pinned=True)  # the fault
    with pytest.raises(MemoryMisused, match="given back, but is not in use"):
        pool.take(MIB)


# ---- spill files


def test_a_file_that_is_written_over_is_found(tmp_path: Path) -> None:
    file = SpillStore(str(tmp_path), Checks(overlap=True)).new_file()
    budget = MemoryBudget(1 * MIB)
    with budget.reserve(1000, "the first table"):
        kept = file.append([memoryview(bytes(1000))])
    file._end = 512  # the fault
    with (
        budget.reserve(1000, "the second table"),
        pytest.raises(MemoryMisused, match="'the second table' overlaps 1 KiB at 0x0.*'the first table'"),
    ):
        file.append([memoryview(bytes(1000))])
    del kept
    file._end = 512
    assert file.append([memoryview(bytes(1000))]).nbytes == 1024


def test_after_a_write_that_failed_its_place_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SpillStore(str(tmp_path), Checks(overlap=True)).new_file()

    def interrupt(*unused: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("gcylon_lab.memory.tiers.disk_tier._write_all", interrupt)
        file.append([memoryview(bytes(1000))])
    assert bytes(file.append([memoryview(b"x" * 64)]).read()[0]) == b"x" * 64


# ---- device memory


class Upstream:
    """A pool that lends what it is told to."""

    def __init__(self, *pointers: int) -> None:
        self.pointers = list(pointers)
        self.done: list[tuple[str, int]] = []

    def allocate(self, nbytes: int, stream: object) -> int:
        return self.pointers.pop(0)

    def deallocate(self, pointer: int, nbytes: int, stream: object) -> None:
        self.done.append(("free", pointer))


def test_device_memory_is_poisoned_in_its_streams_order_and_then_freed() -> None:
    pool = Upstream(1000)
    resource = CheckedResource(pool, BOTH, lambda pointer, nbytes, byte, stream: pool.done.append(stream + (pointer,)))
    pointer = resource.allocate(10, ("s",))
    resource.deallocate(pointer, 10, ("s",))
    assert pool.done == [("s", 1000), ("free", 1000)]


def test_what_is_lent_is_poisoned_before_anyone_writes_it() -> None:
    seen: list[tuple[int, int, int]] = []
    fill = lambda pointer, nbytes, byte, stream: seen.append((pointer, nbytes, byte))  # noqa: E731
    resource = CheckedResource(Upstream(1000, 2000), Checks(poison_new=True), fill)
    resource.deallocate(resource.allocate(10, None), 10, None)
    assert seen == [(1000, 10, NEW_BYTE)] and resource.allocate(0, None) == 2000 and len(seen) == 1
    pool = pool_of(Checks(poison_new=True))
    buffer = pool.take(MIB)
    assert bytes(buffer.view) == bytes([NEW_BYTE]) * MIB
    buffer.view[:] = bytes(MIB)
    buffer.release()
    assert bytes(pool.take(MIB // 2).view) == bytes([NEW_BYTE]) * (MIB // 2)


def test_device_memory_lent_twice_is_found_and_freed_memory_may_be_lent_again() -> None:
    resource = CheckedResource(Upstream(1000, 1000, 1064), Checks(overlap=True), lambda *unused: None)
    budget = MemoryBudget(1000)
    resource.deallocate(resource.allocate(128, None), 128, None)
    budget.reserve(128, "Receiving a chunk")
    resource.allocate(128, None)
    budget.reserve(16, "Partitioning a chunk")
    with pytest.raises(MemoryMisused, match="16 B at 0x428 for 'Partitioning a chunk' overlaps 128 B.*'Receiving"):
        resource.allocate(16, None)


# ---- real operations with everything on, and how it is asked for


def staged_operations(rows: int) -> list[int]:
    context = current()
    frame = pd.DataFrame({"k": np.arange(rows) % 97, "v": np.arange(rows) + rows * context.rank, "s": "text"})
    table = gl.from_local(frame)
    shuffled = table.shuffle("k", strategy="staged")
    again = shuffled.shuffle("v", strategy="staged")
    mine = again.allgather(strategy="staged").local()
    assert set(shuffled.tiers) >= {"disk"} and context.spill.used_bytes > 0
    assert context.spill.checks.overlap and context.equipment.budget.used_bytes >= 0
    return sorted(mine["v"])


def test_staged_operations_stay_right_on_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCYLON_POISON_FREED", "1")
    monkeypatch.setenv("GCYLON_CHECK_OVERLAP", "on")
    config = gl.GcylonConfig(gpu_memory_limit="8MiB", chunk_size_bytes="64KiB", min_chunk_rows=1)
    added: list[int] = []
    add = LiveExtents.add
    monkeypatch.setattr(LiveExtents, "add", lambda self, *more: (added.append(more[1]), add(self, *more)) and None)
    results = run_threads(3, staged_operations, 20_000, config=config)
    assert all(result == list(range(60_000)) for result in results)
    assert len(added) > 50  # it did look


def test_regions_in_any_order_stay_right_without_a_gpu(cupy: FakeCupy, tmp_path: Path) -> None:
    tiers = DeviceTiers(pool_of(BOTH, 16 * MIB), str(tmp_path), most_in_flight=3)
    rng, held, seen = np.random.default_rng(5), [], set()
    file = tiers.new_file()
    for seed in range(120):
        lengths = [int(n) for n in rng.choice([0, 1, 300, 70_000, MIB + 1, 3 * MIB], rng.integers(1, 4))]
        held.append(([bytes_of(n, seed).tobytes() for n in lengths], file.append([bytes_of(n, seed) for n in lengths])))
        seen.add(held[-1][1].tier)
        if len(held) > 6:
            wanted, region = held.pop(int(rng.integers(len(held))))
            views = region.read()
            del region
            cupy.cuda.current.synchronize()
            assert [view.tobytes() for view in views] == wanted
    held.clear()
    tiers.close()
    gc.collect()
    assert seen == {"pinned", "disk"} and (tiers.used_bytes, tiers.pool.used_bytes) == (0, 0)


def test_off_nothing_is_tracked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(debug_checks, "noting", False)
    assert pool_of(NO_CHECKS)._live is None and SpillStore(str(tmp_path)).new_file()._live is None
    MemoryBudget(10).reserve(1, "something of which no note is taken")
    assert debug_checks.purpose() != "something of which no note is taken"


@pytest.mark.parametrize("variable", ["GCYLON_POISON_FREED", "GCYLON_CHECK_OVERLAP"])
def test_a_switch_is_on_or_off(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "sometimes")
    with pytest.raises(ConfigError, match=f"{variable}='sometimes'.*on or off"):
        run_threads(1, current)


@gpu
@pytest.mark.parametrize("pinned_bytes", [256 * MIB, 16 * MIB], ids=["pinned", "pinned and disk"])
def test_regions_stay_right_on_a_gpu(tmp_path: Path, pinned_bytes: int) -> None:
    import cupy

    gc.collect()
    device = open_device(1 * GIB, checks=BOTH)
    tiers = DeviceTiers(PinnedPool(pinned_bytes, block_bytes=4 * MIB, checks=BOTH), str(tmp_path))
    try:
        rng, held = np.random.default_rng(3), []
        for seed in range(150):
            lengths = [int(n) for n in rng.choice([1, 300, 70_000, MIB + 1, 3 * MIB], rng.integers(1, 5))]
            words = [cupy.arange(n, dtype=cupy.uint32) * cupy.uint32(2654435761 + seed) for n in lengths]
            sources = [each.view(cupy.uint8)[:n].copy() for each, n in zip(words, lengths, strict=True)]
            held.append(([each.get() for each in sources], tiers.new_file().append(sources)))
            del words, sources
            if len(held) > 6:
                wanted, region = held.pop(int(rng.integers(len(held))))
                got = [view.get() for view in region.read()]
                assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))
                del region
        held.clear()
        tiers.close()
        gc.collect()
        assert (device.used_bytes, tiers.used_bytes) == (0, 0)
    finally:
        device.close()
        tiers.pool.close()


@gpu
def test_device_memory_read_after_it_was_freed_is_poison() -> None:
    import cupy

    gc.collect()
    device = open_device(64 * MIB, checks=BOTH)
    try:
        freed = cupy.zeros(MIB, dtype=cupy.uint8)
        pointer = freed.data.ptr
        del freed
        host = np.zeros(MIB, dtype=np.uint8)
        cupy.cuda.get_current_stream().synchronize()
        cupy.cuda.runtime.memcpy(host.ctypes.data, pointer, MIB, 2)  # the fault: it is freed
        assert host.tobytes() == POISONED * MIB
        again = cupy.empty(MIB, dtype=cupy.uint8)
        assert device.used_bytes == MIB
        with pytest.raises(MemoryError):
            cupy.empty(64 * MIB, dtype=cupy.uint8)  # past the limit it is refused as ever
        del again
    finally:
        device.close()
