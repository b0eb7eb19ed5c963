"""The disk tier: spill files that no other process sees and that nothing outlives."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice

import numpy as np

from ...config import GcylonConfig
from ...errors import SpillError
from ...units import format_bytes
from ..debug_checks import NO_CHECKS, Checks, purpose
from .byte_ranges import ranges_of
from .free_space import FreeSpace, disk_room, free_bytes
from .kept_copies import KeptCopies
from .layout import length_of

_ALIGN = 64
_MAX_VECTORS = 512  # below IOV_MAX everywhere
_PADDING = np.empty(_ALIGN, np.uint8).data  # read, and never looked at
_ZEROS = bytes(_ALIGN)
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


class SpillRegion:
    """Consecutive buffers in a spill file. The file is closed when its last region is collected."""

    __slots__ = ("__weakref__", "_begins", "_file", "_offset", "lengths", "nbytes")
    tier = "disk"

    def __init__(self, file: SpillFile, offset: int, lengths: tuple[int, ...], nbytes: int) -> None:
        self._file = file
        self._offset = offset
        self._begins: list[int] = []  # of each buffer in the file, once parts of them are read
        self.lengths = lengths
        self.nbytes = nbytes
        store = file.store
        store._add(nbytes)
        weakref.finalize(self, store._add, -nbytes)
        if file._live is not None:
            weakref.finalize(self, file._live.remove, offset, nbytes)

    def wait(self) -> None:
        """Nothing to wait for: it was written when it was made."""

    def bytes_of(self, only: Sequence[int]) -> int:
        """Bytes that `read` makes of some buffers."""
        return sum(_padded(self.lengths[number]) for number in only)

    def read_parts(self, parts: Sequence[tuple[int, int, memoryview]]) -> None:
        """Read parts of buffers: of each the number of the buffer, the byte to begin at, and the memory to fill.

        Raises
        ------
        SpillError
            If the file cannot be read.
        """
        if not self._begins:
            self._begins = list(accumulate(map(_padded, self.lengths), initial=self._offset))
        # Neighbours are read together, with what pads them.
        start = end = 0
        blocks: list[memoryview] = []
        for number, skipped, block in parts:
            begin, length = self._begins[number] + skipped, block.nbytes
            if not blocks or not 0 <= begin - end < _ALIGN or len(blocks) >= _MAX_VECTORS - 1:
                if blocks:
                    self._file.read_blocks(start, blocks)
                start, blocks = begin, []
            elif begin > end:
                blocks.append(_PADDING[: begin - end])
            blocks.append(block)
            end = begin + length
        if blocks:
            self._file.read_blocks(start, blocks)

    def read_into(self, begin: int, blocks: Sequence[memoryview]) -> None:
        """Fill blocks one after the other with the bytes from ``begin`` on.

        Raises
        ------
        SpillError
            If the file cannot be read.
        """
        self._file.read_blocks(self._offset + begin, blocks)

    def read(self, only: Sequence[int] | None = None) -> list[memoryview]:
        """Read buffers back, into one new block of memory: all, of ``nbytes`` bytes, or some.

        Raises
        ------
        SpillError
            If the file cannot be read.
        """
        ranges = ranges_of(list(map(_padded, self.lengths)), only)
        block, start = np.empty(sum(one.nbytes for one in ranges), dtype=np.uint8).data, 0
        for one in ranges:
            self._file.read_into(self._offset + one.begin, block[start : start + one.nbytes])
            start += one.nbytes
        views, start = [], 0
        for length in self.lengths if only is None else [self.lengths[number] for number in only]:
            views.append(block[start : start + length])
            start += _padded(length)
        return views


class SpillFile:
    """One open file of the disk tier, written from front to back.

    It has no name (O_TMPFILE) or is unlinked at once, and only its owner may
    read it (0600), so that nothing is left behind whatever happens.
    """

    def __init__(self, store: SpillStore) -> None:
        self.store = store
        self._fd = _open_unnamed(store.folder)
        self._end = 0
        self._live = store.checks.extents("a spill file")
        weakref.finalize(self, os.close, self._fd)

    def append(self, buffers: Sequence[memoryview | list[memoryview]], held: object = None) -> SpillRegion:
        """Write buffers one after the other; they are written when it returns, so ``held`` is not kept. A list is one
        buffer, in pieces.

        Raises
        ------
        SpillError
            If the disk is full or cannot be written, with the folder and its free bytes.
        """
        vectors: list[memoryview | bytes] = []
        lengths = tuple(map(length_of, buffers))
        for buffer, length in zip(buffers, lengths, strict=True):
            if length:
                vectors += buffer if isinstance(buffer, list) else (buffer,)
                if pad := -length % _ALIGN:
                    vectors.append(_ZEROS[:pad])
        nbytes = _nbytes(vectors)
        return SpillRegion(self, self._append(lambda: vectors, nbytes), lengths, nbytes)

    def append_as_one(
        self, buffers: Callable[[], Iterable[memoryview]], nbytes: int, at_once: int = _MAX_VECTORS
    ) -> SpillRegion:
        """Write buffers of so many bytes in all one after the other without gaps: to be read by bytes. So many are
        there ``at_once``, where they are copies.

        Raises
        ------
        SpillError
            If the disk is full or cannot be written, with the folder and its free bytes.
        """
        return SpillRegion(self, self._append(buffers, nbytes, at_once), (nbytes,), nbytes)

    def _append(
        self, vectors: Callable[[], Iterable[memoryview | bytes]], nbytes: int, at_once: int = _MAX_VECTORS
    ) -> int:
        offset = self._end
        if self._live is not None:
            self._live.add(offset, nbytes, purpose())
        try:
            self._write(vectors, offset, at_once)
        except BaseException as error:
            if self._live is not None:
                self._live.remove(offset, nbytes)
            if not isinstance(error, OSError):
                raise
            raise _spill_error(error, self.store.folder, nbytes) from error
        self._end = offset + nbytes
        return offset

    def _write(self, vectors: Callable[[], Iterable[memoryview | bytes]], offset: int, at_once: int) -> None:
        """Write; where the disk is full, once more without the copies that were kept on it."""
        while True:
            try:
                _write_all(self._fd, iter(vectors()), offset, at_once)
                return
            except OSError as error:
                os.ftruncate(self._fd, offset)  # a disk that is full gets back what was written in vain
                if error.errno not in FULL_DISK or not self.store.kept.drop("disk"):
                    raise

    def read_blocks(self, offset: int, blocks: Sequence[memoryview]) -> None:
        """Fill blocks one after the other from ``offset`` on, many by one call."""
        for first in range(0, len(blocks), _MAX_VECTORS):
            some = blocks[first : first + _MAX_VECTORS]
            nbytes = sum([block.nbytes for block in some])
            try:
                got = os.preadv(self._fd, some, offset)
            except OSError as error:
                raise _reading_error(error, nbytes) from error
            if got != nbytes:
                at = offset
                for block in some:
                    self.read_into(at, block)
                    at += block.nbytes
            offset += nbytes

    def read_into(self, offset: int, block: memoryview) -> None:
        """Fill ``block`` from ``offset`` on."""
        done = 0
        try:
            while done < block.nbytes:
                got = os.preadv(self._fd, [block[done:]], offset + done)
                if got == 0:
                    raise OSError(errno.EIO, f"a spill file ends at {offset + done}, {block.nbytes - done} bytes short")
                done += got
        except OSError as error:
            raise _reading_error(error, block.nbytes) from error


class SpillStore:
    """The disk tier of one rank.

    Parameters
    ----------
    folder : str
        Where spill files are; "" takes the system's temporary folder.
    checks : Checks, optional
        Whether extents of files in use are tracked.

    Attributes
    ----------
    kept : KeptCopies
        Of chunks that came back; DeviceTiers keeps its own here too.
    """

    def __init__(self, folder: str = "", checks: Checks = NO_CHECKS) -> None:
        self.set_folder(folder)
        self.checks = checks
        self.kept = KeptCopies(lambda: free_bytes(self.folder))
        self._lock = threading.RLock()
        self._used = 0
        self._written = 0

    def set_folder(self, folder: str) -> None:
        """Open spill files in another folder from now on; "" is the system's temporary one."""
        self.folder = folder or tempfile.gettempdir()

    def follow(self, config: GcylonConfig) -> None:
        """Do as an operation's settings say from now on."""
        self.set_folder(config.spill_dir)

    @property
    def used_bytes(self) -> int:
        """Bytes staged on disk now."""
        return self._used

    @property
    def written_bytes(self) -> int:
        """Bytes ever staged to disk."""
        return self._written

    @property
    def pinned_bytes(self) -> int:
        """0: the process has no tier between the device and the disk."""
        return 0

    @property
    def disk_bytes(self) -> int:
        """Bytes staged on disk now."""
        return self._used

    def room(self) -> FreeSpace:
        """What the disk of the folder can still take."""
        return disk_room(self.folder)

    def poll(self) -> None:
        """Nothing is on its way."""

    def flush(self) -> None:
        """Nothing is on its way: what is staged has been written."""

    def new_file(self) -> SpillFile:
        """Open a spill file.

        Raises
        ------
        SpillError
            If the folder is missing or cannot be written.
        """
        return SpillFile(self)

    def _add(self, nbytes: int) -> None:
        with self._lock:
            self._used += nbytes
            self._written += max(nbytes, 0)


