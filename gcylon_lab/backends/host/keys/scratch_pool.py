"""Scratch arrays whose memory is used again.

Every chunk of an exchange needs the same few arrays for a short time. Memory fresh from the system costs a page
fault every 4 KiB, which takes longer than filling it, so a few MiB are kept and handed out again once nothing
refers to them any more.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

KEPT_BYTES = 16 * 1024**2  # at most so much a thread stays allocated
_LARGEST = KEPT_BYTES // 4  # larger arrays are too rare to keep
_LEAST = 64 * 1024  # smaller ones come from memory that the process has already
_LOOKS = 16  # buffers that one call looks at: a table of thousands of columns has as many arrays in use at a time
_PAGE = 4096


def _references(buffers: list[npt.NDArray[np.uint8]], place: int) -> int:
    return sys.getrefcount(buffers[place])


_UNUSED = _references([np.empty(1, np.uint8)], 0)  # what the interpreter reports for a buffer held by its list alone


class _Pool(threading.local):
    def __init__(self) -> None:
        self.buffers: list[npt.NDArray[np.uint8]] = []
        self.nbytes = 0
        self.next = 0  # the buffer that is looked at first
        self.hits = self.misses = self.drops = 0


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


_pool = _Pool()


def scratch(rows: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A new array of undefined values, of shape (rows,).

    It is an array like any other: its memory is reused only once the array, all views of it and all their
    memoryviews are gone.
    """
    needed = rows * dtype.itemsize
    if not _LEAST <= needed <= _LARGEST:
        return np.empty(rows, dtype)
    buffer = _unused(needed)
    _pool.hits += buffer is not None
    if buffer is None:
        _pool.misses += 1
        buffer = np.empty(-(-needed // _PAGE) * _PAGE, np.uint8)
        _keep(buffer)
    return buffer[:needed].view(dtype)


def _unused(needed: int) -> npt.NDArray[np.uint8] | None:
    buffers = _pool.buffers
    for _ in range(min(_LOOKS, len(buffers))):
        place = _pool.next = (_pool.next + 1) % len(buffers)
        # Twice the need at most, so that small arrays do not sit on large buffers.
        if needed <= buffers[place].nbytes <= 2 * needed + _PAGE and _references(buffers, place) == _UNUSED:
            return buffers[place]
    return None


def _keep(buffer: npt.NDArray[np.uint8]) -> None:
    """Take a buffer up; what is unused makes room for it, oldest first."""
    buffers = _pool.buffers
    place = 0
    while _pool.nbytes + buffer.nbytes > KEPT_BYTES and place < min(_LOOKS, len(buffers)):
        if _references(buffers, place) == _UNUSED:
            _pool.nbytes -= buffers.pop(place).nbytes
            _pool.drops += 1
        else:
            place += 1
    if _pool.nbytes + buffer.nbytes <= KEPT_BYTES:
        buffers.append(buffer)
        _pool.nbytes += buffer.nbytes


def scratch_state() -> ScratchState:
    """What this thread has kept."""
    buffers = _pool.buffers
    free = [buffers[place].nbytes for place in range(len(buffers)) if _references(buffers, place) == _UNUSED]
    used = _pool.nbytes - sum(free)
    return ScratchState(_pool.nbytes, used, max(free, default=0), _pool.hits, _pool.misses, _pool.drops)


def trim_scratch() -> int:
    """Give up what this thread has kept and nothing refers to; returns its bytes."""
    buffers, before = _pool.buffers, _pool.nbytes
    for place in reversed(range(len(buffers))):
        if _references(buffers, place) == _UNUSED:
            _pool.nbytes -= buffers.pop(place).nbytes
            _pool.drops += 1
    _pool.next = 0
    return before - _pool.nbytes
