"""The tiers below the device without one: what is kept, what waits for what, what goes where."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeArray, FakeCupy

from gcylon_lab.errors import SpillError
from gcylon_lab.memory import copies
from gcylon_lab.memory.budget import MemoryBudget
from gcylon_lab.memory.tiers import bounce_buffer
from gcylon_lab.memory.tiers.device_tiers import DeviceTiers
from gcylon_lab.memory.tiers.pinned_pool import Pageable, PinnedPool
from gcylon_lab.memory.tiers.staging_tier import StagingTiers
from gcylon_lab.profiling import Recorder, operation
from gcylon_lab.units import MIB

KIB = 1024
LENGTHS = [0, 1, 255, 256, 257, 100_003, 3 * MIB + 5, 0, 64]


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake)  # type: ignore[arg-type]
    return fake


@pytest.fixture
def tiers(cupy: FakeCupy, tmp_path: Path) -> Iterator[DeviceTiers]:
    made = DeviceTiers(PinnedPool(16 * MIB, block_bytes=MIB, memory=Pageable()), str(tmp_path), most_in_flight=3)
    yield made
    made.close()
    gc.collect()
    assert (made.used_bytes, made.pool.used_bytes, made.pool.pageable_bytes) == (0, 0, 0)


def buffers_of(lengths: list[int], seed: int = 0) -> list[FakeArray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, n, dtype=np.uint8).view(FakeArray) for n in lengths]


def read_bytes(cupy: FakeCupy, region: object) -> list[bytes]:
    views = region.read()  # type: ignore[attr-defined]
    cupy.cuda.current.synchronize()
    return [view.tobytes() for view in views]


def test_they_are_what_operations_ask_for(tiers: DeviceTiers) -> None:
    asked: StagingTiers = tiers
    assert (asked.used_bytes, asked.pinned_bytes, asked.disk_bytes) == (0, 0, 0)


def test_bytes_come_back_from_both_tiers(tiers: DeviceTiers, cupy: FakeCupy) -> None:
    file = tiers.new_file()
    wanted = [[b.tobytes() for b in buffers_of(LENGTHS, seed)] for seed in range(6)]
    regions = [file.append(buffers_of(LENGTHS, seed)) for seed in range(6)]
    assert [region.tier for region in regions] == ["pinned"] * 4 + ["disk"] * 2
    assert [read_bytes(cupy, region) for region in regions] == wanted
    assert tiers.used_bytes == tiers.written_bytes == 6 * regions[0].nbytes
    assert (tiers.pinned_bytes, tiers.disk_bytes) == (4 * regions[0].nbytes, 2 * regions[0].nbytes)
    tiers.flush()
    assert tiers.down.nbytes == 6 * sum(LENGTHS) and tiers.up.nbytes == tiers.used_bytes
    assert tiers.disk_written.nbytes == tiers.disk_read.nbytes == tiers.disk_bytes


def test_what_is_staged_is_kept_until_it_has_arrived(tiers: DeviceTiers, cupy: FakeCupy) -> None:
    budget = MemoryBudget(10 * MIB)
    source = np.zeros(MIB, dtype=np.uint8).view(FakeArray)
    late = source.base
    cupy.cuda.current.work.append(lambda: late.fill(7))  # work of before that has not run yet
    region = tiers.new_file().append([source], budget.reserve(MIB, "a chunk"))
    del source
    assert not region.arrived and tiers.poll() == 1 and budget.used_bytes == MIB
    tiers.flush()
    assert region.arrived and tiers.poll() == 0 and budget.used_bytes == 0
    assert read_bytes(cupy, region) == [b"\7" * MIB]


def test_reading_waits_for_what_is_on_its_way(tiers: DeviceTiers, cupy: FakeCupy) -> None:
    [source] = buffers_of([3 * MIB])
    assert read_bytes(cupy, tiers.new_file().append([source])) == [source.tobytes()]


def test_a_region_that_was_dropped_keeps_its_memory_while_it_is_written(tiers: DeviceTiers) -> None:
    tiers.new_file().append(buffers_of([3 * MIB]))
    assert tiers.used_bytes == 0 and tiers.pool.used_bytes == 5 * MIB
    tiers.flush()
    assert tiers.pool.used_bytes == 2 * MIB  # what the way to disk takes


def test_a_fourth_copy_waits_for_the_first(tiers: DeviceTiers) -> None:
    file = tiers.new_file()
    regions = [file.append(buffers_of([KIB])) for _ in range(3)]
    assert not any(region.arrived for region in regions)
    regions.append(file.append(buffers_of([KIB])))
    assert [region.arrived for region in regions] == [True, False, False, False]


def test_after_an_error_everything_is_back(tiers: DeviceTiers, cupy: FakeCupy, tmp_path: Path) -> None:
    tiers.allow_disk = False
    with pytest.raises(SpillError, match=r"16 MiB of the pinned tier are in use.*host_memory_limit"):
        tiers.new_file().append(buffers_of([20 * MIB]))
    tiers.allow_disk = True
    tiers.set_folder(str(tmp_path / "missing"))
    with pytest.raises(SpillError, match="missing"):
        tiers.new_file().append(buffers_of([20 * MIB]))
    tiers.set_folder(str(tmp_path))
    tiers.flush()
    assert tiers.used_bytes == 0 and tiers.pool.used_bytes == 2 * MIB
    [source] = buffers_of([20 * MIB])
    assert read_bytes(cupy, tiers.new_file().append([source])) == [source.tobytes()]


def test_a_copy_that_cannot_start_keeps_what_was_started(
    tiers: DeviceTiers, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, copy = [], cupy.cuda.runtime.memcpyAsync

    def fail_second(*arguments: object) -> None:
        if started:
            raise RuntimeError("invalid argument")
        started.append(copy(*arguments))  # type: ignore[arg-type]

    monkeypatch.setattr(cupy.cuda.runtime, "memcpyAsync", fail_second)
    with pytest.raises(RuntimeError, match="invalid argument"):
        tiers.new_file().append(buffers_of([3 * MIB]))
    assert tiers.poll() == 1 and tiers.pool.used_bytes == 5 * MIB
    tiers.flush()
    assert (tiers.pool.used_bytes, tiers.used_bytes) == (2 * MIB, 0)


def staged(cupy: FakeCupy, tiers: DeviceTiers, beside_ms: int, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stage once, in 4 ms of the GPU's time, of which the host spends some on other things; then read it back."""
    now = [0]
    monkeypatch.setattr(copies, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(bounce_buffer, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(cupy.cuda, "get_elapsed_time", lambda begun, ended: 4.0)
    ends_at = [0]

    def reach_the_end() -> None:
        now[0] = max(now[0], ends_at[0])

    with operation("shuffle", 1, Recorder()) as record:
        ends_at[0] = now[0] + 4_000_000
        cupy.cuda.current.work.append(reach_the_end)
        region = tiers.new_file().append(buffers_of([nbytes]))
        now[0] += beside_ms * 1_000_000
        region.wait()
        tiers.poll()
    assert region.tier == ("pinned" if nbytes < 16 * MIB else "disk")
    return record, region


@pytest.mark.parametrize(("beside_ms", "wait_ms"), [(0, 4), (1, 3), (4, 0), (40, 0)])
def test_of_staging_what_was_not_waited_for_was_hidden(
    tiers: DeviceTiers, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch, beside_ms: int, wait_ms: int
) -> None:
    record, region = staged(cupy, tiers, beside_ms, KIB, monkeypatch)
    assert (record.staging_copy_ns, record.staging_wait_ns) == (4_000_000, wait_ms * 1_000_000)
    with operation("gather", 2, Recorder()) as record:
        read_bytes(cupy, region)
        tiers.poll()
    assert (record.staging_copy_ns, record.staging_wait_ns) == (4_000_000,) * 2, "the work's own stream did it"


def test_what_a_rank_writes_and_reads_itself_is_all_waited_for(
    tiers: DeviceTiers, cupy: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = count(step=1_000_000)
    monkeypatch.setattr(bounce_buffer, "perf_counter_ns", lambda: next(now))
    monkeypatch.setattr(cupy.cuda, "get_elapsed_time", lambda begun, ended: 0.0)
    with operation("shuffle", 1, Recorder()) as record:
        region = tiers.new_file().append(buffers_of([20 * MIB]))
    assert region.tier == "disk" and record.staging_copy_ns == record.staging_wait_ns == 20_000_000
    with operation("gather", 2, Recorder()) as record:
        read_bytes(cupy, region)
    assert record.staging_copy_ns == record.staging_wait_ns == 20_000_000
