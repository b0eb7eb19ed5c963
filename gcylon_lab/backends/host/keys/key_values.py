"""Keys on CPU ranks as the numbers or values by which they are compared."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...arrow.casting import as_fixed
from ...protocol.data import Array, one_array
from ...protocol.key_forms import KeyForm, labels_column
from ...protocol.schema import Column
from .int_hash_table import CodeTable
from .key_groups import plain_values

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_TO_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MOST = 2**62
# Of the latest pairs of labels: ranks that are threads of one process each have their own.
_tables: deque[tuple[KeyForm, Any, Any, Int64s]] = deque(maxlen=8)
NULL, NEVER = 0, -1  # ids of a missing key, and of one that equals none of the other side


@dataclass(frozen=True, slots=True)
class Values:
    """Keys as comparable values.

    Attributes
    ----------
    values : ndarray of int64, or pyarrow Array
        What stands where a key is missing, or can equal none, means nothing.
    valid : ndarray of bool, optional
        Which are not missing; None: all.
    able : ndarray of bool, optional
        Which may equal one of the other side; None: all.
    """

    values: Any
    valid: Bools | None = None
    able: Bools | None = None


def comparable(form: KeyForm, column: Column, array: Array) -> Values:
    """The keys of a column, other than a category, in a form."""
    if column.kind == "null":
        nothing: Any = np.zeros(len(array), np.int64) if form.arrow is None else pa.nulls(len(array), form.arrow)
        return Values(nothing, np.zeros(len(array), np.bool_))
    if form.arrow is not None:
        return _as_values(form, column, array)
    values, valid = plain_values(column, array)
    if form.kind == "float":
        return Values((values.astype(np.float64) + 0.0).view(np.int64), valid)  # -0.0 + 0.0 is 0.0
    if form.kind == "ticks":
        return _in_unit(values, valid, column.unit or getattr(column.arrow, "unit", ""), form.unit)
    if values.dtype.kind == "f":
        return _whole(values.astype(np.float64), valid, unsigned=form.kind == "uint")
    if form.kind == "uint":
        able = None if values.dtype.kind == "u" else values >= 0
        return Values(values.astype(np.int64, copy=False).view(np.int64), valid, _unless_all(able))
    return Values(values.astype(np.int64, copy=False), valid)


def _as_values(form: KeyForm, column: Column, array: Array) -> Values:
    if column.fixed:  # ints beside decimals
        plain = pa.array(array).cast(form.arrow)
    else:
        plain = one_array(array)
        plain = plain if plain.type == form.arrow else plain.cast(form.arrow)
    valid = plain.is_valid().to_numpy(zero_copy_only=False) if plain.null_count else None
    return Values(plain, valid)


def _unless_all(mask: Bools | None) -> Bools | None:
    return None if mask is None or mask.all() else mask


def _whole(values: npt.NDArray[np.float64], valid: Bools | None, *, unsigned: bool) -> Values:
    """Floats as the ints that they equal."""
    low, high = (0.0, 2.0**64) if unsigned else (-(2.0**63), 2.0**63)
    able = (np.trunc(values) == values) & (values >= low) & (values < high)
    whole = np.where(able, values, 0.0)
    return Values(whole.astype(np.uint64 if unsigned else np.int64).view(np.int64), valid, _unless_all(able))


def _in_unit(values: npt.NDArray[Any], valid: Bools | None, unit: str, wanted: str) -> Values:
    ticks = values.astype(np.int64, copy=False)
    if unit == wanted or unit not in _TO_NS:
        return Values(ticks, valid)
    factor = _TO_NS[unit] // _TO_NS[wanted]
    limit = (2**63 - 1) // factor
    able = (ticks <= limit) & (ticks >= -limit)  # what is beyond has no equal in the finer unit
    return Values(np.where(able, ticks, 0) * np.int64(factor), valid, _unless_all(able))


def labels_of(column: Column) -> tuple[Column, Array]:
    """A category's labels as a column, and its array."""
    plain, labels = labels_column(column), pa.chunked_array([column.labels])
    return plain, as_fixed(plain, labels) if plain.fixed else labels


