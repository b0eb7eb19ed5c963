"""Memory that is page-locked ahead of need: up to its target, beside requests, never in their way."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.tiers.pinned_pool import Pageable, PinnedPool
from gcylon_lab.memory.tiers.pinned_prefetch import PinnedPrefetch, ahead_bytes, pinned_cap
from gcylon_lab.profiling import Event, Recorder, operation, recording
from gcylon_lab.units import GIB, MIB

SHORT_STEP = 32 * MIB


class SlowMemory(Pageable):
    """Ordinary memory that takes a while, one at a time, and ends where it is told to."""

    def __init__(self, delay_s: float = 0.0, refuse_at: int = 1_000_000, hold_at: int = 1_000_000) -> None:
        super().__init__()
        self.delay_s, self.refuse_at, self.hold_at = delay_s, refuse_at, hold_at
        self.sizes: list[int] = []
        self.inside = self.most_inside = 0
        self.may_go = threading.Event()
        self.may_go.set()

    def allocate(self, nbytes: int) -> int:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            if len(self.sizes) + 1 == self.hold_at:
                self.may_go.clear()
            assert self.may_go.wait(30)
            time.sleep(self.delay_s)
            if len(self.sizes) + 1 >= self.refuse_at:
                raise OSError("cannot lock pages")
            self.sizes.append(nbytes)
            return super().allocate(nbytes)
        finally:
            self.inside -= 1


@pytest.fixture
def made() -> Iterator[Callable[..., PinnedPrefetch]]:
    started: list[PinnedPrefetch] = []

    def make(pool: PinnedPool, target: int, recorder: Recorder | None = None) -> PinnedPrefetch:
        started.append(PinnedPrefetch(pool, target, recorder))
        return started[-1]

    yield make
    for each in started:
        each.stop()
        assert not each.running


def until(condition: Callable[[], bool]) -> None:
    ended = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < ended
        time.sleep(0.001)


def grown(recorder: Recorder) -> list[Event]:
    return [event for event in recorder.events() if event.name == "lock memory ahead"]


# ---- how much


def test_the_cap_is_half_of_what_a_rank_may_count_on() -> None:
    assert pinned_cap(0, 64 * GIB) == 32 * GIB
    assert pinned_cap(3 * GIB, 64 * GIB) == 3 * GIB


@pytest.mark.parametrize(
    "asked, cap, share, device, expected",
    [
        (None, 32, 64, 70, 16),  # a quarter of the share
        (None, 32, 64, 5, 5),  # the device tier
        (None, 3, 64, 70, 3),  # the cap
        (20, 32, 64, 5, 20),  # who asks for more gets it
        (40, 32, 64, 70, 32),  # up to the cap
        (0, 32, 64, 70, 0),
    ],
)
def test_how_much_is_locked_ahead(asked: int | None, cap: int, share: int, device: int, expected: int) -> None:
    wanted = None if asked is None else asked * GIB
    assert ahead_bytes(wanted, cap * GIB, share * GIB, device * GIB) == expected * GIB


# ---- the thread


def test_the_first_step_is_there_before_it_is_said_and_each_is_recorded(made: Callable[..., PinnedPrefetch]) -> None:
    memory, recorder = SlowMemory(), Recorder()
    pool = PinnedPool(4 * GIB, memory=memory)
    ahead = made(pool, 2 * GIB + 100 * MIB, recorder)
    ahead.start()
    ahead.wait_for_first()
    assert pool.held_bytes >= GIB
    until(lambda: not ahead.running)
    assert pool.held_bytes == 2 * GIB + 100 * MIB
    assert set(memory.sizes) == {SHORT_STEP, 4 * MIB}
    events = grown(recorder)
    assert [event.bytes for event in events] == [GIB, GIB, 100 * MIB]
    assert all((event.category, event.tier) == ("memory", "pinned") for event in events)
    assert all(event.end_ns > event.start_ns for event in events)


@pytest.mark.parametrize("cap", [100 * MIB, 100 * MIB + 17, 1000])
def test_it_ends_at_the_cap_without_a_word(made: Callable[..., PinnedPrefetch], cap: int) -> None:
    pool = PinnedPool(cap, memory=SlowMemory())
    ahead = made(pool, GIB)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ahead.start()
        ahead.wait_for_first()
        until(lambda: not ahead.running)
    assert pool.held_bytes == cap // 4096 * 4096 and not told


def test_nothing_is_locked_where_nothing_is_wanted(made: Callable[..., PinnedPrefetch]) -> None:
    pool = PinnedPool(GIB, memory=SlowMemory())
    ahead = made(pool, 0)
    ahead.start()
    ahead.wait_for_first()
    ahead.stop()
    assert pool.held_bytes == 0 and not ahead.running


def test_it_ends_when_it_is_closed(made: Callable[..., PinnedPrefetch]) -> None:
    memory = SlowMemory(hold_at=3)
    pool = PinnedPool(64 * GIB, memory=memory)
    ahead = made(pool, 64 * GIB)
    ahead.start()
    until(lambda: memory.inside == 1 and len(memory.sizes) == 2)
    threading.Timer(0.1, memory.may_go.set).start()
    ahead.stop()  # waits for the step that is under way
    held = pool.held_bytes
    time.sleep(0.05)
    assert pool.held_bytes == held <= 3 * SHORT_STEP and not ahead.running


def test_a_process_that_ends_ends_it_too() -> None:
    """No page is being locked while the interpreter, and with it CUDA, is taken down."""
    code = f"""
