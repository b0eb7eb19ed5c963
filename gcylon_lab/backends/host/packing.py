"""Columns as bytes: views of fixed columns, one message for the variable ones, and results received in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...units import KIB
from ..protocol.data import (
    Columns,
    Dealt,
    Segments,
    new_planes,
    over_planes,
    planes_of,
    planes_together,
    variable_schema,
    view_of_planes,
    views_of_planes,
)
from ..protocol.schema import Schema

Buffer = memoryview | list[memoryview]  # a list is one buffer in pieces that follow each other

_ALIGNMENT = 8
# Of a message that is larger, what is written leaves from where it is: a copy would be memory that nobody has claimed,
# and takes longer than the calls that it saves.
_COPIED_BYTES = 256 * KIB


def byte_view(array: np.ndarray[Any, Any], start: int, stop: int) -> memoryview:
    """The bytes of items [start, stop), without a copy; writable where the array is."""
    return array[start:stop].view(np.uint8).data  # by way of uint8, as datetimes have no buffer of their own


def fixed_views(data: Columns | Dealt, start: int, stop: int) -> list[memoryview]:
    """Read-only byte views of rows [start, stop) of the fixed columns, in schema order; one a block where rows are
    dealt to ranks."""
    if isinstance(data, Dealt):
        return [view_of_planes(planes).toreadonly() for planes in data.planes_for(start, stop)]
    return [view[start * width : stop * width] for view, width in data.byte_views]


def bands(segments: Segments) -> Iterator[memoryview]:
    """The bytes of planes, one after the other: of short ones many at a time, which are copied."""
    for segment in segments:
        step = len(segment) if segment.flags.c_contiguous else planes_together(segment)
        for first in range(0, len(segment), step):
            yield view_of_planes(np.ascontiguousarray(segment[first : first + step]))


def read_planes(read: Callable[[int, list[memoryview]], None], begin: int, planes: np.ndarray[Any, Any]) -> None:
    """Fill planes, which may have gaps, from a byte on of where they stand one after the other: short ones many at a
    time, by way of a copy. ``read`` fills buffers with the bytes from one on."""
    rows = planes.shape[1]
    step = len(planes) if planes.flags.c_contiguous else planes_together(planes)
    for first in range(0, len(planes), step):
        some = planes[first : first + step]
        into = some if some.flags.c_contiguous else np.empty(some.shape, some.dtype)
        read(begin + first * rows * planes.itemsize, [view_of_planes(into)])
        if into is not some:
            some[:] = into


def pack_variable(data: Columns | Dealt, start: int, stop: int) -> memoryview:
    """Rows [start, stop) of the variable columns as one message: an Arrow record batch without its schema."""
    batch = _variable_batch(data, start, stop)
    return memoryview(b"") if batch is None else memoryview(batch.serialize()).cast("B")


def packed_bytes(data: Columns | Dealt, start: int, stop: int) -> int:
    """Bytes of that message, which is not made."""
    batch = _variable_batch(data, start, stop)
    return 0 if batch is None else int(pa.ipc.get_record_batch_size(batch))


def message_pieces(data: Columns, start: int, stop: int) -> list[memoryview]:
    """That message in pieces which follow each other; of a large one they are the columns' own memory."""
    if data.nbytes <= _COPIED_BYTES:  # asking how large a message will be takes a third of making a small one
        return [pack_variable(data, start, stop)] if stop > start else []
    batch = _variable_batch(data, start, stop)
    if batch is None:
        return []
    nbytes = int(pa.ipc.get_record_batch_size(batch))
    if nbytes <= _COPIED_BYTES:
        return [memoryview(batch.serialize()).cast("B")]
    sink = _Pieces()
    pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), batch.schema).write_batch(batch)
    return sink.last(nbytes)


def _variable_batch(data: Columns | Dealt, start: int, stop: int) -> Any:
    """Those rows as a record batch; None where there are none, or no such columns."""
    if isinstance(data, Dealt):
        data = data.variable
    if stop <= start or not data.schema.variable:
        return None
    return data.variable_batch(start, stop)


