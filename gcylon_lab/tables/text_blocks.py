"""Text files in blocks of whole lines: opening, cutting at line ends, and the block that decides on types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import pyarrow as pa

from ..errors import GcylonError, ReadError
from ..units import format_bytes, format_count
from .filesystems import Storage
from .read_plans import BytePiece

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
COMPRESSED = tuple(COMPRESSIONS)
_UNKNOWN = (".zip", ".xz", ".7z", ".rar", ".tar", ".tgz")
FIRST_BLOCK_BYTES = 4 * 1024**2
_LONGEST_LINE_BYTES = 256 * 1024**2
_STEP = 1 << 16
_COUNTED_BYTES = 1024**3  # lines of an error are counted so far into a file


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block of lines stands: so many bytes into a file, decompressed where it is compressed."""

    path: str
    storage: Storage
    offset: int = 0

    def line(self, block: bytes, row: int, quoted: bool) -> int | None:
        """The line of a block's row, both counted from 1; None where that would take long to count."""
        if self.offset > _COUNTED_BYTES:
            return None
        before = 0
        try:
            with open_text(self.path, self.storage) as file:
                left = self.offset
                while left and (part := file.read(min(left, _STEP))):
                    before += part.count(b"\n")
                    left -= len(part)
        except (OSError, pa.ArrowException):
            return None
        inside = False
        for number, line in enumerate(block.split(b"\n"), before + 1):
            row -= bool(line.strip()) and not inside
            if not row:
                return number
            inside ^= quoted and line.count(b'"') % 2 == 1
        return None


def open_text(path: str, storage: Storage) -> BinaryIO:
    """Open a file for reading bytes, decompressed where its name says so.

    Raises
    ------
    ReadError
        Naming the path and the reason.
    """
    if path.endswith(_UNKNOWN):
        raise ReadError(
            f"{path} cannot be read: its kind of compression is not known here",
            advice=f"Unpack it before, or compress it as one of {', '.join(COMPRESSED)}.",
            path=path,
        )
    try:
        file = storage.open(path)
        kind = next((kind for end, kind in COMPRESSIONS.items() if path.endswith(end)), None)
        stream: Any = file if kind is None else pa.CompressedInputStream(pa.PythonFile(file, "r"), kind)
        return stream  # type: ignore[no-any-return]
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from None


def unreadable(path: str, error: BaseException | str, advice: str = "", *, line: int | None = None) -> ReadError:
    """The error for a text file that cannot be read, with the line where that is known."""
    reason = getattr(error, "strerror", None) or str(error)
    if line is None:
        return ReadError(f"{path} cannot be read: {reason}", advice=advice, path=path)
    return ReadError(f"{path} cannot be read at line {line}: {reason}", advice=advice, path=path, line=line)


def text_notes(files: Sequence[tuple[str, int, bool]]) -> tuple[str, ...]:
    """What all ranks read together, in words: of (path, bytes, whether it may be cut)."""
    whole = sum(not cut for _, _, cut in files)
    text = f"{format_count(len(files))} file{'s' * (len(files) != 1)} of {format_bytes(sum(n for _, n, _ in files))}"
    return (f"{text}, {format_count(whole)} of them whole to one rank each" if whole else f"{text}, cut at line ends",)


def text_size(path: str, storage: Storage) -> int:
    """Bytes of a file as it lies in its storage."""
    try:
        return storage.size(path)
    except OSError as error:
        if isinstance(error, GcylonError):
            raise
        raise unreadable(path, error) from None


def first_lines(path: str, storage: Storage, quoted: bool) -> bytes:
    """The whole lines in the first megabytes of a file; the same on every rank that reads it."""
    data = _first_bytes(path, storage, FIRST_BLOCK_BYTES)
    return data if len(data) < FIRST_BLOCK_BYTES else data[: _last_line_end(data, quoted)]


def first_line(path: str, storage: Storage) -> bytes:
    """The first line of a file, its end included."""
    limit = _STEP
    while True:
        data = _first_bytes(path, storage, limit)
        end = data.find(b"\n") + 1
        if end or len(data) < limit:
            return data[:end] if end else data
        limit *= 16


def _first_bytes(path: str, storage: Storage, limit: int) -> bytes:
    data = b""
    try:
        with open_text(path, storage) as file:
            while len(data) < limit and (part := file.read(limit - len(data))):
                data += part
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, GcylonError):
            raise
        raise unreadable(path, error) from None
    return data


def blocks(
    piece: BytePiece, storage: Storage, skip: int, block_bytes: int, quoted: bool
) -> Iterator[tuple[Place, bytes]]:
    """The lines of a piece, in blocks of about ``block_bytes`` each.

    Parameters
    ----------
    piece : BytePiece
    storage : Storage
    skip : int
        Bytes at the start of the file that belong to no row.
    block_bytes : int
        A block is longer where one line is.
    quoted : bool
        Whether line ends inside double quotes belong to a value, so that nothing is cut there.
    """
    try:
        with open_text(piece.path, storage) as file:
            if piece.whole:
                file.read(skip)
                yield from _cut(Place(piece.path, storage, skip), file, None, block_bytes, quoted)
                return
            start = _line_start(file, max(piece.start, skip), skip)
            stop = _line_start(file, max(piece.stop, skip), skip)
            file.seek(start)
            yield from _cut(Place(piece.path, storage, start), file, stop - start, block_bytes, quoted)
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, GcylonError):
            raise
        raise unreadable(piece.path, error) from None


def _line_start(file: BinaryIO, at: int, first: int) -> int:
    """Where the first line begins that does so at or after a byte."""
    if at <= first:
        return first
    file.seek(at - 1)
    return at - 1 + _line_end(file)


def _line_end(file: BinaryIO) -> int:
    """Bytes up to and with the next line end, or the end of the file."""
    count = 0
    while part := file.read(_STEP):
        place = part.find(b"\n")
        if place >= 0:
            return count + place + 1
        count += len(part)
    return count


def _cut(
    place: Place, file: BinaryIO, left: int | None, block_bytes: int, quoted: bool
) -> Iterator[tuple[Place, bytes]]:
    rest = b""
    at = place.offset
    while True:
        wanted = block_bytes if left is None else min(block_bytes, left)
        part = file.read(wanted) if wanted > 0 else b""
        left = None if left is None else left - len(part)
        if not part:
            break
        rest += part
        end = _last_line_end(rest, quoted)
        if end:
            yield replace(place, offset=at), rest[:end]
            at += end
            rest = rest[end:]
        if len(rest) > _LONGEST_LINE_BYTES:
            raise ReadError(
                f"{place.path} has a line of more than {format_bytes(_LONGEST_LINE_BYTES)}",
                advice="Is a double quote not closed? If quotes are plain characters, pass quotes=False.",
                path=place.path,
            )
    if rest:
        yield replace(place, offset=at), rest


def _last_line_end(data: bytes, quoted: bool) -> int:
    """Bytes of the whole lines in data."""
    end = data.rfind(b"\n") + 1
    inside = quoted and data.count(b'"', 0, end) % 2
    while inside:
        before = data.rfind(b"\n", 0, end - 1) + 1
        inside = (inside + data.count(b'"', before, end)) % 2
        end = before
    return end
