"""What operations ask of the tiers below the device, whatever they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...config import GcylonConfig
from .free_space import FreeSpace
from .kept_copies import KeptCopies


class StagingRegion(Protocol):
    """Buffers that were staged together. Their room is given back when it is collected."""

    @property
    def tier(self) -> str:
        """``pinned`` or ``disk``."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes that `read` makes."""
        ...

    def wait(self) -> None:
        """Wait until what it was made of is no longer needed."""
        ...

    def bytes_of(self, only: Sequence[int]) -> int:
        """Bytes that `read` makes of some buffers."""
        ...

    def read(self, only: Sequence[int] | None = None) -> list[Any]:
        """The buffers, in new memory of the device tier; perhaps only some, by their numbers, which ascend.

        Raises
        ------
        SpillError
            If they cannot be read.
        """
        ...


class StagingFile(Protocol):
    """A row of regions that belong together."""

    def append(self, buffers: Sequence[Any], held: object = None) -> StagingRegion:
        """Stage buffers; ``held`` is kept as long as they are still read from.

        Raises
        ------
        SpillError
            If there is no room, or a disk cannot be written.
        """
        ...


class StagingTiers(Protocol):
    """The tiers below the device tier of one rank."""

    @property
    def kept(self) -> KeptCopies:
        """What is still there of chunks that came back: counted as used, and given up where room is needed."""
        ...

    @property
    def used_bytes(self) -> int:
        """Bytes staged now."""
        ...

    @property
    def pinned_bytes(self) -> int:
        """Of them in page-locked memory."""
        ...

    @property
    def disk_bytes(self) -> int:
        """Of them on disk."""
        ...

    def follow(self, config: GcylonConfig) -> None:
        """Do as an operation's settings say from now on: where spill files are, what may be staged where."""
        ...

    def room(self) -> FreeSpace:
        """What can still be staged."""
        ...

    def new_file(self) -> StagingFile:
        """Begin a row of regions."""
        ...

    def poll(self) -> object:
        """Free the device memory of what has left it."""
        ...

    def flush(self) -> None:
        """Wait until all that was staged has left the device tier."""
        ...
