"""Grouping on GPU ranks through libcudf: the methods of `gcylon_lab.backends.protocol.relational.GroupingBackend`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cupy
import numpy as np
import pylibcudf as plc

from ..host.group_kernels import between, two_sum
from ..host.keys.order_preserving import to_bits
from ..protocol.aggregation import Kernel, sum_beyond
from ..protocol.data import Words
from ..protocol.schema import Column, Label, Schema, require_hashable
from ..refusals import refused_column
from .columns.data import (
    Array,
    DeviceColumns,
    as_array,
    as_column,
    concat_columns,
    current_stream,
    empty_array,
    offsets_of,
)
from .group_table import GroupTable
from .hash_groups import count_distinct, folding_table, hash_aggregated, may_hash, table_bytes
from .rows import (
    from_result,
    gathered,
    item_type,
    made,
    masked,
    nullable,
    numbers,
    over,
    select,
    take,
    validity,
)

_EXCLUDE, _INCLUDE = plc.types.NullPolicy.EXCLUDE, plc.types.NullPolicy.INCLUDE

# libcudf's hash table of rows at a load of one half, and of each kernel its values as numbers, with a mask.
_ROW_BYTES = 48
# Where keys are numbered: the numbers, values with what they have no digits for, and distances from a value.
_NUMBERED_ROW_BYTES = 64


class CudfGrouping:
    """Groups by libcudf's hashing, in the order of their first rows, or by our own table, in that of their keys."""

    def aggregate(
        self,
        data: Any,
        keys: Sequence[Label],
        kernels: Sequence[Kernel],
        *,
        dropna: bool,
        state: Any = None,
        merge: Sequence[Kernel] = (),
    ) -> DeviceColumns:
        own = _aggregated(data, keys, kernels, dropna=dropna)
        if state is None:
            return own
        return _aggregated(concat_columns([state, own]), keys, merge, dropna=False)

    def finish(self, data: Any, keys: Sequence[Label], kernels: Sequence[Kernel]) -> DeviceColumns:
        arrays = [_finished(kernel, [(data.schema[n], data.array(n)) for n in kernel.inputs]) for kernel in kernels]
        return _with_keys(select(data, keys), kernels, arrays)

    def distinct(self, data: Any, keys: Sequence[Label], *, keep: str) -> DeviceColumns:
        rows = _Rows(data, keys, dropna=False)
        at = rows.asked([(over(rows.numbers), [getattr(plc.aggregation, "min" if keep == "first" else "max")()])])
        return take(data, cupy.sort(as_array(at[0][0], np.int32)), data.schema.names)

    def count_distinct(self, data: Any, keys: Sequence[Label]) -> int:
        return count_distinct(data, keys)

    def folding(
        self, schema: Schema, keys: Sequence[Label], kernels: Sequence[Kernel], rows: int, groups: float
    ) -> GroupTable | None:
        return folding_table(schema, keys, kernels, rows, groups)

    def order_words(self, data: Any, name: Label) -> Words:
        column, array = data.schema[name], data.array(name)
        if column.fixed:
            values, valid = array.view(np.uint8) if array.dtype.kind == "b" else array, validity(column, array)
        else:
            values, valid = numbers(column, array, np.float64 if column.kind == "decimal" else _own_type(column, array))
        return to_bits((values if valid is None else values[valid]).get())

    def repetitions(self, data: Any, times: Label) -> Any:
        counts, _ = numbers(data.schema[times], data.array(times), np.int64)
        return cupy.cumsum(counts)

    def repeated(self, data: Any, ends: Any, start: int, stop: int) -> DeviceColumns:
        rows = cupy.searchsorted(ends, cupy.arange(start, stop), side="right")
        return take(data, rows, data.schema.names)

    def grouping_table_bytes(self, schema: Schema, keys: Sequence[Label], kernels: Sequence[Kernel]) -> int:
        return table_bytes(kernels) if may_hash(schema, keys, kernels) else 0

    def grouping_row_bytes(self, kernels: Sequence[Kernel]) -> int:
        return _ROW_BYTES + _NUMBERED_ROW_BYTES * any(map(_is_by_number, kernels))


