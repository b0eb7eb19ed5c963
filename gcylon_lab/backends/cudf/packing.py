"""Device columns as bytes: views of fixed columns, one message for the variable ones, and results received in place.

A message is one device buffer: two int64 numbers (bytes of the description, bytes of the packed data), the
description that libcudf gives on the host, and from the next multiple of 256 bytes on the packed data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
import pylibcudf as plc

from ..host.packing import in_row_order
from ..protocol.schema import Schema
from .columns.data import DeviceColumns, current_stream, empty_array, joined, slice_column
from .columns.transfer import uploaded
from .columns.types import item_dtype

_ALIGNMENT = 256
_FIRST_BYTES = 4096  # read from a message at once: most descriptions are in it


def byte_view(array: Any, start: int, stop: int) -> Any:
    """The bytes of items [start, stop), without a copy."""
    return array[start:stop].view(np.uint8)


def fixed_views(data: DeviceColumns, start: int, stop: int) -> list[Any]:
    """Byte views of rows [start, stop) of the fixed columns, in schema order."""
    return [byte_view(array, start, stop) for array in data.fixed]


def pack_variable(data: DeviceColumns, start: int, stop: int) -> Any:
    """Rows [start, stop) of the variable columns as one message; empty where there are none (columns or rows)."""
    if stop <= start or not data.schema.variable:
        return cupy.empty(0, np.uint8)
    pieces = _pieces(data, start, stop)
    message, begin = cupy.empty(sum(piece.nbytes for piece in pieces), np.uint8), 0
    for piece in pieces:
        message[begin : begin + piece.nbytes] = piece
        begin += piece.nbytes
    return message


def _pieces(data: DeviceColumns, start: int, stop: int) -> list[Any]:
    """Those rows as the pieces of a message: the description up to where the packed data begin, and these."""
    table = plc.Table([slice_column(column, start, stop) for column in data.variable])
    description, packed = plc.contiguous_split.pack(table, stream=current_stream()).release()
    head = np.zeros(_data_start(description.nbytes), np.uint8)
    told = np.array([description.nbytes, packed.size], np.int64).tobytes() + bytes(description)
    head[: len(told)] = np.frombuffer(told, np.uint8)
    return [uploaded(head), *([cupy.asarray(packed).view(np.uint8)] if packed.size else [])]


def _data_start(description_bytes: int) -> int:
    return -(-(16 + description_bytes) // _ALIGNMENT) * _ALIGNMENT


def unpack_variable(message: Any) -> list[Any]:
    """The variable columns in a message; they keep its memory, copied only where it is not aligned."""
    head = message[:_FIRST_BYTES].get()
    description_bytes, packed_bytes = head[:16].view(np.int64).tolist()
    if 16 + description_bytes > len(head):
        head = message[: 16 + description_bytes].get()
    begin = _data_start(description_bytes)
    packed = message[begin : begin + packed_bytes]
    if packed_bytes and packed.data.ptr % _ALIGNMENT:
        packed = packed.copy()
    description = memoryview(head[16 : 16 + description_bytes].tobytes())
    span = plc.gpumemoryview(packed)
    table = plc.contiguous_split.unpack_from_memoryviews(description, span, stream=current_stream())
    return list(table.columns())


def pack(data: DeviceColumns) -> list[Any]:
    """All rows as buffers: a view of each fixed column, then, if there are variable ones, their message in pieces."""
    views: list[Any] = fixed_views(data, 0, data.rows)
    return [*views, _pieces(data, 0, data.rows) if data.rows else []] if data.schema.variable else views


def unpack(schema: Schema, rows: int, buffers: Sequence[Any]) -> DeviceColumns:
    """The columns that `pack` laid out, over the buffers given; those on the host are copied to the device first."""
    given = [_device_bytes(buffer) for buffer in buffers]
    fixed = [_over(buffer, item_dtype(column)) for column, buffer in zip(schema.fixed, given, strict=False)]
    if not schema.variable:
        variable = []
    elif rows:
        variable = unpack_variable(given[len(fixed)])
    else:
        variable = [empty_array(column) for column in schema.variable]
    return joined(schema, rows, fixed, variable)


def _device_bytes(buffer: Any) -> Any:
    if hasattr(buffer, "__cuda_array_interface__"):
        return cupy.asarray(buffer).view(np.uint8)
    return uploaded(np.frombuffer(buffer, np.uint8)) if len(buffer) else cupy.empty(0, np.uint8)


def _over(buffer: Any, dtype: np.dtype[Any]) -> Any:
    if not buffer.size:
        return cupy.empty(0, dtype)
    return (buffer.copy() if buffer.data.ptr % dtype.itemsize else buffer).view(dtype)


class DeviceOutput:
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
        self._fixed = [cupy.empty(rows, item_dtype(column)) for column in schema.fixed]
        self._messages: dict[int, tuple[int, Any]] = {}

    def fixed_views(self, start: int, stop: int) -> list[Any]:
        """Writable byte views of rows [start, stop) of the fixed columns, in schema order."""
        return [byte_view(array, start, stop) for array in self._fixed]

    def put_variable(self, row: int, rows: int, message: Any) -> None:
        """Keep a packed message of ``rows`` rows which begins at ``row`` of the result. Not copied before `finish`."""
        if rows:
            self._messages[row] = (rows, message)

    def finish(self) -> DeviceColumns:
        """The result, once every row has been placed; several messages become one column each, in a copy.

        Raises
        ------
        RuntimeError
            If the messages of the variable columns leave a gap or overlap.
        """
        variable = self._variable() if self._schema.variable else []
        self._messages.clear()
        return joined(self._schema, self._rows, self._fixed, variable)

    def _variable(self) -> list[Any]:
        messages = in_row_order(self._messages, self._rows)
        pieces = [unpack_variable(_device_bytes(message)) for message in messages]
        if not pieces:
            return [empty_array(column) for column in self._schema.variable]
        if len(pieces) == 1:
            return pieces[0]
        columns = zip(*pieces, strict=True)
        return [plc.concatenate.concatenate(list(column), stream=current_stream()) for column in columns]
