"""Columns between the host and the device, dtype for dtype."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
import pyarrow as pa
import pylibcudf as plc

from ...protocol.data import Columns, one_array
from ...protocol.schema import Column
from .data import Array, DeviceColumns, current_stream, empty_array
from .types import arrow_metadata, from_device_form, item_dtype, require_device_form, to_device_form


def to_device(data: Columns) -> DeviceColumns:
    """Copy the CPU's columns to the device.

    Raises
    ------
    UnsupportedDtype
        If cuDF has no type for a column.
    """
    require_device_form(data.schema)
    arrays = tuple(device_array(column, array) for column, array in zip(data.schema, data.arrays, strict=True))
    cupy.cuda.get_current_stream().synchronize()  # the host's buffers may go away now
    return DeviceColumns(data.schema, data.rows, arrays)


def device_array(column: Column, array: Any) -> Array:
    """Start copying a column's host array to the device."""
    if not column.fixed:
        return _from_arrow(one_array(array))
    return uploaded(np.ascontiguousarray(array).view(item_dtype(column)))


def uploaded(array: np.ndarray[Any, Any]) -> Any:
    """A copy of a contiguous host array on the device."""
    result = cupy.empty(array.shape, array.dtype)
    if array.size:
        # In the order of the stream that the memory was taken on; cupy.asarray would first pin a buffer of that size.
        result.set(array, stream=cupy.cuda.get_current_stream())
    return result


class Arriving:
    """A few numbers on their way to the host, which can be waited for without what the stream does after them."""

    def __init__(self, numbers: Any) -> None:
        # Page-locked memory that a kernel writes into: a copy would queue behind those that stage.
        memory = cupy.cuda.alloc_pinned_memory(numbers.size * numbers.dtype.itemsize)
        self._numbers = np.frombuffer(memory, numbers.dtype, numbers.size).reshape(numbers.shape)
        mapped = cupy.cuda.UnownedMemory(memory.ptr, memory.size(), memory)
        target = cupy.ndarray(numbers.shape, numbers.dtype, cupy.cuda.MemoryPointer(mapped, 0))
        cupy.copyto(target, numbers)
        self._event = cupy.cuda.get_current_stream().record()

    def wait(self) -> np.ndarray[Any, Any]:
        """The numbers, in the shape that they had on the device."""
        self._event.synchronize()
        return self._numbers.copy()


def _from_arrow(array: Any) -> Any:
    return plc.Column.from_arrow(to_device_form(array), stream=current_stream())


def to_host(data: DeviceColumns) -> Columns:
    """Copy device columns to the CPU's columns, of the schema's exact types."""
    arrays = tuple(host_array(column, array) for column, array in zip(data.schema, data.arrays, strict=True))
    return Columns(data.schema, data.rows, arrays)


def host_array(column: Column, array: Array) -> Any:
    """Copy a column's device array to the host."""
    if column.dtype is not None:
        return array.get().view(column.dtype)
    if not array.size():
        return pa.chunked_array([], type=column.arrow)
    if column.kind == "null":
        return pa.chunked_array([pa.nulls(array.size())])
    return pa.chunked_array([from_device_form(plain_arrow(column, array), column.arrow)])


def plain_arrow(column: Column, array: Any) -> Any:
    """A variable column's rows as the Arrow array that libcudf makes of them."""
    if array.offset():
        array = array.copy(stream=current_stream())  # only the slice's own rows, children included
    return array.to_arrow(arrow_metadata(column.arrow), stream=current_stream())


def all_null(column: Column, rows: int) -> Any:
    """A variable column of nulls."""
    if pa.types.is_nested(column.arrow):  # libcudf takes the first row of the template's children, which has none
        made = _from_arrow(pa.nulls(rows, column.arrow))
        cupy.cuda.get_current_stream().synchronize()
        return made
    return plc.Column.all_null_like(empty_array(column), rows, stream=current_stream())
