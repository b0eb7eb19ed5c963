"""Which rows of columns belong together: equal keys, where all missing values are one, -0.0 is 0.0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.data import Columns, one_array
from ...protocol.schema import Column, Label, require_hashable
from .hashing import arrow_hashes

Int64s = npt.NDArray[np.int64]

_TABLE_ROWS = 1 << 16  # values of so small a range are looked up in a table, however few rows there are
_LOOKED_AT = 4096  # values, to find out whether few of them are different
_STRINGS_LOOKED_AT = 128
_LONG_BYTES = 48  # of a string: a dictionary of such ones takes more than all else that finds equal ones
_ENCODED = ("str", "bytes", "decimal")  # kinds of which Arrow makes a dictionary
_ENCODED_ROWS = 1 << 18  # strings of which Arrow makes one dictionary, if most are different; those of more in parts
_PARTS = 4
_WORD_DIGITS = 18  # of decimals that 64 bits hold
_NULL_TICKS = np.iinfo(np.int64).min
_MOST = 2**62
_FEW_GROUPS = 64  # rows for each group at the least, where groups are few
_HEAD_ROWS = 4096


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
    def last(self) -> Int64s:
        """The row at which each group ends."""
        return last_rows(self.ids, self.count)

    @cached_property
    def sizes(self) -> Int64s:
        """How many rows each group has."""
        return counted(self.ids if self.outside is None else self.ids[~self.outside], self.count)

    @cached_property
    def in_runs(self) -> bool:
        """Whether the rows of each group follow each other, in the order of groups."""
        ids = self.ids
        return bool(self.count and len(ids) and ids[0] == 0 and (ids[1:] >= ids[:-1]).all())

    @cached_property
    def outside(self) -> npt.NDArray[np.bool_] | None:
        """Which rows have no group; None where all have one."""
        outside = self.ids < 0
        return outside if outside.any() else None


def counted(ids: Int64s, groups: int) -> Int64s:
    """How many rows each group has, of rows that all have one."""
    return np.array([len(ids)]) if groups == 1 else np.bincount(ids, minlength=groups)


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
    if not keys:
        one = Groups(np.zeros(data.rows, np.int64), np.zeros(min(data.rows, 1), np.int64))
        one.__dict__["outside"] = None  # which nobody has to look for
        return one
    codes = _dense_codes(data, keys, dropna=dropna)
    ids = codes.values
    if codes.dropped is not None:
        ids[codes.dropped] = -1
    elif codes.begin_in_order:
        return Groups(ids, first_rows(ids, codes.count))
    return _in_order(ids, codes.count)


def distinct_rows(data: Columns, keys: Sequence[Label], *, keep: str) -> Int64s:
    """The first or the last row of each key, in the order of rows: groups are not numbered for it.

    Raises
    ------
    UnsupportedDtype
        If a key cannot be hashed.
    """
    values, codes = _compared(data, keys)
    if codes is not None:
        rows = (first_rows if keep == "first" else last_rows)(codes.values, codes.count)
        return rows if codes.begin_in_order and keep == "first" else _ascending(rows, data.rows)
    repeated = pd.Series(values, copy=False).duplicated(keep="first" if keep == "first" else "last")
    return np.flatnonzero(~repeated.to_numpy())


def rows_by_key(data: Columns, keys: Sequence[Label], *, keep: str) -> Int64s:
    """The first or the last row of each key, in the order in which keys begin.

    Raises
    ------
    UnsupportedDtype
        If a key cannot be hashed.
    """
    if keep == "first":
        return distinct_rows(data, keys, keep="first")
    codes = _dense_codes(data, keys, dropna=False)
    if codes.begin_in_order:
        return last_rows(codes.values, codes.count)
    return _in_order(codes.values, codes.count).last


def count_keys(data: Columns, keys: Sequence[Label]) -> int:
    """How many different keys rows have; a missing one is one.

    Raises
    ------
    UnsupportedDtype
        If a key cannot be hashed.
    """
    values, codes = _compared(data, keys)
    return len(pd.unique(values)) if codes is None else int(_present(codes.values, codes.count).sum())


@dataclass(frozen=True)
class _Codes:
    """A number in [0, count) for each row, equal for equal keys.

    Attributes
    ----------
    values : ndarray of int64
    count : int
        Some numbers may stand for no row.
    begin_in_order : bool
        Whether they are numbered in the order in which they begin, and all stand for rows. Rows of -1 do not count.
    dropped : ndarray of bool, optional
        Rows that shall have no group, whatever their number.
    """

    values: Int64s
    count: int
    begin_in_order: bool = False
    dropped: npt.NDArray[np.bool_] | None = None


def _dense_codes(data: Columns, keys: Sequence[Label], *, dropna: bool) -> _Codes:
    """Numbers for the keys of rows, so few that a table of them can be made."""
    codes = _codes_of(data, keys, dropna=dropna)
    if _is_small(codes.count, data.rows):
        return codes
    return replace(_compressed(codes.values, codes.count), dropped=codes.dropped)


def _codes_of(data: Columns, keys: Sequence[Label], *, dropna: bool) -> _Codes:
    """Numbers for the keys of rows, all columns taken together."""
    total, size = np.zeros(data.rows, np.int64), 1
    dropped: npt.NDArray[np.bool_] | None = None
    for key in keys:
        one = _column_codes(require_hashable(data.schema[key]), data.array(key))
        codes, count = one.values, one.count
        lacks = bool(codes.min(initial=0) < 0)
        if len(keys) == 1 and not lacks:  # no number is needed for a missing value
            return one
        if one.begin_in_order and one.count == data.rows and not dropna:  # no two rows are alike, whatever follows
            return one
        if dropna and lacks:
            dropped = codes < 0 if dropped is None else dropped | (codes < 0)
        if size * (count + 1) > _MOST:
            compressed = _compressed(total, size)
            total, size = compressed.values, compressed.count
        total = codes + 1 if size == 1 else total * (count + 1) + (codes + 1)
        size *= count + 1
    return _Codes(total, size, dropped=dropped)


def _compared(data: Columns, keys: Sequence[Label]) -> tuple[npt.NDArray[Any], _Codes | None]:
    """What is equal where keys are; and where they are codes of which a table can be made, these."""
    values = _plain_key(data, keys)
    if values is not None:
        return values, None
    codes = _codes_of(data, keys, dropna=False)
    return codes.values, codes if _is_small(codes.count, data.rows) else None


def _plain_key(data: Columns, keys: Sequence[Label]) -> npt.NDArray[Any] | None:
    """The values of a single key that need no numbers to be compared: they are in a wide range, none is missing."""
    column = require_hashable(data.schema[keys[0]]) if len(keys) == 1 else None
    if column is None or column.kind in (*_ENCODED, "category", "null"):
        return None
    values, valid = plain_values(column, data.array(column.name))
    if valid is not None or not len(values):
        return None
    if values.dtype.kind != "f" and _is_small(int(values.max()) - int(values.min()) + 1, len(values)):
        return None
    return values


def _in_order(ids: Int64s, count: int) -> Groups:
    """Number groups by the row at which they begin; those without rows are left out."""
    if len(ids) and ids[0] >= 0 and _ascend(ids):
        begins = _begins(ids)
        return Groups(np.cumsum(begins) - 1, np.flatnonzero(begins))
    rows = _ascending(first_rows(ids, count), len(ids))
    place = np.full(count + 1, -1, np.int64)  # id -1 finds the last
    place[ids[rows]] = np.arange(len(rows))
    return Groups(place[ids], rows)


def _ascend(values: npt.NDArray[Any]) -> bool:
    """Whether none is less than the one before it, as of a file in the order of its keys."""
    head = values[:_HEAD_ROWS]
    return bool((head[1:] >= head[:-1]).all()) and bool((values[1:] >= values[:-1]).all())


def _begins(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """At which of some values in order another one begins."""
    begins = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    return begins


def _ascending(rows: Int64s, count: int) -> Int64s:
    """Rows of so many in order, -1 left out: unless they are few, marked ones are found faster than they are sorted."""
    if len(rows) * _FEW_GROUPS <= count:
        return np.sort(rows[rows >= 0])
    marked = np.zeros(count, np.bool_)
    marked[rows[rows >= 0]] = True
    return np.flatnonzero(marked)


def first_rows(ids: Int64s, count: int) -> Int64s:
    """The first row of each group; -1 where it has none."""
    head = max(count * _FEW_GROUPS, _HEAD_ROWS)
    if head <= len(ids) // 2:
        rows = _first_rows(ids[:head], count)
        if rows.min(initial=0) >= 0:  # as of few groups each begins among the first rows
            return rows
    return _first_rows(ids, count)


def _first_rows(ids: Int64s, count: int) -> Int64s:
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


def _present(codes: Int64s, size: int) -> npt.NDArray[np.bool_]:
    """Which codes in [0, size) stand for rows."""
    present = np.zeros(size, np.bool_)
    present[codes] = True
    return present


def _compressed(codes: Int64s, size: int) -> _Codes:
    """Codes in [0, size) without gaps."""
    if _is_small(size, len(codes)):
        place = np.cumsum(_present(codes, size)) - 1
        return _Codes(place[codes], int(place[-1]) + 1 if size else 0)
    return _numbered(codes)


def _numbered(values: npt.NDArray[Any]) -> _Codes:
    """Values numbered in the order in which they begin; NaN is -1."""
    hint = None
    if len(values) > _TABLE_ROWS:
        some = values[:: len(values) // _LOOKED_AT]
        found = len(pd.unique(some))
        if 2 * found <= len(some):  # a table for few values is made, and looked up in, faster than one for all rows
            hint = 4 * found
    ids, uniques = pd.factorize(values, size_hint=hint)
    return _Codes(ids.astype(np.int64, copy=False), len(uniques), begin_in_order=True)


def key_codes(column: Column, array: Any) -> tuple[Int64s, int]:
    """A number in [0, count) for each row, equal for equal values; -1 where one is missing.

    Returns
    -------
    ndarray of int64, int
        Some numbers may stand for no row.
    """
    codes = _column_codes(column, array)
    return codes.values, codes.count


def _column_codes(column: Column, array: Any) -> _Codes:
    """The codes of a column, -1 where a value is missing."""
    if column.kind == "category":
        return _Codes(array.astype(np.int64), len(column.labels))
    if column.kind == "null":
        return _Codes(np.full(len(array), -1, np.int64), 0)
    if column.kind in _ENCODED:
        plain = one_array(array)
        if column.kind == "decimal":
            if pa.types.is_decimal128(plain.type) and plain.type.precision <= _WORD_DIGITS and len(plain):
                return _int_codes_of(*small_units(plain))
        elif (numbers := _as_numbers(plain)) is not None:
            return _int_codes_of(numbers, None)
        elif _are_long(plain) and are_mostly_different(plain):
            places = dense_ranks(plain)
            return _Codes(places, int(places.max(initial=-1)) + 1)
        elif len(plain) > _ENCODED_ROWS and is_text(plain) and _are_many(plain):
            return _parted_codes(column, plain)
        indices, count = _encoded(plain)
        return _Codes(indices, count, begin_in_order=not pa.types.is_dictionary(plain.type))
    values, valid = plain_values(column, array)
    if values.dtype.kind == "f":
        codes = _numbered(values)
        return codes if valid is None else _without(codes, valid)
    return _int_codes_of(values, valid)


def _int_codes_of(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None) -> _Codes:
    codes = _int_codes(values, valid)
    return codes if valid is None else _without(codes, valid)


def _without(codes: _Codes, valid: npt.NDArray[np.bool_]) -> _Codes:
    codes.values[~valid] = -1
    return _Codes(codes.values, codes.count)


def _encoded(plain: Any) -> tuple[Int64s, int]:
    """Numbers of values in the order in which they begin, -1 where one is missing, by Arrow's dictionary."""
    encoded = plain.dictionary_encode()
    indices = pc.fill_null(encoded.indices, -1) if plain.null_count else encoded.indices
    wide: Int64s = indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return wide, len(encoded.dictionary)


