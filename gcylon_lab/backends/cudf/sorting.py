"""Sorting on GPU ranks: the methods of `gcylon_lab.backends.protocol.sorting.SortingBackend`.

A single fixed key becomes one unsigned word a row, as on the CPU, which libcudf sorts by its bits; other keys are
compared by libcudf, with a null where a value is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
import pylibcudf as plc

from ..host.keys.hashing import id_dtype
from ..protocol.data import Columns
from ..protocol.schema import Column
from ..protocol.sorting import SortKey, device_scratch_bytes, require_sortable
from .columns.data import Array, DeviceColumns, as_array, current_stream
from .columns.transfer import to_device, uploaded
from .kernels.hash_source import WIDENED
from .rows import gathered, nullable, over

Int64s = npt.NDArray[np.int64]

_FLOAT = """
    double number = widened(value) + 0.0;
    unsigned long long bits = __double_as_longlong(number);
    word = bits ^ (bits >> 63 ? ~0ull : 1ull << 63);
    if (!ascending) word = ~word;
    if (number != number) word = nulls_first ? 0 : ~0ull;
"""
_INT = """
    word = (unsigned long long)(long long)value ^ 1ull << 63;
    if (!ascending) word = ~word;
"""
_UNSIGNED = """
    word = (unsigned long long)value;
    if (!ascending) word = ~word;
"""
# What is missing is the least there is, and nothing else is.
_LEAST = """
    word = ((unsigned long long)(long long)value ^ 1ull << 63) + shift;
    if (ascending) word -= nulls_first ? 0 : 1;
    else word = ~word + (nulls_first ? 1 : 0);
