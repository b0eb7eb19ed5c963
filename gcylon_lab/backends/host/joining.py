"""Joining on CPU ranks: the methods of `gcylon_lab.backends.protocol.joining.JoiningBackend`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...errors import SchemaMismatch
from ..arrow.casting import cast_columns
from ..protocol.data import Array, Columns, empty_array, one_array, select_columns
from ..protocol.key_forms import KeyForm
from ..protocol.schema import Column, Label, Schema
from .keys.int_hash_table import FIND_ROW_BYTES, TABLE_ROW_BYTES, CodeTable, places_bytes, stable_order
from .keys.key_values import JointKeys, comparable, labels_of
from .sorting import take_rows
from .take import null_item, take_some

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Rows = Any  # ndarray of int64 with -1 for a missing row, or a slice

_NUMBERS = ("int", "uint", "float", "ticks")
# Beside a table: rows by id, how many rows an id has, and where they begin. A table by place has none of a hash
# table, but up to two ids a row.
_INDEX_ROW_BYTES = TABLE_ROW_BYTES + 8 + 4 * 8
_MATCH_ROW_BYTES = 8 + FIND_ROW_BYTES + 8 + 8 + 8 + 1
_PAIR_BYTES = 4 * 8
_EXACT = 2**53  # up to here a float64 holds every int


class PandasKeyIndex:
    """The keys of one side, in which those of the other are looked up. See `KeyIndex`."""

    def __init__(self, keys: Columns, forms: Sequence[KeyForm], places_bytes: int = 0) -> None:
        self.rows = keys.rows
        self._places_bytes = places_bytes
        self._forms = forms
        self._joint: JointKeys | None = None
        table, self._usable = self._table(keys)
        self._find = table.find
        self.hashed_once = self._joint is None and not table.in_buckets
        self._by_id(table)

    def _table(self, keys: Columns) -> tuple[CodeTable, Int64s | None]:
        """The table of all keys, and the rows that are in it, where not all are."""
        if len(self._forms) == 1 and self._forms[0].kind in _NUMBERS and keys.schema.columns[0].kind != "category":
            given = comparable(self._forms[0], keys.schema.columns[0], keys.arrays[0])
            if given.valid is None and given.able is None:
                return CodeTable(given.values, self._places_bytes), None
        self._joint = JointKeys(self._forms, _pairs(keys))
        codes = self._joint.own
        del self._joint.own
        usable = np.flatnonzero(codes >= 0)
        return (CodeTable(codes), None) if len(usable) == len(codes) else (CodeTable(codes[usable]), usable)

    def _by_id(self, table: CodeTable) -> None:
        ids, places = table.own()
        counts = np.bincount(ids, minlength=table.count)
        self._order: Int64s | None = None
        self._seen: Bools | None = None
        distinct = int(np.count_nonzero(counts))
        self.duplicates = len(ids) - distinct
        self._is_row = table.by_row and not self.duplicates and self._usable is None
        if not self.duplicates:
            rows = places if places is not None else np.arange(len(ids))
            self._row_of = np.full(table.count + 1, -1, np.int64)  # id -1 finds the last
            self._row_of[ids] = rows if self._usable is None else self._usable[rows]
            return
        order = stable_order(ids, table.count) if places is None else places
        self._order = order if self._usable is None else self._usable[order]
        self._starts = np.zeros(table.count + 1, np.int64)  # where the rows of an id begin, and at the end their number
        np.cumsum(counts, out=self._starts[1:])

    def ids(self, keys: Columns) -> Int64s:
        """The id of each row of the other side; -1 where it has no equal."""
        if self._joint is not None:
            codes = self._joint.find(_pairs(keys))
            ids = self._find(codes)
            ids[codes < 0] = -1
            return ids
        return self._ids_of(keys.schema.columns[0], keys.arrays[0])

    def _ids_of(self, column: Column, array: Array) -> Int64s:
        if column.kind == "category":
            table: Int64s = np.append(self._ids_of(*labels_of(column)), -1)  # code -1 finds the last
            return table[array]
        given = comparable(self._forms[0], column, array)
        ids = self._find(given.values)
        for mask in (given.valid, given.able):
            if mask is not None:
                ids[~mask] = -1
        return ids

    def match(self, keys: Any, *, keep: bool, mark: bool) -> PandasMatches:
        ids = self.ids(keys)
        if mark:
            if self._seen is None:
                self._seen = np.zeros(len(self._row_of if self._order is None else self._starts), np.bool_)
            self._seen[ids] = True
        if self._order is None:
            return PandasMatches(ids if self._is_row else self._row_of[ids], keep=keep)
        first = self._starts[ids]
        ids += 1
        counts = self._starts[ids]
        counts -= first
        np.maximum(counts, 0, out=counts)  # less than nothing where the id was -1, the last
        return PandasMatches(first, counts, self._order, keep=keep)

    def unseen(self) -> Int64s:
        seen = self._seen
        if seen is None:
            return np.arange(self.rows)
        if self._order is None:
            rows = self._row_of[:-1][~seen[:-1]]
            rows = rows[rows >= 0]
        else:
            rows = self._order[np.repeat(~seen[:-1], np.diff(self._starts))]
        if self._usable is None:
            return rows
        unable = np.ones(self.rows, np.bool_)
        unable[self._usable] = False
        return np.concatenate((rows, np.flatnonzero(unable)))


def _pairs(keys: Columns) -> list[tuple[Column, Array]]:
    return list(zip(keys.schema.columns, keys.arrays, strict=True))


class PandasMatches:
    """The pairs of some rows with those of an index. See `gcylon_lab.backends.protocol.joining.Matches`."""

    def __init__(self, first: Int64s, counts: Int64s | None = None, order: Int64s | None = None, *, keep: bool) -> None:
        self.found: Bools = first >= 0 if counts is None else counts > 0
        every = bool(self.found.all())
        self.lacking = keep and not every
        self._first, self._order = first, order
        self._counts: Int64s | None = None
        self._probe: Int64s | None = None
        if counts is not None:
            self._counts = np.maximum(counts, 1) if keep else counts
            self._ends = np.cumsum(self._counts)
            self.pairs = int(self._ends[-1]) if len(counts) else 0
        elif keep or every:
            self.pairs = len(first)
        else:
            self._probe = np.flatnonzero(self.found)
            self.pairs = len(self._probe)

    def rows(self, start: int, stop: int) -> tuple[Rows, Rows]:
        if self._counts is not None:
            return self._repeated(self._counts, start, stop)
        if self._probe is None:
            return slice(start, stop), self._first[start:stop]
        probe = self._probe[start:stop]
        return probe, self._first[probe]

    def _repeated(self, counts: Int64s, start: int, stop: int) -> tuple[Rows, Rows]:
        assert self._order is not None
        low = int(np.searchsorted(self._ends, start, "right"))
        high = int(np.searchsorted(self._ends, stop - 1, "right")) + 1
        ends = np.minimum(self._ends[low:high], stop)
        begins = self._ends[low:high] - counts[low:high]
        times = ends - np.maximum(begins, start)
        if high - low == stop - start and times.min() == 1:
            probe: Rows = slice(low, high)
            places = self._first[low:high] + (np.arange(start, stop) - begins)
            found = self.found[low:high]
        else:
            probe = np.repeat(np.arange(low, high), times)
            places = np.arange(start, stop) + np.repeat(self._first[low:high] - begins, times)
            found = self.found[probe]
        if not self.lacking:
            return probe, self._order[places]
        rows = self._order[np.where(found, places, 0)]
        rows[~found] = -1
        return probe, rows


class PandasCrossing:
    """All pairs of some rows with all of the other side. See `gcylon_lab.backends.protocol.joining.Matches`."""

    lacking = False

    def __init__(self, rows: int, others: int) -> None:
        self.pairs = rows * others
        self.found: Bools = np.full(rows, others > 0)
        self._others = others

    def rows(self, start: int, stop: int) -> tuple[Rows, Rows]:
        pairs = np.arange(start, stop)
        probe = pairs // self._others
        return probe, pairs - probe * self._others


class PandasJoining:
    """Keys in tables of numbers, and rows gathered by numpy and Arrow."""

    def key_index(self, keys: Any, forms: Sequence[KeyForm], more_bytes: int = 0) -> PandasKeyIndex:
        return PandasKeyIndex(keys, forms, more_bytes)

    def crossing(self, rows: int, others: int) -> PandasCrossing:
        return PandasCrossing(rows, others)

    def places(self, mask: Any) -> Int64s:
        return np.flatnonzero(mask)

    def no_places(self, rows: int) -> Bools:
        return np.zeros(rows, np.bool_)

    def gather(
        self, data: Any, names: Sequence[Label], rows: Rows, schema: Schema, *, complete: bool = False
    ) -> Columns:
        # Looked for once for all columns, and not at all where the caller knows.
        missing = None if complete or isinstance(rows, slice) or not len(rows) or rows.min() >= 0 else rows < 0
        if missing is None and schema.blocks and not isinstance(rows, slice) and data.schema.select(names) == schema:
            return take_rows(select_columns(data, names), rows)
        arrays = tuple(
            _gathered(data.schema[name], target, data.array(name), rows, missing)
            for name, target in zip(names, schema.columns, strict=True)
        )
        return Columns(schema, rows.stop - rows.start if isinstance(rows, slice) else len(rows), arrays)

    def lacking(self, schema: Schema, rows: int) -> Columns:
        return Columns(schema, rows, tuple(_nothing(column, rows) for column in schema))

    def constant(self, column: Column, value: int, rows: int) -> Columns:
        return Columns(Schema([column]), rows, (np.full(rows, value, column.dtype),))

    def by_presence(self, column: Column, rows: Rows, present: int, absent: int) -> Columns:
        items = np.where(rows < 0, absent, present).astype(column.dtype)
        return Columns(Schema([column]), len(rows), (items,))

    def beside(self, parts: Sequence[Any], schema: Schema) -> Columns:
        arrays = {c.name: array for part in parts for c, array in _pairs(part)}
        return Columns(schema, parts[0].rows, tuple(arrays[name] for name in schema.names))

    def index_bytes(self, keys: Any) -> int:
        encoded = sum(TABLE_ROW_BYTES + 16 for column in keys.schema) if _is_encoded(keys.schema) else 0
        text = keys.nbytes - keys.rows * keys.schema.row_bytes
        return int(keys.rows * (_INDEX_ROW_BYTES + encoded) + 2 * text)

    def faster_index_bytes(self, keys: Any, looked_up: int) -> int:
        column = keys.schema.columns[0]
        if len(keys.schema) > 1 or column.kind != "int" or column.dtype is None or column.dtype.kind != "i":
            return 0
        return places_bytes(keys.arrays[0], looked_up)

    def index_row_bytes(self, schema: Schema) -> int:
        return _INDEX_ROW_BYTES + (len(schema) * (TABLE_ROW_BYTES + 16) if _is_encoded(schema) else 0)

    def match_row_bytes(self, schema: Schema) -> int:
        return _MATCH_ROW_BYTES + (len(schema) * (FIND_ROW_BYTES + 16) if _is_encoded(schema) else 0)

    def pair_bytes(self) -> int:
        return _PAIR_BYTES

    def held_pair_bytes(self) -> int:
        return 0  # numbers of rows are made with the block


def _is_encoded(schema: Schema) -> bool:
    return len(schema) > 1 or any(not c.fixed or c.kind in ("category", "float", "datetime") for c in schema)


def _gathered(source: Column, target: Column, array: Array, rows: Rows, missing: Bools | None) -> Array:
    if source.name != target.name:
        source = replace(source, name=target.name)
    if isinstance(rows, slice):
        return _cast(source, target, _copied(source, array, rows))
    if not source.fixed:
        taken = take_some(array, rows) if missing is None else one_array(array).take(pa.array(rows, mask=missing))
        return _cast(source, target, pa.chunked_array([taken], type=source.arrow))
    if not len(array):
        return _nothing(target, len(rows))
    values = np.take(array, rows, mode="clip")
    if missing is None:
        return _cast(source, target, values)
    if source.kind == "int":
        return _as_floats(source, target, values, missing)
    if source.kind == "bool":
        return pa.chunked_array([pa.array(values, mask=missing)])
    values[missing] = null_item(source)
    return _cast(source, target, values)


def _copied(column: Column, array: Array, rows: slice) -> Array:
    if column.fixed:
        return array[rows].copy()
    chunks = [chunk for chunk in array.slice(rows.start, rows.stop - rows.start).chunks if len(chunk)]
    return pa.chunked_array([pa.concat_arrays(chunks)] if chunks else [], type=array.type)


def _cast(source: Column, target: Column, array: Array) -> Array:
    if source == target:
        return array
    return cast_columns(Columns(Schema([source]), len(array), (array,)), Schema([target])).arrays[0]


def _as_floats(source: Column, target: Column, values: npt.NDArray[Any], missing: Bools) -> npt.NDArray[np.float64]:
    values[missing] = 0
    floats = values.astype(np.float64)
    if values.dtype.itemsize == 8 and len(values) and max(-int(values.min()), int(values.max())) > _EXACT:
        changed = values[[int(f) != int(v) for f, v in zip(floats, values, strict=True)]]
        if len(changed):
            raise SchemaMismatch(
                f"Column {source.name!r} ({source.describe()}) gets missing values, for which it becomes float64, "
                f"which would change {int(changed[0])}.",
                advice="Convert it to a nullable dtype before, for example astype('Int64').",
                column=target.name,
            )
    floats[missing] = np.nan
    return floats


def _nothing(column: Column, rows: int) -> Array:
    if not rows:
        return empty_array(column)
    if column.dtype is None:
        return pa.chunked_array([pa.nulls(rows, column.arrow)])
    return np.full(rows, null_item(column), column.dtype)