class _Pieces:
    """A file, for Arrow, that keeps what is written, as it is."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[memoryview] = []
        self._nbytes = 0

    def write(self, piece: Any) -> int:
        view = memoryview(piece).cast("B")
        self._pieces.append(view)
        self._nbytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._nbytes

    def flush(self) -> None:
        """Nothing is written later."""

    def close(self) -> None:
        """Nothing is open."""

    def last(self, nbytes: int) -> list[memoryview]:
        """What was written last, so many bytes of it: what comes before is the schema."""
        kept: list[memoryview] = []
        before = self._nbytes - nbytes
        for piece in self._pieces:
            if before < piece.nbytes:
                kept.append(piece[before:])
            before = max(0, before - piece.nbytes)
        return kept


def new_message(nbytes: int) -> memoryview:
    """Make room for a packed message, aligned for Arrow."""
    return np.empty(-(-nbytes // _ALIGNMENT), dtype=np.int64).data.cast("B")[:nbytes]


def unpack_variable(schema: Schema, message: memoryview) -> list[Any]:
    """The arrays of the variable columns in a message; they keep its memory, copied only where it is not aligned."""
    buffer = pa.py_buffer(message)
    if buffer.address % _ALIGNMENT:
        buffer = pa.py_buffer(np.frombuffer(message, np.uint8).copy())
    return list(pa.ipc.read_record_batch(buffer, variable_schema(schema.variable)).columns)


def pack(data: Columns) -> list[Buffer]:
    """All rows as buffers: a view of each fixed column, or of each block of them, then the message where there are
    variable columns, in pieces."""
    if data.schema.blocks:
        views: list[Buffer] = [view_of_planes(planes) for planes in planes_of(data)]
    else:
        views = [*fixed_views(data, 0, data.rows)]
    return [*views, message_pieces(data, 0, data.rows)] if data.schema.variable else views


def pack_whole(data: Columns) -> list[memoryview]:
    """As `pack`, but every buffer in one piece."""
    buffers = pack(data)
    return [_joined(one) if isinstance(one, list) else one for one in buffers]


def _joined(pieces: list[memoryview]) -> memoryview:
    return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))


def unpack(schema: Schema, rows: int, buffers: Sequence[memoryview]) -> Columns:
    """The columns that `pack` laid out, over the buffers given."""
    left, columns = iter(buffers), schema.variable
    if schema.blocks and len(buffers) < len(schema.fixed):
        planes = [_over(next(left), block.items) for block in schema.blocks]
        return over_planes(schema, rows, planes, unpack_messages(schema, rows, left))
    fixed = {column.name: _over(next(left), column.dtype) for column in schema.columns if column.dtype is not None}
    variable = dict(zip([column.name for column in columns], unpack_messages(schema, rows, left), strict=True))
    return Columns(schema, rows, tuple((fixed if c.fixed else variable)[c.name] for c in schema.columns))


def unpack_messages(schema: Schema, rows: int, left: Iterator[memoryview]) -> list[Any]:
    """The variable columns, of the message that is left, if there are rows."""
    columns = schema.variable
    chunks = unpack_variable(schema, next(left)) if columns and rows else [None] * len(columns)
    return [
        pa.chunked_array([] if chunk is None else [chunk], type=column.arrow)
        for column, chunk in zip(columns, chunks, strict=True)
    ]


def _over(buffer: memoryview, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return np.frombuffer(buffer, dtype) if len(buffer) else np.empty(0, dtype)


def in_row_order(messages: Mapping[int, tuple[int, Any]], rows: int) -> list[Any]:
    """Packed messages in the order of their rows.

    Parameters
    ----------
    messages : mapping of int to (int, message)
        By first row: how many rows, and the message.
    rows : int
        Of the whole result.

    Raises
    ------
    RuntimeError
        If they leave a gap or overlap.
    """
    ordered, at = [], 0
    for row in sorted(messages):
        count, message = messages[row]
        if row != at:
            raise RuntimeError(f"messages of variable columns end at row {at}, the next begins at row {row}")
        ordered.append(message)
        at += count
    if at != rows:
        raise RuntimeError(f"messages of variable columns end at row {at} of {rows}")
    return ordered


class PlacedOutput:
    """A result that is received straight into its final place.

    Parameters
    ----------
    schema : Schema
    rows : int
        Rows of the whole result.
    """

    def __init__(self, schema: Schema, rows: int) -> None:
        self._schema = schema
        self._rows = rows
        self._planes = new_planes(schema, rows)
        self._fixed = [] if self._planes else [np.empty(rows, column.dtype) for column in schema.fixed]
        if self._planes:
            self._views = views_of_planes(schema, rows, self._planes)
        else:
            self._views = [(byte_view(array, 0, rows), array.itemsize) for array in self._fixed]
        self._messages: dict[int, tuple[int, memoryview]] = {}

    def fixed_views(self, start: int, stop: int) -> list[memoryview]:
        """Writable byte views of rows [start, stop) of the fixed columns, in schema order."""
        return [view[start * width : stop * width] for view, width in self._views]

    def put_variable(self, row: int, rows: int, message: memoryview) -> None:
        """Keep a packed message of ``rows`` rows which begins at ``row`` of the result. Not copied."""
        if rows:
            self._messages[row] = (rows, message)

    def finish(self) -> Columns:
        """The result, once every row has been placed.

        Raises
        ------
        RuntimeError
            If the messages of the variable columns leave a gap or overlap.
        """
        variable = iter(self._variable()) if self._schema.variable else iter(())
        if self._planes:
            return over_planes(self._schema, self._rows, self._planes, tuple(variable))
        fixed = iter(self._fixed)
        arrays = tuple(next(fixed) if column.fixed else next(variable) for column in self._schema.columns)
        return Columns(self._schema, self._rows, arrays)

    def _variable(self) -> list[Any]:
        messages = in_row_order(self._messages, self._rows)
        chunks = [unpack_variable(self._schema, message) for message in messages]
        return [
            pa.chunked_array([chunk[place] for chunk in chunks], type=column.arrow)
            for place, column in enumerate(self._schema.variable)
        ]
