"""Text files in blocks of whole records: opening, cutting, and the block that decides on types."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa

from ...errors import ReadError
from ...units import format_bytes, format_count
from ..filesystems import Storage, is_url, reading
from ..read_plans import BytePiece
from .csv_records import LOOK_BACK_BYTES, opening_quote, record_ends, record_start, whole_records

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".br": "brotli"}
COMPRESSED = tuple(COMPRESSIONS)
_UNKNOWN = (".zip", ".xz", ".7z", ".rar", ".tar", ".tgz")
FIRST_BLOCK_BYTES = 4 * 1024**2
# A line is read whole, beside what is made of it: of the budget it may take a part.
_LONGEST_RECORD_BYTES = 256 * 1024**2
_LONGEST_IN_LIMIT = 4
_LONGEST_HEADER_BYTES = 16 * 1024**2
_BYTES_A_QUOTE = 32  # to find where records end
_STEP = 1 << 16
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
T = TypeVar("T")
Block = bytes | memoryview
_COUNTED_BYTES = 1024**3  # lines of an error are counted so far into a file


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block of lines stands: so many bytes into a file, decompressed where it is compressed."""

    path: str
    storage: Storage
    offset: int = 0

    def line(self, block: bytes, row: int, delimiter: bytes | None) -> int | None:
        """The line on which a block's row begins, both counted from 1; None where that would take long to count."""
        starts = [0, *record_ends(block, delimiter)[0].tolist()]
        filled = (at for at, end in zip(starts, [*starts[1:], None], strict=True) if block[at:end].strip())
        start = next(islice(filled, row - 1, None), None)
        return None if start is None else self.line_at(block, start)

    def line_at(self, block: bytes, at: int) -> int | None:
        """The line that a byte of a block is on, counted from 1; None where that would take long to count."""
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
        return before + 1 + block.count(b"\n", 0, at)


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
    with reading(path):
        file = storage.open(path)
        kind = next((kind for end, kind in COMPRESSIONS.items() if path.endswith(end)), None)
        stream: Any = file if kind is None else pa.CompressedInputStream(pa.PythonFile(file, "r"), kind)
        return stream  # type: ignore[no-any-return]


def text_notes(files: Sequence[tuple[str, int, bool]]) -> tuple[str, ...]:
    """What all ranks read together, in words: of (path, bytes, whether it may be cut)."""
    whole = sum(not cut for _, _, cut in files)
    text = f"{format_count(len(files))} file{'s' * (len(files) != 1)} of {format_bytes(sum(n for _, n, _ in files))}"
    return (f"{text}, {format_count(whole)} of them whole to one rank each" if whole else f"{text}, cut at line ends",)


def text_size(path: str, storage: Storage) -> int:
    """Bytes of a file as it lies in its storage."""
    with reading(path):
        return storage.size(path)


def first_records(path: str, storage: Storage, skip: int, delimiter: bytes | None) -> bytes:
    """The whole records in the first megabytes of a file, at least one; the same on every rank that reads it.

    Parameters
    ----------
    path : str
    storage : Storage
    skip : int
        Bytes at the start that belong to no record.
    delimiter : bytes, optional
        As for `blocks`.
    """
    with reading(path), open_text(path, storage) as file:
        file.read(skip)
        data = b""
        while part := _read(file, max(FIRST_BLOCK_BYTES - len(data), len(data))):
            data += part
            if len(data) >= FIRST_BLOCK_BYTES and (end := whole_records(data, FIRST_BLOCK_BYTES, delimiter)):
                return data[:end]
            _require_shorter(Place(path, storage, skip), data, delimiter)
    return data


def first_record(path: str, storage: Storage, delimiter: bytes | None) -> tuple[int, bytes]:
    """The first record of a file that is no blank line, its end included, and where it begins.

    Parameters
    ----------
    path : str
    storage : Storage
    delimiter : bytes, optional
        As for `blocks`.
    """
    with reading(path), open_text(path, storage) as file:
        data, step = b"", _STEP
        while True:
            part = _read(file, step)
            data += part
            start = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
            filled = len(data) - len(data[start:].lstrip())
            start = max(start, 1 + data.rfind(b"\n", start, filled))
            if filled < len(data) and len(ends := record_ends(data[start:], delimiter)[0]):
                return start, data[start : start + int(ends[0])]
            if len(part) < step:
                return start, data[start:]
            _require_shorter(Place(path, storage), data, delimiter, _LONGEST_HEADER_BYTES)
            step *= 4


