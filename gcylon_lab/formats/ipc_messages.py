"""Messages of Arrow IPC files and streams: what their headers say, which Arrow's Python side does not tell."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MAGIC = b"ARROW1"
_NUMBERS = {kind: struct.Struct(kind) for kind in ("<I", "<i", "<H", "<h", "<q", "<B", "<b")}
_dtype: Callable[[str], np.dtype[Any]] = cache(np.dtype)


def reader_of(file: Any) -> Callable[[int, int], bytes]:
    """What gives bytes of a file by where they begin and how many they are."""

    def read(at: int, count: int) -> bytes:
        file.seek(at)
        return bytes(file.read(count))

    return read


class Message(NamedTuple):
    """The header of a dictionary or of rows, and where its buffers are."""

    header: Metadata
    body: int
    stop: int


class Metadata:
    """A table of the flatbuffers in which Arrow describes what follows."""

    def __init__(self, data: bytes, at: int | None = None) -> None:
        self._data = data
        self._at = self._value("<I", 0) if at is None else at
        self._slots = self._at - self._value("<i", self._at)

    def _value(self, kind: str, at: int) -> int:
        try:
            if at >= 0:
                value: int = _NUMBERS[kind].unpack_from(self._data, at)[0]
                return value
        except struct.error:
            pass
        raise pa.ArrowInvalid("its metadata are damaged")

    def _place(self, slot: int) -> int:
        """Where a value is; 0 where it is not given."""
        at = 4 + 2 * slot
        offset = self._value("<H", self._slots + at) if at < self._value("<H", self._slots) else 0
        return self._at + offset if offset else 0

    def number(self, slot: int, kind: str) -> int:
        """A number; 0 where it is not given."""
        at = self._place(slot)
        return self._value(kind, at) if at else 0

    def table(self, slot: int) -> Metadata | None:
        """A table in it."""
        at = self._place(slot)
        return Metadata(self._data, at + self._value("<I", at)) if at else None

    def structs(self, slot: int, kind: str) -> npt.NDArray[Any]:
        """A list of numbers, or of some side by side."""
        at, dtype = self._place(slot), _dtype(kind)
        if not at:
            return np.empty(0, dtype)
        start = at + self._value("<I", at)
        count = self._value("<I", start)
        if start + 4 + count * dtype.itemsize > len(self._data):
            raise pa.ArrowInvalid("its metadata are damaged")
        return np.frombuffer(self._data, dtype, count, start + 4)


def is_native(read: Callable[[int, int], bytes], size: int) -> bool:
    """Whether the numbers of a file or a stream are those of this machine."""
    if read(0, len(MAGIC)) == MAGIC:
        schema = _footer(read, size).table(1)
    else:
        first = message_at(read, size, 0)
        schema = first.header.table(2) if first else None
    return schema is not None and bool(schema.number(0, "<h")) == (sys.byteorder == "big")


def _footer(read: Callable[[int, int], bytes], size: int) -> Metadata:
    length = int.from_bytes(read(size - 10, 4), "little", signed=True)
    if not 0 < length <= size - 10:
        raise pa.ArrowInvalid("its metadata are damaged")
    return Metadata(read(size - 10 - length, length))


def messages(read: Callable[[int, int], bytes], size: int) -> Iterator[Message]:
    """Those of a file, where its footer says that they are, or of a stream, one after the other."""
    if read(0, len(MAGIC)) != MAGIC:
        at = 0
        while (message := message_at(read, size, at)) is not None:
            at = message.stop
            if message.header.number(1, "<B") in (2, 3):
                yield message
        return
    footer = _footer(read, size)
    for slot in (2, 3):
        for at in footer.structs(slot, "<i8, <i8, <i8")["f0"].tolist():
            message = message_at(read, size, at) if 0 <= at < size else None
            if message is None or message.header.number(1, "<B") != slot:
                raise pa.ArrowInvalid("its metadata are damaged")
            yield message


def message_at(read: Callable[[int, int], bytes], size: int, at: int) -> Message | None:
    """The message that begins at a byte; None where the stream ends."""
    begin = read(at, 8)
    if begin[:4] == b"\xff" * 4:
        begin, at = begin[4:], at + 4
    if len(begin) < 4:
        return None
    length = int.from_bytes(begin[:4], "little", signed=True)
    if length == 0:
        return None
    body = at + 4 + length
    if length < 0 or body > size:
        raise pa.ArrowInvalid("its metadata are damaged")
    header = Metadata(read(at + 4, length))
    nbytes = header.number(3, "<q")
    if not 0 <= nbytes <= size - body:
        raise pa.ArrowInvalid(f"a record batch says that it has {nbytes} bytes, and {size - body} follow in the file")
    return Message(header, body, body + nbytes)
