"""Copies below the device tier of chunks that came back from there: staging such a chunk again writes nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

# Copies are kept on a disk as long as so many times their bytes are free on it: other ranks and programs use it too,
# and cannot make these go.
_FREE_FOR_KEPT = 4
ALSO = {"pinned": "also pinned", "disk": "also on disk"}  # what is kept in a tier, beside the names of tiers


class KeptCopy:
    """Staged slices of a chunk that is on the device tier now. Its chunk owns it; it may be given up at any time."""

    __slots__ = ("__weakref__", "slices")

    def __init__(self, slices: Sequence[Any]) -> None:
        self.slices: tuple[Any, ...] = tuple(slices)

    @property
    def tiers(self) -> dict[str, int]:
        """Bytes by tier."""
        sizes: dict[str, int] = {}
        for one in self.slices:
            sizes[one.tier] = sizes.get(one.tier, 0) + one.nbytes
        return sizes


class KeptCopies:
    """All that one rank keeps, the oldest first. What is kept counts as used in its tier, and is the first to go where
    that tier needs room.

    Parameters
    ----------
    free_disk_bytes : callable
        What the disk can still take.
    """

    def __init__(self, free_disk_bytes: Callable[[], int]) -> None:
        self._free_disk_bytes = free_disk_bytes
        self._numbers = count()
        self._all: weakref.WeakValueDictionary[int, KeptCopy] = weakref.WeakValueDictionary()

    def keep(self, slices: Sequence[Any]) -> KeptCopy | None:
        """Keep staged slices, each with a tier and bytes; None where the disk has too little room for it."""
        made = KeptCopy(slices)
        on_disk = made.tiers.get("disk", 0)
        if on_disk and self._free_disk_bytes() < _FREE_FOR_KEPT * (self.nbytes("disk") + on_disk):
            return None
        self._all[next(self._numbers)] = made
        return made

    def nbytes(self, tier: str) -> int:
        """Bytes kept in a tier."""
        return sum(one.tiers.get(tier, 0) for one in self._alive())

    def drop(self, tier: str, nbytes: int | None = None) -> bool:
        """Give up copies in a tier, the oldest first, until so many bytes are gone; all by default. Says whether any
        were there."""
        gone = found = 0
        for one in self._alive():
            here = one.tiers.get(tier, 0)
            if here and (nbytes is None or gone < nbytes):
                one.slices, gone, found = (), gone + here, found + 1
        return found > 0

    def _alive(self) -> list[KeptCopy]:
        # One step of the interpreter: other threads may let go of some meanwhile.
        made = [reference() for reference in self._all.valuerefs()]
        return [one for one in made if one is not None]