def text_start(path: str, storage: Storage) -> int:
    """Where the text of a file begins: behind the mark that some programs put in front."""
    with reading(path), open_text(path, storage) as file:
        return len(_BYTE_ORDER_MARK) if _read(file, len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK else 0


def _read(file: BinaryIO, count: int) -> bytes:
    """So many bytes, less only at the end: streams may give them in parts."""
    parts = []
    while count > 0 and (part := file.read(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def blocks(
    piece: BytePiece, storage: Storage, skip: int, block_bytes: int, delimiter: bytes | None
) -> Iterator[tuple[Place, bytes]]:
    """The records of a piece, in blocks of at most ``block_bytes`` each.

    Parameters
    ----------
    piece : BytePiece
    storage : Storage
    skip : int
        Bytes at the start of the file that belong to no record.
    block_bytes : int
        A block is longer where one record is.
    delimiter : bytes, optional
        Of csv with quotes, where line ends inside double quotes belong to a value; without it all line ends end a
        record.

    Raises
    ------
    ReadError
        If the file cannot be read, or a quoted value does not end.
    """
    with reading(piece.path), open_text(piece.path, storage) as file:
        if piece.whole:
            _read(file, skip)
            yield from cut(Place(piece.path, storage, skip), file, None, block_bytes, delimiter)
            return
        _require_whole(file, piece)
        start = record_start(file, max(piece.start, skip), skip, delimiter)
        stop = record_start(file, max(piece.stop, skip), skip, delimiter)
        file.seek(start)
        yield from cut(Place(piece.path, storage, start), file, stop - start, block_bytes, delimiter)


def _require_whole(file: BinaryIO, piece: BytePiece) -> None:
    file.seek(0, 2)
    if file.tell() < piece.stop:
        raise _shortened(piece.path, file.tell(), piece.stop)


def _shortened(path: str, size: int, before: int) -> ReadError:
    """The error for a file that has become shorter since it was shared out: its last rows would be missing."""
    return ReadError(
        f"{path} ends after {format_count(size)} bytes, and had at least {format_count(before)} when it was shared "
        "out: it was written to in between",
        advice="Read it while nobody writes to it.",
        path=path,
    )


def cut(
    place: Place, file: BinaryIO, left: int | None, block_bytes: int, delimiter: bytes | None
) -> Iterator[tuple[Place, bytes]]:
    """The records from where a file stands, in so many bytes or up to its end; see `blocks`."""
    rest = b""
    at, wanted = place.offset, block_bytes
    while True:
        count = wanted - len(rest)
        part = _read(file, count if left is None else min(count, left))
        if not part:
            if left:
                raise _shortened(place.path, at + len(rest), at + len(rest) + left)
            break
        left = None if left is None else left - len(part)
        rest += part
        while len(rest) >= wanted and (end := whole_records(rest, block_bytes, delimiter)):
            yield replace(place, offset=at), rest[:end]
            at, rest, wanted = at + end, rest[end:], block_bytes
        if len(rest) >= wanted:  # one record is longer: a few looks at it are enough
            wanted = 2 * len(rest)
            _require_shorter(replace(place, offset=at), rest, delimiter)
    if rest:
        last = replace(place, offset=at)
        require_closed(last, rest, delimiter, cut=left == 0 and bool(file.read(1)))
        yield last, rest


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same, each made by a thread while the one before it is used."""
    none = object()
    with ThreadPoolExecutor(1, "reading ahead") as pool:
        coming = pool.submit(next, items, none)
        while (item := coming.result()) is not none:
            coming = pool.submit(next, items, none)
            yield item  # type: ignore[misc]
            del item


def require_closed(place: Place, data: bytes, delimiter: bytes | None, *, cut: bool = False) -> None:
    """Refuse a quoted value that does not end where the file does, or a rank's share of it.

    Raises
    ------
    ReadError
        With the line on which it begins, and what to change.
    """
    opened = -1 if delimiter is None else opening_quote(data, len(data), delimiter)
    if opened < 0:
        return
    line = place.line_at(data, opened)
    where = f"at byte {place.offset + opened}" if line is None else f"at line {line}"
    if not cut:
        raise ReadError(
            f"{place.path}: the double quote that opens a value {where} is not closed",
            advice="Close it; or if double quotes are plain characters, pass quotes=False.",
            path=place.path,
        )
    raise ReadError(
        f"{place.path}: the quoted value that begins {where} is longer than {format_bytes(LOOK_BACK_BYTES)}, and holds "
        "line ends where the file is split over the ranks",
        advice="Pass newlines_in_values=True: one rank then reads it whole.",
        path=place.path,
    )


def _require_shorter(place: Place, data: bytes, delimiter: bytes | None, limit: int = _LONGEST_RECORD_BYTES) -> None:
    """Refuse a record that does not end within a limit."""
    budget = place.storage.limit_bytes
    if budget is not None:
        limit = min(limit, max(FIRST_BLOCK_BYTES, budget // _LONGEST_IN_LIMIT))
    quotes = 0 if delimiter is None else data.count(b'"')
    if quotes * _BYTES_A_QUOTE > limit:
        raise ReadError(
            f"{place.path} has a line with {format_count(quotes)} double quotes in its first "
            f"{format_bytes(len(data))}; in one line {format_count(limit // _BYTES_A_QUOTE)} are read at the most",
            advice="If double quotes are plain characters, pass quotes=False; if not, raise gpu_memory_limit.",
            path=place.path,
        )
    if len(data) > limit:
        require_closed(place, data.rstrip(b'"'), delimiter)
        raise ReadError(
            f"{place.path} has a line of more than {format_bytes(limit)}, which is the most that is read"
            + ("" if budget is None else f" of one line in a budget of {format_bytes(budget)}"),
            advice="Has it line ends? If so, raise gpu_memory_limit, of which a line may take a quarter.",
            path=place.path,
        )


_READERS = 4
_SEGMENT_BYTES = 4 << 20  # of a read: several fill a block


def plain_blocks(
    piece: BytePiece, storage: Storage, skip: int, block_bytes: int, delimiter: bytes | None
) -> Iterator[tuple[Place, Block]]:
    """As `blocks`; a block is there until the next one but one is asked for.

    The next one is read while one is used.
    """
    if piece.whole or is_url(piece.path) or piece.path.endswith(COMPRESSED):
        yield from one_ahead(blocks(piece, storage, skip, block_bytes, delimiter))
        return
    with reading(piece.path), open_text(piece.path, storage) as file:
        _require_whole(file, piece)
        start = record_start(file, max(piece.start, skip), skip, delimiter)
        stop = record_start(file, max(piece.stop, skip), skip, delimiter)
        with ThreadPoolExecutor(_READERS, "reading") as readers, ThreadPoolExecutor(1, "reading ahead") as ahead:
            rooms = [bytearray(2 * block_bytes) for _ in range(2)]  # with what is left of the block before
            filled = _fill(readers, file.fileno(), rooms[0], b"", start, min(stop, start + block_bytes))
            while filled:
                room, last = rooms[0], start + filled == stop
                end = filled if last else room.rfind(b"\n", 0, filled) + 1
                while end and delimiter is not None and (opened := opening_quote(room, end, delimiter)) >= 0:
                    end = 0 if last else room.rfind(b"\n", 0, opened) + 1
                if filled - end > block_bytes or not end:
                    break
                rest, after = bytes(room[end:filled]), start + filled
                rooms.reverse()
                upto = min(stop, after + block_bytes)
                coming = ahead.submit(_fill, readers, file.fileno(), rooms[0], rest, after, upto)
                yield Place(piece.path, storage, start), memoryview(room)[:end]
                start, filled = start + end, coming.result()
        if start < stop:
            file.seek(start)
            yield from cut(Place(piece.path, storage, start), file, stop - start, block_bytes, delimiter)


def _fill(readers: Executor, descriptor: int, room: bytearray, rest: bytes, start: int, stop: int) -> int:
    """Put what is left, and bytes [start, stop) of a file, into a room; how many bytes are there then: fewer where the
    file ends before."""
    room[: len(rest)] = rest
    with memoryview(room) as whole:

        def read(first: int) -> int:
            at, end = first, min(stop, first + _SEGMENT_BYTES)
            while at < end:
                place = len(rest) + at - start
                count = os.preadv(descriptor, [whole[place : place + end - at]], at)
                if not count:
                    break
                at += count
            return at - first

        done = 0
        for first, count in zip(
            range(start, stop, _SEGMENT_BYTES), readers.map(read, range(start, stop, _SEGMENT_BYTES)), strict=True
        ):
            if first == start + done:
                done += count
    return len(rest) + done
