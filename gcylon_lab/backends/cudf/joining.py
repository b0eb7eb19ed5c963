"""Joining on GPU ranks through libcudf: the methods of `gcylon_lab.backends.protocol.joining.JoiningBackend`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cupy
import numpy as np
import pyarrow as pa
import pylibcudf as plc

from ...errors import SchemaMismatch
from ..arrow.casting import as_fixed
from ..protocol.key_forms import KeyForm, labels_column
from ..protocol.schema import Column, Label, Schema
from .casting import cast
from .columns.data import (
    Array,
    DeviceColumns,
    as_array,
    as_column,
    converted,
    current_stream,
    empty_array,
)
from .columns.transfer import all_null, device_array
from .columns.types import device_type, item_dtype
from .kernels.gather import take_fixed
from .kernels.join_table import FOUND_ROW_BYTES, TABLE_ROW_BYTES, JoinTable, TableMatches
from .rows import from_result, gathered, item_type, masked, null_item, over, validity

Rows = Any  # a cupy array of int32 or int64 with negative numbers for missing rows, or a slice

_EQUAL = plc.types.NullEquality.EQUAL
_TO_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_EXACT = 2**53  # up to here a float64 holds every int
_OF_64_BITS = (plc.TypeId.INT64, plc.TypeId.UINT64, plc.TypeId.FLOAT64)  # as which `_compared` gives most keys

# libcudf's hash table holds a hash and a row's number, at a load of one half; ours is of that size. Keys are widened
# beside it.
_TABLE_ROW_BYTES = max(2 * 8, TABLE_ROW_BYTES)
_MAP_BYTES = 2 * 4


class CudfKeyIndex:
    """The keys of one side: a table of ours for one key of 64 bits that few rows repeat and none lacks.

    Otherwise libcudf hashes them anew for each piece of the other side.
    """

    def __init__(self, keys: DeviceColumns, forms: Sequence[KeyForm]) -> None:
        self.rows = keys.rows
        self._forms = forms
        columns = _compared(keys, forms, 1)
        self._table = plc.Table(columns)
        self._seen: Any = None
        bits = _as_bits(columns) if keys.rows else None
        made = None if bits is None else JoinTable(bits)
        self._own = made if made is not None and made.usable else None

    @property
    def hashed_once(self) -> bool:
        """Whether what is looked up piece by piece costs no more than at once."""
        return self._own is not None

    @property
    def duplicates(self) -> int:
        """How many rows have a key that stands before them already."""
        if self._own is not None:
            return self._own.repeated
        if not self.rows:
            return 0
        every = plc.stream_compaction.distinct_indices(
            self._table, plc.stream_compaction.DuplicateKeepOption.KEEP_ANY, _EQUAL,
            plc.types.NanEquality.ALL_EQUAL, stream=current_stream(),
        )  # fmt: skip
        return self.rows - int(every.size())

    def match(self, keys: Any, *, keep: bool, mark: bool) -> CudfMatches | TableMatches:
        """Pair rows of the other side with rows of this one."""
        columns = _compared(keys, self._forms, 2)
        if self._own is not None:
            valid = None
            if columns[0].null_count():
                valid = as_array(plc.unary.is_valid(columns[0], stream=current_stream()), np.bool_)
            found = self._own.look_up(as_array(columns[0], np.uint64), valid, keep=keep)
            if mark:
                self._mark(found.partners, some_missing=found.lacking)
            return found
        join = plc.join.left_join if keep else plc.join.inner_join
        maps = join(plc.Table(columns), self._table, _EQUAL, stream=current_stream())
        probe, build = (as_array(one, np.int32) for one in maps)
        if mark:
            self._mark(build, some_missing=keep)
        return CudfMatches(keys.rows, probe, build, keep=keep)

    def _mark(self, rows: Any, *, some_missing: bool) -> None:
        """Remember rows that were found; negative numbers are none."""
        if self._seen is None:
            self._seen = cupy.zeros(self.rows, np.bool_)
        self._seen[rows[rows >= 0] if some_missing else rows] = True

    def unseen(self) -> Any:
        """The rows of this side that no marked match has found."""
        return cupy.arange(self.rows) if self._seen is None else cupy.flatnonzero(~self._seen)


def _as_bits(columns: Sequence[Any]) -> Any | None:
    """The keys of all rows as 64 bits, equal where they are; None where there are several, others, or a null."""
    one = columns[0]
    if len(columns) > 1 or one.type().id() not in _OF_64_BITS or one.null_count():
        return None
    return as_array(one, np.uint64)


class CudfMatches:
    """The pairs that libcudf has found. See `gcylon_lab.backends.protocol.joining.Matches`."""

    def __init__(self, rows: int, probe: Any, build: Any, *, keep: bool) -> None:
        self._rows, self._probe, self._build, self._keep = rows, probe, build, keep
        self.pairs = int(probe.size)
        self.held_bytes = int(probe.nbytes + build.nbytes)
        self.lacking = keep and self.pairs > 0 and bool((build < 0).any())

    @property
    def found(self) -> Any:
        """Which rows have a partner."""
        found = cupy.zeros(self._rows, np.bool_)
        found[self._probe[self._build >= 0] if self._keep else self._probe] = True
        return found

    def rows(self, start: int, stop: int) -> tuple[Rows, Rows]:
        """Numbers of the rows of both sides."""
        return self._probe[start:stop], self._build[start:stop]


class CudfCrossing:
    """All pairs of some rows with all of the other side."""

    lacking = False

    def __init__(self, rows: int, others: int) -> None:
        self.pairs = rows * others
        self.found = cupy.full(rows, others > 0)
        self._others = others

    def rows(self, start: int, stop: int) -> tuple[Rows, Rows]:
        """Numbers of the rows of both sides."""
        pairs = cupy.arange(start, stop)
        probe = pairs // self._others
        return probe, pairs - probe * self._others


def _compared(keys: DeviceColumns, forms: Sequence[KeyForm], side: int) -> list[Any]:
    """Keys as libcudf compares them; where some can equal none, a column more sets each side's apart."""
    columns: list[Any] = []
    for form, column, array in zip(forms, keys.schema, keys.arrays, strict=True):
        if column.kind == "category":
            column, array = _decoded(column, array)
        values, valid, able = _comparable(form, column, array)
        columns.append(values if valid is None else masked(values, valid))
        if form.partial:
            apart = cupy.zeros(keys.rows, np.int8)
            if able is not None:
                apart = cupy.where(able if valid is None else able | ~valid, apart, np.int8(side))
            columns.append(over(apart))
    return columns


