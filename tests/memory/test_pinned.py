"""The pinned pool: pieces go back, the cap holds, what cannot be page-locked is ordinary memory, with one warning."""

from __future__ import annotations

import gc
import random
import threading
import warnings

import numpy as np
import pytest

from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.tiers.pinned_pool import Pageable, PinnedBuffer, PinnedPool
from gcylon_lab.units import GIB, MIB

BLOCK = 1 * MIB


class FakeMemory(Pageable):
    """Ordinary memory that counts, and refuses from a given allocation on."""

    def __init__(self, refuse_at: int = 1_000_000) -> None:
        super().__init__()
        self.refuse_at = refuse_at
        self.sizes: list[int] = []
        self.freed = 0

    def allocate(self, nbytes: int) -> int:
        if len(self.sizes) + 1 >= self.refuse_at:
            raise OSError("cannot lock pages")
        self.sizes.append(nbytes)
        return super().allocate(nbytes)

    def free(self, pointer: int) -> None:
        super().free(pointer)
        self.freed += 1


def pool_of(cap_bytes: int, memory: FakeMemory | None = None, step_bytes: int = GIB) -> PinnedPool:
    return PinnedPool(cap_bytes, block_bytes=BLOCK, step_bytes=step_bytes, memory=memory or FakeMemory())


def test_a_buffer_is_writable_and_goes_back() -> None:
    pool = pool_of(64 * MIB)
    buffer = pool.take(1000)
    assert (buffer.nbytes, buffer.view.nbytes, buffer.pinned) == (1000, 1000, True)
    buffer.view[:] = bytes(range(250)) * 4
    assert bytes(buffer.view[:250]) == bytes(range(250))
    assert pool.used_bytes == 4096
    buffer.release()
    buffer.release()
    assert (pool.used_bytes, pool.held_bytes) == (0, BLOCK)
    with pytest.raises(ValueError, match="released"):
        _ = buffer.view


def test_a_view_keeps_its_buffer() -> None:
    pool = pool_of(64 * MIB)
    view = pool.take(5000).view
    array = np.frombuffer(view, dtype=np.uint8)[10:]
    del view
    gc.collect()
    assert pool.used_bytes == 8192
    del array
    assert pool.used_bytes == 0


def test_what_was_given_back_is_lent_again() -> None:
    memory = FakeMemory()
    pool = pool_of(64 * MIB, memory)
    for _ in range(10):
        pool.take(BLOCK).release()
    assert (pool.hits, pool.misses, memory.sizes) == (9, 1, [BLOCK])


def test_it_grows_in_steps_up_to_the_cap() -> None:
    memory = FakeMemory()
    pool = pool_of(11 * MIB, memory, step_bytes=4 * MIB)
    held = [pool.try_take(BLOCK) for _ in range(12)]
    assert memory.sizes == [1 * MIB, 1 * MIB, 2 * MIB, 4 * MIB, 3 * MIB]
    assert [buffer is not None for buffer in held] == [True] * 11 + [False]
    assert pool.used_bytes == pool.held_bytes == pool.cap_bytes == 11 * MIB
    assert pool.misses == 6


def test_pieces_join_again_but_not_across_steps() -> None:
    pool = pool_of(4 * MIB, step_bytes=2 * MIB)
    pool.prefill(2 * MIB)
    small = [pool.take(64 * 1024) for _ in range(32)]
    random.Random(0).shuffle(small)
    for buffer in small:
        buffer.release()
    whole = pool.try_take(2 * MIB)
    assert whole is not None and pool.held_bytes == 2 * MIB
    other = pool.try_take(2 * MIB)
    assert other is not None
    del whole, other
    assert pool.try_take(4 * MIB) is None


def test_at_the_cap_there_is_ordinary_memory_and_one_warning() -> None:
    pool = pool_of(2 * MIB)
    held = [pool.take(BLOCK), pool.take(BLOCK)]
    with pytest.warns(RuntimeWarning, match=r"2 MiB of at most 2 MiB are page-locked.*host_memory_limit") as told:
        held += [pool.take(BLOCK) for _ in range(5)]
    assert len(told) == 1
    assert [buffer.pinned for buffer in held] == [True] * 2 + [False] * 5
    held[-1].view[:] = bytes(BLOCK)
    assert (pool.pageable_count, pool.pageable_bytes, pool.used_bytes) == (5, 5 * MIB, 2 * MIB)
    held.clear()
    assert (pool.pageable_bytes, pool.used_bytes, pool.held_bytes) == (0, 0, 2 * MIB)