class _Rows:
    """Rows with their keys, of which libcudf can be asked."""

    def __init__(self, data: DeviceColumns, keys: Sequence[Label], *, dropna: bool) -> None:
        columns = [nullable(require_hashable(data.schema[key]), data.array(key)) for key in keys]
        if not columns:
            columns = [over(cupy.zeros(data.rows, np.int8))]
        self.numbers = cupy.arange(data.rows, dtype=np.int32)
        self.keys = plc.Table(columns)
        self.first: Any = None  # of each group, once they are found
        self._has_keys = bool(keys)
        self._asked = plc.groupby.GroupBy(self.keys, null_handling=_EXCLUDE if dropna else _INCLUDE)

    def asked(self, requests: Sequence[tuple[Any, list[Any]]]) -> list[list[Any]]:
        """For each request the columns that its aggregations give, a row for each group in any order."""
        asked = [plc.groupby.GroupByRequest(values, wanted) for values, wanted in requests]
        _, tables = self._asked.aggregate(asked, stream=current_stream())
        return [list(table.columns()) for table in tables]

    @cached_property
    def _numbered(self) -> tuple[int, Any]:
        if not self._has_keys:
            return 1, cupy.zeros(self.numbers.size, np.int32)
        distinct, ids = plc.transform.encode(self.keys, stream=current_stream())
        return int(distinct.num_rows()), as_array(ids, np.int32)

    @property
    def keys_found(self) -> int:
        """How many different keys there are, those with a missing part among them."""
        return self._numbered[0]

    @property
    def ids(self) -> Any:
        """The number of each row's key; keys are numbered in an order of their own."""
        return self._numbered[1]

    def of_groups(self, values: Any) -> Any:
        """Values by the number of their key, in the order of the groups."""
        return values[self.ids[self.first]]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a kernel asks of libcudf, and how its arrays are made of the answer."""

    requests: list[tuple[Any, list[Any]]]
    build: Callable[[list[Any]], list[Array]]


def _aggregated(
    data: DeviceColumns, keys: Sequence[Label], kernels: Sequence[Kernel], *, dropna: bool
) -> DeviceColumns:
    if not data.rows:
        none = [empty_array(column) for kernel in kernels for column in kernel.outputs]
        return _with_keys(take(data, cupy.empty(0, np.int32), keys), kernels, none)
    hashed = hash_aggregated(data, keys, kernels, _ROW_BYTES)
    if hashed is not None:
        return hashed
    rows = _Rows(data, keys, dropna=dropna)
    wanted = [_wanted(kernel, data, rows) for kernel in kernels]
    requests = [request for one in wanted for request in one.requests]
    answers = rows.asked([(over(rows.numbers), [plc.aggregation.min()]), *requests])
    first = as_array(answers[0][0], np.int32)
    order = cupy.argsort(first)
    rows.first = first[order]
    flat = [column for answer in answers[1:] for column in answer]
    ordered = iter(gathered(flat, order)) if flat else iter(())
    arrays: list[Array] = []
    for one in wanted:
        arrays += one.build([next(ordered) for _, asked in one.requests for _ in asked])
    return _with_keys(take(data, rows.first, keys), kernels, arrays)


def _with_keys(keys: DeviceColumns, kernels: Sequence[Kernel], arrays: Sequence[Array]) -> DeviceColumns:
    schema = Schema([*keys.schema, *(column for kernel in kernels for column in kernel.outputs)])
    return DeviceColumns(schema, keys.rows, (*keys.arrays, *arrays))


def _is_by_number(kernel: Kernel) -> bool:
    times = any(column.kind in ("datetime", "timedelta") for column in kernel.outputs)
    return kernel.function in ("moments", "merge_moments") or (kernel.function in ("median", "quantile") and times)


def _wanted(kernel: Kernel, data: DeviceColumns, rows: _Rows) -> _Wanted:
    inputs = [(data.schema[name], data.array(name)) for name in kernel.inputs]
    return _KERNELS[kernel.function](kernel, inputs, rows)


Inputs = list[tuple[Column, Array]]


def _plain(column: Column, result: Any) -> Array:
    """A result without nulls, of whatever width libcudf gives it."""
    return made(column, as_array(result, item_type(result)))


def _size(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    asked = [(over(rows.numbers), [plc.aggregation.count(_INCLUDE)])]
    return _Wanted(asked, lambda found: [_plain(kernel.outputs[0], found[0])])


def _count(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    asked = [(over(rows.numbers, validity(*inputs[0])), [plc.aggregation.count(_EXCLUDE)])]
    return _Wanted(asked, lambda found: [_plain(kernel.outputs[0], found[0])])


def _sum(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    (column, array), output = inputs[0], kernel.outputs[0]
    if column.kind == "decimal":
        return _decimal_sum(kernel, column, array)
    unsigned = array.dtype.kind == "u" if column.fixed else str(column.arrow).startswith("u")
    values, valid = numbers(column, array, np.uint64 if unsigned and column.kind == "int" else np.int64)
    if valid is not None:  # what stands for a missing value may be the largest there is
        values = cupy.where(valid, values, values.dtype.type(0))
    asked = [(over(values), [plc.aggregation.sum()])]
    if not _may_pass(values, np.iinfo(values.dtype).max):
        return _Wanted(asked, lambda found: [made(output, _whole(found[0], values.dtype))])
    asked.append((over(values.astype(np.float64)), [plc.aggregation.sum()]))

    def build(found: list[Any]) -> list[Array]:
        sums, about = _whole(found[0], values.dtype), _filled(found[1], 0.0)
        wrong = cupy.abs(about - sums.astype(np.float64)) > 2.0**60
        _refuse(kernel, column, about, wrong, str(sums.dtype))
        return [made(output, sums)]

    return _Wanted(asked, build)


def _whole(result: Any, dtype: Any) -> Any:
    """Sums of whole numbers; libcudf has those of unsigned ones as int64, with the same bits."""
    return _filled(result, 0).astype(np.int64, copy=False).view(dtype)


def _may_pass(values: Any, most: int) -> bool:
    """Whether a sum of some of so many whole numbers may be larger than a number."""
    largest = max(int(values.max()), -int(values.min()))
    return largest * int(values.size) > most


def _refuse(kernel: Kernel, column: Column, about: Any, wrong: Any, holder: str) -> None:
    """Refuse sums that their type does not hold, if any is."""
    if bool(wrong.any()):
        raise sum_beyond(kernel, column, float(about[int(wrong.argmax())]), holder)


_DECIMAL_DIGITS = 38


def _decimal_sum(kernel: Kernel, column: Column, array: Array) -> _Wanted:
    """Sums of decimals; libcudf adds up 128 bits, of which the highest are lost where they do not do."""
    asked = [(array, [plc.aggregation.sum()])]
    most = 10**_DECIMAL_DIGITS
    if 10**column.arrow.precision * int(array.size()) < most:
        return _Wanted(asked, lambda found: [_zero_for_null(found[0], column)])
    values, valid = numbers(column, array, np.float64)
    if valid is not None:
        values = cupy.where(valid, values, 0.0)
    scale = 10.0**column.arrow.scale
    if float(cupy.abs(values).max()) * scale * int(array.size()) < most * 0.99:
        return _Wanted(asked, lambda found: [_zero_for_null(found[0], column)])
    asked.append((over(values), [plc.aggregation.sum()]))

    def build(found: list[Any]) -> list[Array]:
        sums, about = _zero_for_null(found[0], column), _filled(found[1], 0.0)
        words = as_array(sums, np.int64, 2).reshape(-1, 2)
        high, low = words[:, 1], cupy.ascontiguousarray(words[:, 0]).view(np.uint64)
        whole = high.astype(np.float64) * 2.0**64 + low.astype(np.float64)
        wrong = cupy.abs(about * scale - whole) > 2.0**125  # 2**128 is missing where bits were lost
        wrong |= ~_below(high, low, most) | _below(high, low, 1 - most)
        _refuse(kernel, column, about, wrong, f"a decimal of {_DECIMAL_DIGITS} digits")
        return [sums]

    return _Wanted(asked, build)


def _below(high: Any, low: Any, bound: int) -> Any:
    """Which numbers of 128 bits, in two words, are less than a bound."""
    high_bound, low_bound = bound >> 64, np.uint64(bound & 2**64 - 1)
    return (high < high_bound) | ((high == high_bound) & (low < low_bound))


def _filled(result: Any, item: Any) -> Any:
    """Numbers of a result, with something in place of its nulls."""
    values = as_array(result, item_type(result))
    if not result.null_count():
        return values
    return cupy.where(
        as_array(plc.unary.is_valid(result, stream=current_stream()), np.bool_), values, values.dtype.type(item)
    )


def _zero_for_null(sums: Any, column: Column) -> Any:
    if not sums.null_count():
        return sums
    words = as_array(sums, np.int64, 2).reshape(-1, 2)
    valid = as_array(plc.unary.is_valid(sums, stream=current_stream()), np.bool_)
    zeroed = cupy.ascontiguousarray(cupy.where(valid[:, None], words, 0)).reshape(-1)
    return plc.Column(sums.type(), sums.size(), plc.gpumemoryview(zeroed), None, 0, 0, [])


def _total(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    values, valid = numbers(*inputs[0], np.float64)
    first, rest = kernel.outputs

    def build(found: list[Any]) -> list[Array]:
        sums = _filled(found[0], 0.0)
        return [made(first, sums), made(rest, cupy.zeros_like(sums))]

    return _Wanted([(over(values, valid), [plc.aggregation.sum()])], build)


def _merge_total(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    asked = [(over(array), [plc.aggregation.sum()]) for _, array in inputs]
    return _Wanted(asked, lambda found: [_plain(c, result) for c, result in zip(kernel.outputs, found, strict=True)])


def _moments(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    column, array = inputs[0]
    dtype = array.dtype if column.fixed else np.dtype(np.float64) if column.kind == "decimal" else item_type(array)
    whole = dtype.kind in "iu" and dtype.itemsize == 8
    values, valid = numbers(column, array, dtype if whole else np.float64)
    values, ids = (values, rows.ids) if valid is None else (values[valid], rows.ids[valid])
    if not whole:
        return _spread(kernel, rows, ids, (values, None))
    high, low = values >> dtype.type(32), values & dtype.type(0xFFFFFFFF)
    return _spread(kernel, rows, ids, (high.astype(np.float64) * 2.0**32, low.astype(np.float64)))


def _merge_moments(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    kept = inputs[0][1] > 0
    count, mean, rest, squares = (array[kept] for _, array in inputs)
    return _spread(kernel, rows, rows.ids[kept], (mean, rest), count, squares)


def _spread(
    kernel: Kernel,
    rows: _Rows,
    ids: Any,
    means: tuple[Any, Any | None],
    counts: Any | None = None,
    squares: Any | None = None,
) -> _Wanted:
    """As `gcylon_lab.backends.host.group_kernels.spread` says; libcudf's variance is one of sums of squares."""
    (first, rest), found = means, rows.keys_found
    if not ids.size:
        made_of = (cupy.zeros(found, np.int64), *(cupy.zeros(found) for _ in range(3)))
    else:
        total = _added(ids, counts, found)
        some = cupy.zeros(found, np.int32)
        some[ids] = cupy.arange(ids.size, dtype=np.int32)  # any row of the group will do
        centre = first[some]
        apart = first - centre[ids]
        centre_rest = cupy.zeros(found) if rest is None else rest[some]
        if rest is not None:
            apart += rest - centre_rest[ids]
        shift = _added(ids, apart if counts is None else apart * counts, found) / cupy.maximum(total, 1)
        apart -= shift[ids]
        apart *= apart
        if counts is not None:
            apart *= counts
        if squares is not None:
            apart += squares
        there = total > 0  # where none is, the first row was taken
        whole, part = two_sum(centre, centre_rest)
        whole, part = two_sum(whole, part + shift)
        parts = (cupy.where(there, whole, 0.0), cupy.where(there, part, 0.0), _added(ids, apart, found))
        made_of = (total, *parts)
    return _Wanted(
        [], lambda _: [made(c, rows.of_groups(values)) for c, values in zip(kernel.outputs, made_of, strict=True)]
    )