def _decoded(column: Column, codes: Any) -> tuple[Column, Array]:
    """A category's values."""
    plain = labels_column(column)
    labels = pa.chunked_array([column.labels])
    there = device_array(plain, as_fixed(plain, labels) if plain.fixed else labels)
    table = as_column(plain, there) if plain.fixed else there
    rows = cupy.where(codes < 0, np.int32(len(column.labels)), codes.astype(np.int32))
    taken = gathered([table], rows, nullify=True)[0]
    if not plain.fixed or not taken.null_count():
        return plain, from_result(plain, taken)
    if plain.kind in ("int", "bool"):  # they have no place for a missing one
        return replace(plain, dtype=None, arrow=column.labels.type), taken
    return plain, from_result(plain, taken)


def _comparable(form: KeyForm, column: Column, array: Array) -> tuple[Any, Any | None, Any | None]:
    """A column of keys in a form, which are valid, and which may equal one of the other side (None: all)."""
    if column.kind == "null":
        return _nothing_to_compare(form, array.size()), None, None
    valid = validity(column, array)
    if form.arrow is not None:
        return _as_values(form, column, array), None, None
    values = array if column.fixed else as_array(array, item_type(array))
    if form.kind == "float":
        return over(converted(values, np.float64) + 0.0), valid, None  # -0.0 + 0.0 is 0.0
    if form.kind == "ticks":
        ticks, able = _in_unit(values.astype(np.int64, copy=False), column.unit or _unit(column), form.unit)
        return over(ticks), valid, able
    wanted = np.dtype(np.uint64 if form.kind == "uint" else np.int64)
    if values.dtype.kind == "f":
        wide = converted(values, np.float64)
        low, high = (0.0, 2.0**64) if form.kind == "uint" else (-(2.0**63), 2.0**63)
        able = (cupy.trunc(wide) == wide) & (wide >= low) & (wide < high)
        return over(cupy.where(able, wide, 0.0).astype(wanted)), valid, able
    able = values >= 0 if form.kind == "uint" and values.dtype.kind == "i" else None
    return over(values.astype(wanted, copy=False)), valid, able


