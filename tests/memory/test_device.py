"""The memory of the device: limits hold whoever allocates, peaks are measured, all of it is one slab."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gcylon_lab.errors import BudgetExceeded
from gcylon_lab.memory import device as devices
from gcylon_lab.memory.budget import MemoryBudget
from gcylon_lab.memory.device import (
    POOLS,
    Device,
    DeviceUnavailable,
    current_device,
    free_bytes,
    open_device,
    slab_bytes,
    total_bytes,
    why_unavailable,
)
from gcylon_lab.memory.device_budget import DeviceBudget
from gcylon_lab.memory.nvml import GpuStatus
from gcylon_lab.memory.out_of_memory import memory_errors
from gcylon_lab.units import GIB, MIB, format_bytes

LIMIT = 256 * MIB
on_gpu = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())


def gpu(test: Any) -> Any:
    return pytest.mark.gpu(on_gpu(test))


@pytest.fixture(params=POOLS)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    gc.collect()
    opened = open_device(LIMIT, pool=request.param)
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.skipif(not why_unavailable(), reason="there is a GPU")
def test_where_there_is_no_gpu_it_says_why() -> None:
    for function in (free_bytes, total_bytes, lambda: open_device(LIMIT)):
        with pytest.raises(DeviceUnavailable) as raised:
            function()
        assert raised.value.reason == why_unavailable() == str(raised.value)
    assert current_device() is None


def test_the_reason_is_the_first_thing_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(devices, "find_spec", lambda name: None if name in ("rmm", "cudf") else object())
    assert why_unavailable() == "rmm, cudf not installed (pip install 'gcylon-lab[gpu]')"


def test_the_slab_has_slack() -> None:
    assert slab_bytes(1000) == 34 * MIB
    assert slab_bytes(8 * GIB) == 8 * GIB + 256 * MIB
    assert slab_bytes(60 * GIB + 1) == 61 * GIB + 2 * MIB
    assert slab_bytes(1000, "binning") == 48 * MIB, "and the blocks of its bins"


@gpu
def test_nothing_passes_the_limit(device: Device) -> None:
    import cupy

    budget = MemoryBudget(LIMIT)
    held = [cupy.empty(LIMIT // 16, dtype=cupy.uint8) for _ in range(16)]
    assert device.used_bytes == LIMIT
    with pytest.raises(MemoryError) as raised:
        cupy.empty(1, dtype=cupy.uint8)
    print(type(raised.value), raised.value)
    with pytest.raises(BudgetExceeded) as exceeded, memory_errors(budget, "One byte more"):
        cupy.empty(MIB, dtype=cupy.uint8)
    print(exceeded.value)
    assert exceeded.value.numbers["needed_bytes"] == MIB
    assert exceeded.value.numbers["used_bytes"] == LIMIT
    assert exceeded.value.numbers["would_do"] == LIMIT + 2 * MIB, "what a library makes next may take as much"
    assert device.peak_bytes <= device.limit_bytes
    del held
    assert device.used_bytes == 0


@gpu
def test_cudf_works_inside_the_limit(device: Device) -> None:
    import cudf
    import cupy

    frame = cudf.DataFrame({"k": cupy.arange(4_000_000, dtype=cupy.int64)[::-1].copy(), "v": 1.5})
    assert 60 * MIB < device.used_bytes < 100 * MIB
    budget = MemoryBudget(LIMIT)
    held = cupy.empty(LIMIT - device.used_bytes - 8 * MIB, dtype=cupy.uint8)
    with pytest.raises(BudgetExceeded) as raised, memory_errors(budget, "Sorting"):
        frame.sort_values("k")
    print(type(raised.value.__cause__), raised.value.__cause__, raised.value, sep="\n")
    assert device.peak_bytes <= LIMIT
    del held
    used = device.used_bytes
    ordered = frame.sort_values("k", ignore_index=True)
    assert ordered["k"].iloc[0] == 0 and used < device.peak_bytes <= LIMIT
    assert device.slab.base <= cupy.asarray(ordered["k"]).data.ptr < device.slab.base + device.slab.nbytes


@gpu
def test_the_slab_covers_all_allocations(device: Device) -> None:
    import cupy

    base, end = device.slab.base, device.slab.base + device.slab.nbytes
    print("slab", hex(base), device.slab.nbytes, slab_bytes(LIMIT, device.pool))
    assert device.slab.nbytes == slab_bytes(LIMIT, device.pool)
    held = [cupy.empty(size, dtype=cupy.uint8) for size in (1, 1000, MIB, 100 * MIB, 77 * MIB)]
    assert all(base <= array.data.ptr and array.data.ptr + array.nbytes <= end for array in held)


@gpu
def test_peaks_and_counts(device: Device) -> None:
    import cupy

    kept = cupy.empty(10 * MIB, dtype=cupy.uint8)
    cupy.empty(50 * MIB, dtype=cupy.uint8)
    assert (device.used_bytes, device.peak_bytes, device.allocation_count) == (10 * MIB, 60 * MIB, 2)
    device.start_window()
    assert (device.window_peak_bytes, device.peak_bytes) == (10 * MIB, 60 * MIB)
    cupy.empty(20 * MIB, dtype=cupy.uint8)
    assert (device.window_peak_bytes, device.peak_bytes, device.used_bytes) == (30 * MIB, 60 * MIB, 10 * MIB)
    device.reset_peak()
    assert device.peak_bytes == 10 * MIB
    del kept
    assert (device.used_bytes, device.peak_bytes, device.allocation_count) == (0, 10 * MIB, 3)
    device.start_window()
    device.reset_allocation_count()
    cupy.empty(4 * MIB, dtype=cupy.uint8)
    assert (device.window_peak_bytes, device.peak_bytes, device.allocation_count) == (4 * MIB, 10 * MIB, 1)


@gpu
def test_a_lower_limit_holds_and_is_no_use(device: Device) -> None:
    import cupy

    held = cupy.empty(10 * MIB, dtype=cupy.uint8)
    with device.limited(64 * MIB):
        assert device.used_bytes == 10 * MIB
        more = cupy.empty(50 * MIB, dtype=cupy.uint8)
        with pytest.raises(MemoryError):
            cupy.empty(5 * MIB, dtype=cupy.uint8)
        with device.limited(200 * MIB), pytest.raises(MemoryError):  # the lower one holds
            cupy.empty(5 * MIB, dtype=cupy.uint8)
        del more
        device.renew_limit()
        assert cupy.empty(54 * MIB, dtype=cupy.uint8).nbytes == 54 * MIB
    with device.limited(5 * MIB):
        with pytest.raises(MemoryError):
            cupy.empty(MIB, dtype=cupy.uint8)
        del held
        device.renew_limit()
        held = cupy.empty(4 * MIB, dtype=cupy.uint8)
    with pytest.raises(ValueError, match="above the ceiling"), device.limited(LIMIT + 1):
        pass
    with pytest.raises(ZeroDivisionError), device.limited(MIB):
        _ = 1 / 0
    assert cupy.empty(200 * MIB, dtype=cupy.uint8).nbytes == 200 * MIB
    del held  # freed through the limit that it was allocated through
    assert device.used_bytes == 0


@gpu
def test_a_lower_limit_that_is_passed_is_lifted_to_make_room_under_it(device: Device) -> None:
    import cupy

    held = cupy.empty(8 * MIB, dtype=cupy.uint8)
    with device.limited(4 * MIB):
        with pytest.raises(MemoryError):
            cupy.empty(8, dtype=cupy.uint8)
        with device.lifted():
            packed = cupy.full(MIB, 7, dtype=cupy.uint8)
            del held
        assert 2 * MIB < device.room_bytes <= 3 * MIB and int(packed[0]) == 7
        with pytest.raises(MemoryError):
            cupy.empty(4 * MIB, dtype=cupy.uint8)
        del packed
    with device.lifted():  # no lower limit holds
        assert device.room_bytes == LIMIT


@gpu
def test_what_was_held_before_an_operation_and_is_given_back_in_it_can_be_claimed(device: Device) -> None:
    import cupy

    held = cupy.empty(40 * MIB, dtype=cupy.uint8)
    budget = DeviceBudget(device)
    budget.start_window()
    with budget.limited(64 * MIB):
        del held
        budget.start_window()
        with budget.reserve(60 * MIB, "A test"):
            assert cupy.empty(60 * MIB, dtype=cupy.uint8).nbytes == 60 * MIB
        with pytest.raises(MemoryError):
            cupy.empty(65 * MIB, dtype=cupy.uint8)


@gpu
def test_read_by_another_thread(device: Device) -> None:
    import cupy

    seen, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.append(device.used_bytes)
            time.sleep(1e-4)

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(500):
        array = cupy.empty(MIB, dtype=cupy.uint8)
        device.start_window()
        del array
    stop.set()
    thread.join()
    assert (min(seen), max(seen)) == (0, MIB) and device.used_bytes == 0


@gpu
def test_opening_and_closing() -> None:
    import cupy
    import rmm

    free, status = free_bytes(), GpuStatus()
    resource, used = rmm.mr.get_current_device_resource(), status.read().used_bytes
    began = time.perf_counter()
    device = open_device(LIMIT)
    print("open", time.perf_counter() - began, "s")
    try:
        assert current_device() is device
        with pytest.raises(RuntimeError, match="open already"):
            open_device(LIMIT)
        grown = free - free_bytes()
        assert slab_bytes(LIMIT) <= grown <= slab_bytes(LIMIT) + 8 * MIB
        now = status.read().used_bytes
        print("NVML", used, "->", now, "cudaMemGetInfo", grown)
        assert used is not None and now is not None, "NVML, which the gpu extra brings, tells nothing"
        assert now - used <= slab_bytes(LIMIT) + 8 * MIB
        cupy.empty(MIB, dtype=cupy.uint8)
    finally:
        device.close()
    device.close()
    assert current_device() is None
    assert (device.used_bytes, device.peak_bytes) == (0, 0)
    assert type(rmm.mr.get_current_device_resource()) is type(resource)
    assert free - free_bytes() <= 8 * MIB
    with pytest.raises(DeviceUnavailable, match=r"slab of .* cannot be made: .* gpu_memory_limit") as raised:
        open_device(total_bytes() * 2)
    print(raised.value.reason)
    assert current_device() is None and total_bytes() > free_bytes()


@gpu
def test_bytes_that_outlive_the_device(device: Device) -> None:
    import cupy

    before = len(devices._kept)
    array = cupy.full(MIB, 7, dtype=cupy.uint8)
    device.close()
    assert int(array.sum()) == 7 * MIB
    assert len(devices._kept) == before + 1
    del array
    open_device(LIMIT).close()
    assert len(devices._kept) == before, "its slab is given back once nothing is in it"


@gpu
def test_scalars_that_cudf_keeps_do_not_keep_a_slab(device: Device) -> None:
    import cudf

    before = len(devices._kept)
    series = cudf.Series([1.0, None, 3.0])
    assert series.fillna(0.5).sum() > 0 and (series + 7).sum() > 0
    del series
    gc.collect()
    device.close()
    assert len(devices._kept) == before


@gpu
def test_most_of_the_gpu() -> None:
    limit = int(free_bytes() * 0.97)
    began = time.perf_counter()
    device = open_device(limit)
    print("slab of", format_bytes(device.slab.nbytes), "in", time.perf_counter() - began, "s")
    device.close()


@gpu
def test_small_allocations_do_not_use_up_a_lower_limit(device: Device) -> None:
    """The allocator counts each of them as 256 bytes, until the limit is renewed."""
    import cupy

    limit, count = 64 * 1024, 200
    with device.limited(limit):
        held = [cupy.empty(8, dtype=cupy.uint8) for _ in range(count)]
        assert device.room_bytes == limit - 256 * count
        device.keep_limit_true(0)
        assert device.room_bytes > limit - 16 * count - 256
        del held
    assert device.used_bytes == 0


@gpu
def test_what_was_freed_is_there_for_what_is_claimed(device: Device) -> None:
    """However little that is: a claim that was granted must not be refused by the allocator."""
    import cupy

    limit, before = 64 * 1024, cupy.empty(2048, dtype=cupy.uint8)
    with device.limited(limit):
        del before
        device.keep_limit_true(1024)
        assert device.room_bytes == limit - 2048
        device.keep_limit_true(limit)
        held = cupy.empty(limit, dtype=cupy.uint8)
    assert device.used_bytes == held.nbytes