class KeyEncoder:
    """Ids of one key, from those of one side: `NULL` where it is missing, `NEVER` for what that side has not.

    Parameters
    ----------
    form : KeyForm
    column : Column
    array : array of the column
        That side's keys.
    """

    def __init__(self, form: KeyForm, column: Column, array: Array) -> None:
        self._form = form
        self._table: CodeTable | None = None
        self._known: Any = None
        self._labels: Any = None  # where that side is a category of values that Arrow compares
        self.count = 1
        self.own = self._ids(column, array)  # to be taken once

    def find(self, column: Column, array: Array) -> Int64s:
        """The ids of keys of the other side."""
        return self._ids(column, array)

    def _ids(self, column: Column, array: Array) -> Int64s:
        if column.kind != "category":
            return self._encoded(comparable(self._form, column, array))
        if self._form.arrow is not None and (self._known is None or self._labels is not None):
            return self._label_ids(column, array)
        ids = self._encoded(comparable(self._form, *labels_of(column)))
        table: Int64s = np.append(ids, NULL)  # code -1 finds the last
        return table[array]

    def _label_ids(self, column: Column, array: Array) -> Int64s:
        """Ids of a category where that side is one: its codes, and those of the other side by what its labels are."""
        if self._labels is None:
            self._labels = column.labels
            self._known = comparable(self._form, *labels_of(column)).values
            self.count = len(self._known) + 1
        if column.labels is self._labels or column.labels.equals(self._labels):
            ids: Int64s = array.astype(np.int64)
            ids += 1  # code -1 is NULL
            return ids
        return _label_table(self._form, self._labels, column.labels, self._known, column)[array]

    def _encoded(self, given: Values) -> Int64s:
        ids = self._known_ids(given.values) if self._form.arrow is not None else self._number_ids(given)
        if given.able is not None:
            ids[~given.able] = NEVER
        if given.valid is not None:
            ids[~given.valid] = NULL
        return ids

    def _number_ids(self, given: Values) -> Int64s:
        if self._table is not None:
            ids = self._table.find(given.values)
            ids[ids >= 0] += 1
            return ids
        usable = [mask for mask in (given.valid, given.able) if mask is not None]
        if not usable:
            self._table = CodeTable(given.values)
            ids = self._table.ids()
        else:
            places = np.flatnonzero(np.logical_and.reduce(usable))
            self._table = CodeTable(given.values[places])
            ids = np.zeros(len(given.values), np.int64)
            ids[places] = self._table.ids()
        self.count = self._table.count + 1
        ids += 1
        return ids

    def _known_ids(self, values: Any) -> Int64s:
        if self._known is None:
            encoded = values.dictionary_encode()
            self._known, ids = encoded.dictionary, encoded.indices
            self.count = len(self._known) + 1
        elif not len(self._known):
            return np.full(len(values), NEVER, np.int64)
        else:
            ids = pc.index_in(values, value_set=self._known, skip_nulls=True)
        numbers: Int64s = pc.fill_null(ids.cast(pa.int64()), -2).to_numpy(zero_copy_only=False) + 1
        return numbers


def _label_table(form: KeyForm, labels: Any, others: Any, known: Any, column: Column) -> Int64s:
    """The id of each label of the other side, and at the end of a missing one: made once for all pieces of rows."""
    for kept in _tables:
        if kept[0] == form and kept[1] is labels and kept[2] is others:
            return kept[3]
    values = comparable(form, *labels_of(column)).values
    # Arrow looks up nothing in nothing.
    places = pc.index_in(values, value_set=known, skip_nulls=True) if len(known) else pa.nulls(len(values), pa.int32())
    table: Int64s = np.append(pc.fill_null(places.cast(pa.int64()), NEVER - 1).to_numpy(zero_copy_only=False) + 1, NULL)
    _tables.append((form, labels, others, table))
    return table


class JointKeys:
    """One number for each row's keys, from those of one side.

    Parameters
    ----------
    forms : sequence of KeyForm
    columns : sequence of pairs
        That side's keys: column and array.
    """

    def __init__(self, forms: Sequence[KeyForm], columns: Sequence[tuple[Column, Array]]) -> None:
        self._encoders = [KeyEncoder(form, *one) for form, one in zip(forms, columns, strict=True)]
        self._squeezed: dict[int, CodeTable] = {}
        self.own = self._joined([encoder.own for encoder in self._encoders], build=True)
        for encoder in self._encoders:
            del encoder.own

    def find(self, columns: Sequence[tuple[Column, Array]]) -> Int64s:
        """The numbers of the other side's rows; `NEVER` for keys that this side has not."""
        ids = [encoder.find(*one) for encoder, one in zip(self._encoders, columns, strict=True)]
        return self._joined(ids, build=False)

    def _joined(self, keys: list[Int64s], *, build: bool) -> Int64s:
        total, size = keys[0], self._encoders[0].count
        for place in range(1, len(keys)):
            count = self._encoders[place].count
            if size * count > _MOST:
                total, size = self._squeeze(place, total, build=build)
            never = (total < 0) | (keys[place] < 0)
            total = total * count + keys[place]
            total[never] = NEVER
            size *= count
        return total

    def _squeeze(self, place: int, total: Int64s, *, build: bool) -> tuple[Int64s, int]:
        """Numbers without gaps, so that one more key can be joined to them."""
        if build:
            self._squeezed[place] = CodeTable(total[total >= 0])
            ids = np.full(len(total), NEVER, np.int64)
            ids[total >= 0] = self._squeezed[place].ids()
        else:
            ids = self._squeezed[place].find(total)
            ids[total < 0] = NEVER
        return ids, self._squeezed[place].count
