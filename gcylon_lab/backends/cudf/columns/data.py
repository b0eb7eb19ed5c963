"""`DeviceColumns`: the rows of a table (or of a slice of one) in device memory, as arrays of one schema.

Everything runs on cupy's current stream, and all memory comes from RMM's current device resource.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cupy
import numpy as np
import pyarrow as pa
import pylibcudf as plc
from rmm.allocators.cupy import rmm_cupy_allocator
from rmm.pylibrmm.stream import Stream

from ...protocol.schema import Column, Label, Schema
from .types import device_type, fixed_type, item_dtype, require_device_form

Array = Any  # a contiguous cupy array for a fixed column, a pylibcudf Column for a variable one


def use_rmm_for_cupy() -> None:
    """Let cupy allocate from RMM's current device resource; whoever starts a rank calls it once."""
    cupy.cuda.set_allocator(rmm_cupy_allocator)


def current_stream() -> Any:
    """cupy's current stream, as pylibcudf takes it."""
    return Stream(cupy.cuda.get_current_stream())


@dataclass(frozen=True, slots=True, eq=False)
class DeviceColumns:
    """Columns of equal length in device memory. Never changed once made.

    Attributes
    ----------
    schema : Schema
        The same as on the host.
    rows : int
        Kept even where there is no column.
    arrays : tuple
        In schema order: for a fixed column a contiguous cupy array of shape (rows,), which holds int64 ticks where
        the column holds times; for a variable one a pylibcudf Column.
    external_bytes : int
        How many of its bytes are in memory that another library has handed over; of slices it is not told.
    """

    schema: Schema
    rows: int
    arrays: tuple[Array, ...]
    external_bytes: int = 0
    _nbytes: int = field(default=-1, init=False, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers; for a slice, of the slice."""
        if self._nbytes < 0:  # the ends of sliced strings and lists are read from the device
            total = self.rows * self.schema.row_bytes + sum(map(column_bytes, self.variable))
            object.__setattr__(self, "_nbytes", total)
        return self._nbytes

    @property
    def fixed(self) -> list[Any]:
        """The arrays of the fixed columns, in schema order."""
        return [array for column, array in zip(self.schema, self.arrays, strict=True) if column.fixed]

    @property
    def variable(self) -> list[Any]:
        """The pylibcudf columns of the variable columns, in schema order."""
        return [array for column, array in zip(self.schema, self.arrays, strict=True) if not column.fixed]

    def array(self, name: Label) -> Array:
        """The array of a column."""
        return self.arrays[self.schema.place(name)]


def joined(schema: Schema, rows: int, fixed: Sequence[Any], variable: Sequence[Any]) -> DeviceColumns:
    """Columns of arrays that are given by kind, each in schema order."""
    left, right = iter(fixed), iter(variable)
    return DeviceColumns(schema, rows, tuple(next(left) if column.fixed else next(right) for column in schema))


def as_column(column: Column, array: Any) -> Any:
    """The pylibcudf column over a fixed column's array, without a copy."""
    return plc.Column(fixed_type(column), array.size, plc.gpumemoryview(array), None, 0, 0, [])


def as_array(column: Any, dtype: Any, items: int = 1) -> Any:
    """The cupy array over the data of a pylibcudf column of fixed width, without a copy and without its nulls.

    Parameters
    ----------
    column : pylibcudf Column
    dtype : dtype
        As which to see it.
    items : int
        Items of that dtype in a row.
    """
    dtype = np.dtype(dtype)
    if not column.size():
        return cupy.empty(0, dtype)
    data = column.data()
    memory = cupy.cuda.UnownedMemory(data.ptr, data.size, column)
    start = cupy.cuda.MemoryPointer(memory, column.offset() * dtype.itemsize * items)
    return cupy.ndarray((column.size() * items,), dtype, start)


def converted(values: Any, dtype: Any) -> Any:
    """A cupy array of numbers in another type; itself where it has it.

    cupy compiles its kernels so that float32 values below 1.2e-38 are zeros; libcudf does not.
    """
    dtype = np.dtype(dtype)
    if {values.dtype, dtype} != {np.dtype(np.float32), np.dtype(np.float64)} or not values.size:
        return values.astype(dtype, copy=False)
    given, types = cupy.ascontiguousarray(values), (plc.TypeId.FLOAT32, plc.TypeId.FLOAT64)
    before, after = types if dtype == np.float64 else types[::-1]
    plain = plc.Column(plc.DataType(before), given.size, plc.gpumemoryview(given), None, 0, 0, [])
    return as_array(plc.unary.cast(plain, plc.DataType(after), stream=current_stream()), dtype)


def empty_columns(schema: Schema) -> DeviceColumns:
    """No rows of a schema.

    Raises
    ------
    UnsupportedDtype
        If cuDF has no type for a column.
    """
    require_device_form(schema)
    return DeviceColumns(schema, 0, tuple(map(empty_array, schema.columns)))


def empty_array(column: Column) -> Array:
    """The array of a column without rows."""
    if column.fixed:
        return cupy.empty(0, item_dtype(column))
    return plc.Column.from_arrow(pa.array([], device_type(column.arrow)), stream=current_stream())


def slice_columns(data: DeviceColumns, start: int, stop: int) -> DeviceColumns:
    """Rows [start, stop), without a copy."""
    if start == 0 and stop == data.rows:
        return data
    arrays = tuple(
        array[start:stop] if column.fixed else slice_column(array, start, stop)
        for column, array in zip(data.schema, data.arrays, strict=True)
    )
    return DeviceColumns(data.schema, stop - start, arrays)


def slice_column(column: Any, start: int, stop: int) -> Any:
    """Rows [start, stop) of a pylibcudf column, without a copy."""
    if start == 0 and stop == column.size():
        return column
    return plc.copying.slice(column, [start, stop], stream=current_stream())[0]


def concat_columns(pieces: Sequence[DeviceColumns]) -> DeviceColumns:
    """All rows of pieces of one schema, in order, copied."""
    schema = pieces[0].schema
    arrays = tuple(
        cupy.concatenate([piece.arrays[place] for piece in pieces])
        if column.fixed
        else plc.concatenate.concatenate([piece.arrays[place] for piece in pieces], stream=current_stream())
        for place, column in enumerate(schema.columns)
    )
    return DeviceColumns(schema, sum(piece.rows for piece in pieces), arrays)


def column_bytes(column: Any) -> int:
    """Bytes of a pylibcudf column: data, offsets, validity and children, of its rows only."""
    return _range_bytes(column, column.offset(), column.offset() + column.size())


def _range_bytes(column: Any, start: int, stop: int) -> int:
    """Bytes of items [start, stop), which are counted from the beginning of the column's buffers."""
    rows, kind = stop - start, column.type().id()
    nbytes: int = -(-rows // 8) if column.null_mask() is not None else 0
    if kind == plc.TypeId.STRUCT:
        return nbytes + sum(_range_bytes(c, c.offset() + start, c.offset() + stop) for c in column.children())
    if kind not in (plc.TypeId.STRING, plc.TypeId.LIST):
        return nbytes + rows * int(plc.types.size_of(column.type()))
    if not rows or not column.num_children():
        return nbytes
    offsets = column.child(0)
    nbytes += (rows + 1) * int(plc.types.size_of(offsets.type()))
    whole = start == 0 and rows + 1 == offsets.size()
    if kind == plc.TypeId.STRING:
        if whole:  # known without asking the device
            return nbytes + (int(column.data().size) if column.data() is not None else 0)
        first, last = _edges(offsets, start, stop)
        return nbytes + last - first
    child = column.child(1)
    first, last = (0, child.size()) if whole else _edges(offsets, start, stop)
    return nbytes + _range_bytes(child, child.offset() + first, child.offset() + last)


def offsets_of(column: Any) -> Any:
    """The offsets of a string or list column's own rows, as a cupy array of shape (rows + 1,)."""
    offsets = column.child(0)
    every = as_array(offsets, np.int64 if offsets.type().id() == plc.TypeId.INT64 else np.int32)
    return every[column.offset() : column.offset() + column.size() + 1]


def _edges(offsets: Any, start: int, stop: int) -> tuple[int, int]:
    every = as_array(offsets, np.int64 if offsets.type().id() == plc.TypeId.INT64 else np.int32)
    first, last = every[start : stop + 1 : stop - start].get().tolist()
    return first, last
