"""The way of bytes between device and disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import accumulate
from time import perf_counter_ns
from typing import Any

from ...profiling import current_operation
from ...units import MIB
from ..copies import Copy, CopyQueue, Traffic
from ..debug_checks import poison_host
from .byte_ranges import Range
from .disk_tier import SpillFile, SpillRegion
from .layout import Move, Run, moves_into, pieces, runs_of
from .pinned_pool import PinnedBuffer, PinnedPool


class Bounce:
    """Two page-locked buffers between device and disk: one is filled as the other is emptied.

    Parameters
    ----------
    pool : PinnedPool
        Whose memory they are.
    queue : CopyQueue
        Makes the copies.
    """

    def __init__(self, pool: PinnedPool, queue: CopyQueue) -> None:
        self._pool = pool
        self._queue = queue
        self._lock = threading.Lock()
        # A small pool has small ones: most of it is for regions.
        self._nbytes = min(pool.block_bytes, max(MIB, pool.cap_bytes // 16 // MIB * MIB))
        self._buffers: list[PinnedBuffer] = []
        self._last: list[Copy | None] = [None, None]

    def prepare(self) -> None:
        """Take the buffers, before regions take all of the pool."""
        with self._lock:
            while len(self._buffers) < 2:
                self._buffers.append(self._pool.take(self._nbytes, "the way to disk"))

    def release(self) -> None:
        """Give the buffers back, with nothing in flight."""
        with self._lock:
            self._buffers, self._last = [], [None, None]

    def write(self, file: SpillFile, buffers: Sequence[Any], nbytes: int, traffic: Traffic) -> list[SpillRegion]:
        """Copy device buffers down and write them, one piece of the region after the other."""
        runs, parts = runs_of(buffers), list(pieces(0, nbytes, self._nbytes))
        written: list[SpillRegion] = []
        self.prepare()
        with self._lock:
            for i in range(len(parts) + 1):
                if i < len(parts):
                    self._copy_down(i % 2, runs, parts[i].done, parts[i].nbytes, buffers)
                if i > 0:
                    self._await((i - 1) % 2)
                    began = perf_counter_ns()
                    written.append(file.append([self._buffers[(i - 1) % 2].view[: parts[i - 1].nbytes]]))
                    _count(traffic, parts[i - 1].nbytes, perf_counter_ns() - began)
                    self._poison((i - 1) % 2)
        self._queue.poll()
        return written

    def read(self, parts: Sequence[SpillRegion], ranges: Sequence[Range], block: Any, traffic: Traffic) -> None:
        """Read some bytes of parts that follow each other, one run after the other, and copy them up."""
        self.prepare()
        start = int(block.data.ptr)
        with self._lock:
            for i, (part, begin, nbytes) in enumerate(_cut(parts, ranges)):
                self._await(i % 2)
                self._poison(i % 2)
                buffer = self._buffers[i % 2]
                began = perf_counter_ns()
                part._file.read_into(part._offset + begin, buffer.view[:nbytes])
                _count(traffic, nbytes, perf_counter_ns() - began)
                self._last[i % 2] = self._queue.up([Move(start, buffer.pointer, nbytes)], buffer)
                start += nbytes

    def _copy_down(self, which: int, runs: Sequence[Run], start: int, nbytes: int, held: Any) -> None:
        buffer, last = self._buffers[which], self._last[which]
        moves = moves_into(runs, [buffer], self._nbytes, start, nbytes)
        self._last[which] = self._queue.down(moves, (buffer, held), [last] if last else [])

    def _poison(self, which: int) -> None:
        """Where that is checked, nobody may read what a buffer held before."""
        if self._pool.checks.poison:
            poison_host(self._buffers[which].pointer, self._nbytes)

    def _await(self, which: int) -> None:
        last = self._last[which]
        if last is not None:
            last.wait()


def _cut(parts: Sequence[SpillRegion], ranges: Sequence[Range]) -> Iterator[tuple[SpillRegion, int, int]]:
    """Bytes of a region that is in several parts: for each run the part, where it begins there, and how many."""
    begins = [0, *accumulate(part.nbytes for part in parts)]
    for one in ranges:
        for part, first, last in zip(parts, begins, begins[1:], strict=False):
            start, stop = max(first, one.begin), min(last, one.begin + one.nbytes)
            if start < stop:
                yield part, start - first, stop - start


def _count(traffic: Traffic, nbytes: int, ns: int) -> None:
    """Count what was read or written: the rank did it itself, so nothing of it ran beside other work."""
    traffic.add(nbytes, ns / 1e9)
    record = current_operation()
    if record is not None:
        record.add_copies("staging", ns, ns)
