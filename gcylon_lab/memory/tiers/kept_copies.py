"""Copies below the device tier of chunks that came back from there: staging such a chunk again writes nothing."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

# Copies are kept on a disk as long as so many times their bytes are free on it: other ranks and programs use it too,
# and cannot make these go.
_FREE_FOR_KEPT = 4
ALSO = {"pinned": "also pinned", "disk": "also on disk"}  # what is kept in a tier, beside the names of tiers


class KeptCopy:
    """Staged slices of a chunk that is on the device tier now. Its chunk owns it; it may be given up at any time.

    Attributes
    ----------
    slices : tuple
        Empty once it was given up.
    tiers : dict of str to int
        Bytes by tier.
    """

    __slots__ = ("__weakref__", "_count", "slices", "tiers")

    def __init__(self, slices: Sequence[Any], count: Callable[[str, int], None]) -> None:
        self.slices: tuple[Any, ...] = tuple(slices)
        self.tiers: dict[str, int] = {}
        for one in slices:
            self.tiers[one.tier] = self.tiers.get(one.tier, 0) + one.nbytes
        self._count = count
        for tier, nbytes in self.tiers.items():
            count(tier, nbytes)

    def give_up(self) -> None:
        """Let the slices go. Idempotent."""
        tiers, self.tiers, self.slices = self.tiers, {}, ()
        for tier, nbytes in tiers.items():
            self._count(tier, -nbytes)

    def __del__(self) -> None:
        self.give_up()


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
        # Re-entrant: a copy that is collected inside a call is counted on the same thread.
        self._lock = threading.RLock()
        self._nbytes: dict[str, int] = {}

    def keep(self, slices: Sequence[Any]) -> KeptCopy | None:
        """Keep staged slices, each with a tier and bytes; None where the disk has too little room for it."""
        made = KeptCopy(slices, self._add)
        if made.tiers.get("disk") and self._free_disk_bytes() < _FREE_FOR_KEPT * self.nbytes("disk"):
            return None
        self._all[next(self._numbers)] = made
        return made

    def nbytes(self, tier: str) -> int:
        """Bytes kept in a tier."""
        return self._nbytes.get(tier, 0)

    def drop(self, tier: str, nbytes: int | None = None) -> bool:
        """Give up copies in a tier, the oldest first, until so many bytes are gone; all by default. Says whether any
        were there."""
        gone = 0
        # One step of the interpreter: other threads may let go of some meanwhile.
        for one in [reference() for reference in self._all.valuerefs()]:
            here = 0 if one is None else one.tiers.get(tier, 0)
            if one is not None and here and (nbytes is None or gone < nbytes):
                one.give_up()
                gone += here
        return gone > 0

    def _add(self, tier: str, nbytes: int) -> None:
        with self._lock:
            self._nbytes[tier] = self._nbytes.get(tier, 0) + nbytes