def _nbytes(vectors: Sequence[memoryview | bytes]) -> int:
    return sum([v.nbytes if isinstance(v, memoryview) else len(v) for v in vectors])


def _padded(n: int) -> int:
    return -(-n // _ALIGN) * _ALIGN


def _open_unnamed(folder: str) -> int:
    try:
        if hasattr(os, "O_TMPFILE"):
            try:
                return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOTSUP):
                    raise
        fd, path = tempfile.mkstemp(prefix="gcylon_lab-", dir=folder)
        os.unlink(path)
        return fd
    except OSError as error:
        raise _spill_error(error, folder, 0) from error


def _write_all(fd: int, vectors: Iterator[memoryview | bytes], offset: int, at_once: int) -> None:
    """Write, as many by one call as it takes: there may be far more, and each is an object."""
    batch = list(islice(vectors, at_once))
    while batch:
        wrote = os.pwritev(fd, batch, offset)
        offset += wrote
        done = 0
        for vector in batch:
            size = vector.nbytes if isinstance(vector, memoryview) else len(vector)
            if wrote < size:
                batch[done] = memoryview(vector)[wrote:]
                break
            wrote -= size
            done += 1
        batch = batch[done:] or list(islice(vectors, at_once))


def _spill_error(error: OSError, folder: str, nbytes: int) -> SpillError:
    if not nbytes and not os.path.isdir(folder):  # nothing was opened yet
        # What a relative name means depends on where the rank runs.
        where = "" if os.path.isabs(folder) else f", seen from {os.getcwd()!r},"
        message = f"The folder {folder!r}{where} in which to stage {_missing(folder)}."
        advice = "Set spill_dir to a folder that is there on every host, by its full path."
        return SpillError(message, advice=advice, folder=folder, needed_bytes=nbytes, errno=error.errno)
    try:
        stat = os.statvfs(folder)
        free = f"{format_bytes(stat.f_bavail * stat.f_frsize)} free"
    except OSError:
        free = "whose room cannot be looked at"
    what = f"Staging {format_bytes(nbytes)} in" if nbytes else "Opening a file to stage in"
    message = f"{what} {folder!r} ({free}) failed: {error.strerror or error}."
    advice = "Set spill_dir to a folder with room that can be written, or raise gpu_memory_limit to stage less."
    return SpillError(message, advice=advice, folder=folder, needed_bytes=nbytes, errno=error.errno)


def _reading_error(error: OSError, nbytes: int) -> SpillError:
    message = f"Reading {format_bytes(nbytes)} of staged rows back failed: {error.strerror or error}."
    advice = "Look at the disk of spill_dir, then try again. Rows that it has lost have to be read or computed again."
    return SpillError(message, advice=advice, needed_bytes=nbytes, errno=error.errno)


def _missing(folder: str) -> str:
    return "is not a folder" if os.path.exists(folder) else "does not exist"
