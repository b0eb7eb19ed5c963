"""Grouping on CPU ranks: the methods of `gcylon_lab.backends.protocol.relational.GroupingBackend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..protocol.aggregation import Kernel
from ..protocol.data import Columns, Words, concat_columns, relabelled, select_columns
from ..protocol.relational import Folding
from ..protocol.schema import Label, Schema
from .kernel_batches import State, computed, finished, gone_on, plan_kernels
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
from .sorting import take_rows

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
        plan = plan_kernels(data.schema, key_rows.schema, kernels, merge)
        if state is None:
            return computed(plan, key_rows, data, groups)
        both = concat_columns([select_columns(state, keys), key_rows])
        merged = find_groups(both, keys, dropna=False)
        ids = np.append(merged.ids[state.rows :], -1)[groups.ids]  # -1 finds the last
        going_on = Groups(ids, merged.first)
        return gone_on(plan, take(both, merged.first, keys), data, groups, State(state, merged, going_on))

    def finish(self, data: Any, keys: Sequence[Label], kernels: Sequence[Kernel]) -> Columns:
        key_rows = select_columns(data, keys)
        return finished(plan_kernels(data.schema, key_rows.schema, kernels), key_rows, data)

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


def take(data: Columns, rows: Int64s, names: Sequence[Label]) -> Columns:
    """Rows of some columns in another order, copied."""
    return take_rows(select_columns(data, names), rows)


def _kept_rows(
    data: Columns, keys: Sequence[Label], kernels: Sequence[Kernel], state: Columns | None, keep: str
) -> Columns:
    """The first or the last row of each key, whole, after those of before."""
    rows = rows_by_key(data, keys, keep=keep)
    schema = Schema([*(data.schema[key] for key in keys), *(kernel.outputs[0] for kernel in kernels)])
    made = relabelled(take(data, rows, [*keys, *(kernel.inputs[0] for kernel in kernels)]), schema)
    if state is None:
        return made
    rows = rows_by_key(concat_columns([select_columns(state, keys), select_columns(made, keys)]), keys, keep=keep)
    if keep == "first" and len(rows) == state.rows:
        return state  # no key is new
    return take_rows(concat_columns([state, made]), rows)
