"""Where two tables of one schema differ first. Values compare as keys do: missing ones are equal, -0.0 is 0.0."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..protocol.data import Array, Columns, one_array
from ..protocol.key_forms import same_category
from ..protocol.schema import Column, Label, Schema, listed_labels

Bools = npt.NDArray[np.bool_]

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


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
    return _unlike_arrays(one_array(a), one_array(b))


def _unlike_arrays(a: Any, b: Any) -> Bools:
    """The same of two Arrow arrays of one type."""
    if pa.types.is_null(a.type):
        return np.zeros(len(a), np.bool_)
    if pa.types.is_map(a.type):
        a, b = _as_lists(a), _as_lists(b)
    if pa.types.is_dictionary(a.type):
        a, b = a.dictionary_decode(), b.dictionary_decode()
    floats = pa.types.is_floating(a.type)
    absent = [pc.is_null(array, nan_is_null=floats).to_numpy(zero_copy_only=False) for array in (a, b)]
    unlike: Bools = absent[0] != absent[1]
    if pa.types.is_struct(a.type):
        for mine, others in zip(a.flatten(), b.flatten(), strict=True):
            unlike |= _unlike_arrays(mine, others)
    elif any(is_list(a.type) for is_list in _LISTS):
        unlike |= _unlike_lists(a, b)
    else:
        unlike |= pc.fill_null(pc.not_equal(a, b), False).to_numpy(zero_copy_only=False) & ~absent[0]
    return unlike


def _as_lists(array: Any) -> Any:
    """The entries of maps, in order."""
    key, item = array.type.key_type, array.type.item_type
    return array.cast(pa.list_(pa.struct([("key", key), ("value", item)])))


def _unlike_lists(a: Any, b: Any) -> Bools:
    """The rows in which lists differ that both are there."""
    lengths = [pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False) for array in (a, b)]
    unlike: Bools = lengths[0] != lengths[1]
    if unlike.any():  # of these no two values stand beside each other
        alike = pa.array(~unlike)
        below = _unlike_lists(a.filter(alike), b.filter(alike))
        unlike[np.flatnonzero(~unlike)[below]] = True
        return unlike
    values = np.flatnonzero(_unlike_arrays(a.flatten(), b.flatten()))
    unlike[np.searchsorted(np.cumsum(lengths[0]), values, side="right")] = True
    return unlike


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
