"""How columns of a schema are held on the device: the forms that libcudf has, and what it has none for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pylibcudf as plc
from pyarrow import types as pat

from ...protocol.arrow_types import TypeClash, kind_of
from ...protocol.schema import Column, Schema
from ...refusals import refused_column

_UNITS = {"s": "SECONDS", "ms": "MILLISECONDS", "us": "MICROSECONDS", "ns": "NANOSECONDS"}
_SMALL_BYTES = 2**31 - 1  # what 32-bit offsets reach
_PLAIN = ("bool", "int", "float", "datetime", "timedelta", "date", "decimal")


def require_device_form(schema: Schema) -> None:
    """Refuse columns that libcudf cannot hold.

    Raises
    ------
    UnsupportedDtype
        Naming the column and its dtype.
    """
    for column in schema:
        try:
            _ = item_dtype(column) if column.fixed else device_type(column.arrow)
        except TypeClash:
            raise refused_column("no cuDF type", column) from None


def item_dtype(column: Column) -> np.dtype[Any]:
    """Item type of a fixed column on the device: the schema's, but for times, which are int64 ticks there.

    Raises
    ------
    TypeClash
        If libcudf has none (complex, period, half floats).
    """
    dtype = np.dtype(column.dtype)
    if column.kind in ("complex", "period") or (dtype.kind == "f" and dtype.itemsize == 2):
        raise TypeClash
    return np.dtype(np.int64) if dtype.kind in "mM" else dtype


def fixed_type(column: Column) -> Any:
    """The pylibcudf type of a fixed column; of its codes where it is a category."""
    dtype = np.dtype(column.dtype)
    if dtype.kind in "mM":
        prefix = "TIMESTAMP" if dtype.kind == "M" else "DURATION"
        return plc.DataType(plc.TypeId[f"{prefix}_{_UNITS[column.unit]}"])
    return plc.DataType(plc.TypeId["BOOL8" if dtype.kind == "b" else dtype.name.upper()])


def device_type(type_: Any, *, large: bool = False) -> Any:
    """The Arrow type in which values of a held type go to the device.

    Zones are left to the schema, offsets have 32 bits as libcudf makes them, and values that are all null are int8.

    Parameters
    ----------
    type_ : pyarrow type
    large : bool
        Whether strings need 64-bit offsets.

    Raises
    ------
    TypeClash
        If libcudf has none.
    """
    kind = kind_of(type_)
    if kind == "null":
        return pa.int8()
    if kind == "str":
        return pa.large_string() if large else pa.string()
    if kind == "list":
        return pa.list_(device_type(type_.value_type, large=large))
    if kind == "struct" and type_.num_fields:
        return pa.struct([pa.field(field.name, device_type(field.type, large=large)) for field in type_])
    if kind not in _PLAIN or pat.is_float16(type_) or pat.is_decimal256(type_):
        raise TypeClash(str(type_))
    return pa.timestamp(type_.unit) if kind == "datetime" else type_


def arrow_metadata(type_: Any) -> Any:
    """What libcudf does not keep of an Arrow type: field names and the digits of decimals."""
    children = []
    if pat.is_struct(type_):
        children = [arrow_metadata(field.type) for field in type_]
        for child, field in zip(children, type_, strict=True):
            child.name = field.name
    elif kind_of(type_) == "list":
        children = [plc.interop.ColumnMetadata(), arrow_metadata(type_.value_type)]
    precision = type_.precision if pat.is_decimal(type_) else None
    return plc.interop.ColumnMetadata(precision=precision, children_meta=children)


def to_device_form(array: Any) -> Any:
    """A host array in the form in which it goes to the device, without an offset."""
    wanted = device_type(array.type, large=array.nbytes > _SMALL_BYTES)
    if pat.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if array.type != wanted:
        array = array.cast(wanted)
    return pa.concat_arrays([array]) if array.offset else array


def from_device_form(array: Any, type_: Any) -> Any:
    """A host array as it came from the device, in the schema's type."""
    if array.type == type_:
        return array
    if pat.is_null(type_):
        return pa.nulls(len(array))
    nulls = array.is_null() if array.null_count else None
    if pat.is_large_list(type_):
        offsets = array.offsets.cast(pa.int64())
        values = from_device_form(array.values, type_.value_type)
        return pa.LargeListArray.from_arrays(offsets, values, type=type_, mask=nulls)
    if pat.is_struct(type_):
        parts = [from_device_form(array.field(i), field.type) for i, field in enumerate(type_)]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=nulls)
    return array.cast(type_)
