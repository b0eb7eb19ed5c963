"""Sums and counts by one whole-number key in a single pass over the rows, by a hash table of our own.

libcudf goes through its rows several times, for aggregations and keys of every kind, which took ten times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import cupy
import numpy as np

from .aggregation import Kernel
from .column import Column, Label
from .cudf_data import DeviceColumns
from .cudf_rows import made
from .schema import Schema

_MOST_SLOTS = 1 << 20  # a table of 16 MB stays in the GPU's cache; with more groups than fit, libcudf is as fast
_SLOTS_A_ROW = 1.33
_THREADS, _BLOCKS_A_PROCESSOR = 256, 8
_EMPTY = 0x8000000000000001
_MOST_SUM = 2**63 - 1

_HEAD = """
typedef unsigned long long u64;
#define EMPTY 0x8000000000000001ull
#define ALL 0xffffffffu

__device__ __forceinline__ long long place_of(u64 key, u64* slots, unsigned mask) {
    if (key == EMPTY) { slots[(u64)mask + 1] = 0; return (long long)mask + 1; }
    unsigned slot = (unsigned)((key * 0x9E3779B97F4A7C15ull) >> 32) & mask;
    for (int tries = 0; tries < 128; tries++) {
        u64 there = slots[slot];
        if (there == EMPTY) {
            there = atomicCAS(&slots[slot], EMPTY, key);
            if (there == EMPTY) there = key;
        }
        if (there == key) return slot;
        slot = (slot + 1) & mask;
    }
    return -1;
}
__device__ __forceinline__ double over_lanes(double value) {
    for (int apart = 16; apart; apart >>= 1) value += __shfl_xor_sync(ALL, value, apart);
    return value;
}
__device__ __forceinline__ u64 over_lanes(u64 value) {
    for (int apart = 16; apart; apart >>= 1) value += __shfl_xor_sync(ALL, value, apart);
    return value;
}
"""
# Lanes whose key is that of lane 0 add up among themselves where they are many: a key that most rows have would
# otherwise be waited for by all.
_BODY = """
extern "C" __global__ void group_rows(
    const KEY* keys, long long rows, u64* slots, unsigned mask, int* full PARAMETERS) {
    const int lane = threadIdx.x & 31;
    const long long step = (long long)gridDim.x * blockDim.x;
    int turn = 0;
    for (long long base = (long long)blockIdx.x * blockDim.x + threadIdx.x - lane; base < rows; base += step) {
        if ((turn++ & 15) == 0 && __any_sync(ALL, *(volatile int*)full)) break;
        const long long row = base + lane;
        const bool here = row < rows;
        const u64 key = here ? (u64)(long long)keys[row] : 0;
        const u64 first = __shfl_sync(ALL, key, 0);
        const unsigned alike = __ballot_sync(ALL, here && key == first);
        const bool together = __popc(alike) >= 8;
        const bool joins = together && here && key == first;
        const bool alone = here && !joins;
        const bool writes = alone || (together && lane == 0);
        const long long place = writes ? place_of(key, slots, mask) : 0;
        if (writes && place < 0) *full = 1;
        const bool adds = writes && place >= 0;
STEPS
    }
}
"""
_ADD = """
        {
            const TYPE value = here ? (TYPE)in_PLACE[row] : (TYPE)0;
            TYPE mine = SKIPS ? (TYPE)0 : value;
            if (together) {
                const TYPE sum = over_lanes(joins ? mine : (TYPE)0);
                if (!alone) mine = sum;
            }
            if (adds && mine != (TYPE)0) atomicAdd(&out_PLACE[place], mine);
        }
"""
_COUNT = """
        {
            const bool counts = here && !(MISSING);
            const u64 others = __popc(__ballot_sync(ALL, joins && counts));
            const u64 mine = alone ? (u64)counts : others;
            if (adds && mine) atomicAdd(&out_PLACE[place], mine);
        }
