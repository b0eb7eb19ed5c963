"""What a parquet file's footer says of row groups and their columns, read here from its bytes.

pyarrow's objects for a column of a row group end the process where a footer contradicts itself: their C++ throws, and
their Python does not expect it. So these are never made; pyarrow gives the schema alone. The bytes are Thrift's compact
form: numbers in 7 bits a byte; a field begins with its kind, and by how much its number is more than that before.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from functools import cache, cached_property
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import raised_as
from ...units import format_bytes
from ..filesystems import Storage, is_url

_BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 3, 7, 8, 9, 10, 12
_DICTIONARY = 2  # of pages
_TAIL_BYTES = 1 << 16
_MAGIC = b"PAR1"
_KEPT_BYTES = 1 << 24  # of footers that are kept for the next time, as read; parsed they are some times that
_MOST_KEPT = 1 << 16  # columns of row groups of one footer whose numbers are kept
_HEADER_BYTES = (128, 1 << 16, 1 << 24)  # of a page: most; with long texts in statistics; the most that Arrow takes

_footers: dict[tuple[Any, ...], Footer] = {}
_lock = threading.Lock()

_NUMBER = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
_PAGE = re.compile(rb"\x15(%b)" * 3 % (_NUMBER, _NUMBER, _NUMBER))  # how its header begins: fields 1 to 3


@cache
def _fields_in_a_row() -> re.Pattern[bytes]:
    """Fields of few bytes, with structs of such and short lists of them: to go past these takes most of the time."""

    def begin(*kinds: int) -> bytes:
        return b"[" + b"".join(b"\\x%02x" % (delta << 4 | kind) for kind in kinds for delta in range(1, 16)) + b"]"

    def items(kind: int, item: bytes, most: int) -> Iterator[bytes]:
        return (b"\\x%02x(?:%b){%d}" % (n << 4 | kind, item, n) for n in range(most + 1))

    number = _NUMBER
    text = b"(?:" + b"|".join(b"\\x%02x.{%d}" % (n, n) for n in range(33)) + b")"
    numbers = b"|".join(one for kind in (4, 5, 6) for one in items(kind, number, 8))
    flat = [begin(1, 2), begin(4, 5, 6) + number, begin(_BYTE) + b".", begin(_DOUBLE) + b".{8}", begin(_BINARY) + text]
    flat += [begin(_LIST) + b"(?:" + b"|".join([numbers, *items(_BINARY, text, 2)]) + b")"]
    # Atomic groups: "(...)*+", which says the same, matches too little before Python 3.11.5.
    inner = b"(?>(?:" + b"|".join(flat) + rb")*)\x00"
    flat += [begin(_STRUCT) + inner, begin(_LIST) + b"(?:" + b"|".join(items(_STRUCT, inner, 3)) + b")"]
    return re.compile(b"(?>(?:" + b"|".join(flat) + b")*)", re.DOTALL)


class _Fields(NamedTuple):
    """Those of a struct, by number: what they are, or where in the bytes."""

    numbers: dict[int, int]
    texts: dict[int, bytes]
    lists: dict[int, int]
    structs: dict[int, int]


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number without sign, and where it ends."""
    value, at = data[at], at + 1
    if value < 0x80:
        return value, at
    value, shift = value & 0x7F, 7
    while (byte := data[at]) > 0x7F:
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
    return value | byte << shift, at + 1


def _fields(data: bytes, at: int, most: int, last: int = 0) -> _Fields:
    """The fields of a struct after a number, up to another: they stand in their order."""
    found = _Fields({}, {}, {}, {})
    while head := data[at]:
        at += 1
        kind = head & 15
        if head > 15:
            last += head >> 4
        else:
            value, at = _number(data, at)
            last = (value >> 1) ^ -(value & 1)
        if last > most:
            break
        if 4 <= kind <= 6:
            value, at = _number(data, at)
            found.numbers[last] = (value >> 1) ^ -(value & 1)
        elif kind == _BINARY:
            size, at = _number(data, at)
            found.texts[last] = data[at : at + size]
            at += size
        else:
            if kind in (_LIST, _STRUCT):
                (found.lists if kind == _LIST else found.structs)[last] = at
            if last == most:
                break
            at = _end(data, at, kind)
    return found