def _added(ids: Any, values: Any | None, found: int) -> Any:
    """Sums of values by number; how many there are where none are given."""
    if values is None:
        return cupy.bincount(ids, minlength=found).astype(np.int64)
    if values.dtype.kind != "f":
        return cupy.bincount(ids, weights=values, minlength=found).astype(np.int64)
    return values.sum().reshape(1) if found == 1 else cupy.bincount(ids, weights=values, minlength=found)


def _first(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    """The first or last value: that of the least or the greatest row that has one."""
    column, array = inputs[0]
    wanted = plc.aggregation.min() if kernel.function.startswith("first") else plc.aggregation.max()
    if kernel.function.endswith("_row"):
        return _Wanted([(over(rows.numbers), [wanted])], lambda found: [_row(column, array, _plain_rows(found[0]))])
    plain = nullable(column, array)

    def build(found: list[Any]) -> list[Array]:
        places = _filled(found[0], plain.size())  # out of bounds
        taken = gathered([plain], places, nullify=True)[0]
        return [from_result(column, taken)]

    return _Wanted([(over(rows.numbers, validity(column, array)), [wanted])], build)


def _plain_rows(result: Any) -> Any:
    return as_array(result, np.int32)


def _row(column: Column, array: Array, rows: Any) -> Array:
    return cupy.take(array, rows) if column.fixed else gathered([array], rows)[0]


def _extreme(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    column, array = inputs[0]
    if column.kind == "null":
        return _first(Kernel("first", kernel.inputs, kernel.outputs), inputs, rows)
    wanted = plc.aggregation.min() if kernel.function == "min" else plc.aggregation.max()
    return _Wanted([(nullable(column, array), [wanted])], lambda found: [from_result(column, found[0])])


def _truth(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    (column, array), every = inputs[0], kernel.function == "all"
    if column.kind == "str":
        ends = offsets_of(array) if array.num_children() else cupy.zeros(array.size() + 1, np.int32)
        true, valid = cupy.diff(ends) > 0, validity(column, array)
    else:
        values, valid = numbers(
            column, array, np.float64 if column.kind in ("decimal", "float") else _own_type(column, array)
        )
        true = values != 0
    wanted = plc.aggregation.min() if every else plc.aggregation.max()
    asked = [(over(true.astype(np.int8), valid), [wanted])]
    return _Wanted(asked, lambda found: [made(kernel.outputs[0], _filled(found[0], every) != 0)])


def _own_type(column: Column, array: Array) -> Any:
    return array.dtype if column.fixed else np.float64 if column.kind == "null" else item_type(array)


def _quantile(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    column, array = inputs[0]
    q = 0.5 if kernel.function == "median" else kernel.argument
    if column.kind in ("datetime", "timedelta"):
        return _quantile_of_times(kernel, inputs, rows, q)
    values, valid = numbers(column, array, np.float64)

    def build(found: list[Any]) -> list[Array]:
        return [made(kernel.outputs[0], _filled(found[0], 0.0), _valid(found[0]))]

    return _Wanted([(over(values, valid), [plc.aggregation.quantile([q])])], build)


def _quantile_of_times(kernel: Kernel, inputs: Inputs, rows: _Rows, q: float) -> _Wanted:
    """Of ticks, which libcudf would make floats of that have no digits for them."""
    column, output = inputs[0][0], kernel.outputs[0]
    ticks, valid = numbers(*inputs[0], np.int64)
    ids = rows.ids
    if valid is not None:
        ticks, ids = ticks[valid], ids[valid]
    counts = cupy.zeros(rows.keys_found, np.int64)
    if ticks.size:
        ticks = ticks[cupy.lexsort(cupy.stack((ticks, ids.astype(np.int64))))]
        counts += cupy.bincount(ids, minlength=rows.keys_found)
    else:
        ticks = cupy.zeros(1, np.int64)
    starts = cupy.cumsum(counts) - counts
    at = q * cupy.maximum(counts - 1, 0)
    low = cupy.floor(at).astype(np.int64)
    last = ticks.size - 1
    below = ticks[cupy.minimum(starts + low, last)]
    above = ticks[cupy.minimum(starts + cupy.minimum(low + 1, cupy.maximum(counts - 1, 0)), last)]
    middle, there = between(column, below, above, at - low), counts > 0
    return _Wanted([], lambda _: [made(output, rows.of_groups(middle), rows.of_groups(there))])


def _valid(result: Any) -> Any | None:
    return as_array(plc.unary.is_valid(result, stream=current_stream()), np.bool_) if result.null_count() else None


def _nunique(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    asked = [(nullable(*inputs[0]), [plc.aggregation.nunique(_EXCLUDE)])]
    return _Wanted(asked, lambda found: [_plain(kernel.outputs[0], found[0])])


def _list(kernel: Kernel, inputs: Inputs, rows: _Rows) -> _Wanted:
    column, array = inputs[0]
    if column.kind == "category":
        raise refused_column("list of labels", column, "list")
    plain = as_column(column, array) if column.fixed else array
    if column.kind in ("datetime", "timedelta"):
        plain = masked(plain, validity(column, array))
    return _Wanted([(plain, [plc.aggregation.collect_list(_INCLUDE)])], lambda found: [found[0]])


_KERNELS: dict[str, Callable[[Kernel, Inputs, _Rows], _Wanted]] = {
    "size": _size,
    "count": _count,
    "sum": _sum,
    "total": _total,
    "merge_total": _merge_total,
    "moments": _moments,
    "merge_moments": _merge_moments,
    "first": _first,
    "last": _first,
    "first_row": _first,
    "last_row": _first,
    "min": _extreme,
    "max": _extreme,
    "any": _truth,
    "all": _truth,
    "median": _quantile,
    "quantile": _quantile,
    "nunique": _nunique,
    "list": _list,
}


def _finished(kernel: Kernel, inputs: Inputs) -> Array:
    output = kernel.outputs[0]
    if kernel.function == "same":
        column, array = inputs[0]
        return array if column.dtype == output.dtype and column.arrow == output.arrow else made(output, array)
    if kernel.function == "sum":
        return made(output, inputs[0][1] + inputs[1][1])
    if kernel.function == "mean":
        first, rest, count = (array for _, array in inputs)
        means = (first + rest) / cupy.maximum(count, 1)
        return made(output, means.astype(np.int64) if output.kind in ("datetime", "timedelta") else means, count > 0)
    count, squares = inputs[0][1], inputs[-1][1]
    variance = squares / cupy.maximum(count - kernel.argument, 1)
    return made(output, cupy.sqrt(variance) if kernel.function == "std" else variance, count > kernel.argument)
