"""The tiers below the device tier of a GPU: page-locked memory, and what does not fit there on disk.

The same interface as `tiers.SpillStore`, for buffers in device memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...config import GcylonConfig
from ...errors import SpillError
from ...units import format_bytes
from ..copies import Copy, CopyQueue, Traffic
from .bounce_buffer import Bounce
from .byte_ranges import Range, ranges_of
from .disk_tier import SpillFile, SpillRegion, SpillStore
from .free_space import NO_ROOM, FreeSpace
from .layout import Move, length_of, moves_into, padded, pieces, runs_of
from .pinned_pool import PinnedBuffer, PinnedPool, no_room


class DeviceTiers:
    """The pinned and the disk tier of one rank that works on a GPU.

    Parameters
    ----------
    pool : PinnedPool
        The pinned tier's memory.
    folder : str, optional
        Where spill files are; "" takes the system's temporary folder.
    allow_disk : bool, optional
        Whether what does not fit the pinned tier may go to disk.
    most_in_flight : int, optional
        Regions that may be on their way down at once.

    Attributes
    ----------
    disk : SpillStore
        The disk tier.
    kept : KeptCopies
        Of chunks that came back, in both tiers.
    allow_disk : bool
        May be changed between operations, as by `follow`.
    disk_written, disk_read : Traffic
        Bytes and seconds of the disk tier.
    """

    def __init__(
        self, pool: PinnedPool, folder: str = "", *, allow_disk: bool = True, most_in_flight: int = 16
    ) -> None:
        self.pool = pool
        self.disk = SpillStore(folder, pool.checks)
        self.kept = self.disk.kept
        pool.make_room = self._drop_kept
        self.allow_disk = allow_disk
        self._own_cap = pool.cap_bytes
        self.disk_written = Traffic()
        self.disk_read = Traffic()
        self._queue = CopyQueue(most_in_flight)
        self._bounce = Bounce(pool, self._queue)
        self._pinned = self._written = 0

    def set_folder(self, folder: str) -> None:
        """Open spill files in another folder from now on; "" is the system's temporary one."""
        self.disk.set_folder(folder)

    def follow(self, config: GcylonConfig) -> None:
        """Do as an operation's settings say from now on: folder, disk or not, and how much host memory."""
        self.set_folder(config.spill_dir)
        self.allow_disk = config.allow_disk_spill
        cap = config.host_memory_limit or self._own_cap
        if cap != self.pool.cap_bytes:
            # What is locked stays for operations that may use it: locking it again would take far longer than one.
            self.pool.set_cap(cap, keep_idle=True)

    @property
    def pinned_bytes(self) -> int:
        """Bytes staged in pinned memory now."""
        return self._pinned

    @property
    def disk_bytes(self) -> int:
        """Bytes staged on disk now."""
        return self.disk.used_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes staged now, in both tiers."""
        return self._pinned + self.disk.used_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes ever staged."""
        return self._written

    @property
    def down(self) -> Traffic:
        """What was copied from the device, as far as it is done and let go of; on its way to disk too."""
        return self._queue.down_traffic

    @property
    def up(self) -> Traffic:
        """What was copied to the device."""
        return self._queue.up_traffic

    def room(self) -> FreeSpace:
        """What page-locked memory, and the disk where it is allowed, can still take."""
        pinned = max(0, self.pool.cap_bytes - self.pool.used_bytes)
        disk = self.disk.room() if self.allow_disk else NO_ROOM
        return replace(disk, pinned_bytes=pinned)

    def new_file(self) -> StagedFile:
        """Begin a row of regions that belong together."""
        return StagedFile(self)

    def poll(self) -> int:
        """Free the device memory of what has arrived; returns how many copies are still in flight."""
        return self._queue.poll()

    def flush(self) -> None:
        """Wait until everything has arrived, so that all device memory it came from is free."""
        self._queue.flush()

    def close(self) -> None:
        """Wait for what is in flight. Regions stay readable; the pool is its owner's to close."""
        self.pool.make_room = no_room
        self._queue.flush()
        self._bounce.release()

    def _add(self, nbytes: int) -> None:
        self._pinned += nbytes

    def _drop_kept(self, nbytes: int) -> bool:
        """Where the pool has no room: give up copies of chunks that came back; whether there were any."""
        if not self.kept.drop("pinned", nbytes):
            return False
        self._queue.flush()  # a copy to the device keeps what it reads from
        return True


class StagedRegion:
    """Consecutive buffers below the device tier. Their memory is given back when it is collected.

    Attributes
    ----------
    nbytes : int
        Length with padding: what `read` allocates.
    lengths : tuple of int
        Of the buffers.
    tier : str
        ``pinned`` or ``disk``.
    """

    __slots__ = ("__weakref__", "_tiers", "lengths", "nbytes")
    tier = ""

    def __init__(self, tiers: DeviceTiers, lengths: tuple[int, ...], nbytes: int) -> None:
        self._tiers = tiers
        self.lengths = lengths
        self.nbytes = nbytes

    @property
    def arrived(self) -> bool:
        """Whether what it was made of is no longer needed."""
        return True

    def wait(self) -> None:
        """Wait until what it was made of is no longer needed."""

    def bytes_of(self, only: Sequence[int]) -> int:
        """Bytes that `read` makes of some buffers."""
        return sum(padded(self.lengths[number]) for number in only)

    def read(self, only: Sequence[int] | None = None) -> list[Any]:
        """Copy buffers back, into one new device array, on the current stream: all, or some by their numbers.

        Returns
        -------
        list of cupy.ndarray
            Bytes in the order given, each aligned to 256; views of one block, of ``nbytes`` bytes for all.

        Raises
        ------
        SpillError
            If a file cannot be read.
        MemoryError
            If the block does not fit the device.
        """
        import cupy

        ranges = ranges_of(list(map(padded, self.lengths)), only)
        block = cupy.empty(sum(one.nbytes for one in ranges), dtype=cupy.uint8)
        if ranges:
            self._fill(block, ranges)
        views, start = [], 0
        for length in self.lengths if only is None else [self.lengths[number] for number in only]:
            views.append(block[start : start + length])
            start += padded(length)
        return views

    def _fill(self, block: Any, ranges: Sequence[Range]) -> None:
        raise NotImplementedError