def _end(data: bytes, at: int, kind: int) -> int:
    """Where a field's value ends."""
    if kind == _STRUCT:
        while True:
            at = _fields_in_a_row().match(data, at).end()  # type: ignore[union-attr]  # it matches nothing, too
            head = data[at]
            at += 1
            if not head:
                return at
            if head < 16:
                _, at = _number(data, at)
            at = _end(data, at, head & 15)
    if kind in (_LIST, _SET):
        count, kind, at = _items(data, at)
        if kind < _BYTE:
            return at + count
        for _ in range(count):
            at = _end(data, at, kind)
        return at
    if kind < _BYTE:
        return at
    if kind == _BINARY:
        size, at = _number(data, at)
        return at + size
    if kind > _SET:
        raise pa.ArrowInvalid("its footer is damaged")
    return at + (1 if kind == _BYTE else 8) if kind in (_BYTE, _DOUBLE) else _number(data, at)[1]


def _items(data: bytes, at: int) -> tuple[int, int, int]:
    """How many items a list has, their kind, and where they begin."""
    head = data[at]
    count, at = (head >> 4, at + 1) if head < 0xF0 else _number(data, at + 1)
    return count, head & 15, at


class Statistics(NamedTuple):
    """Of a column of a row group; the least and the largest value as bytes, where both are known."""

    nulls: int | None
    bounds: tuple[bytes, bytes] | None


class Chunk(NamedTuple):
    """A column of a row group."""

    values: int
    nbytes: int  # unpacked
    packed: int
    begin: int  # of its pages in the file


class RowGroup:
    """A row group."""

    def __init__(self, footer: Footer, rows: int, nbytes: int, chunks: list[int]) -> None:
        self._footer = footer
        self._chunks = chunks
        self.rows = rows
        self.nbytes = nbytes

    def chunk(self, leaf: int) -> Chunk:
        """One of its columns, by place."""
        return self._footer.chunk(self._chunks[leaf], leaf)

    def statistics(self, leaf: int) -> Statistics | None:
        """Those of one of its columns; None where there are none."""
        return self._footer.statistics(self._chunks[leaf], leaf)


