"""Where two tables of one schema differ first. Values compare as keys do: missing ones are equal, -0.0 is 0.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from ..protocol.column import Column, Label, listed_labels
from ..protocol.data import Array, Columns, one_array
from ..protocol.key_forms import same_category
from ..protocol.schema import Schema

Bools = npt.NDArray[np.bool_]

_NESTED = ("list", "struct", "map")


def first_difference(left: Columns, right: Columns) -> tuple[int, Label] | None:
    """The first row in which columns differ, and the first column that does there.

    Parameters
    ----------
    left, right : Columns
        Of one schema, with equal numbers of rows.
    """
    found: tuple[int, Label] | None = None
    for column in left.schema:
        a, b = left.array(column.name), right.array(column.name)
        unlike = _unlike(column, a, b)
        if unlike.any():
            row = int(np.argmax(unlike))
            if found is None or row < found[0]:
                found = row, column.name
    return found


def _unlike(column: Column, a: Array, b: Array) -> Bools:
    """The rows in which two arrays of a column differ."""
    if column.kind == "null":
        return np.zeros(len(a), np.bool_)
    if column.dtype is not None:
        if column.dtype.kind in "mM":
            a, b = a.view(np.int64), b.view(np.int64)
        unlike: Bools = a != b
        if column.dtype.kind in "fc":
            unlike &= ~(np.isnan(a) & np.isnan(b))
        return unlike
    one, other = one_array(a), one_array(b)
    if column.kind in _NESTED:
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.fromiter((not _alike(x, y) for x, y in pairs), np.bool_, len(one))
    absent = [
        pc.is_null(array, nan_is_null=column.kind == "float").to_numpy(zero_copy_only=False) for array in (one, other)
    ]
    unequal = pc.fill_null(pc.not_equal(one, other), False).to_numpy(zero_copy_only=False)
    unlike = (unequal & ~absent[0] & ~absent[1]) | (absent[0] != absent[1])
    return unlike


def _alike(x: Any, y: Any) -> bool:
    """Whether two plain values are equal, NaN and None too."""
    x, y = (None if isinstance(value, float) and value != value else value for value in (x, y))
    if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
        return len(x) == len(y) and all(map(_alike, x, y))
    if isinstance(x, dict) and isinstance(y, dict):
        return list(x) == list(y) and all(_alike(x[key], y[key]) for key in x)
    return bool(x == y)


def unlike_columns(left: Schema, right: Schema, *, dtypes: bool) -> str:
    """How the columns of two tables differ, in words; empty where they do not.

    Parameters
    ----------
    left, right : Schema
    dtypes : bool
        Whether their dtypes must be the same.
    """
    if left.names != right.names:
        lacking = [name for name in left.names if name not in right]
        more = [name for name in right.names if name not in left]
        if lacking or more:
            texts = [f"no column {name!r}" for name in lacking] + [f"an extra column {name!r}" for name in more]
            return f"The other table has {', and '.join(texts[:3])}{' and so on' if len(texts) > 3 else ''}."
        return (
            f"The columns stand in another order: {listed_labels(left.names)} here, {listed_labels(right.names)} in "
            "the other table."
        )
    for a, b in zip(left, right, strict=True) if dtypes else ():
        if not _same_dtype(a, b):
            return f"Column {a.name!r} is {a.describe()} here, {b.describe()} in the other table."
    return ""


def _same_dtype(a: Column, b: Column) -> bool:
    if a.kind == "category":
        return same_category(a, b)
    return a == b or (a.kind, a.describe(), a.tz) == (b.kind, b.describe(), b.tz)