class PinnedRegion(StagedRegion):
    """A region in page-locked memory. It may still be on its way."""

    __slots__ = ("_blocks", "_copy")
    tier = "pinned"

    def __init__(
        self, tiers: DeviceTiers, lengths: tuple[int, ...], nbytes: int, blocks: list[PinnedBuffer], copy: Copy | None
    ) -> None:
        super().__init__(tiers, lengths, nbytes)
        self._blocks = blocks
        self._copy = copy
        tiers._add(nbytes)
        weakref.finalize(self, tiers._add, -nbytes)

    @property
    def arrived(self) -> bool:
        """Whether what it was made of is no longer needed."""
        return self._copy is None or self._copy.done

    def wait(self) -> None:
        """Wait until what it was made of is no longer needed."""
        if self._copy is not None:
            self._copy.wait()

    def _fill(self, block: Any, ranges: Sequence[Range]) -> None:
        moves, start = [], int(block.data.ptr)
        for one in ranges:
            for piece in pieces(one.begin, one.nbytes, self._tiers.pool.block_bytes):
                source = self._blocks[piece.block].pointer + piece.start
                moves.append(Move(start + piece.done, source, piece.nbytes))
            start += one.nbytes
        # The blocks are kept, also where the region is dropped right after this. The array needs not be:
        # its memory is used again only by what comes later on its stream.
        self._tiers._queue.up(moves, self._blocks, [self._copy] if self._copy else [])


class DiskRegion(StagedRegion):
    """A region in a spill file."""

    __slots__ = ("_parts",)
    tier = "disk"

    def __init__(self, tiers: DeviceTiers, lengths: tuple[int, ...], nbytes: int, parts: list[SpillRegion]) -> None:
        super().__init__(tiers, lengths, nbytes)
        self._parts = parts

    def _fill(self, block: Any, ranges: Sequence[Range]) -> None:
        self._tiers._bounce.read(self._parts, ranges, block, self._tiers.disk_read)


class StagedFile:
    """A row of regions; those on disk share one spill file."""

    def __init__(self, tiers: DeviceTiers) -> None:
        self._tiers = tiers
        self._spill: SpillFile | None = None

    def append(self, buffers: Sequence[Any], held: Any = None) -> StagedRegion:
        """Stage buffers, after what the current stream holds already.

        To pinned memory it returns at once: the buffers are kept, and must not be
        changed, until they have arrived. To disk it returns once they are written.

        Parameters
        ----------
        buffers : sequence of one-dimensional cupy.ndarray of uint8, or of memoryview
            What to stage; each perhaps a list of pieces.
        held : object, optional
            Kept as long as the buffers are, such as the reservation for them.

        Raises
        ------
        SpillError
            If the disk is full or cannot be written, or the pinned tier is full and disk is not allowed.
        """
        tiers = self._tiers
        lengths = tuple(map(length_of, buffers))
        nbytes = sum(padded(length) for length in lengths)
        if tiers.allow_disk:
            tiers._bounce.prepare()
        blocks = _take_blocks(tiers, nbytes)
        region: StagedRegion
        if blocks is not None:
            moves = moves_into(runs_of(buffers), blocks, tiers.pool.block_bytes, 0, nbytes)
            copy = tiers._queue.down(moves, (list(buffers), blocks, held)) if moves else None
            region = PinnedRegion(tiers, lengths, nbytes, blocks, copy)
        else:
            if not tiers.allow_disk:
                raise _no_disk(tiers, nbytes)
            self._spill = self._spill or tiers.disk.new_file()
            parts = tiers._bounce.write(self._spill, buffers, nbytes, tiers.disk_written)
            region = DiskRegion(tiers, lengths, nbytes, parts)
        tiers._written += nbytes
        return region


def _take_blocks(tiers: DeviceTiers, nbytes: int) -> list[PinnedBuffer] | None:
    pool = tiers.pool
    # Where there is a disk, it takes what cannot be page-locked.
    take = pool.try_take if tiers.allow_disk else pool.take_within
    blocks = []
    for piece in pieces(0, nbytes, pool.block_bytes):
        block = take(piece.nbytes, "a staged chunk")
        if block is None:
            return None
        blocks.append(block)
    return blocks


def _no_disk(tiers: DeviceTiers, nbytes: int) -> SpillError:
    pool = tiers.pool
    used = pool.used_bytes + pool.pageable_bytes
    would_do = used + nbytes
    message = (
        f"Staging {format_bytes(nbytes)} failed: {format_bytes(used)} of the "
        f"{format_bytes(pool.cap_bytes)} of the pinned tier are in use, and allow_disk_spill is off."
    )
    advice = (
        f"host_memory_limit is {format_bytes(pool.cap_bytes)} now; for this piece {format_bytes(would_do)} "
        f"({would_do}) is enough, and for those that follow, more is needed. Or set allow_disk_spill, or raise "
        "gpu_memory_limit to stage less."
    )
    return SpillError(
        message, advice=advice, needed_bytes=nbytes, used_bytes=used, limit_bytes=pool.cap_bytes,
        knob="host_memory_limit", would_do=would_do,
    )  # fmt: skip