class Footer:
    """What a file says of itself.

    Parameters
    ----------
    path : str
    storage : Storage

    Attributes
    ----------
    metadata : pyarrow.parquet.FileMetaData
        For its schema.
    rows : int
    groups : list of RowGroup
    leaves : list of pyarrow.parquet.ColumnSchema
        Its columns; those of nested types have several.

    Raises
    ------
    OSError, pa.ArrowException
        If it cannot be read.
    """

    def __init__(self, path: str, storage: Storage) -> None:
        self._data = _bytes(path, storage)
        self._chunks: dict[int, Chunk] = {}
        self._statistics: dict[int, Statistics | None] = {}
        self._pages: dict[int, tuple[tuple[int, int], int]] = {}  # and the limit under which they were looked at
        tail = len(self._data).to_bytes(4, "little") + _MAGIC
        self.metadata: Any = pq.read_metadata(pa.BufferReader(self._data + tail))
        self.rows: int = self.metadata.num_rows
        schema = self.metadata.schema
        self.leaves: list[Any] = [schema.column(place) for place in range(len(schema))]
        try:
            self.groups, self._defined = self._read()
        except (IndexError, KeyError):
            raise pa.ArrowInvalid("its footer is damaged") from None

    def _read(self) -> tuple[list[RowGroup], bool]:
        """The row groups, and whether the order of all columns' values is that of their types."""
        data = self._data
        groups: list[RowGroup] = []
        count, _, at = _items(data, _fields(data, 0, 4).lists[4])
        for _ in range(count):
            columns, _, at = _items(data, _fields(data, at, 1).lists[1])
            chunks = []
            for _ in range(columns):
                chunks.append(at)
                at = _end(data, at, _STRUCT)
            if columns != len(self.leaves):
                raise pa.ArrowInvalid(
                    f"row group {len(groups)} has {columns} columns, and the schema has {len(self.leaves)}"
                )
            numbers = _fields(data, at, 3, 1).numbers
            groups.append(RowGroup(self, numbers[3], numbers[2], chunks))
            at = _end(data, at, _STRUCT)
        orders = _fields(data, at, 7, 4).lists.get(7)
        count, _, at = (0, 0, 0) if orders is None else _items(data, orders)
        defined = 0
        for _ in range(count):
            defined += 1 in _fields(data, at, 1).structs
            at = _end(data, at, _STRUCT)
        return groups, defined == len(self.leaves)

    @cached_property
    def leaf_of(self) -> dict[str, int]:
        """Places of columns by path."""
        return {leaf.path: place for place, leaf in enumerate(self.leaves)}

    @property
    def nbytes(self) -> int:
        """Of the bytes that it was read from."""
        return len(self._data)

    def leaves_of(self, columns: Any) -> list[int]:
        """Places of what columns consist of."""
        return [place for place, leaf in enumerate(self.leaves) if leaf.path.split(".")[0] in columns]

    def chunk(self, at: int, leaf: int) -> Chunk:
        """The column of a row group at a place in the bytes."""
        known = self._chunks.get(at)
        if known is not None:
            return known
        with self._reading(leaf):
            numbers = _fields(self._data, _fields(self._data, at, 3).structs[3], 11).numbers
            begin, dictionary = numbers[9], numbers.get(11, 0)
            begin = dictionary if 0 < dictionary < begin else begin
            found = Chunk(numbers[5], numbers[6], numbers[7], begin)
        if len(self._chunks) < _MOST_KEPT:
            self._chunks[at] = found
        return found

    def pages(self, file: int, chunk: Chunk, limit_bytes: int) -> tuple[int, int]:
        """What `look_at_pages` tells of a column chunk, which is looked at once."""
        known = self._pages.get(chunk.begin)
        if known is not None and known[1] <= limit_bytes:
            return known[0]
        found = look_at_pages(file, chunk, limit_bytes)
        if len(self._pages) < _MOST_KEPT:
            self._pages[chunk.begin] = found, limit_bytes
        return found

    def statistics(self, at: int, leaf: int) -> Statistics | None:
        """Those of the column of a row group at a place in the bytes."""
        if at not in self._statistics:
            found = self._read_statistics(at, leaf)
            if len(self._statistics) >= _MOST_KEPT:
                return found
            self._statistics[at] = found
        return self._statistics[at]

    def _read_statistics(self, at: int, leaf: int) -> Statistics | None:
        with self._reading(leaf):
            place = _fields(self._data, _fields(self._data, at, 3).structs[3], 12).structs.get(12)
            if place is None:
                return None
            numbers, texts, _, _ = _fields(self._data, place, 6)
        column = self.leaves[leaf]
        high, low = (5, 6) if self._defined else (1, 2)
        # Fields 1 and 2 are older: values were compared as signed numbers, whatever they are.
        believed = self._defined or (column.physical_type in _SIGNED and not column.converted_type.startswith("UINT"))
        known = believed and low in texts and high in texts
        return Statistics(numbers.get(3), (texts[low], texts[high]) if known else None)

    def _reading(self, leaf: int) -> raised_as:
        def other(error: Exception) -> Exception | None:
            path = self.leaves[leaf].path
            damaged = f"what its footer says of {path!r} is damaged or encrypted"
            return pa.ArrowInvalid(damaged) if isinstance(error, (IndexError, KeyError)) else None

        return raised_as(other)