import atexit, sys, time
sys.path.insert(0, {str(__file__).rsplit("/", 1)[0]!r})
from test_pinned_prefetch import GIB, PinnedPrefetch, PinnedPool, SlowMemory
memory = SlowMemory(delay_s=0.05)
atexit.register(lambda: print("inside", memory.inside, "running", ahead.running))
ahead = PinnedPrefetch(PinnedPool(64 * GIB, memory=memory), 64 * GIB)
ahead.start()
while not memory.sizes: time.sleep(0.001)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("inside 0 running False\n", 0), done.stderr


@pytest.mark.parametrize("refuse_at", [1, 3, 40])
@pytest.mark.filterwarnings("always")
def test_what_cannot_be_locked_is_one_warning_and_no_error(made: Callable[..., PinnedPrefetch], refuse_at: int) -> None:
    memory = SlowMemory(refuse_at=refuse_at)
    pool = PinnedPool(4 * GIB, block_bytes=MIB, memory=memory)
    ahead = made(pool, 2 * GIB)
    with pytest.warns(RuntimeWarning, match=r"of 2 GiB were page-locked.*OSError: cannot lock pages") as told:
        ahead.start()
        ahead.wait_for_first()
        until(lambda: not ahead.running)
    assert len(told) == 1 and pool.held_bytes == SHORT_STEP * (refuse_at - 1)
    memory.refuse_at = 1_000_000  # somebody else's memory came free: a request tries again
    buffer = pool.take(pool.held_bytes + MIB)
    assert buffer.pinned


def test_where_warnings_are_errors_it_still_ends_quietly(made: Callable[..., PinnedPrefetch]) -> None:
    failed: list[Any] = []
    before, threading.excepthook = threading.excepthook, failed.append
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ahead = made(PinnedPool(GIB, memory=SlowMemory(refuse_at=1)), GIB)
            ahead.start()
            ahead.wait_for_first()
            until(lambda: not ahead.running)
    finally:
        threading.excepthook = before
    assert not failed


# ---- beside requests


def test_a_request_waits_for_what_is_being_locked_and_starts_nothing(made: Callable[..., PinnedPrefetch]) -> None:
    memory = SlowMemory()
    memory.may_go.clear()
    pool = PinnedPool(64 * MIB, block_bytes=MIB, memory=memory)
    ahead = made(pool, SHORT_STEP)
    ahead.start()
    until(lambda: memory.inside == 1)
    got: list[bool] = []
    asking = threading.Thread(target=lambda: got.append(pool.take(MIB).pinned))
    asking.start()
    asking.join(0.1)
    assert asking.is_alive() and pool.used_bytes == 0  # the pool's own lock is free meanwhile
    memory.may_go.set()
    asking.join(20)
    assert got == [True] and memory.sizes == [SHORT_STEP]