def _unit(column: Column) -> str:
    return str(getattr(column.arrow, "unit", ""))


def _as_values(form: KeyForm, column: Column, array: Array) -> Any:
    plain = as_column(column, array) if column.fixed else array
    if form.kind != "decimal":
        return plain
    wanted = plc.DataType.from_arrow(device_type(form.arrow))
    return plain if plain.type() == wanted else plc.unary.cast(plain, wanted, stream=current_stream())


def _nothing_to_compare(form: KeyForm, rows: int) -> Any:
    if form.kind == "null":
        type_: Any = pa.int8()
    elif form.arrow is not None:
        type_ = device_type(form.arrow)
    else:
        type_ = {"uint": pa.uint64(), "float": pa.float64()}.get(form.kind, pa.int64())
    return all_null(Column("", "", "", arrow=type_), rows)


def _in_unit(ticks: Any, unit: str, wanted: str) -> tuple[Any, Any | None]:
    if unit == wanted or unit not in _TO_NS:
        return ticks, None
    factor = _TO_NS[unit] // _TO_NS[wanted]
    if factor <= 1:
        return ticks, None
    limit = (2**63 - 1) // factor
    able = (ticks <= limit) & (ticks >= -limit)
    return cupy.where(able, ticks, 0) * np.int64(factor), able


class CudfJoining:
    """Pairs found by libcudf's hash joins, and rows gathered by it."""

    def key_index(self, keys: Any, forms: Sequence[KeyForm], more_bytes: int = 0) -> CudfKeyIndex:
        return CudfKeyIndex(keys, forms)

    def crossing(self, rows: int, others: int) -> CudfCrossing:
        return CudfCrossing(rows, others)

    def places(self, mask: Any) -> Any:
        return cupy.flatnonzero(mask)

    def no_places(self, rows: int) -> Any:
        return cupy.zeros(rows, np.bool_)

    def gather(
        self, data: Any, names: Sequence[Label], rows: Rows, schema: Schema, *, complete: bool = False
    ) -> DeviceColumns:
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        if not data.rows:
            return self.lacking(schema, count)
        arrays = [data.array(name) for name in names]
        if complete and all(_is_plain(data.schema[n], c) for n, c in zip(names, schema.columns, strict=True)):
            return DeviceColumns(schema, count, tuple(take_fixed(arrays, rows)))
        if isinstance(rows, slice):
            rows = cupy.arange(rows.start, rows.stop, dtype=np.int32)
        sources = [replace(data.schema[name], name=c.name) for name, c in zip(names, schema.columns, strict=True)]
        table = [as_column(c, a) if c.fixed else a for c, a in zip(sources, arrays, strict=True)]
        places, missing = _as_places(rows, data.rows, complete=complete)
        taken = gathered(table, places, nullify=missing) if table else []
        result = tuple(_received(s, t, one) for s, t, one in zip(sources, schema.columns, taken, strict=True))
        return DeviceColumns(schema, count, result)

    def lacking(self, schema: Schema, rows: int) -> DeviceColumns:
        return DeviceColumns(schema, rows, tuple(_nothing(column, rows) for column in schema))

    def constant(self, column: Column, value: int, rows: int) -> DeviceColumns:
        return DeviceColumns(Schema([column]), rows, (cupy.full(rows, value, item_dtype(column)),))

    def by_presence(self, column: Column, rows: Rows, present: int, absent: int) -> DeviceColumns:
        items = cupy.where(rows < 0, absent, present).astype(item_dtype(column))
        return DeviceColumns(Schema([column]), len(rows), (items,))

    def beside(self, parts: Sequence[Any], schema: Schema) -> DeviceColumns:
        arrays = {c.name: array for part in parts for c, array in zip(part.schema, part.arrays, strict=True)}
        return DeviceColumns(schema, parts[0].rows, tuple(arrays[name] for name in schema.names))

    def index_bytes(self, keys: Any) -> int:
        return int(keys.rows * self.index_row_bytes(keys.schema) + keys.nbytes - keys.rows * keys.schema.row_bytes)

    def faster_index_bytes(self, keys: Any, looked_up: int) -> int:
        return 0

    def index_row_bytes(self, schema: Schema) -> int:
        return _TABLE_ROW_BYTES + 10 * _widened(schema)

    def match_row_bytes(self, schema: Schema) -> int:
        return _MAP_BYTES + FOUND_ROW_BYTES + 10 * _widened(schema)

    def pair_bytes(self) -> int:
        return 2 * _MAP_BYTES

    def held_pair_bytes(self) -> int:
        return _MAP_BYTES