"""
_C_TYPES = {
    "b1": "unsigned char", "i1": "signed char", "u1": "unsigned char", "i2": "short", "u2": "unsigned short",
    "i4": "int", "u4": "unsigned int", "i8": "long long", "u8": "unsigned long long", "f4": "float", "f8": "double",
}  # fmt: skip


class _Step(NamedTuple):
    """What is added up of one input: ``float``, ``whole`` or ``count``, and whether NaN is left out."""

    how: str
    c_type: str
    skips: bool

    def source(self, place: int) -> str:
        """Its lines of the kernel."""
        nan = f"here && in_{place}[row] != in_{place}[row]" if self.skips else "false"
        if self.how == "count":
            text = _COUNT.replace("MISSING", nan)
        else:
            text = _ADD.replace("SKIPS", nan).replace("TYPE", "double" if self.how == "float" else "u64")
        return text.replace("PLACE", str(place))

    def parameters(self, place: int) -> str:
        """Its parameters of the kernel."""
        return f", const {self.c_type}* in_{place}, {'double' if self.how == 'float' else 'u64'}* out_{place}"


class _Asked(NamedTuple):
    step: _Step
    values: Any


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
    column, array = data.schema[keys[0]], data.array(keys[0])
    asked = [one for kernel in kernels for one in _asked(kernel, data, _items(array))]
    if any(one.step.how == "whole" and may_pass(one.values, _MOST_SUM) for one in asked):
        return None
    slots = min(_MOST_SLOTS, 1 << (int(data.rows * _SLOTS_A_ROW)).bit_length())
    if (slots + 1) * 8 * (1 + len(asked)) > data.rows * (row_bytes + 8 * len(asked)):
        return None
    found = _grouped(_items(array), asked, slots)
    if found is None:
        return None
    table, sums = found
    at = cupy.flatnonzero(table != np.uint64(_EMPTY))
    bits = table[at]
    if int(at[-1]) == slots:
        bits[-1] = np.uint64(_EMPTY)
    values = bits.view(np.uint64 if array.dtype.kind == "u" else np.int64)
    order = cupy.argsort(values)
    made_keys = values[order].astype(array.dtype)
    ordered = iter([one[at][order] for one in sums])
    arrays: list[Any] = []
    for kernel in kernels:
        arrays += _outputs(kernel, ordered)
    schema = Schema([column, *(made_one for kernel in kernels for made_one in kernel.outputs)])
    return DeviceColumns(schema, int(at.size), (made_keys, *arrays))


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
    return 2 * 8 * _MOST_SLOTS * (1 + sum(max(1, len(kernel.inputs)) for kernel in kernels))


def _is_whole(column: Column) -> bool:
    return column.fixed and column.kind in ("int", "bool")


def _items(array: Any) -> Any:
    return array.view(np.uint8) if array.dtype.kind == "b" else array


def _c_type(array: Any) -> str:
    return _C_TYPES[array.dtype.str[1:]]


def _asked(kernel: Kernel, data: DeviceColumns, keys: Any) -> list[_Asked]:
    arrays = [_items(data.array(name)) for name in kernel.inputs]
    if kernel.function == "size":  # nothing is read for it
        return [_Asked(_Step("count", _c_type(keys), False), keys)]
    skips = arrays[0].dtype.kind == "f" and kernel.function != "merge_total"
    how = {"count": "count", "sum": "whole"}.get(kernel.function, "float")
    return [_Asked(_Step(how, _c_type(array), skips), array) for array in arrays]


def _outputs(kernel: Kernel, sums: Any) -> list[Any]:
    if kernel.function == "total":  # on GPUs nothing is known of what rounding took
        total = next(sums)
        return [made(kernel.outputs[0], total), made(kernel.outputs[1], cupy.zeros_like(total))]
    wholes = [next(sums) for _ in kernel.outputs]
    return [
        made(column, one if one.dtype.kind == "f" or column.dtype == np.uint64 else one.view(np.int64))
        for column, one in zip(kernel.outputs, wholes, strict=True)
    ]


def may_pass(values: Any, most: int) -> bool:
    """Whether a sum of some of so many whole numbers may be larger than a number."""
    largest = max(int(values.max()), -int(values.min()))
    return largest * int(values.size) > most


def _grouped(keys: Any, asked: Sequence[_Asked], slots: int) -> tuple[Any, list[Any]] | None:
    """The table of keys, and what was added up at their places; None where they did not fit."""
    table = cupy.full(slots + 1, _EMPTY, dtype=np.uint64)
    sums = [cupy.zeros(slots + 1, np.float64 if one.step.how == "float" else np.uint64) for one in asked]
    full = cupy.zeros(1, np.int32)
    kernel = _kernel(_c_type(keys), tuple(one.step for one in asked))
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    blocks = min(-(-keys.size // _THREADS), _BLOCKS_A_PROCESSOR * processors)
    arguments: list[Any] = [keys, np.int64(keys.size), table, np.uint32(slots - 1), full]
    for one, result in zip(asked, sums, strict=True):
        arguments += [one.values, result]
    kernel((blocks,), (_THREADS,), tuple(arguments))
    return None if int(full[0]) else (table, sums)


@cache
def _kernel(key_type: str, steps: tuple[_Step, ...]) -> Any:
    body = _BODY.replace("KEY", key_type)
    body = body.replace("PARAMETERS", "".join(step.parameters(place) for place, step in enumerate(steps)))
    body = body.replace("STEPS", "".join(step.source(place) for place, step in enumerate(steps)))
    return cupy.RawKernel(_HEAD + body, "group_rows")
