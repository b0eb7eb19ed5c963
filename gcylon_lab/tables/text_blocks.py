"""Text files in blocks of whole lines: opening, cutting at line ends, and the block that decides on types."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from ..errors import ReadError
from ..units import format_bytes
from .read_plans import BytePiece

COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
FIRST_BLOCK_BYTES = 4 * 1024**2
_LONGEST_LINE_BYTES = 256 * 1024**2
_STEP = 1 << 16


def open_text(path: str) -> BinaryIO:
    """Open a file for reading bytes, decompressed where its name says so.

    Raises
    ------
    ReadError
        Naming the path and the reason.
    """
    try:
        if path.endswith(COMPRESSED):
            stream: Any = pa.input_stream(path, compression="detect")
            return stream  # type: ignore[no-any-return]
        return open(path, "rb")
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from None


def unreadable(path: str, error: BaseException | str) -> ReadError:
    """The error for a text file that cannot be read."""
    reason = getattr(error, "strerror", None) or str(error)
    return ReadError(f"{path} cannot be read: {reason}", path=path)


def text_size(path: str) -> int:
    """Bytes of a file as it lies on disk."""
    try:
        return os.path.getsize(path)
    except OSError as error:
        raise unreadable(path, error) from None


def first_lines(path: str, quoted: bool) -> bytes:
    """The whole lines in the first megabytes of a file; the same on every rank that reads it."""
    data = _first_bytes(path, FIRST_BLOCK_BYTES)
    return data if len(data) < FIRST_BLOCK_BYTES else data[: _last_line_end(data, quoted)]


def first_line(path: str) -> bytes:
    """The first line of a file, its end included."""
    limit = _STEP
    while True:
        data = _first_bytes(path, limit)
        end = data.find(b"\n") + 1
        if end or len(data) < limit:
            return data[:end] if end else data
        limit *= 16


def _first_bytes(path: str, limit: int) -> bytes:
    data = b""
    try:
        with open_text(path) as file:
            while len(data) < limit and (part := file.read(limit - len(data))):
                data += part
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, ReadError):
            raise
        raise unreadable(path, error) from None
    return data


def blocks(piece: BytePiece, skip: int, block_bytes: int, quoted: bool) -> Iterator[bytes]:
    """The lines of a piece, in blocks of about ``block_bytes`` each.

    Parameters
    ----------
    piece : BytePiece
    skip : int
        Bytes at the start of the file that belong to no row.
    block_bytes : int
        A block is longer where one line is.
    quoted : bool
        Whether line ends inside double quotes belong to a value, so that nothing is cut there.
    """
    try:
        with open_text(piece.path) as file:
            if piece.whole:
                file.read(skip)
                yield from _cut(piece.path, file, None, block_bytes, quoted)
                return
            start = _line_start(file, max(piece.start, skip), skip)
            stop = _line_start(file, max(piece.stop, skip), skip)
            file.seek(start)
            yield from _cut(piece.path, file, stop - start, block_bytes, quoted)
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, ReadError):
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


def _cut(path: str, file: BinaryIO, left: int | None, block_bytes: int, quoted: bool) -> Iterator[bytes]:
    rest = b""
    while True:
        wanted = block_bytes if left is None else min(block_bytes, left)
        part = file.read(wanted) if wanted > 0 else b""
        left = None if left is None else left - len(part)
        if not part:
            break
        rest += part
        end = _last_line_end(rest, quoted)
        if end:
            yield rest[:end]
            rest = rest[end:]
        if len(rest) > _LONGEST_LINE_BYTES:
            raise ReadError(
                f"{path} has a line of more than {format_bytes(_LONGEST_LINE_BYTES)}",
                advice="Is a double quote not closed? If quotes are plain characters, pass quotes=False.",
                path=path,
            )
    if rest:
        yield rest


def _last_line_end(data: bytes, quoted: bool) -> int:
    """Bytes of the whole lines in data."""
    end = data.rfind(b"\n") + 1
    inside = quoted and data.count(b'"', 0, end) % 2
    while inside:
        before = data.rfind(b"\n", 0, end - 1) + 1
        inside = (inside + data.count(b'"', before, end)) % 2
        end = before
    return end
