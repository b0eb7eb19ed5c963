"""Rows of fixed columns by number, or a run of them, copied on the device: all columns in one kernel.

A library's gather starts a kernel for each column, which reads the numbers of rows each time; for blocks of some
million rows starting them takes as long as they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import cupy
import numpy as np

_THREADS, _STEPS = 256, 4
_COLUMNS_A_LAUNCH = 8  # whose addresses are passed by value

SOURCE = r"""
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned char u8;

#define THREADS 256
#define STEPS 4  // rows a thread, so that enough loads are under way at one time
#define COLUMNS 8

template <typename T>
static __device__ __forceinline__ void copy_items(
        const T* source, T* target, const i64* row, i64 base, i64 rows) {
    T items[STEPS];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step)
        if (base + step * THREADS < rows) items[step] = source[row[step]];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step)  // not read again soon: the cache is for what others look up
        if (base + step * THREADS < rows) __stcs(target + base + step * THREADS, items[step]);
}

static __device__ __forceinline__ void copy_column(
        int width, u64 source, u64 target, const i64* row, i64 base, i64 rows) {
    switch (width) {
        case 1: copy_items((const u8*)source, (u8*)target, row, base, rows); break;
        case 2: copy_items((const u16*)source, (u16*)target, row, base, rows); break;
        case 4: copy_items((const u32*)source, (u32*)target, row, base, rows); break;
        case 16: copy_items((const ulonglong2*)source, (ulonglong2*)target, row, base, rows); break;
        default: copy_items((const u64*)source, (u64*)target, row, base, rows);
    }
}

// Row i of the result is row numbers[i], or first + i where there are no numbers.
template <typename N>
static __device__ __forceinline__ void take_columns(
        const N* numbers, i64 first, i64 rows, const u64* sources, const u64* targets, const int* widths, int columns) {
    i64 base = (i64)blockIdx.x * (THREADS * STEPS) + threadIdx.x;
    i64 row[STEPS];
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        i64 at = base + step * THREADS;
        row[step] = at < rows ? numbers ? (i64)numbers[at] : first + at : 0;
    }
    #pragma unroll
    for (int column = 0; column < COLUMNS; ++column)
        if (column < columns) copy_column(widths[column], sources[column], targets[column], row, base, rows);
}

#define TAKE(NAME, N) extern "C" __global__ void __launch_bounds__(THREADS) NAME( \
        const N* numbers, i64 first, i64 rows, \
        u64 s0, u64 s1, u64 s2, u64 s3, u64 s4, u64 s5, u64 s6, u64 s7, \
        u64 t0, u64 t1, u64 t2, u64 t3, u64 t4, u64 t5, u64 t6, u64 t7, u64 widths, int columns) { \
    u64 sources[COLUMNS] = {s0, s1, s2, s3, s4, s5, s6, s7}, targets[COLUMNS] = {t0, t1, t2, t3, t4, t5, t6, t7}; \
    int each[COLUMNS]; \
    _Pragma("unroll") \
    for (int column = 0; column < COLUMNS; ++column) each[column] = (int)(widths >> (8 * column) & 0xff); \
    take_columns(numbers, first, rows, sources, targets, each, columns); \
}
TAKE(take_int32, int)
TAKE(take_int64, i64)
"""


def take_fixed(arrays: Sequence[Any], rows: Any) -> list[Any]:
    """Rows of some arrays of one length, copied.

    Parameters
    ----------
    arrays : sequence of cupy array
        Items of 1, 2, 4, 8 or 16 bytes, contiguous.
    rows : cupy array of int, shape (n,), or slice
        Which ones; all of them are there.

    Returns
    -------
    list of cupy array, each of shape (n,)
    """
    if isinstance(rows, slice):
        numbers, first, count = np.uint64(0), rows.start, rows.stop - rows.start
        name = "take_int64"
    else:
        numbers = rows if rows.dtype in (np.int32, np.int64) else rows.astype(np.int64)
        first, count, name = 0, numbers.size, "take_int32" if numbers.dtype.itemsize == 4 else "take_int64"
    taken = [cupy.empty(count, array.dtype) for array in arrays]
    if not count:
        return taken
    kernel, blocks = _kernels()[name], -(-count // (_THREADS * _STEPS))
    for start in range(0, len(arrays), _COLUMNS_A_LAUNCH):
        sources, targets = arrays[start : start + _COLUMNS_A_LAUNCH], taken[start : start + _COLUMNS_A_LAUNCH]
        none = [np.uint64(0)] * (_COLUMNS_A_LAUNCH - len(sources))
        addresses = [np.uint64(one.data.ptr) for one in sources] + none
        addresses += [np.uint64(one.data.ptr) for one in targets] + none
        widths = np.uint64(sum(one.dtype.itemsize << (8 * place) for place, one in enumerate(sources)))
        kernel(
            (blocks,),
            (_THREADS,),
            (numbers, np.int64(first), np.int64(count), *addresses, widths, np.int32(len(sources))),
        )
    return taken


@cache
def _kernels() -> dict[str, Any]:
    module = cupy.RawModule(code=SOURCE)
    return {name: module.get_function(name) for name in ("take_int32", "take_int64")}
