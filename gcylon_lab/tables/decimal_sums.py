"""Exact sums of decimals for each group on CPU ranks, as sums of 32-bit limbs, which say where the digits do not do.

A limb of many rows adds up in float64 without rounding, which numpy does several times faster than Arrow adds up
128 bits, and without a table of its own.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .aggregation import Kernel, sum_beyond
from .column import Column
from .data import Array, one_array
from .grouping import Groups, Int64s

_BLOCK_ROWS = 1 << 20  # sums of so many limbs of 32 bits are below 2**53
_MASK = 0xFFFFFFFF
_NARROW_DIGITS = 18  # any decimal of so many is in 64 bits


def decimal_sums(kernel: Kernel, groups: Groups, column: Column, array: Array) -> Array:
    """Sums of decimals, a row for each group; zero where there is none.

    Raises
    ------
    UnsupportedDtype
        If a sum has more digits than its type, naming the column.
    """
    output = kernel.outputs[0]
    values = one_array(array)
    if column.arrow.byte_width != output.arrow.byte_width:
        values = values.cast(output.arrow)
    ids = groups.ids
    kept = None if groups.outside is None else ~groups.outside
    if values.null_count:
        valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
        kept = valid if kept is None else kept & valid
    words = _words(values)
    narrow = column.arrow.precision <= _NARROW_DIGITS or bool((words[:, 1:] == (words[:, :1] >> 63)).all())
    limbs = 2 if narrow else 2 * words.shape[1]
    totals = np.zeros((limbs, groups.count), np.int64)
    for start in range(0, len(ids), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        block, own = (words[rows], ids[rows]) if kept is None else (words[rows][kept[rows]], ids[rows][kept[rows]])
        for limb in range(limbs):
            totals[limb] += _added(own, _limb(block, limb, last=limb == limbs - 1), groups.count)
    for limb in range(limbs - 1):
        totals[limb + 1] += totals[limb] >> 32
        totals[limb] &= _MASK
    if not narrow:
        _check(kernel, column, totals)
    return pa.chunked_array([_from_limbs(totals, output.arrow)])


def _words(values: Any) -> Int64s:
    """Decimals as signed 64-bit words, the least first."""
    width = values.type.byte_width // 8
    data = values.buffers()[1]
    if not len(values) or data is None:
        return np.empty((0, width), np.int64)
    words = np.frombuffer(data, np.int64, len(values) * width, values.offset * width * 8)
    return words.reshape(-1, width)


def _limb(words: Int64s, limb: int, *, last: bool) -> Int64s:
    word = words[:, limb // 2]
    if limb % 2 == 0:
        return word & _MASK
    return word >> 32 if last else (word >> 32) & _MASK  # the last has the sign


def _added(ids: Int64s, limbs: Int64s, groups: int) -> Int64s:
    if groups == 1:
        return np.array([limbs.sum()])
    return np.bincount(ids, limbs, groups).astype(np.int64)


def _check(kernel: Kernel, column: Column, totals: Int64s) -> None:
    """Refuse sums of more digits than the type has."""
    type_ = kernel.outputs[0].arrow
    most = 10**type_.precision
    edge = most >> 32 * (len(totals) - 1)
    for group in np.flatnonzero((totals[-1] >= edge) | (totals[-1] < -edge)).tolist():
        exact = sum(int(limb) << 32 * place for place, limb in enumerate(totals[:, group]))
        if abs(exact) >= most:
            about = float(Decimal(exact).scaleb(-type_.scale))
            raise sum_beyond(kernel, column, about, f"a decimal of {type_.precision} digits")


def _from_limbs(totals: Int64s, type_: Any) -> Any:
    """An Arrow array of decimals; limbs that are not there are signs."""
    width = type_.byte_width // 8
    words: npt.NDArray[np.uint64] = np.empty((totals.shape[1], width), np.uint64)
    unsigned = totals.astype(np.uint64)
    for word in range(width):
        if 2 * word < len(totals):
            words[:, word] = unsigned[2 * word] | unsigned[2 * word + 1] << np.uint64(32)
        elif 2 * word == len(totals):  # what the last limb carries beyond its 32 bits
            words[:, word] = (totals[-1] >> 32).astype(np.uint64)
        else:
            words[:, word] = (totals[-1] >> 63).astype(np.uint64)
    assert sys.byteorder == "little"
    return pa.Array.from_buffers(type_, len(words), [None, pa.py_buffer(words)])
