"""Arrow types: what kind they are, the form they are held in, and the type that holds two of them exactly."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as pat

_UNITS = ("s", "ms", "us", "ns")


class TypeClash(Exception):
    """No type holds the values of both exactly."""


@lru_cache(maxsize=256)  # asked of each piece that is read
def kind_of(type_: Any) -> str | None:
    """The kind of column that values of an Arrow type make, or None where such values cannot be distributed."""
    for kind, test in _KINDS:
        if test(type_):
            return kind
    return None


def _is_list(type_: Any) -> bool:
    return bool(pat.is_list(type_) or pat.is_large_list(type_) or pat.is_fixed_size_list(type_))


_KINDS = (
    ("null", pat.is_null),
    ("bool", pat.is_boolean),
    ("int", pat.is_integer),
    ("float", pat.is_floating),
    ("str", lambda t: pat.is_string(t) or pat.is_large_string(t) or pat.is_string_view(t)),
    ("bytes", lambda t: pat.is_binary(t) or pat.is_large_binary(t) or pat.is_fixed_size_binary(t)
        or pat.is_binary_view(t)),
    ("decimal", pat.is_decimal),
    ("datetime", pat.is_timestamp),
    ("timedelta", pat.is_duration),
    ("date", pat.is_date),
    ("time", pat.is_time),
    ("list", _is_list),
    ("map", pat.is_map),
    ("struct", pat.is_struct),
)  # fmt: skip


def held_type(type_: Any) -> Any:
    """The type in which values of a type are held: 64-bit offsets throughout, so that nothing ends at 2 GiB.

    Raises
    ------
    TypeClash
        If values of this type, or of one nested in it, cannot be held.
    """
    kind = kind_of(type_)
    if kind is None:
        raise TypeClash(str(type_))
    if kind == "str":
        return pa.large_string()
    if kind == "bytes":
        return pa.large_binary()
    if kind == "date":
        return pa.date32()
    if kind == "decimal":
        return pa.decimal128(type_.precision, type_.scale) if type_.precision <= 38 else type_
    if kind == "list":
        return pa.large_list(held_type(type_.value_type))
    if kind == "struct":
        return pa.struct([pa.field(field.name, held_type(field.type)) for field in type_])
    if kind == "map":
        return pa.map_(held_type(type_.key_type), held_type(type_.item_type))
    return type_


def merge_types(a: Any, b: Any) -> Any:
    """The smallest type that holds values of both held types exactly; null gives way.

    int64 with uint64 gives int64, and ints with floats give floats: casting then checks each value.

    Raises
    ------
    TypeClash
        If there is none.
    """
    if a.equals(b) or pat.is_null(b):
        return a
    if pat.is_null(a):
        return b
    kinds = {kind_of(a), kind_of(b)}
    if kinds <= {"int", "float"}:
        return _merge_numbers(a, b)
    if kinds <= {"int", "decimal"}:
        return _merge_decimals(_as_decimal(a), _as_decimal(b))
    if len(kinds) > 1:
        raise TypeClash
    return _merge_same_kind(kinds.pop(), a, b)


def _merge_same_kind(kind: str | None, a: Any, b: Any) -> Any:
    if kind == "datetime" and a.tz == b.tz:
        return pa.timestamp(_finer(a.unit, b.unit), a.tz)
    if kind == "timedelta":
        return pa.duration(_finer(a.unit, b.unit))
    if kind == "time":
        unit = _finer(a.unit, b.unit)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if kind == "list":
        return pa.large_list(merge_types(a.value_type, b.value_type))
    if kind == "map":
        return pa.map_(merge_types(a.key_type, b.key_type), merge_types(a.item_type, b.item_type))
    if kind == "struct":
        return _merge_structs(a, b)
    raise TypeClash


def _merge_structs(a: Any, b: Any) -> Any:
    fields = {field.name: field.type for field in a}
    for field in b:
        fields[field.name] = merge_types(fields[field.name], field.type) if field.name in fields else field.type
    return pa.struct([pa.field(name, type_) for name, type_ in fields.items()])


def _merge_numbers(a: Any, b: Any) -> Any:
    x, y = np.dtype(a.to_pandas_dtype()), np.dtype(b.to_pandas_dtype())
    both = np.promote_types(x, y)
    if both.kind == "f" and x.kind != "f" and y.kind != "f":
        both = np.dtype(np.int64)  # int64 with uint64, for which numpy would give a float that is not exact
    return pa.from_numpy_dtype(both)


def _as_decimal(type_: Any) -> Any:
    return type_ if pat.is_decimal(type_) else pa.decimal128(20 if type_.equals(pa.uint64()) else 19, 0)


def _merge_decimals(a: Any, b: Any) -> Any:
    scale = max(a.scale, b.scale)
    precision = max(a.precision - a.scale, b.precision - b.scale) + scale
    if precision > 76:
        raise TypeClash
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _finer(a: str, b: str) -> str:
    return max(a, b, key=_UNITS.index)


def as_type(array: Any, type_: Any) -> Any:
    """An array, chunked or not, cast to a type; maps by their keys and items.

    Arrow 24 and 25 end the process where a map with missing rows is cast as a whole (a failed check of its own).
    """
    if array.type == type_:
        return array
    if not (pat.is_map(array.type) and pat.is_map(type_)):
        return array.cast(type_)
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_map_as_type(chunk, type_) for chunk in array.chunks], type_)
    return _map_as_type(array, type_)


def _map_as_type(array: Any, type_: Any) -> Any:
    offsets = array.offsets  # of a slice its own, into all keys and items
    if array.null_count:
        missing = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
        offsets = pa.array(offsets.to_numpy(), offsets.type, mask=missing)
    keys, items = array.keys.cast(type_.key_type), array.items.cast(type_.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, type_)


# Of these kinds GPU engines make of a file what CPU engines make of it.
_DECODED_KINDS = ("bool", "int", "float", "str", "date", "datetime", "decimal")
_MOST_DIGITS = 38


def decoded_by_host(name: str, type_: Any) -> str:
    """Why a column is decoded in host memory also on GPU engines, in words; "" where it is not."""
    kind = kind_of(type_)
    if kind not in _DECODED_KINDS or str(type_) in ("halffloat", "date64[ms]"):
        return f"column {name!r} is {type_}"
    if kind == "decimal" and type_.precision > _MOST_DIGITS:
        return f"column {name!r} is {type_}"
    return f"the name {name!r} has a dot" if "." in name else ""