def _as_numbers(array: Any) -> npt.NDArray[Any] | None:
    """Strings of one length, as flags and codes are, as the numbers that their bytes are; None where another length is
    among them, or one is missing, or they are long."""
    if not len(array) or array.null_count or not is_text(array):
        return None
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, 8 * array.offset)
    length = int(offsets[1] - offsets[0])
    if length not in (1, 2, 4, 8) or offsets[-1] - offsets[0] != length * len(array):
        return None
    if (offsets[1:] - offsets[:-1] != length).any():
        return None
    return np.frombuffer(array.buffers()[2], f"u{length}", len(array), int(offsets[0]))


def _are_many(array: Any) -> bool:
    """Whether about half of many strings are different, as far as pairs of equal ones among some tell."""
    some = array.take(pa.array(np.arange(0, len(array), len(array) // _LOOKED_AT)))
    equal = len(some) - len(some.unique())
    return len(some) ** 2 > equal * len(array)


def _parted_codes(column: Column, plain: Any) -> _Codes:
    """Numbers of strings of which most are different, by a part of their hashes after the other: Arrow's dictionary of
    all takes six times what they do themselves."""
    parts = np.empty(len(plain), np.uint8)
    for start in range(0, len(plain), _TABLE_ROWS):
        some = pa.chunked_array([plain.slice(start, _TABLE_ROWS)])
        parts[start : start + _TABLE_ROWS] = arrow_hashes(column, some) & (_PARTS - 1)
    codes, count = np.empty(len(plain), np.int64), 0
    for part in range(_PARTS):
        rows = np.flatnonzero(parts == part)
        indices, found = _encoded(plain.take(pa.array(rows)))
        codes[rows] = np.where(indices < 0, -1, indices + count)
        count += found
    return _Codes(codes, count)


def small_units(array: Any) -> tuple[Int64s, npt.NDArray[np.bool_] | None]:
    """Decimals of so few digits that 64 bits hold them as whole numbers of their last place, and which are valid (None:
    all)."""
    if not len(array):
        return np.empty(0, np.int64), None
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array)) : 2]
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    return np.ascontiguousarray(words), valid


