"""Below the device: bytes come back as they went, beside running kernels, and all memory is given back."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import BudgetExceeded, SpillError
from gcylon_lab.memory.budget import MemoryBudget
from gcylon_lab.memory.device import Device, open_device, why_unavailable
from gcylon_lab.memory.out_of_memory import memory_errors
from gcylon_lab.memory.tiers.device_tiers import DeviceTiers
from gcylon_lab.memory.tiers.pinned_pool import Pageable, PinnedPool
from gcylon_lab.units import GIB, MIB, format_rate

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())]

LENGTHS = [0, 1, 255, 256, 257, 100_003, 3 * MIB + 5, 0, 9 * MIB, 64]
SPIN = """extern "C" __global__ void spin(long long cycles) {
    long long begun = clock64();
    while (clock64() - begun < cycles) {}
}"""
LONG = 600_000_000  # a third of a second


@pytest.fixture
def device() -> Iterator[Device]:
    gc.collect()
    opened = open_device(1 * GIB)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def tiers(device: Device, tmp_path: Path) -> Iterator[DeviceTiers]:
    yield from opened_tiers(PinnedPool(256 * MIB, block_bytes=4 * MIB), tmp_path)


@pytest.fixture
def small(device: Device, tmp_path: Path) -> Iterator[DeviceTiers]:
    """Tiers of which the pinned one holds little."""
    yield from opened_tiers(PinnedPool(16 * MIB, block_bytes=4 * MIB), tmp_path)


def opened_tiers(pool: PinnedPool, folder: Path) -> Iterator[DeviceTiers]:
    made = DeviceTiers(pool, str(folder))
    yield made
    made.close()
    gc.collect()
    assert (made.used_bytes, pool.used_bytes, pool.pageable_bytes) == (0, 0, 0)
    pool.close()
    assert pool.held_bytes == 0


def bytes_on_device(nbytes: int, seed: int = 0) -> Any:
    import cupy

    words = cupy.arange(nbytes // 4 + 1, dtype=cupy.uint32) * cupy.uint32(2654435761) + cupy.uint32(seed)
    return words.view(cupy.uint8)[:nbytes]


def buffers_of(lengths: list[int]) -> list[Any]:
    return [bytes_on_device(n, seed) for seed, n in enumerate(lengths)]


def same(got: list[Any], lengths: list[int], only: list[int] | None = None) -> bool:
    import cupy

    wanted = buffers_of(lengths)
    wanted = wanted if only is None else [wanted[number] for number in only]
    return len(got) == len(wanted) and all(
        a.nbytes == b.nbytes and bool(cupy.array_equal(a, b)) for a, b in zip(got, wanted, strict=True)
    )


def spin(cycles: int) -> None:
    import cupy

    cupy.RawKernel(SPIN, "spin")((1,), (1,), (cupy.int64(cycles),))


def test_bytes_come_back_as_they_went(tiers: DeviceTiers, device: Device) -> None:
    file = tiers.new_file()
    sources = buffers_of(LENGTHS)
    region = file.append(sources)
    assert (region.tier, region.lengths) == ("pinned", tuple(LENGTHS))
    for _ in range(2):
        views = region.read()
        assert all(view.data.ptr % 256 == 0 for view in views if view.nbytes)
        assert same(views, LENGTHS)
    tiers.flush()
    up = tiers.up.nbytes
    for only in ([0], [1, 2], [0, 2], [2, 3, 5], [6], []):
        before = tiers.up.nbytes
        assert same(region.read(only), LENGTHS, only)
        tiers.flush()
        assert tiers.up.nbytes - before == region.bytes_of(only)
    del sources, views
    tiers.flush()
    assert region.arrived and device.used_bytes == 0
    assert tiers.used_bytes == tiers.pinned_bytes == tiers.written_bytes == region.nbytes
    assert tiers.down.nbytes == sum(LENGTHS) and up == 2 * region.nbytes
    empty = file.append([]), file.append([bytes_on_device(0)])
    assert empty[0].read() == [] and [view.nbytes for view in empty[1].read()] == [0]
    del region, empty
    assert tiers.used_bytes == 0


def test_what_can_still_be_staged(small: DeviceTiers, device: Device) -> None:
    region = small.new_file().append([bytes_on_device(4 * MIB)])
    assert small.room().pinned_bytes == 10 * MIB  # beside the region and the way to disk
    assert small.room().disk_bytes > 0
    small.follow(GcylonConfig(allow_disk_spill=False, host_memory_limit=16 * MIB))
    assert small.room().disk_bytes == small.room().most_bytes == 0
    del region


def test_host_buffers_too(tiers: DeviceTiers) -> None:
    host = bytes(range(256)) * 5000
    region = tiers.new_file().append([memoryview(host), bytes_on_device(1000), memoryview(b"")])
    first, second, third = region.read()
    assert (first.get().tobytes(), third.nbytes) == (host, 0)
    assert second.get().tobytes() == bytes_on_device(1000).get().tobytes()


def test_append_returns_while_the_work_before_it_runs(tiers: DeviceTiers) -> None:
    import cupy

    spin(1)
    tiers.new_file().append([bytes_on_device(100)])
    tiers.flush()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        target = cupy.zeros(8 * MIB, dtype=cupy.uint8)
        wanted = bytes_on_device(8 * MIB)
        stream.synchronize()
        spin(LONG)
        cupy.copyto(target, wanted)
        began = time.perf_counter()
        region = tiers.new_file().append([target])
        took = time.perf_counter() - began
        assert not region.arrived and not stream.done
        print(f"append took {took * 1e6:.0f} us")
        assert took < 0.1
        del target
        got = region.read()
        assert bool(cupy.array_equal(got[0], wanted))


def test_copies_run_beside_a_kernel(tiers: DeviceTiers) -> None:
    import cupy

    spin(1)
    sources = buffers_of([32 * MIB] * 2)
    cupy.cuda.get_current_stream().synchronize()
    working = cupy.cuda.Stream(non_blocking=True)
    with working:
        spin(LONG)
    region = tiers.new_file().append(sources)
    until = time.perf_counter() + 0.2
    while not region.arrived and time.perf_counter() < until:
        time.sleep(0.001)
    assert region.arrived and not working.done
    with cupy.cuda.Stream(non_blocking=True) as reading:
        views = region.read()
        while not reading.done and time.perf_counter() < until:
            time.sleep(0.001)
        assert reading.done and not working.done
    working.synchronize()
    assert same(views, [32 * MIB] * 2)


def test_sources_are_kept_until_they_have_arrived(tiers: DeviceTiers, device: Device) -> None:
    import cupy

    spin(1)
    wanted = bytes_on_device(16 * MIB)
    cupy.cuda.get_current_stream().synchronize()
    used = device.used_bytes
    working = cupy.cuda.Stream(non_blocking=True)
    budget = MemoryBudget(1 * GIB)
    source = wanted.copy()
    with working:
        working.wait_event(cupy.cuda.get_current_stream().record())
        spin(LONG)
        region = tiers.new_file().append([source], held=budget.reserve(16 * MIB, "a chunk"))
    del source
    assert device.used_bytes - used >= 16 * MIB and budget.used_bytes == 16 * MIB
    trash = cupy.full(16 * MIB, 255, dtype=cupy.uint8)
    tiers.flush()
    del trash
    assert (device.used_bytes, budget.used_bytes, tiers.poll()) == (used, 0, 0)
    assert bool(cupy.array_equal(region.read()[0], wanted))


def test_a_region_dropped_on_its_way(tiers: DeviceTiers) -> None:
    import cupy

    spin(1)
    file, source = tiers.new_file(), bytes_on_device(64 * MIB)
    cupy.cuda.get_current_stream().synchronize()
    lent = tiers.pool.used_bytes
    working = cupy.cuda.Stream(non_blocking=True)
    with working:
        spin(LONG)
        del_me = file.append([source])
        del del_me
    assert tiers.pinned_bytes == 0 and tiers.pool.used_bytes >= lent + 64 * MIB  # still being written
    tiers.flush()
    bounce = tiers.pool.used_bytes
    got = [file.append([source]).read()[0] for _ in range(6)]  # each dropped right after read
    assert all(bool(cupy.array_equal(each, source)) for each in got)
    tiers.flush()
    assert tiers.pool.used_bytes == bounce


def test_few_copies_in_flight(device: Device, tmp_path: Path) -> None:
    import cupy

    spin(1)
    source = bytes_on_device(MIB)
    cupy.cuda.get_current_stream().synchronize()
    made = DeviceTiers(PinnedPool(64 * MIB, block_bytes=MIB), str(tmp_path), most_in_flight=3)
    file, regions = made.new_file(), []
    with cupy.cuda.Stream(non_blocking=True) as working:
        spin(LONG)
        began = time.perf_counter()
        regions += [file.append([source]) for _ in range(3)]
        assert made.poll() == 3 and time.perf_counter() - began < 0.1
        regions.append(file.append([source]))
        assert time.perf_counter() - began > 0.1 and regions[0].arrived
    working.synchronize()
    made.close()


def test_what_does_not_fit_goes_to_disk(small: DeviceTiers, device: Device) -> None:
    file = small.new_file()
    lengths = [[5 * MIB, 1000], [20 * MIB + 3, 0, 77, 5 * MIB], [MIB], [9 * MIB]]
    regions = [file.append(buffers_of(each)) for each in lengths]
    assert [region.tier for region in regions] == ["pinned", "disk", "pinned", "disk"]
    assert small.pinned_bytes == regions[0].nbytes + regions[2].nbytes
    assert small.disk_bytes == regions[1].nbytes + regions[3].nbytes
    assert small.used_bytes == small.written_bytes == sum(region.nbytes for region in regions)
    assert small.pool.pageable_count == 0
    for region, each in zip(regions, lengths, strict=True):
        assert same(region.read(), each)
    small.flush()
    assert device.used_bytes == 0
    print("disk", format_rate(small.disk_written.bytes_per_s), format_rate(small.disk_read.bytes_per_s))
    assert small.disk_written.nbytes == small.disk_read.nbytes == small.disk_bytes
    for region, each in zip(regions, lengths, strict=True):
        only = list(range(0, len(each), 2))
        assert same(region.read(only), each, only)
    assert small.disk_read.nbytes < 2 * small.disk_bytes
    small.flush()
    del regions, region
    assert (small.used_bytes, small.disk_bytes) == (0, 0)
    small.flush()
    assert file.append(buffers_of([5 * MIB])).tier == "pinned"


def test_errors_of_the_disk(small: DeviceTiers, device: Device, tmp_path: Path) -> None:
    small.allow_disk = False
    with pytest.raises(SpillError, match="allow_disk_spill is off") as raised:
        small.new_file().append(buffers_of([20 * MIB]))
    assert raised.value.numbers["limit_bytes"] == 16 * MIB
    small.allow_disk = True
    small.set_folder(str(tmp_path / "missing"))
    with pytest.raises(SpillError, match="missing"):
        small.new_file().append(buffers_of([20 * MIB]))
    small.set_folder(str(tmp_path))
    small.flush()
    del raised
    gc.collect()
    assert (device.used_bytes, small.used_bytes) == (0, 0)
    assert same(small.new_file().append(buffers_of([20 * MIB])).read(), [20 * MIB])


def test_reading_back_what_does_not_fit(tiers: DeviceTiers, device: Device) -> None:
    region = tiers.new_file().append(buffers_of([32 * MIB]))
    tiers.flush()
    with device.limited(MIB), pytest.raises(BudgetExceeded), memory_errors(MemoryBudget(MIB), "Reading"):
        region.read()
    assert same(region.read(), [32 * MIB])
    assert device.used_bytes == 0


def test_memory_that_is_not_page_locked(device: Device, tmp_path: Path) -> None:
    pool = PinnedPool(256 * MIB, block_bytes=4 * MIB, memory=Pageable())
    for made in opened_tiers(pool, tmp_path):
        assert same(made.new_file().append(buffers_of(LENGTHS)).read(), LENGTHS)
        made.flush()


def test_many_at_random(small: DeviceTiers, device: Device) -> None:
    import random

    rng = random.Random(3)
    file, held = small.new_file(), []
    for _ in range(150):
        lengths = [rng.choice([0, 1, 300, 70_000, MIB + 1, 3 * MIB]) for _ in range(rng.randrange(1, 5))]
        held.append((lengths, file.append(buffers_of(lengths))))
        if len(held) > 6:
            lengths, region = held.pop(rng.randrange(len(held)))
            assert same(region.read(), lengths)
    del region
    assert small.written_bytes > small.used_bytes > 0 and small.disk.written_bytes > 0
    held.clear()
    small.flush()
    assert (device.used_bytes, small.used_bytes) == (0, 0)


def test_rates(device: Device, tmp_path: Path) -> None:
    import cupy

    pool = PinnedPool(2 * GIB)
    began = time.perf_counter()
    pool.prefill(1 * GIB)
    print(f"\npinning 1 GiB: {time.perf_counter() - began:.2f} s")
    for made in opened_tiers(pool, tmp_path):
        file, source = made.new_file(), bytes_on_device(64 * MIB)
        cupy.cuda.get_current_stream().synchronize()
        began = time.perf_counter()
        regions = [file.append([source]) for _ in range(12)]
        returned = time.perf_counter() - began
        made.flush()
        down = time.perf_counter() - began
        began = time.perf_counter()
        for region in regions:
            region.read()
        cupy.cuda.get_current_stream().synchronize()
        up = time.perf_counter() - began
        made.flush()
        print(f"12 appends returned in {returned * 1e3:.2f} ms (8 in flight at most)")
        for way, traffic, clock in (("down", made.down, down), ("up", made.up, up)):
            print(f"{way}: {format_rate(traffic.bytes_per_s)}, by the clock {format_rate(12 * 64 * MIB / clock)}")
        assert made.down.bytes_per_s > 5e9 and made.up.bytes_per_s > 5e9
        del regions, region


def test_prefilling_beside_work(device: Device) -> None:
    import cupy

    pool, array = PinnedPool(1 * GIB), bytes_on_device(MIB)

    def slowest(work: threading.Event) -> tuple[float, int]:
        worst, count = 0.0, 0
        until = time.perf_counter() + 5
        while not work.is_set() and time.perf_counter() < until:
            began = time.perf_counter()
            array.sum()
            cupy.cuda.get_current_stream().synchronize()
            worst, count = max(worst, time.perf_counter() - began), count + 1
            if not thread.is_alive():
                work.set()
        return worst, count

    array.sum()
    thread = threading.Thread(target=pool.prefill, args=(1 * GIB,))
    thread.start()
    worst, count = slowest(threading.Event())
    thread.join()
    print(f"\nslowest of {count} sums while 1 GiB was page-locked: {worst * 1e3:.1f} ms")
    assert pool.held_bytes == 1 * GIB
    pool.close()
