"""Bringing device columns to an agreed schema: the usual promotions there, rare ones by way of the host."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
import pyarrow.compute as pc
import pylibcudf as plc

from ..arrow.casting import cast_columns
from ..expressions.decimals import MOST_DIGITS
from ..protocol.schema import Column, Schema
from .columns.data import Array, DeviceColumns, as_array, as_column, converted, current_stream, empty_array
from .columns.transfer import all_null, to_device, to_host, uploaded
from .columns.types import device_type, fixed_type, item_dtype, require_device_form

_NUMBERS = ("bool", "int", "float")


def cast(data: DeviceColumns, schema: Schema) -> DeviceColumns:
    """Bring data to a schema of the same names; ``data`` itself where nothing differs.

    Raises
    ------
    SchemaMismatch
        If a value cannot be represented, naming the column.
    UnsupportedDtype
        If cuDF has no type for an agreed column.
    """
    if data.schema == schema:
        return data
    require_device_form(schema)
    return DeviceColumns(schema, data.rows, tuple(_cast(data, target) for target in schema.columns))


def _cast(data: DeviceColumns, target: Column) -> Array:
    source, array = data.schema[target.name], data.array(target.name)
    if not data.rows:
        return empty_array(target)
    done = None
    if source == target or _same_storage(source, target):
        done = array
    elif source.kind == "null":
        done = _nulls(target, data.rows)
    elif source.kind == target.kind == "category":
        done = _recoded(source, target, array)
    elif source.kind in _NUMBERS and target.kind in _NUMBERS:
        done = _widened(source, target, array)
        if done is None and source.fixed and target.fixed and source.kind == "int" and target.kind != "bool":
            done = _narrowed(array, np.dtype(target.dtype))
    elif source.kind == target.kind == "decimal":
        done = _decimals(source.arrow, target.arrow, array)
    return _by_host(data, target) if done is None else done


def _same_storage(source: Column, target: Column) -> bool:
    if source.fixed != target.fixed or source.kind != target.kind or source.kind == "category":
        return False
    return bool(source.dtype == target.dtype if source.fixed else source.arrow.equals(target.arrow)) and (
        source.tz == target.tz
    )


def _nulls(target: Column, rows: int) -> Array | None:
    if not target.fixed:
        return all_null(target, rows)
    if target.kind in _NUMBERS[:2]:
        return None  # the host says what is wrong
    dtype = item_dtype(target)
    null = np.nan if dtype.kind == "f" else -1 if target.kind == "category" else np.iinfo(np.int64).min
    return cupy.full(rows, null, dtype)


def _recoded(source: Column, target: Column, codes: Any) -> Array | None:
    """Translate codes by a small table, whose last item stands for the code of a null, -1."""
    if source.labels.equals(target.labels):
        return codes.astype(target.dtype, copy=False)
    if source.labels.type != target.labels.type:
        return None
    places = pc.index_in(source.labels, value_set=target.labels)
    if places.null_count:
        return None
    table = uploaded(np.append(places.to_numpy(), -1).astype(target.dtype))
    return cupy.take(table, codes)  # which counts -1 from the end


def _widened(source: Column, target: Column, array: Array) -> Array | None:
    """Numbers in a type that holds every value of the source's; None where values would have to be looked at."""
    before, after = _number_type(source), _number_type(target)
    if not _always_fits(before, after) or (source.fixed is False and target.fixed):
        return None
    if target.fixed:
        return converted(array, after)
    if source.fixed and source.kind == "float":
        return None  # NaN becomes null
    plain = as_column(source, array) if source.fixed else array
    wanted = plc.DataType.from_arrow(device_type(target.arrow))
    if source.fixed and fixed_type(source) == wanted:
        return plain.copy(stream=current_stream())
    return plain if plain.type() == wanted else plc.unary.cast(plain, wanted, stream=current_stream())


def _number_type(column: Column) -> np.dtype[Any]:
    return np.dtype(column.dtype if column.fixed else column.arrow.to_pandas_dtype())


def _always_fits(before: np.dtype[Any], after: np.dtype[Any]) -> bool:
    if before.kind != after.kind and before.kind in "iu" and after.kind == "f":
        return before.itemsize < after.itemsize  # numpy calls int64 to float64 safe, which it is not
    if (before.kind == "b") != (after.kind == "b"):
        return False
    return np.can_cast(before, after, "safe")


def _narrowed(array: Any, after: np.dtype[Any]) -> Array | None:
    """Ints in a type that does hold these of the source; None where it does not, which the host tells."""
    if after.kind == "f":
        most = 2 ** (np.finfo(after).nmant + 1)
        least = -most
    else:
        least, most = int(np.iinfo(after).min), int(np.iinfo(after).max)
    return converted(array, after) if least <= int(array.min()) and int(array.max()) <= most else None


def _decimals(before: Any, after: Any, array: Any) -> Array | None:
    """Decimals with other digits; None where some would be rounded, or do not fit."""
    digits = after.precision - after.scale
    if after.scale < before.scale or after.precision > MOST_DIGITS:
        return None
    if digits < before.precision - before.scale and not _below(array, 10.0**digits):
        return None
    wanted = plc.DataType.from_arrow(device_type(after))
    return array if array.type() == wanted else plc.unary.cast(array, wanted, stream=current_stream())


def _below(decimals: Any, bound: float) -> bool:
    """Whether all are surely between -bound and bound."""
    stream = current_stream()
    near = as_array(plc.unary.cast(decimals, plc.DataType(plc.TypeId.FLOAT64), stream=stream), np.float64)
    if decimals.null_count():
        near = near[as_array(plc.unary.is_valid(decimals, stream=stream), np.bool_)]
    return not near.size or float(cupy.abs(near).max()) < 0.999999 * bound


def _by_host(data: DeviceColumns, target: Column) -> Array:
    one = DeviceColumns(data.schema.select([target.name]), data.rows, (data.array(target.name),))
    return to_device(cast_columns(to_host(one), Schema([target]))).arrays[0]