def test_when_the_third_allocation_fails() -> None:
    memory = FakeMemory(refuse_at=3)
    pool = pool_of(1 * GIB, memory)
    with pytest.warns(RuntimeWarning, match="OSError: cannot lock pages") as told:
        held = [pool.take(BLOCK) for _ in range(6)]
    assert len(told) == 1
    assert [buffer.pinned for buffer in held] == [True, True, False, False, False, False]
    with pytest.raises(ZeroDivisionError):
        _fails_with(held)
    held.clear()
    assert (pool.used_bytes, pool.pageable_bytes, pool.held_bytes) == (0, 0, 2 * MIB)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pool.take(BLOCK).pinned


def _fails_with(held: list[PinnedBuffer]) -> None:
    held[0].view[0] = 1 // 0


def test_prefill_from_another_thread() -> None:
    memory = FakeMemory()
    pool = PinnedPool(128 * MIB, memory=memory)
    thread = threading.Thread(target=pool.prefill, args=(75 * MIB,))
    thread.start()
    thread.join()
    assert memory.sizes == [32 * MIB, 32 * MIB, 11 * MIB]
    assert pool.prefill(1 * GIB) == pool.held_bytes == 128 * MIB
    assert pool.take(16 * MIB).pinned and (pool.hits, pool.misses) == (1, 0)


def test_prefill_locks_whole_pages() -> None:
    pool = PinnedPool(64 * MIB + 17, memory=FakeMemory())
    assert pool.prefill(1 * GIB) == 64 * MIB


def test_within_the_cap_ordinary_memory_serves_where_pages_cannot_be_locked() -> None:
    pool = pool_of(3 * MIB, FakeMemory(refuse_at=2))
    with pytest.warns(RuntimeWarning, match="cannot lock pages"):
        held = [pool.take_within(BLOCK) for _ in range(4)]
    assert [buffer and buffer.pinned for buffer in held] == [True, False, False, None]


def test_a_lower_cap_may_keep_what_is_locked() -> None:
    memory = FakeMemory()
    pool = pool_of(8 * MIB, memory)
    pool.prefill(8 * MIB)
    pool.set_cap(2 * MIB, keep_idle=True)
    held = [pool.try_take(BLOCK) for _ in range(3)]
    assert [buffer is not None for buffer in held] == [True, True, False] and memory.freed == 0
    pool.set_cap(8 * MIB)
    assert pool.try_take(BLOCK) is not None and memory.sizes == [8 * MIB]


def test_prefill_ends_where_pinning_fails() -> None:
    pool = PinnedPool(1 * GIB, memory=FakeMemory(refuse_at=2))
    assert pool.prefill(1 * GIB) == 32 * MIB


def test_a_lower_cap_gives_idle_steps_back() -> None:
    memory = FakeMemory()
    pool = pool_of(8 * MIB, memory, step_bytes=MIB)
    kept = [pool.take(BLOCK) for _ in range(4)]
    del kept[1:]
    pool.set_cap(2 * MIB)
    assert (pool.held_bytes, memory.freed) == (2 * MIB, 2)
    assert pool.try_take(BLOCK) is not None and pool.try_take(2 * MIB) is None
    kept[0].view[:] = bytes(BLOCK)
    pool.close()
    assert (pool.held_bytes, memory.freed) == (1 * MIB, 3)


def test_many_threads_never_share_bytes() -> None:
    pool = pool_of(3 * MIB, step_bytes=MIB)
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        held: list[PinnedBuffer] = []
        for _ in range(300):
            buffer = pool.take(rng.randrange(1, 200_000))
            buffer.view[:] = bytes([seed]) * buffer.nbytes
            held.append(buffer)
            if len(held) > 4:
                old = held.pop(rng.randrange(len(held)))
                if bytes(old.view) != bytes([seed]) * old.nbytes:
                    wrong.append(f"thread {seed}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert (pool.used_bytes, pool.pageable_bytes) == (0, 0)
    assert pool.held_bytes <= 3 * MIB


@pytest.mark.gpu
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_page_locked_memory_is_real() -> None:
    import cupy

    pool = PinnedPool(256 * MIB)
    buffer = pool.take(8 * MIB)
    attributes = cupy.cuda.runtime.pointerGetAttributes(buffer.pointer)
    assert buffer.pinned and attributes.type == 1  # cudaMemoryTypeHost
    source = cupy.arange(8 * MIB, dtype=cupy.uint32).view(cupy.uint8)[: 8 * MIB]
    cupy.cuda.runtime.memcpy(buffer.pointer, source.data.ptr, 8 * MIB, 4)
    assert bytes(buffer.view) == source.get().tobytes()
    del buffer
    assert pool.used_bytes == 0
    pool.close()
    assert pool.held_bytes == 0
