"""Checks for whoever looks for a wrong use of memory. Off they cost nothing; on, they cost time.

Poison shows what is read after it was given back, or before it was written: it
holds a pattern that nobody takes for data. The check for overlap shows memory that is
lent to two at once, at the moment when the second gets it.
"""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..units import format_bytes

POISON_BYTE = 0xDE  # of what was given back
NEW_BYTE = 0xCD  # of what nobody has written yet


@dataclass(frozen=True, slots=True)
class Checks:
    """Which checks are made.

    Attributes
    ----------
    poison : bool
        Whether what is given back is filled with `POISON_BYTE`.
    overlap : bool
        Whether extents in use are tracked, and one more that overlaps one of them is an error.
    poison_new : bool
        Whether what is lent is filled with `NEW_BYTE` first.
    """

    poison: bool = False
    overlap: bool = False
    poison_new: bool = False

    def extents(self, space: str) -> LiveExtents | None:
        """Begin to track a space, such as ``pinned memory``; None where that is off."""
        return LiveExtents(space) if self.overlap else None


NO_CHECKS = Checks()


class MemoryMisused(RuntimeError):
    """A fault of this program's own: memory was lent twice, or given back twice."""


class _Purpose(threading.local):
    what = "nothing reserved"


_purpose = _Purpose()
noting = False  # whether anything is tracked, so that what bytes are reserved for is worth noting


def note_purpose(what: str) -> None:
    """Say what this thread has reserved bytes for; what it allocates next is taken to be that."""
    _purpose.what = what


def purpose() -> str:
    """What this thread last reserved bytes for."""
    return _purpose.what


class LiveExtents:
    """What is in use of one space of addresses, and by whom. Safe to use from several threads.

    Parameters
    ----------
    space : str
        Its name, for errors.
    """

    def __init__(self, space: str) -> None:
        global noting
        noting = True
        self._space = space
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._lent: dict[int, tuple[int, str]] = {}
        # What is collected by the garbage collector comes back anywhere, also inside `add`: it only leaves word here.
        self._returned: deque[tuple[int, int]] = deque()

    def add(self, start: int, nbytes: int, what: str) -> None:
        """Note an extent that is in use from now on; an empty one is none.

        Raises
        ------
        MemoryMisused
            If it overlaps one that is in use, naming both; or if something was given back that was not in use.
        """
        if nbytes <= 0:
            return
        with self._lock:
            self._take_back()
            at = bisect_left(self._starts, start)
            for other in self._starts[max(at - 1, 0) : at + 1]:
                size, whose = self._lent[other]
                if other < start + nbytes and start < other + size:
                    raise MemoryMisused(
                        f"In {self._space} {_extent(start, nbytes)} for {what!r} overlaps "
                        f"{_extent(other, size)}, which is in use for {whose!r}."
                    )
            self._starts.insert(at, start)
            self._lent[start] = (nbytes, what)

    def remove(self, start: int, nbytes: int) -> None:
        """Note that an extent is no longer in use. Takes no lock and raises nothing: `add` does, where it was not."""
        if nbytes > 0:
            self._returned.append((start, nbytes))

    def _take_back(self) -> None:
        while self._returned:
            start, nbytes = self._returned.popleft()
            size, whose = self._lent.get(start, (0, "nothing"))
            if size != nbytes:
                raise MemoryMisused(
                    f"In {self._space} {_extent(start, nbytes)} was given back, but is not in use: "
                    f"{format_bytes(size)} there are, for {whose!r}."
                )
            del self._lent[start]
            del self._starts[bisect_left(self._starts, start)]


class CheckedResource:
    """What stands between a pool of device memory and all who allocate from it, where checks are on.

    Parameters
    ----------
    upstream
        The pool: ``allocate(nbytes, stream)`` and ``deallocate(pointer, nbytes, stream)``.
    checks : Checks
        Which are made.
    fill : callable
        Fills ``(pointer, nbytes)`` with a byte, after what a stream holds already.
    """

    def __init__(self, upstream: Any, checks: Checks, fill: Callable[[int, int, int, Any], None]) -> None:
        self._upstream, self._fill, self._checks = upstream, fill, checks
        self._live = checks.extents("device memory")

    def allocate(self, nbytes: int, stream: Any) -> int:
        """Allocate, and track it.

        Raises
        ------
        MemoryMisused
            See `LiveExtents.add`.
        """
        pointer = int(self._upstream.allocate(nbytes, stream))
        if self._live is not None:
            self._live.add(pointer, nbytes, purpose())
        if self._checks.poison_new and nbytes:
            self._fill(pointer, nbytes, NEW_BYTE, stream)
        return pointer

    def deallocate(self, pointer: int, nbytes: int, stream: Any) -> None:
        """Poison in the stream's order, after all work that may use it by right, and free."""
        try:
            if self._checks.poison and nbytes:
                self._fill(pointer, nbytes, POISON_BYTE, stream)
        finally:
            if self._live is not None:
                self._live.remove(pointer, nbytes)
            self._upstream.deallocate(pointer, nbytes, stream)


def poison_host(pointer: int, nbytes: int, byte: int = POISON_BYTE) -> None:
    """Fill host memory with the poison."""
    ctypes.memset(pointer, byte, nbytes)


def _extent(start: int, nbytes: int) -> str:
    return f"{format_bytes(nbytes)} at {start:#x}"