_SIGNED = ("INT32", "INT64", "FLOAT", "DOUBLE")
_NUMBERS = {"INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8}
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


def footer_of(path: str, storage: Storage) -> Footer:
    """A file's footer, which is read once as long as the file stays the same.

    Raises
    ------
    OSError, pa.ArrowException
        If it cannot be read.
    """
    if is_url(path):
        return Footer(path, storage)
    known = os.stat(path)
    key = path, known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns
    with _lock:
        found = _footers.pop(key, None)
    found = found or Footer(path, storage)
    with _lock:
        _footers[key] = found  # the last one used is the last to go
        while len(_footers) > 1 and sum(one.nbytes for one in _footers.values()) > _KEPT_BYTES:
            del _footers[next(iter(_footers))]
    return found


def value_of(raw: bytes, column: Any, type_: Any) -> Any:
    """A value of statistics.

    Parameters
    ----------
    raw : bytes
    column : pyarrow.parquet.ColumnSchema
    type_ : pyarrow.DataType
        Of the column as it is read.

    Returns
    -------
    int, float, bool, str, datetime.date, decimal.Decimal or pandas.Timestamp
        None for other types.

    Raises
    ------
    ValueError, OverflowError
        If it is none.
    """
    is_, physical = pa.types, column.physical_type
    if len(raw) != _NUMBERS.get(physical, len(raw)):
        raise ValueError(f"{len(raw)} bytes are no {physical}")
    whole = physical in ("INT32", "INT64")
    if physical in ("FLOAT", "DOUBLE") and is_.is_floating(type_):
        value: float = struct.unpack("<f" if physical == "FLOAT" else "<d", raw)[0]
        return None if value != value else value
    if physical == "BOOLEAN" and is_.is_boolean(type_):
        return raw != b"\0"
    if whole and is_.is_integer(type_):
        return int.from_bytes(raw, "little", signed=is_.is_signed_integer(type_))
    if whole and is_.is_date32(type_):
        return dt.date(1970, 1, 1) + dt.timedelta(days=int.from_bytes(raw, "little", signed=True))
    if whole and is_.is_timestamp(type_):
        unit = _UNITS[json.loads(column.logical_type.to_json())["timeUnit"]]
        return pd.Timestamp(int.from_bytes(raw, "little", signed=True), unit=unit)
    if is_.is_decimal(type_):
        unscaled = int.from_bytes(raw, "little" if whole else "big", signed=True)
        return Decimal(f"{unscaled}e{-column.scale}")
    if physical == "BYTE_ARRAY" and (is_.is_string(type_) or is_.is_large_string(type_)):
        return raw.decode()
    return None


def _bytes(path: str, storage: Storage) -> bytes:
    """Those of a file's footer."""
    size = storage.size(path)
    with storage.open(path) as file:
        at = max(0, size - _TAIL_BYTES)
        file.seek(at)
        tail = file.read(size - at)
        length = int.from_bytes(tail[-8:-4], "little")
        if tail[-4:] != _MAGIC or length > size - 8:
            raise pa.ArrowInvalid("it does not end as a parquet file does")
        if length > len(tail) - 8:
            file.seek(size - 8 - length)
            tail = file.read(length + 8)
        return bytes(tail[-8 - length : -8])


def look_at_pages(file: int, chunk: Chunk, limit_bytes: int) -> tuple[int, int]:
    """Look at the headers of a column chunk's pages, before Arrow takes memory for what they say.

    Parameters
    ----------
    file : int
        A file descriptor.
    chunk : Chunk
    limit_bytes : int
        What one page may take.

    Returns
    -------
    int, int
        Bytes of its dictionary, unpacked, and values in it; 0 where it has none.

    Raises
    ------
    pa.ArrowInvalid
        If sizes cannot be, or are too large.
    """
    at, dictionary = chunk.begin, (0, 0)
    stop = at + chunk.packed
    while at < stop:
        kind, unpacked, packed, values, length = _page(file, at)
        at += length + packed
        if packed < 0 or at > stop:
            raise pa.ArrowInvalid(f"a page says that it has {packed} bytes, and {stop - at + packed} follow")
        if unpacked > limit_bytes:
            raise pa.ArrowInvalid(
                f"a page says that it unpacks to {format_bytes(unpacked)}, and {format_bytes(limit_bytes)} are allowed"
            )
        if kind == _DICTIONARY:
            dictionary = unpacked, values
            if not 0 <= values <= unpacked:
                raise pa.ArrowInvalid(f"a dictionary says that it has {values} values, in {unpacked} bytes")
    return dictionary


def _page(file: int, at: int) -> tuple[int, int, int, int, int]:
    """A page's kind, bytes unpacked and packed, values of a dictionary, and the length of its header."""
    for most in _HEADER_BYTES:
        data = os.pread(file, most, at)
        begin = _PAGE.match(data)
        with suppress(IndexError):
            if begin is None:
                break
            kind, unpacked, packed = (value >> 1 ^ -(value & 1) for value, _ in (_number(n, 0) for n in begin.groups()))
            values = 0
            if kind == _DICTIONARY:
                header = _fields(data, begin.end(), 7, 3).structs.get(7)
                values = 0 if header is None else _fields(data, header, 1).numbers.get(1, 0)
            return kind, unpacked, packed, values, _end(data, begin.end(), _STRUCT)
    raise pa.ArrowInvalid("the header of a page is damaged")