def _are_long(array: Any) -> bool:
    return is_text(array) and array.nbytes > _LONG_BYTES * max(1, len(array))


def is_text(array: Any) -> bool:
    """Whether an array holds strings or bytes of any length."""
    return bool(pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type))


def are_mostly_different(array: Any) -> bool:
    """Whether more than half of some strings are different: a dictionary of all would hold most of them once more.

    They are told by their lengths and ends: none is copied, whatever its length.
    """
    seen, step = [], max(1, len(array) // _STRINGS_LOOKED_AT)
    for row in range(0, len(array), step):
        text = array[row].as_buffer()
        if text is not None:
            ends = text.slice(0, min(32, text.size)), text.slice(max(0, text.size - 32))
            seen.append((text.size, *(end.to_pybytes() for end in ends)))
    return 2 * len(set(seen)) > len(seen)


def dense_ranks(array: Any) -> Int64s:
    """The place of each value among the different ones in order; -1 where it is missing. No value is copied."""
    places: Int64s = pc.rank(array, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
    places -= 1
    if array.null_count:
        places[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return places


def _int_codes(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None) -> _Codes:
    some = values if valid is None else values[valid]
    if not len(some):
        return _Codes(np.full(len(values), -1, np.int64), 0)
    low, high = int(some.min()), int(some.max())
    if _is_small(high - low + 1, len(values)):
        wide = values if values.dtype.itemsize == 8 else values.astype(np.int64)
        codes = (wide - wide.dtype.type(low)).astype(np.int64, copy=False)
        return _Codes(codes, high - low + 1)
    if valid is None and _ascend(values):
        codes = np.cumsum(_begins(values)) - 1
        return _Codes(codes, int(codes[-1]) + 1, begin_in_order=True)
    return _numbered(values)


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
