"""Python values inside lists and dicts: the Arrow type that keeps them as they are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

_PLAIN: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("str", (str,)),
    ("bytes", (bytes,)),
    ("bool", (bool, np.bool_)),
    ("timedelta", (dt.timedelta, np.timedelta64)),
    ("int", (int, np.integer)),
    ("float", (int, float, np.integer, np.floating)),
    ("decimal", (Decimal,)),
    ("datetime", (dt.datetime,)),
    ("date", (dt.date,)),
    ("time", (dt.time,)),
    ("list", (list, tuple, np.ndarray)),
    ("struct", (dict,)),
)
# A bool is an int to Python, and so is a timedelta64 to numpy; mixed with ints they are not to us.
_APART: tuple[type, ...] = (bool, np.bool_, np.timedelta64)
_NUMPY_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "M": "datetime", "m": "timedelta"}
_MISSING = ("NoneType", "NaTType", "NAType")


def kind_of_types(types: set[type]) -> str | None:
    """The kind of column that values of Python types make together, or None where there is none."""
    if np.longdouble in types:
        return None  # float64 is not as exact
    for kind, allowed in _PLAIN:
        if all(issubclass(t, allowed) for t in types):
            wrong = kind in ("int", "float") and any(issubclass(t, _APART) for t in types)
            # A datetime is a date to Python.
            wrong |= kind == "date" and any(issubclass(t, dt.datetime) for t in types)
            return None if wrong else kind
    return None


def time_type(kind: str, present: Iterable[Any]) -> Any:
    """The Arrow type for times, datetimes or timedeltas of Python and pandas.

    Raises
    ------
    ValueError
        If they have several zones, or are times of day with one.
    """
    present = list(present)
    if kind == "time":
        if any(value.tzinfo is not None for value in present):
            raise ValueError("times of day with a zone would lose it")
        return pa.time64("us")
    fine = any(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0) for value in present)
    unit = "ns" if fine else "us"
    return pa.duration(unit) if kind == "timedelta" else pa.timestamp(unit, _zone(present))


def _zone(present: Sequence[Any]) -> str | None:
    zones = {None if value.tzinfo is None else pa.lib.tzinfo_to_string(value.tzinfo) for value in present}
    if len(zones) > 1:
        raise ValueError(f"the times have different zones: {sorted(map(str, zones))}")
    zone: str | None = zones.pop()
    return zone


def exact_type(found: Any, values: Iterable[Any], dtypes: Iterable[np.dtype[Any]] = ()) -> Any:
    """The type that keeps values as they are, where the one that Arrow finds might cut or convert some.

    Parameters
    ----------
    found : pyarrow type
        What Arrow finds.
    values : iterable
        All values at one place of the nested ones.
    dtypes : iterable of numpy dtype
        Those of numpy arrays whose values stand there too.

    Raises
    ------
    ValueError
        If no type keeps them.
    """
    present = [value for value in values if type(value).__name__ not in _MISSING]
    dtypes = set(dtypes)
    if not present:
        _require_one_time(dtypes)
    if not present and len({dtype.kind for dtype in dtypes} - {"f", "i", "u"}) <= 1:
        return found
    types = set(map(type, present))
    if types <= {np.datetime64, np.timedelta64} and not dtypes:
        _require_one_time({value.dtype for value in present})
        return found
    kind = kind_of_types(types)
    numpy_kinds = {_NUMPY_KINDS.get(dtype.kind, "") for dtype in dtypes}
    if kind is None or np.timedelta64 in types or not _together(kind, numpy_kinds):
        names = sorted({t.__name__ for t in types} | {f"{dtype} array" for dtype in dtypes})
        raise ValueError(f"values of {' and '.join(names)} stand in one place inside")
    if kind == "list":
        return _list_type(found, present)
    if kind == "struct":
        return _struct_type(found, present)
    return time_type(kind, present) if kind in ("datetime", "timedelta", "time") else found


def _together(kind: str, numpy_kinds: set[str]) -> bool:
    # A float that an int is cast to is checked by Arrow; times in numpy arrays have units, which Arrow does not bring
    # to one.
    numbers = {"int", "float"}
    return numpy_kinds <= (numbers if kind in numbers else {kind} - {"datetime", "timedelta"})


def _require_one_time(dtypes: set[np.dtype[Any]]) -> None:
    if len(dtypes) > 1 and any(dtype.kind in "mM" for dtype in dtypes):
        raise ValueError(f"times have different numpy dtypes: {sorted(map(str, dtypes))}")


def _list_type(found: Any, present: Sequence[Any]) -> Any:
    if pa.types.is_integer(found.value_type) and not any(issubclass(t, np.ndarray) for t in set(map(type, present))):
        return found  # Arrow takes nothing but ints for ints, except in numpy arrays
    arrays = {value.dtype for value in present if isinstance(value, np.ndarray) and value.dtype != object}
    others = [value for value in present if not (isinstance(value, np.ndarray) and value.dtype != object)]
    inner = exact_type(found.value_type, chain.from_iterable(others), arrays)
    return found if inner == found.value_type else pa.large_list(inner)


def _struct_type(found: Any, present: Sequence[Any]) -> Any:
    if not all(issubclass(t, str) for t in set(map(type, chain.from_iterable(present)))):
        raise ValueError("a dict has keys that are not strings")
    fields = [
        pa.field(field.name, exact_type(field.type, (value.get(field.name) for value in present))) for field in found
    ]
    return pa.struct(fields)