def _widened(schema: Schema) -> int:
    """How many keys are copied to be compared."""
    return sum(not (c.kind == "int" and c.fixed and c.dtype is not None and c.dtype.itemsize == 8) for c in schema)


def _as_places(rows: Any, count: int, *, complete: bool) -> tuple[Any, bool]:
    """Row numbers for libcudf, missing ones out of bounds, and whether there are any, unless it is known."""
    missing = not complete and bool(rows.size) and bool((rows < 0).any())
    if missing:
        rows = cupy.where(rows < 0, count, rows)
    return rows.astype(np.int32, copy=False), missing


def _is_plain(source: Column, target: Column) -> bool:
    """Whether items are the same in both: what is gathered then needs no look."""
    same = source.fixed and target.fixed and source.kind == target.kind and source.dtype == target.dtype
    return same and source.kind in ("int", "float", "bool", "datetime", "timedelta")


def _received(source: Column, target: Column, taken: Any) -> Array:
    """A gathered column as the result has it."""
    nulls = taken.null_count() if source.fixed else 0
    if source.fixed and nulls and source.kind == "int":
        return _as_floats(source, target, taken)
    if source.fixed and nulls and source.kind == "bool":
        return taken
    array = from_result(source, taken)
    if source == target:
        return array
    one = DeviceColumns(Schema([source]), taken.size(), (array,))
    return cast(one, Schema([target])).arrays[0]


def _as_floats(source: Column, target: Column, taken: Any) -> Any:
    values = as_array(taken, item_type(taken))
    valid = as_array(plc.unary.is_valid(taken, stream=current_stream()), np.bool_)
    floats = cupy.where(valid, values.astype(np.float64), np.nan)
    if values.dtype.itemsize == 8:
        large = valid & ((values > _EXACT) | (values < -_EXACT) if values.dtype.kind == "i" else values > _EXACT)
        for value in values[large].get().tolist() if bool(large.any()) else ():
            if int(float(value)) != value:
                raise SchemaMismatch(
                    f"Column {source.name!r} ({source.describe()}) gets missing values, for which it becomes float64, "
                    f"which would change {value}.",
                    advice="Convert it to a nullable dtype before, for example astype('Int64').",
                    column=target.name,
                )
    return floats


def _nothing(column: Column, rows: int) -> Array:
    if not rows:
        return empty_array(column)
    if not column.fixed:
        return all_null(column, rows)
    return cupy.full(rows, null_item(column), item_dtype(column))
