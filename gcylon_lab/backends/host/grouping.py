"""Grouping on CPU ranks: the methods of `gcylon_lab.backends.protocol.relational.GroupingBackend`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..protocol.aggregation import Kernel
from ..protocol.column import Label
from ..protocol.data import Array, Columns, Words, concat_arrays, concat_columns
from ..protocol.relational import Folding
from ..protocol.schema import Schema
from . import group_kernels
from .group_kernels import Inputs
from .keys.key_groups import (
    Groups,
    Int64s,
    count_keys,
    distinct_rows,
    find_groups,
    plain_values,
    rows_by_key,
)
from .keys.order_preserving import to_bits
from .take import gather

# Codes of a key and of all keys, the table that finds equal ones, the groups' numbers and order; of a kernel the
# values that count and their groups. Measured where each row has a key of its own: 33 to 64 with the result, and 137
# with a quantile, which orders the values.
_ROW_BYTES = 64
_ORDERING_ROW_BYTES = 64
# Kernels that keep whole rows of those with equal keys, and which ones.
_KEPT = {frozenset(): "first", frozenset(["first_row"]): "first", frozenset(["last_row"]): "last"}


class PandasGrouping:
    """Groups of rows as numbers, computed on with numpy and Arrow."""

    def aggregate(
        self,
        data: Any,
        keys: Sequence[Label],
        kernels: Sequence[Kernel],
        *,
        dropna: bool,
        state: Any = None,
        merge: Sequence[Kernel] = (),
    ) -> Columns:
        if not dropna and (keep := _KEPT.get(frozenset(kernel.function for kernel in kernels))):
            return _kept_rows(data, keys, kernels, state, keep)
        groups = find_groups(data, keys, dropna=dropna)
        key_rows = take(data, groups.first, keys)
        if state is None:
            arrays = _each_once(kernels, lambda kernel, merging: _computed(kernel, groups, data))
            return _with_keys(key_rows, kernels, arrays)
        both = concat_columns([select(state, keys), key_rows])
        merged = find_groups(both, keys, dropna=False)
        ids = np.append(merged.ids[state.rows :], -1)[groups.ids]  # -1 finds the last
        going_on = Groups(ids, merged.first)
        arrays = _each_once(
            kernels, lambda kernel, merging: _gone_on(kernel, merging, groups, data, merged, going_on, state), merge
        )
        return _with_keys(take(both, merged.first, keys), kernels, arrays)

    def finish(self, data: Any, keys: Sequence[Label], kernels: Sequence[Kernel]) -> Columns:
        arrays = [group_kernels.finish(kernel, _inputs(kernel, data)) for kernel in kernels]
        return _with_keys(select(data, keys), kernels, arrays)

    def distinct(self, data: Any, keys: Sequence[Label], *, keep: str) -> Columns:
        return take(data, distinct_rows(data, keys, keep=keep), data.schema.names)

    def count_distinct(self, data: Any, keys: Sequence[Label]) -> int:
        return count_keys(data, keys)

    def folding(
        self, schema: Schema, keys: Sequence[Label], kernels: Sequence[Kernel], rows: int, groups: float
    ) -> Folding | None:
        return None

    def order_words(self, data: Any, name: Label) -> Words:
        values, valid = plain_values(data.schema[name], data.array(name))
        return to_bits(values if valid is None else values[valid])

    def repetitions(self, data: Any, times: Label) -> Int64s:
        counts, _ = plain_values(data.schema[times], data.array(times))
        return np.cumsum(counts, dtype=np.int64)

    def repeated(self, data: Any, ends: Int64s, start: int, stop: int) -> Columns:
        rows = np.searchsorted(ends, np.arange(start, stop), side="right")
        return take(data, rows, data.schema.names)

    def grouping_table_bytes(self, schema: Schema, keys: Sequence[Label], kernels: Sequence[Kernel]) -> int:
        return 0

    def grouping_row_bytes(self, kernels: Sequence[Kernel]) -> int:
        orders = any(kernel.function in ("median", "quantile") for kernel in kernels)
        return _ROW_BYTES + (_ORDERING_ROW_BYTES if orders else 0)


def select(data: Columns, names: Sequence[Label]) -> Columns:
    """Only these columns, without a copy."""
    return Columns(data.schema.select(names), data.rows, tuple(data.array(name) for name in names))


def take(data: Columns, rows: Int64s, names: Sequence[Label]) -> Columns:
    """Rows of some columns in another order, copied; -1 gives missing values."""
    schema = data.schema.select(names)
    return Columns(schema, len(rows), tuple(gather(column, data.array(column.name), rows) for column in schema))


def _inputs(kernel: Kernel, data: Columns) -> Inputs:
    return [(data.schema[name], data.array(name)) for name in kernel.inputs]


def _each_once(
    kernels: Sequence[Kernel], compute: Callable[[Kernel, Kernel | None], list[Array]], merge: Sequence[Kernel] = ()
) -> list[Array]:
    """What kernels make; once where they differ in the names of their results alone, as where a sum is asked for and a
    mean, which needs it too."""
    known: dict[Any, list[Array]] = {}
    arrays: list[Array] = []
    for place, kernel in enumerate(kernels):
        outputs = tuple(replace(column, name="") for column in kernel.outputs)
        merging = merge[place] if merge else None
        like = (kernel.function, kernel.inputs, kernel.argument, outputs, merging and merging.function)
        if like not in known:
            known[like] = compute(kernel, merging)
        arrays += known[like]
    return arrays


def _computed(kernel: Kernel, groups: Groups, data: Columns) -> list[Array]:
    return group_kernels.compute(kernel, groups, _inputs(kernel, data))


def _gone_on(
    kernel: Kernel,
    merging: Kernel | None,
    groups: Groups,
    data: Columns,
    merged: Groups,
    going_on: Groups,
    state: Columns,
) -> list[Array]:
    """A kernel's results, gone on from those of before."""
    assert merging is not None
    if kernel.function in ("total", "merge_total"):
        before = [state.array(column.name) for column in kernel.outputs]
        return group_kernels.go_on(kernel, going_on, _inputs(kernel, data), before)
    own = _computed(kernel, groups, data)  # what merging takes, in its order
    both = [
        (column, concat_arrays(column, [state.array(column.name), array]))
        for column, array in zip(kernel.outputs, own, strict=True)
    ]
    return group_kernels.compute(merging, merged, both)


