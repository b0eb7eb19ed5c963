"""Which pieces of a pool's memory are free."""

from __future__ import annotations

from bisect import bisect_left, insort


class Extents:
    """Free pieces of the steps that a pool grew by, by their addresses. Not safe to use from several threads.

    Attributes
    ----------
    held_bytes : int
        Length of all steps.
    """

    def __init__(self) -> None:
        self._steps: dict[int, int] = {}
        self._sizes: dict[int, int] = {}  # free piece by its start
        self._starts: dict[int, int] = {}  # and by its end
        self._sorted: list[tuple[int, int]] = []
        self.held_bytes = 0

    @property
    def largest_free(self) -> int:
        """Length of the largest free piece."""
        return self._sorted[-1][0] if self._sorted else 0

    def add_step(self, start: int, size: int) -> None:
        """Add a step, free."""
        self._steps[start] = size
        self.held_bytes += size
        self._insert(start, size)

    def idle_steps(self) -> list[int]:
        """Return the steps that are free as a whole."""
        return [start for start, size in self._steps.items() if self._sizes.get(start) == size]

    def remove_step(self, start: int) -> None:
        """Take an idle step out."""
        size = self._steps.pop(start)
        self.held_bytes -= size
        self._remove(start)

    def take(self, size: int) -> int | None:
        """Return the start of a piece, cut from the smallest that will do; None where there is none."""
        at = bisect_left(self._sorted, (size, 0))
        if at == len(self._sorted):
            return None
        found, start = self._sorted[at]
        self._remove(start)
        if found > size:
            self._insert(start + size, found - size)
        return start

    def give(self, start: int, size: int) -> None:
        """Make a piece free again, joined with its free neighbours."""
        # Steps may lie side by side, but a copy must not cross from one into the next.
        if start not in self._steps and start in self._starts:
            before = self._starts[start]
            size += self._remove(before)
            start = before
        if start + size not in self._steps and start + size in self._sizes:
            size += self._remove(start + size)
        self._insert(start, size)

    def _insert(self, start: int, size: int) -> None:
        self._sizes[start] = size
        self._starts[start + size] = start
        insort(self._sorted, (size, start))

    def _remove(self, start: int) -> int:
        size = self._sizes.pop(start)
        del self._starts[start + size]
        del self._sorted[bisect_left(self._sorted, (size, start))]
        return size
