"""Object columns: what their values are, found from their Python types, Arrow arrays made of them, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...errors import UnsupportedDtype
from ..protocol.arrow_types import TypeClash, held_type, kind_of
from ..protocol.data import one_array
from ..protocol.schema import Column, Label
from .nested import exact_type, kind_of_types, time_type

Objects = npt.NDArray[np.object_]
_UNITS = ("s", "ms", "us", "ns")
_SAMPLED = 8192  # decimals that are looked at, whether they repeat
_REPEATED = 4  # where a value stands so often, making each but once takes less


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
    kind = kind_of_types(types)
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


def objects_of(kind: str, chunked: Any) -> Objects | list[Any]:
    """The values of an Arrow array as Python objects; None where one is missing.

    Arrow makes arrays of decimals, dates and times far faster than lists of them. Objects may stand there repeatedly.
    """
    if kind == "decimal":
        return _decimals(one_array(chunked))
    if kind == "date" or (kind == "time" and chunked.type != pa.time64("ns")):  # which Python's times cut off
        objects: Objects = one_array(chunked).to_pandas(date_as_object=True).to_numpy(dtype=object)
        return objects
    found: list[Any] = chunked.to_pylist()
    return found


def _decimals(array: Any) -> Objects:
    if not _repeats(array):
        plain: Objects = array.to_numpy(zero_copy_only=False)
        return plain
    encoded = array.dictionary_encode()
    values = np.append(encoded.dictionary.to_numpy(zero_copy_only=False), [None])
    codes = encoded.indices.fill_null(len(values) - 1) if encoded.null_count else encoded.indices
    objects: Objects = values[codes.to_numpy(zero_copy_only=False)]
    return objects


def _repeats(array: Any) -> bool:
    """Whether values stand there several times on average, by those that some of them have in common."""
    rows, looked = len(array), min(len(array), _SAMPLED)
    if not looked:
        return False
    # By chance: of values that ascend, those at regular places would all be different.
    places = np.arange(rows) if rows == looked else np.random.default_rng(0).integers(0, rows, looked)
    again = looked - len(array.take(pa.array(places)).unique())
    # Of rows / _REPEATED values about looked**2 / 2 pairs, over their number, are of one value.
    return again > min(looked * (1 - 1 / _REPEATED), _REPEATED * looked * looked / (2 * rows))


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
    if kind == "timedelta" and any(isinstance(value, np.timedelta64) for value in present):
        return _numpy_timedeltas(values, present)
    if kind in ("datetime", "timedelta", "time"):
        return pa.array(values, time_type(kind, present))
    if kind == "decimal" and any(not value.is_finite() for value in present):
        raise ValueError("a decimal is infinite or not a number")
    if kind == "decimal" and (type_ := _decimal_type(present)) is not None:
        return pa.array(values, type_)
    array = pa.array(list(values), from_pandas=False)  # NaN inside a list is a value
    if kind not in ("list", "struct"):
        return array
    type_ = exact_type(array.type, present)
    return array if array.type == type_ else pa.array(list(values), type_, from_pandas=False)


def _decimal_type(present: Objects) -> Any | None:
    """The type that Arrow finds for decimals, in a fraction of the time; None where they have several exponents."""
    if not all(map(present[0].same_quantum, present)):
        return None
    return pa.array([present.min(), present.max()]).type


def _numpy_timedeltas(values: Objects, present: Objects) -> Any:
    """Of numpy's units, Arrow takes only those that it has, and each for another one's."""
    if not all(isinstance(value, np.timedelta64) for value in present):
        raise ValueError("timedeltas of numpy stand beside others")
    units = {np.datetime_data(value.dtype)[0] for value in present}
    if not units <= {"W", "D", "h", "m", *_UNITS}:
        raise ValueError(f"timedeltas of numpy have the units {sorted(units)}")
    unit = max((unit for unit in units if unit in _UNITS), key=_UNITS.index, default="s")
    plain = np.array([np.timedelta64("NaT") if value is None else value for value in values], f"m8[{unit}]")
    # Numpy would compare them in the finer unit, in which the other overflows too.
    if any(value.astype(was.dtype) != was for value, was in zip(plain[~np.isnat(plain)], present, strict=True)):
        raise ValueError(f"a timedelta of numpy is too large for the unit {unit}")
    return pa.array(plain)


def _refusal(name: Label, types: set[type], why: str = "") -> UnsupportedDtype:
    names = sorted(t.__qualname__ if t.__module__ == "builtins" else f"{t.__module__}.{t.__qualname__}" for t in types)
    return UnsupportedDtype(
        f"column {name!r} has dtype object and holds values of the Python types {names}, which have no common "
        f"column type" + (f" ({why})" if why else ""),
        advice=f"Convert it before, for example frame[{name!r}] = frame[{name!r}].astype(str), or leave it out.",
        column=name,
        types=names,
    )
