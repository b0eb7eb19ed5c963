"""Columns of a schema as libcudf's algorithms want them, with a null where a value is missing, and back.

Fixed columns have no mask: NaN, the least tick and the code -1 stand for a missing value there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
import pylibcudf as plc

from ..protocol.schema import Column, Label
from .columns.data import (
    Array,
    DeviceColumns,
    as_array,
    as_column,
    converted,
    current_stream,
    empty_array,
)
from .columns.types import device_type, item_dtype
from .kernels.gather import take_fixed

_NULL_TICKS = np.iinfo(np.int64).min


def select(data: DeviceColumns, names: Sequence[Label]) -> DeviceColumns:
    """Only these columns, without a copy."""
    return DeviceColumns(data.schema.select(names), data.rows, tuple(data.array(name) for name in names))


def validity(column: Column, array: Array) -> Any | None:
    """Which rows hold a value, as a cupy array of bools; None where all do."""
    if column.fixed:
        if column.kind in ("datetime", "timedelta"):
            return array != _NULL_TICKS
        if column.kind == "category":
            return array >= 0
        return ~cupy.isnan(array) if array.dtype.kind == "f" else None
    if column.kind == "null":
        return cupy.zeros(array.size(), cupy.bool_)
    valid = None
    if array.null_count():
        valid = as_array(plc.unary.is_valid(array, stream=current_stream()), np.bool_)
    if column.kind == "float":
        present = ~cupy.isnan(as_array(array, item_type(array)))
        valid = present if valid is None else valid & present
    return valid


def nullable(column: Column, array: Array) -> Any:
    """A column as libcudf compares it: with nulls where values are missing."""
    plain = as_column(column, array) if column.fixed else array
    if not column.fixed and column.kind not in ("float", "null"):
        return plain
    return masked(plain, validity(column, array))


def masked(plain: Any, valid: Any | None) -> Any:
    """A pylibcudf column with nulls where ``valid`` is False; all rows are valid where it is None."""
    if valid is None:
        return plain
    bools = plc.Column(plc.DataType(plc.TypeId.BOOL8), valid.size, plc.gpumemoryview(valid), None, 0, 0, [])
    mask, nulls = plc.transform.bools_to_mask(bools, stream=current_stream())
    if not nulls:
        return plain
    if plain.offset():  # a mask begins with the first row of the buffers
        plain = plain.copy(stream=current_stream())
    return plain.with_mask(mask, nulls)


def over(values: Any, valid: Any | None = None) -> Any:
    """The pylibcudf column over a cupy array of numbers."""
    kind = "BOOL8" if values.dtype.kind == "b" else values.dtype.name.upper()
    plain = plc.Column(plc.DataType(plc.TypeId[kind]), values.size, plc.gpumemoryview(values), None, 0, 0, [])
    return masked(plain, valid)


def item_type(column: Any) -> np.dtype[Any]:
    """The numpy type of the items of a pylibcudf column of numbers or times."""
    name = column.type().id().name
    if name.startswith(("TIMESTAMP", "DURATION")):
        return np.dtype(np.int32 if name.endswith("DAYS") else np.int64)
    return np.dtype(np.bool_ if name == "BOOL8" else name.lower())


def numbers(column: Column, array: Array, dtype: Any) -> tuple[Any, Any | None]:
    """A column's values as numbers of a type, and which are valid (None: all)."""
    valid = validity(column, array)
    if column.fixed:
        return converted(array, dtype), valid
    if column.kind == "null":
        return cupy.zeros(array.size(), dtype), valid
    if column.kind == "decimal":
        array = plc.unary.cast(array, plc.DataType(plc.TypeId.FLOAT64), stream=current_stream())
    return converted(as_array(array, item_type(array)), dtype), valid


def from_result(column: Column, result: Any) -> Array:
    """What libcudf made of a column of a schema, as that column is held."""
    if not column.fixed:
        return result
    dtype = item_dtype(column)
    values = converted(as_array(result, item_type(result)), dtype)
    if not result.null_count():
        return values
    valid = as_array(plc.unary.is_valid(result, stream=current_stream()), np.bool_)
    return cupy.where(valid, values, cupy.asarray(null_item(column), dtype))


def null_item(column: Column) -> Any:
    """What stands for a missing value in a fixed column on the device.

    Raises
    ------
    ValueError
        If it has no place for one.
    """
    if column.kind == "category":
        return -1
    if column.kind in ("datetime", "timedelta"):
        return _NULL_TICKS
    if column.kind == "float":
        return np.nan
    raise ValueError(f"column {column.name!r} ({column.describe()}) cannot hold a missing value")


def made(column: Column, values: Any, valid: Any | None = None) -> Array:
    """Numbers (ticks where it holds times) as the array of a column."""
    if column.fixed:
        result = converted(values, item_dtype(column))
        return result if valid is None else cupy.where(valid, result, cupy.asarray(null_item(column), result.dtype))
    type_ = device_type(column.arrow)
    wanted = plc.DataType.from_arrow(type_)
    if column.kind in ("datetime", "timedelta"):
        plain = plc.Column(wanted, values.size, plc.gpumemoryview(values), None, 0, 0, [])
        return masked(plain, valid)
    return over(cupy.ascontiguousarray(converted(values, type_.to_pandas_dtype())), valid)


def take(data: DeviceColumns, rows: Any, names: Sequence[Label]) -> DeviceColumns:
    """Rows of some columns in another order, copied; all of them are there."""
    schema = data.schema.select(names)
    if not rows.size:
        return DeviceColumns(schema, 0, tuple(map(empty_array, schema.columns)))
    arrays = [data.array(c.name) for c in schema.fixed]
    fixed = iter(take_fixed(arrays, rows))
    variable = [data.array(c.name) for c in schema.variable]
    taken = iter(gathered(variable, rows)) if variable else iter(())
    return DeviceColumns(schema, rows.size, tuple(next(fixed if c.fixed else taken) for c in schema))


def gathered(columns: Sequence[Any], rows: Any, *, nullify: bool = False) -> list[Any]:
    """Rows of pylibcudf columns in another order; with ``nullify`` a place out of bounds gives null."""
    policy = plc.copying.OutOfBoundsPolicy.NULLIFY if nullify else plc.copying.OutOfBoundsPolicy.DONT_CHECK
    places = over(rows.astype(np.int32, copy=False))
    return list(plc.copying.gather(plc.Table(list(columns)), places, policy, stream=current_stream()).columns())
