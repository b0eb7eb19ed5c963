"""Object columns: what their values are, found from their Python types, and Arrow arrays made of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import UnsupportedDtype
from .arrow_types import TypeClash, held_type, kind_of
from .column import Column, Label

Objects = npt.NDArray[np.object_]


def column_of_objects(name: Label, values: Objects, nulls: npt.NDArray[np.bool_]) -> tuple[Column, Any]:
    """Infer an object column.

    Parameters
    ----------
    name : str or int
    values : ndarray of objects, shape (rows,)
    nulls : ndarray of bool, shape (rows,)
        Where a value is missing (None, NaN, NaT or NA).

    Returns
    -------
    Column, pyarrow ChunkedArray
        A variable column. Sequences come back as lists, and the dicts of one column with one set of keys.

    Raises
    ------
    UnsupportedDtype
        Naming the column, the Python types found, and what to do.
    """
    if nulls.all():
        return Column(name, "null", "object", arrow=pa.null()), pa.chunked_array([pa.nulls(len(values))])
    present = values[~nulls]
    types = set(map(type, present))
    kind = _kind(types)
    if kind is None:
        raise _refusal(name, types)
    try:
        array = _array(kind, _with_none(values, nulls), present)
        array = array.cast(held_type(array.type))
    except (pa.ArrowException, TypeClash, OverflowError, TypeError, ValueError) as error:
        raise _refusal(name, types, str(error)) from None
    found = kind_of(array.type) or kind
    tz = (array.type.tz or "") if found == "datetime" else ""
    return Column(name, found, "object", arrow=array.type, tz=tz), pa.chunked_array([array])


_PLAIN: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("str", (str,)),
    ("bytes", (bytes,)),
    ("bool", (bool, np.bool_)),
    ("int", (int, np.integer)),
    ("float", (int, float, np.integer, np.floating)),
    ("decimal", (Decimal,)),
    ("datetime", (dt.datetime,)),
    ("date", (dt.date,)),
    ("time", (dt.time,)),
    ("timedelta", (dt.timedelta,)),
    ("list", (list, tuple, np.ndarray)),
    ("struct", (dict,)),
)


def _kind(types: set[type]) -> str | None:
    # bool is an int and datetime is a date to Python; mixed with them they are not to us.
    if len(types) > 1 and types & {bool, np.bool_} and not types <= {bool, np.bool_}:
        return None
    for kind, allowed in _PLAIN:
        if all(issubclass(t, allowed) for t in types):
            if kind == "date" and any(issubclass(t, dt.datetime) for t in types):
                return None
            return kind
    return None


def _with_none(values: Objects, nulls: npt.NDArray[np.bool_]) -> Objects:
    if not nulls.any():
        return values
    plain = values.copy()
    plain[nulls] = None
    return plain


def _array(kind: str, values: Objects, present: Objects) -> Any:
    if kind == "str":
        return pa.array(values, pa.large_string())
    if kind == "int":
        large = max(map(int, present)) >= 2**63
        return pa.array(values, pa.uint64() if large else pa.int64())
    if kind == "float":
        return pa.array(values, pa.float64())
    if kind == "datetime":
        return pa.array(values, pa.timestamp(_unit(present), _zone(present)))
    if kind == "timedelta":
        return pa.array(values, pa.duration(_unit(present)))
    if kind == "decimal" and any(not value.is_finite() for value in present):
        raise ValueError("a decimal is infinite or not a number")
    return pa.array(list(values), from_pandas=False)  # NaN inside a list is a value


def _unit(present: Sequence[Any] | Objects) -> str:
    fine = any(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0) for value in present)
    return "ns" if fine else "us"


def _zone(present: Objects) -> str | None:
    zones = {None if value.tzinfo is None else pa.lib.tzinfo_to_string(value.tzinfo) for value in present}
    if len(zones) > 1:
        raise ValueError(f"the times have different zones: {sorted(map(str, zones))}")
    zone: str | None = zones.pop()
    return zone


def _refusal(name: Label, types: set[type], why: str = "") -> UnsupportedDtype:
    names = sorted(t.__qualname__ if t.__module__ == "builtins" else f"{t.__module__}.{t.__qualname__}" for t in types)
    return UnsupportedDtype(
        f"column {name!r} has dtype object and holds values of the Python types {names}, which have no common "
        f"column type" + (f" ({why})" if why else ""),
        advice=f"Convert it before, for example frame[{name!r}] = frame[{name!r}].astype(str), or leave it out.",
        column=name,
        types=names,
    )
