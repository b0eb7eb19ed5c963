"""Which rows of columns belong together: equal keys, where all missing values are one, -0.0 is 0.0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from .column import Column, Label
from .data import Columns, one_array
from .hashing import require_hashable

Int64s = npt.NDArray[np.int64]

_TABLE_ROWS = 1 << 16  # values of so small a range are looked up in a table, however few rows there are
_NULL_TICKS = np.iinfo(np.int64).min
_MOST = 2**62


@dataclass(frozen=True)
class Groups:
    """The groups of some rows, numbered in the order in which they begin.

    Attributes
    ----------
    ids : ndarray of int64, shape (rows,)
        The group of each row; -1 where it has none.
    first : ndarray of int64, shape (count,)
        The row at which each group begins.
    """

    ids: Int64s
    first: Int64s

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.first)

    @cached_property
    def outside(self) -> npt.NDArray[np.bool_] | None:
        """Which rows have no group; None where all have one."""
        outside = self.ids < 0
        return outside if outside.any() else None


def find_groups(data: Columns, keys: Sequence[Label], *, dropna: bool) -> Groups:
    """Put rows with equal keys together.

    Parameters
    ----------
    data : Columns
    keys : sequence of labels
        Without any, all rows are one group.
    dropna : bool
        Whether rows with a missing key have no group.

    Raises
    ------
    UnsupportedDtype
        If a key cannot be hashed.
    """
    total, size = np.zeros(data.rows, np.int64), 1
    dropped: npt.NDArray[np.bool_] | None = None
    for key in keys:
        codes, count = key_codes(require_hashable(data.schema[key]), data.array(key))
        if dropna:
            missing = codes < 0
            if missing.any():
                dropped = missing if dropped is None else dropped | missing
        if size * (count + 1) > _MOST:
            total, size = _compressed(total, size)
        if len(keys) == 1 and dropna and dropped is None:  # no code stands for a missing value
            total, size = codes, max(count, 1)
            break
        total = codes + 1 if size == 1 else total * (count + 1) + (codes + 1)
        size *= count + 1
    ids, count = (total, size) if _is_small(size, data.rows) else _compressed(total, size)
    if dropped is not None:
        ids[dropped] = -1
    return _in_order(ids, count)


def _in_order(ids: Int64s, count: int) -> Groups:
    """Number groups by the row at which they begin; those without rows are left out."""
    first = first_rows(ids, count)
    begins = np.zeros(len(ids), np.bool_)
    begins[first[first >= 0]] = True  # marked rows are found in order faster than row numbers are sorted
    rows = np.flatnonzero(begins)
    place = np.full(count + 1, -1, np.int64)  # id -1 finds the last
    place[ids[rows]] = np.arange(len(rows))
    return Groups(place[ids], rows)


def first_rows(ids: Int64s, count: int) -> Int64s:
    """The first row of each group; -1 where it has none."""
    rows = np.full(count + 1, -1, np.int64)
    rows[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)  # of several the last assignment stays; id -1 goes to the end
    return rows[:count]


def last_rows(ids: Int64s, count: int) -> Int64s:
    """The last row of each group; -1 where it has none."""
    rows = np.full(count + 1, -1, np.int64)
    rows[ids] = np.arange(len(ids))
    return rows[:count]


def _is_small(size: int, rows: int) -> bool:
    """Whether a table of so many places is worth it for so many rows."""
    return size <= max(4 * rows, _TABLE_ROWS)


def _compressed(codes: Int64s, size: int) -> tuple[Int64s, int]:
    """Codes in [0, size) as ids without gaps, and how many."""
    if _is_small(size, len(codes)):
        present = np.zeros(size, np.bool_)
        present[codes] = True
        place = np.cumsum(present) - 1
        return place[codes], int(place[-1]) + 1 if size else 0
    ids, values = pd.factorize(codes)
    return ids.astype(np.int64, copy=False), len(values)


def key_codes(column: Column, array: Any) -> tuple[Int64s, int]:
    """A number in [0, count) for each row, equal for equal values; -1 where one is missing.

    Returns
    -------
    ndarray of int64, int
        Some numbers may stand for no row.
    """
    if column.kind == "category":
        return array.astype(np.int64), len(column.labels)
    if column.kind == "null":
        return np.full(len(array), -1, np.int64), 0
    if column.kind in ("str", "bytes", "decimal"):
        encoded = one_array(array).dictionary_encode()
        codes = pc.fill_null(encoded.indices.cast(pa.int64()), -1)
        return codes.to_numpy(zero_copy_only=False), len(encoded.dictionary)
    values, valid = plain_values(column, array)
    if values.dtype.kind == "f":
        codes, uniques = pd.factorize(values)
        codes = codes.astype(np.int64)  # NaN is -1 already
        count = len(uniques)
    else:
        codes, count = _int_codes(values, valid)
    if valid is not None:
        codes[~valid] = -1
    return codes, count


def _int_codes(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None) -> tuple[Int64s, int]:
    some = values if valid is None else values[valid]
    if not len(some):
        return np.full(len(values), -1, np.int64), 0
    low, high = int(some.min()), int(some.max())
    if _is_small(high - low + 1, len(values)):
        wide = values if values.dtype.itemsize == 8 else values.astype(np.int64)
        codes = (wide - wide.dtype.type(low)).astype(np.int64, copy=False)
        return codes, high - low + 1
    ids, uniques = pd.factorize(values)
    return ids.astype(np.int64, copy=False), len(uniques)


def plain_values(column: Column, array: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """The rows of a column of numbers or times as numpy ints or floats, and which are valid (None: all).

    Bools are uint8, times int64 ticks; what stands where a value is missing means nothing. NaN is missing.
    """
    if column.fixed:
        values, valid = array, None
        if column.kind in ("datetime", "timedelta", "period"):
            values = array.view(np.int64)
            valid = values != _NULL_TICKS
    else:
        values, valid = _arrow_values(one_array(array))
    if values.dtype.kind == "b":
        values = values.view(np.uint8)
    elif values.dtype.kind == "f":
        if values.dtype.itemsize == 2:
            values = values.astype(np.float32)
        if np.isnan(values.min(initial=np.inf)):  # the least one is NaN where any is
            present = ~np.isnan(values)
            valid = present if valid is None else valid & present
    return values, None if valid is None or valid.all() else valid


def _arrow_values(array: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    type_ = array.type
    if pa.types.is_null(type_):
        return np.zeros(len(array)), np.zeros(len(array), np.bool_)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_decimal(type_):
        array = array.cast(pa.float64())
    elif not (pa.types.is_floating(type_) or pa.types.is_integer(type_) or pa.types.is_boolean(type_)):
        array = array.view(pa.int32() if type_.bit_width == 32 else pa.int64())
    if valid is not None:
        array = pc.fill_null(array, False if pa.types.is_boolean(type_) else 0)
    return array.to_numpy(zero_copy_only=False), valid
