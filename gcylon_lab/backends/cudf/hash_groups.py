"""Sums and counts by one whole-number key in a single pass over the rows, by a hash table of our own.

libcudf goes through its rows several times, for aggregations and keys of every kind, which took ten times as long.
"""

from __future__ import annotations

from collections.abc import Sequence

import pylibcudf as plc

from ..protocol.aggregation import Kernel
from ..protocol.schema import Column, Label, Schema, require_hashable
from .columns.data import DeviceColumns, current_stream
from .group_table import GroupTable, steps_of
from .rows import nullable

_ANY_OF_EQUAL = (
    plc.stream_compaction.DuplicateKeepOption.KEEP_ANY, plc.types.NullEquality.EQUAL, plc.types.NanEquality.ALL_EQUAL,
)  # fmt: skip

_MOST_SLOTS = 1 << 20  # a table of 16 MB stays in the GPU's cache; with more groups than fit, libcudf is as fast
_SLOTS_A_ROW = 1.33
_SLOTS_A_GROUP = 3  # of the groups that are expected: they may be more, and where they do not fit all was in vain


def hash_aggregated(
    data: DeviceColumns, keys: Sequence[Label], kernels: Sequence[Kernel], row_bytes: int
) -> DeviceColumns | None:
    """Group rows by one fixed whole-number key, if all that is asked are sums and counts of numbers.

    Parameters
    ----------
    data : DeviceColumns
    keys : sequence of labels
    kernels : sequence of Kernel
    row_bytes : int
        Device bytes that may be used for each row, beside what is made.

    Returns
    -------
    DeviceColumns or None
        In the order of the keys; None where it is not for this, or there are too many groups.
    """
    if not may_hash(data.schema, keys, kernels) or not data.rows:
        return None
    table = GroupTable(data.schema, keys[0], kernels, _slots(data.rows))
    if table.nbytes > data.rows * (row_bytes + 8 * steps_of(kernels)):
        return None
    groups = _grouped(table, data)
    return None if groups is None else table.made(groups)


def folding_table(
    schema: Schema, keys: Sequence[Label], kernels: Sequence[Kernel], rows: int, groups: float
) -> GroupTable | None:
    """A table for so many rows, which come piece by piece and are expected to have so many keys.

    None where it is not for this, or would not hold them.
    """
    if not may_hash(schema, keys, kernels):
        return None
    slots = _slots(rows)
    if slots == _MOST_SLOTS and groups * _SLOTS_A_GROUP > slots:
        return None
    return GroupTable(schema, keys[0], kernels, slots)


def count_distinct(data: DeviceColumns, keys: Sequence[Label]) -> int:
    """How many different keys the rows have; see `gcylon_lab.backends.protocol.relational.GroupingBackend`."""
    columns = [require_hashable(data.schema[key]) for key in keys]
    if not data.rows:
        return 0
    if len(keys) == 1 and _is_whole(columns[0]):
        groups = _grouped(GroupTable(data.schema, keys[0], (), _slots(data.rows)), data)
        if groups is not None:
            return groups
    table = plc.Table([nullable(column, data.array(column.name)) for column in columns])
    return int(plc.stream_compaction.distinct_indices(table, *_ANY_OF_EQUAL, stream=current_stream()).size())


def _slots(rows: int) -> int:
    return min(_MOST_SLOTS, 1 << int(rows * _SLOTS_A_ROW).bit_length())


def _grouped(table: GroupTable, data: DeviceColumns) -> int | None:
    table.begin()
    table.add(data)
    return table.groups()


def may_hash(schema: Schema, keys: Sequence[Label], kernels: Sequence[Kernel]) -> bool:
    """Whether `hash_aggregated` is for such a key and such kernels, however many groups there are."""
    if len(keys) != 1 or not kernels or not _is_whole(schema[keys[0]]):
        return False
    for kernel in kernels:
        inputs = [schema[name] for name in kernel.inputs]
        if kernel.function == "sum":
            if not _is_whole(inputs[0]):
                return False
        elif kernel.function in ("count", "total", "merge_total"):
            if not all(_is_whole(one) or (one.fixed and one.kind == "float") for one in inputs):
                return False
        elif kernel.function != "size":
            return False
    return True


def table_bytes(kernels: Sequence[Kernel]) -> int:
    """About the device bytes of the largest table of `hash_aggregated`, with what is read out of it."""
    return 2 * 8 * _MOST_SLOTS * (1 + steps_of(kernels))


def _is_whole(column: Column) -> bool:
    return column.fixed and column.kind in ("int", "bool")
