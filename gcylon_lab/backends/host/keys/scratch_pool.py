"""Scratch arrays whose memory is used again.

Every chunk of an exchange needs the same few arrays for a short time. Memory fresh from the system costs a page
fault every 4 KiB, which takes longer than filling it, so a few MiB are kept and handed out again once nothing
refers to them any more.
"""

from __future__ import annotations

import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

KEPT_BYTES = 16 * 1024**2  # at most so much a thread stays allocated
_KEPT_IN_LIMIT, _LEAST_BOUND = 2, 1024**2  # and no more than such a part of a budget, but this
_LARGEST = KEPT_BYTES // 4  # larger arrays are too rare to keep
LEAST_KEPT_BYTES = 64 * 1024  # smaller ones come from memory that the process has already
_LOOKS = 16  # buffers that one call looks at: a table of thousands of columns has as many arrays in use at a time
_PAGE = 4096


def _references(buffers: list[npt.NDArray[np.uint8]], place: int) -> int:
    return sys.getrefcount(buffers[place])


_UNUSED = _references([np.empty(1, np.uint8)], 0)  # what the interpreter reports for a buffer held by its list alone


class _Pool:
    def __init__(self) -> None:
        self.buffers: list[npt.NDArray[np.uint8]] = []
        self.nbytes = 0
        self.next = 0  # the buffer that is looked at first
        self.hits = self.misses = self.drops = 0


class _Local(threading.local):
    """Each thread's own pool, which others only look at."""

    def __init__(self) -> None:
        self.pool = _of_threads[threading.get_ident()] = _Pool()


@dataclass(frozen=True, slots=True)
class ScratchState:
    """What a thread has kept: bytes in all, in arrays that are referred to, and of the largest unused buffer; how often
    one was there, and was not, and how often one made room for another."""

    held_bytes: int
    used_bytes: int
    largest_free_bytes: int
    hits: int
    misses: int
    drops: int


_of_threads: weakref.WeakValueDictionary[int, _Pool] = weakref.WeakValueDictionary()
_local = _Local()


_bound = KEPT_BYTES


def bound_scratch(limit_bytes: int) -> None:
    """Let each thread keep what is a part of a budget at the most: it is in no budget."""
    global _bound
    _bound = min(KEPT_BYTES, max(_LEAST_BOUND, limit_bytes // _KEPT_IN_LIMIT))


def scratch(rows: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A new array of undefined values, of shape (rows,).

    It is an array like any other: its memory is reused only once the array, all views of it and all their
    memoryviews are gone.
    """
    needed = rows * dtype.itemsize
    if not LEAST_KEPT_BYTES <= needed <= _LARGEST:
        return np.empty(rows, dtype)
    pool = _local.pool
    buffer = _unused(pool, needed)
    pool.hits += buffer is not None
    if buffer is None:
        pool.misses += 1
        buffer = np.empty(-(-needed // _PAGE) * _PAGE, np.uint8)
        _keep(pool, buffer)
    return buffer[:needed].view(dtype)


def _unused(pool: _Pool, needed: int) -> npt.NDArray[np.uint8] | None:
    buffers = pool.buffers
    for _ in range(min(_LOOKS, len(buffers))):
        place = pool.next = (pool.next + 1) % len(buffers)
        # Twice the need at most, so that small arrays do not sit on large buffers.
        if needed <= buffers[place].nbytes <= 2 * needed + _PAGE and _references(buffers, place) == _UNUSED:
            return buffers[place]
    return None


def _keep(pool: _Pool, buffer: npt.NDArray[np.uint8]) -> None:
    """Take a buffer up; what is unused makes room for it, oldest first."""
    buffers = pool.buffers
    place = 0
    while pool.nbytes + buffer.nbytes > _bound and place < min(_LOOKS, len(buffers)):
        if _references(buffers, place) == _UNUSED:
            pool.nbytes -= buffers.pop(place).nbytes
            pool.drops += 1
        else:
            place += 1
    if pool.nbytes + buffer.nbytes <= _bound:
        buffers.append(buffer)
        pool.nbytes += buffer.nbytes


def scratch_state(thread: int | None = None) -> ScratchState:
    """What this thread has kept, or that of a number; while that one works, about."""
    pool = _local.pool if thread is None else _of_threads.get(thread, _Pool())
    free, held = [], pool.nbytes
    with suppress(IndexError):  # another thread gives buffers up meanwhile
        for place in range(len(pool.buffers)):
            if _references(pool.buffers, place) == _UNUSED:
                free.append(pool.buffers[place].nbytes)
    used = max(0, held - sum(free))
    return ScratchState(held, used, max(free, default=0), pool.hits, pool.misses, pool.drops)


def trim_scratch() -> int:
    """Give up what this thread has kept and nothing refers to; returns its bytes."""
    pool = _local.pool
    buffers, before = pool.buffers, pool.nbytes
    for place in reversed(range(len(buffers))):
        if _references(buffers, place) == _UNUSED:
            pool.nbytes -= buffers.pop(place).nbytes
            pool.drops += 1
    pool.next = 0
    return before - pool.nbytes