"""


def _kernels(name: str, code: str) -> tuple[Any, Any]:
    """What gives the word of a key, and what compares it with the words of splitters at once."""
    preamble = WIDENED if code is _FLOAT else ""
    word = cupy.ElementwiseKernel(
        "T value, bool ascending, bool nulls_first, uint64 shift", "uint64 out",
        f"unsigned long long word; {code} out = word;", f"key_word_{name}", preamble=preamble,
    )  # fmt: skip
    between = cupy.ElementwiseKernel(
        "T value, bool ascending, bool nulls_first, uint64 shift, raw uint64 splitters, raw int64 cuts, int32 count",
        "I id",
        f"unsigned long long word; {code}"
        """
        int low = 0, high = count;
        while (low < high) {
            int middle = (low + high) / 2;
            unsigned long long splitter = splitters[middle];
            if (splitter < word || (splitter == word && cuts[middle] <= i)) low = middle + 1; else high = middle;
        }
        id = low;
        """,
        f"between_{name}",
        preamble=preamble,
    )  # fmt: skip
    return word, between


_WORDS = {
    "float": _kernels("float", _FLOAT),
    "int": _kernels("int", _INT),
    "unsigned": _kernels("unsigned", _UNSIGNED),
    "least": _kernels("least", _LEAST),
}
_BETWEEN_BOUNDS = cupy.ElementwiseKernel(
    "int32 low, int32 high, raw int64 cuts", "I id",
    "int place = low; while (place < high && cuts[place] <= i) place++; id = place;", "between_bounds",
)  # fmt: skip
_TAKE = cupy.ElementwiseKernel("raw T source, J row", "T target", "target = source[row]", "take_rows")

_ASCENDING, _DESCENDING = plc.types.Order.ASCENDING, plc.types.Order.DESCENDING
_BEFORE, _AFTER = plc.types.NullOrder.BEFORE, plc.types.NullOrder.AFTER


class CudfSorting:
    """Row numbers are cupy arrays of int32."""

    sorts_before_sending = False

    def sort_order(self, data: Any, keys: Sequence[SortKey], *, runs: bool = False) -> Any:
        require_sortable(data.schema, keys)
        if not data.rows:
            return cupy.empty(0, np.int32)
        if len(keys) == 1 and data.schema[keys[0].name].fixed:
            column = data.schema[keys[0].name]
            kernel, values = _of_kind(column, 0, data.array(column.name))
            table, how = plc.Table([over(kernel(values, *_numbers(column, keys[0])))]), ([_ASCENDING], [_AFTER])
        else:
            table, how = _table(data, keys), _how(keys)
        return as_array(plc.sorting.stable_sorted_order(table, *how, stream=current_stream()), np.int32)

    def take(self, data: Any, rows: Any) -> DeviceColumns:
        rows = uploaded(np.ascontiguousarray(rows)) if isinstance(rows, np.ndarray) else rows
        arrays = tuple(_taken(column, array, rows) for column, array in zip(data.schema, data.arrays, strict=True))
        return DeviceColumns(data.schema, rows.size, arrays)

    def reorder(self, held: list[Any], order: Any) -> DeviceColumns:
        data = held.pop()
        schema, arrays = data.schema, list(data.arrays)
        del data
        for place, column in enumerate(schema.columns):
            arrays[place] = _taken(column, arrays[place], order)
        return DeviceColumns(schema, order.size, tuple(arrays))

    def split_ids(self, data: Any, keys: Sequence[SortKey], splitters: Columns, cuts: Int64s) -> Any:
        require_sortable(data.schema, keys)
        ids = cupy.zeros(data.rows, id_dtype(splitters.rows + 1))
        if not splitters.rows or not data.rows:
            return ids
        edges, places = to_device(splitters), uploaded(np.ascontiguousarray(cuts))
        if len(keys) == 1 and data.schema[keys[0].name].fixed:
            column, numbers = data.schema[keys[0].name], _numbers(data.schema[keys[0].name], keys[0])
            word, values = _of_kind(column, 0, edges.array(column.name))
            between, rows = _of_kind(column, 1, data.array(column.name))
            return between(rows, *numbers, word(values, *numbers), places, np.int32(splitters.rows), ids)
        needles, haystack, how = _table(data, keys), _table(edges, keys), _how(keys)
        low = as_array(plc.search.lower_bound(haystack, needles, *how, stream=current_stream()), np.int32)
        high = as_array(plc.search.upper_bound(haystack, needles, *how, stream=current_stream()), np.int32)
        return _BETWEEN_BOUNDS(low, high, places, ids)

    def sort_scratch_bytes(self, rows: int, variable_bytes: int) -> int:
        return device_scratch_bytes(rows, variable_bytes)


def _of_kind(column: Column, which: int, array: Array) -> tuple[Any, Array]:
    """The kernel for a fixed column, and its array as the kernel takes it."""
    if column.kind == "float":
        return _WORDS["float"][which], array
    if column.kind in ("bool", "int"):
        return _WORDS["unsigned" if array.dtype.kind in "bu" else "int"][which], array
    return _WORDS["least"][which], array


def _numbers(column: Column, key: SortKey) -> tuple[Any, ...]:
    # A category's code -1 becomes 0, as the least tick is.
    shift = (2**63 + 1) % 2**64 if column.kind == "category" else 0
    return key.ascending, key.nulls_first, np.uint64(shift)


def _table(data: DeviceColumns, keys: Sequence[SortKey]) -> Any:
    return plc.Table([nullable(data.schema[key.name], data.array(key.name)) for key in keys])


def _how(keys: Sequence[SortKey]) -> tuple[list[Any], list[Any]]:
    """Directions, and where nulls go: libcudf turns that round where it turns the direction."""
    orders = [_ASCENDING if key.ascending else _DESCENDING for key in keys]
    nulls = [_BEFORE if key.nulls_first == key.ascending else _AFTER for key in keys]
    return orders, nulls


def _taken(column: Column, array: Array, rows: Any) -> Array:
    if not column.fixed:
        return gathered([array], rows)[0]
    if not rows.size:
        return array[:0].copy()
    return _TAKE(array, rows)