def test_only_one_locks_at_a_time(made: Callable[..., PinnedPrefetch]) -> None:
    memory = SlowMemory(delay_s=0.002)
    pool = PinnedPool(GIB, block_bytes=MIB, step_bytes=8 * MIB, memory=memory)
    ahead = made(pool, 512 * MIB)
    ahead.start()
    held = [pool.take(MIB) for _ in range(400)]
    until(lambda: not ahead.running)
    assert all(buffer.pinned for buffer in held) and memory.most_inside == 1
    assert pool.held_bytes >= 512 * MIB


def test_it_stands_back_while_an_operation_runs(made: Callable[..., PinnedPrefetch]) -> None:
    memory, recorder = SlowMemory(hold_at=GIB // SHORT_STEP + 2), Recorder()
    pool = PinnedPool(4 * GIB, memory=memory)
    ahead = made(pool, 2 * GIB, recorder)
    ahead.start()
    ahead.wait_for_first()
    until(lambda: pool.held_bytes == GIB + SHORT_STEP and memory.inside == 1)
    with recording(recorder), operation("shuffle", 1, recorder):
        memory.may_go.set()  # the short step under way ends
        until(lambda: pool.held_bytes > GIB + SHORT_STEP)
        held = pool.held_bytes
        time.sleep(0.1)
        assert pool.held_bytes == held == GIB + 2 * SHORT_STEP
        assert pool.take(2 * SHORT_STEP).pinned  # what the operation needs it gets
        assert pool.held_bytes == held + 256 * MIB
    until(lambda: not ahead.running)
    assert pool.held_bytes == 2 * GIB
    assert sum(event.bytes for event in grown(recorder)) == 2 * GIB - 256 * MIB


def test_operations_that_follow_each_other_are_not_delayed(made: Callable[..., PinnedPrefetch]) -> None:
    memory, recorder = SlowMemory(), Recorder()
    pool = PinnedPool(8 * GIB, memory=memory)
    with recording(recorder), operation("shuffle", 1, recorder):
        pass
    ahead = made(pool, 4 * GIB, recorder)
    ahead.start()
    ahead.wait_for_first()
    held = pool.held_bytes
    for number in range(20):  # each as long as others wait for a look, with longer pauses between them
        time.sleep(0.04)
        with recording(recorder), operation("shuffle", number, recorder):
            time.sleep(0.01)
    assert pool.held_bytes == held
    until(lambda: not ahead.running)
    assert pool.held_bytes == 4 * GIB


@pytest.mark.gpu
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_page_locked_memory_is_there_ahead() -> None:
    import cupy

    gc.collect()
    recorder, pool = Recorder(), PinnedPool(4 * GIB)
    ahead = PinnedPrefetch(pool, 3 * GIB, recorder)
    began = time.perf_counter()
    ahead.start()
    ahead.wait_for_first()
    first, held = time.perf_counter() - began, pool.held_bytes
    while ahead.running:
        time.sleep(0.01)
    everything = time.perf_counter() - began
    print(f"\nfirst {held / GIB:.2f} GiB in {first:.2f} s, {pool.held_bytes / GIB:.2f} GiB in {everything:.2f} s")
    assert held >= GIB and pool.held_bytes == 3 * GIB
    assert [event.bytes for event in grown(recorder)] == [GIB] * 3
    buffer = pool.take(16 * MIB)
    assert pool.misses == 0
    assert cupy.cuda.runtime.pointerGetAttributes(buffer.pointer).type == 1  # cudaMemoryTypeHost
    del buffer
    ahead.stop()
    pool.close()
    assert pool.held_bytes == 0