def _kept_rows(
    data: Columns, keys: Sequence[Label], kernels: Sequence[Kernel], state: Columns | None, keep: str
) -> Columns:
    """The first or the last row of each key, whole, after those of before."""
    rows = rows_by_key(data, keys, keep=keep)
    key_rows = take(data, rows, keys)
    own = [gather(data.schema[kernel.inputs[0]], data.array(kernel.inputs[0]), rows) for kernel in kernels]
    if state is None:
        return _with_keys(key_rows, kernels, own)
    both = concat_columns([select(state, keys), key_rows])
    rows = rows_by_key(both, keys, keep=keep)
    if keep == "first" and len(rows) == state.rows:
        return state  # no key is new
    arrays: list[Array] = []
    for kernel, array in zip(kernels, own, strict=True):
        column = Schema(kernel.outputs)
        whole = concat_columns([select(state, column.names), Columns(column, key_rows.rows, (array,))])
        arrays += take(whole, rows, column.names).arrays
    return _with_keys(take(both, rows, keys), kernels, arrays)


def _with_keys(keys: Columns, kernels: Sequence[Kernel], arrays: list[Array]) -> Columns:
    schema = Schema([*keys.schema, *(column for kernel in kernels for column in kernel.outputs)])
    return Columns(schema, keys.rows, (*keys.arrays, *arrays))
