"""What is computed for each group on CPU ranks: numpy over group numbers, in row order, so that results have no timing.

Sums of floats are carried in numpy's longest float, which leaves 64 bits here, as a float64 and what it has no digits
for. Added up in row order from what came before, they do not depend on how rows are cut into chunks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ..arrow.casting import as_arrow
from ..protocol.aggregation import Kernel, sum_beyond
from ..protocol.data import Array, one_array
from ..protocol.schema import Column
from .keys.int_hash_table import stable_order
from .keys.key_groups import (
    Groups,
    Int64s,
    are_mostly_different,
    counted,
    dense_ranks,
    first_rows,
    is_text,
    key_codes,
    last_rows,
    plain_values,
    small_units,
)
from .take import as_column, gather

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Inputs = list[tuple[Column, Array]]

_BLOCK_ROWS = 65536
_LIMB_BLOCK_ROWS = 1 << 20  # sums of so many limbs of 32 bits are below 2**53
_MANY_ROWS = 64  # of a group on average: then each is sorted by itself, as numpy sorts plain numbers fastest
_MASK = 0xFFFFFFFF
_EXACT = 2**53  # below which a float64 holds every int
_WHOLE = 2.0 ** (np.finfo(np.longdouble).nmant - 1)  # below which the longest float holds every sum of two ints
_PART_ERROR = 2.0**-30  # of the way between two values, by which a float says a place between them wrongly
_NARROW_DIGITS = 18  # any decimal of so many is in 64 bits


def compute(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
    """The arrays of a kernel's outputs, a row for each group."""
    return _KERNELS[kernel.function](kernel, groups, inputs)


def _valid_rows(groups: Groups, valid: Bools | None) -> tuple[Int64s, Bools | None]:
    """Group numbers of the rows that count, and which they are (None: all)."""
    if groups.outside is None and valid is None:
        return groups.ids, None
    kept = groups.ids >= 0 if groups.outside is None else ~groups.outside
    if valid is not None:
        kept &= valid
    return (groups.ids, None) if kept.all() else (groups.ids[kept], kept)


def _values(groups: Groups, column: Column, array: Array, *, in_units: bool = False) -> tuple[Int64s, npt.NDArray[Any]]:
    """The group and the value of each row that counts; of decimals perhaps how many of their last place it is."""
    values, valid = small_units(one_array(array)) if in_units else plain_values(column, array)
    ids, kept = _valid_rows(groups, valid)
    return ids, values if kept is None else values[kept]


def _size(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
    return [as_column(kernel.outputs[0], groups.sizes)]


def _count(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
    valid = present(*inputs[0])
    sizes = groups.sizes if valid is None else counted(_valid_rows(groups, valid)[0], groups.count)
    return [as_column(kernel.outputs[0], sizes)]


def present(column: Column, array: Array) -> Bools | None:
    """Which rows hold a value; None where all do."""
    if column.kind == "category":
        valid = array >= 0
    elif column.kind == "complex":
        valid = ~np.isnan(array)
    elif column.fixed or column.kind == "float":
        return plain_values(column, array)[1]
    elif array.null_count:
        valid = array.is_valid().to_numpy()
    else:
        return None
    return None if valid.all() else valid


def _sum(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
    column, array = inputs[0]
    if column.kind == "decimal":
        return [_decimal_sums(kernel, groups, column, array)]
    ids, values = _values(groups, column, array)
    dtype = np.dtype(np.uint64 if values.dtype.kind == "u" and column.kind == "int" else np.int64)
    if _largest(values) * len(values) < _EXACT:
        return [as_column(kernel.outputs[0], np.bincount(ids, values, groups.count).astype(dtype))]
    totals = np.zeros(groups.count, dtype)
    np.add.at(totals, ids, values.astype(totals.dtype, copy=False))
    _check_sums(kernel, column, ids, values, totals)
    return [as_column(kernel.outputs[0], totals)]


def _largest(values: npt.NDArray[Any]) -> int:
    return max(int(values.max(initial=0)), -int(values.min(initial=0)))


def _check_sums(
    kernel: Kernel, column: Column, ids: Int64s, values: npt.NDArray[Any], totals: npt.NDArray[Any]
) -> None:
    """Refuse sums that int64 (uint64) does not hold, which numpy cuts off."""
    limits = np.iinfo(totals.dtype)
    if _largest(values) * len(values) <= limits.max:
        return
    about = _totals(ids, values, len(totals))
    wrong = np.flatnonzero(np.abs(about - totals.astype(np.longdouble)) > 2.0**60)
    if len(wrong):
        raise sum_beyond(kernel, column, float(about[wrong[0]]), str(totals.dtype))


def _decimal_sums(kernel: Kernel, groups: Groups, column: Column, array: Array) -> Array:
    """Sums of decimals as sums of their 32-bit limbs, which say where the digits do not do; zero where there is none.

    A limb of many rows adds up in float64 without rounding, which numpy does several times faster than Arrow adds up
    128 bits, and without a table of its own.

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
    for start in range(0, len(ids), _LIMB_BLOCK_ROWS):
        rows = slice(start, start + _LIMB_BLOCK_ROWS)
        block, own = (words[rows], ids[rows]) if kept is None else (words[rows][kept[rows]], ids[rows][kept[rows]])
        if narrow:
            whole = np.ascontiguousarray(block[:, 0])
            if _largest(whole) * len(whole) < _EXACT:  # they add up in float64 without rounding as they are
                sums = _added_limbs(own, whole, groups.count)
                totals[0] += sums & _MASK
                totals[1] += sums >> 32
                continue
        for limb in range(limbs):
            totals[limb] += _added_limbs(own, _limb(block, limb, last=limb == limbs - 1), groups.count)
    for limb in range(limbs - 1):
        totals[limb + 1] += totals[limb] >> 32
        totals[limb] &= _MASK
    if not narrow:
        _check_decimals(kernel, column, totals)
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


def _added_limbs(ids: Int64s, limbs: Int64s, groups: int) -> Int64s:
    if groups == 1:
        return np.array([limbs.sum()])
    return np.bincount(ids, limbs, groups).astype(np.int64)


def _check_decimals(kernel: Kernel, column: Column, totals: Int64s) -> None:
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


def _totals(
    ids: Int64s,
    values: npt.NDArray[Any],
    count: int,
    rest: Floats | None = None,
    before: list[Array] | None = None,
) -> npt.NDArray[Any]:
    """Sums in row order, in the longest float there is; those of before are of the first groups."""
    totals = np.zeros(count, np.longdouble)
    if before is not None:
        totals[: len(before[0])] = before[0]
        totals[: len(before[1])] += before[1]
    for start in range(0, len(ids), _BLOCK_ROWS):
        block, own = values[start : start + _BLOCK_ROWS], ids[start : start + _BLOCK_ROWS]
        # Where nothing is rounded, the order in which ints are added up does not matter.
        if rest is None and block.dtype.kind in "iu" and count <= len(block) and _add_up_exactly(totals, block):
            totals += np.bincount(own, block, count)
            continue
        block = block.astype(np.longdouble)
        if rest is not None:
            block += rest[start : start + _BLOCK_ROWS]
        np.add.at(totals, own, block)
    return totals


def _add_up_exactly(totals: npt.NDArray[Any], ints: npt.NDArray[Any]) -> bool:
    """Whether some ints add up in float64 without rounding, and with whole totals in the longest float."""
    return _largest(ints) * len(ints) < _EXACT and bool(np.abs(totals).max(initial=0) < _WHOLE)


def _units(kernel: Kernel) -> int:
    """How many units of the last place make one, of decimals whose totals are of these: they add up without rounding.
    0 of all else."""
    of = kernel.of
    if of is None or of.kind != "decimal" or not pa.types.is_decimal128(of.arrow):
        return 0
    return 10**of.arrow.scale if of.arrow.precision <= _NARROW_DIGITS and of.arrow.scale >= 0 else 0


def _in_two(kernel: Kernel, totals: npt.NDArray[Any]) -> list[Array]:
    with np.errstate(over="ignore", invalid="ignore"):
        first = totals.astype(np.float64)
        rest = (totals - first).astype(np.float64)
    rest[~np.isfinite(first)] = 0.0
    return [as_column(kernel.outputs[0], first), as_column(kernel.outputs[1], rest)]


def go_on(kernel: Kernel, groups: Groups, inputs: Inputs, before: list[Array] | None) -> list[Array]:
    """Sums of floats, gone on from those of before, which are of the first groups; of narrow decimals in units."""
    if kernel.function == "total":
        ids, values = _values(groups, *inputs[0], in_units=_units(kernel) > 0)
        rest = None
    else:
        kept = groups.ids >= 0
        ids, values, rest = groups.ids[kept], inputs[0][1][kept], inputs[1][1][kept]
    with np.errstate(invalid="ignore"):
        return _in_two(kernel, _totals(ids, values, groups.count, rest, before))


def _from_nothing(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
    return go_on(kernel, groups, inputs, None)


def _moments(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
    ids, values = _values(groups, *inputs[0])
    return spread(kernel, groups.count, ids, _in_two_floats(values))


def _merge_moments(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
    kept = (groups.ids >= 0) & (inputs[0][1] > 0)
    count, mean, rest, squares = (array[kept] for _, array in inputs)
    return spread(kernel, groups.count, groups.ids[kept], (mean, rest), count, squares)


def _in_two_floats(values: npt.NDArray[Any]) -> tuple[Floats, Floats | None]:
    """Numbers as float64, and what it has no digits for (None: nothing), so that their differences are exact."""
    if values.dtype.itemsize < 8 or values.dtype.kind not in "iu" or not _is_long(values):
        return values.astype(np.float64, copy=False), None
    return (values >> 32).astype(np.float64) * 2.0**32, (values & 0xFFFFFFFF).astype(np.float64)


def _is_long(values: npt.NDArray[Any]) -> bool:
    return max(int(values.max(initial=0)), -int(values.min(initial=0))) > 2**53


def spread(
    kernel: Kernel,
    groups: int,
    ids: Int64s,
    means: tuple[Floats, Floats | None],
    counts: Int64s | None = None,
    squares: Floats | None = None,
) -> list[Array]:
    """Counts, means and squared distances from them of groups, of those of their parts.

    All is computed of distances from one of the group's values. They are small where the spread is, and zero where
    all values are equal; where means are large beside the spread, sums of squares would have no digits left of it.

    Parameters
    ----------
    kernel : Kernel
    groups : int
        How many there are.
    ids : ndarray of int64
        The group of each part.
    means : tuple of ndarray of float64
        Of each part, in two numbers; the second is None where it is zero.
    counts, squares : ndarray, optional
        Of each part; where they are not given, parts are single values.
    """
    first, rest = means
    if groups == 1:
        alone = _spread_alone(first, rest, counts, squares)
        return [as_column(c, values) for c, values in zip(kernel.outputs, alone, strict=True)]
    total = _added(ids, counts, groups)
    centre, centre_rest = np.zeros(groups), np.zeros(groups)
    centre[ids] = first  # any of them will do
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        apart = first - centre[ids]
        if rest is not None:
            centre_rest[ids] = rest  # of the same one: numpy goes through both in one order
            apart += rest - centre_rest[ids]
        shift = _added(ids, apart if counts is None else apart * counts, groups) / np.maximum(total, 1)
        apart -= shift[ids]
        np.square(apart, out=apart)
        if counts is not None:
            apart *= counts
        if squares is not None:
            apart += squares
        whole, part = two_sum(centre, centre_rest)  # only what is left of the second is as small as distances are
        made = (total, *two_sum(whole, part + shift), _added(ids, apart, groups))
    return [as_column(c, values) for c, values in zip(kernel.outputs, made, strict=True)]


def _spread_alone(
    first: Floats, rest: Floats | None, counts: Int64s | None, squares: Floats | None
) -> tuple[npt.NDArray[Any], ...]:
    """The same of one group, of one column or of several, each a row of two-dimensional arrays."""
    lone = (*first.shape[:-1], 1)
    if counts is None:
        total: npt.NDArray[Any] = np.full(lone, first.shape[-1])
    else:
        total = counts.sum(axis=-1, keepdims=True)
    centre, centre_rest = (
        np.zeros(lone) if one is None or not one.shape[-1] else one[..., -1:].copy() for one in (first, rest)
    )
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        apart = first - centre
        if rest is not None:
            apart += rest - centre_rest
        moved = apart if counts is None else apart * counts
        shift = moved.sum(axis=-1, keepdims=True) / np.maximum(total, 1)
        apart -= shift
        np.square(apart, out=apart)
        if counts is not None:
            apart *= counts
        if squares is not None:
            apart += squares
        whole, part = two_sum(centre, centre_rest)
        return (total, *two_sum(whole, part + shift), apart.sum(axis=-1, keepdims=True))


def moments_of_columns(kernel: Kernel, groups: Groups, inputs: Inputs, columns: int) -> list[Array]:
    """What ``moments`` and ``merge_moments`` make of one group, of several columns that stand one after the other."""
    if kernel.function == "moments":
        values, there = plain_values(*inputs[0])
        parts, valid = [values.astype(np.float64, copy=False)], there
    else:
        parts = [array for _, array in inputs]
        valid = parts[0] > 0
    parts = [_of_group(part.reshape(columns, -1), groups) for part in parts]
    lacking = np.empty(0, np.int64)
    if valid is not None:
        valid = _of_group(valid.reshape(columns, -1), groups)
        lacking = np.flatnonzero(~valid.all(axis=1))
    made = [values[:, 0].copy() for values in _spread_alone(*_in_place(kernel, parts))]
    for column in lacking.tolist():
        assert valid is not None
        own = [part[column, valid[column]] for part in parts]
        for values, value in zip(made, _spread_alone(*_in_place(kernel, own)), strict=True):
            values[column] = value[0]
    return [as_column(c, values) for c, values in zip(kernel.outputs, made, strict=True)]


def _of_group(planes: npt.NDArray[Any], groups: Groups) -> npt.NDArray[Any]:
    """The rows of planes that are in a group, without gaps, as their sums depend on that."""
    return planes if groups.outside is None else np.compress(~groups.outside, planes, axis=1)


def _in_place(
    kernel: Kernel, parts: list[npt.NDArray[Any]]
) -> tuple[Floats, Floats | None, Int64s | None, Floats | None]:
    if kernel.function == "moments":
        return parts[0], None, None, None
    count, mean, rest, squares = parts
    return mean, rest, count, squares


def _added(ids: Int64s, values: npt.NDArray[Any] | None, groups: int) -> npt.NDArray[Any]:
    """Sums of values of each group; how many there are where none are given."""
    if values is None:
        return counted(ids, groups)
    total = np.bincount(ids, values, groups)
    return total if values.dtype.kind == "f" else total.astype(np.int64)


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """A sum as a number and what rounding took from it; for arrays of any library."""
    total = a + b
    part = total - a
    rest = (a - (total - part)) + (b - part)
    return total, rest


def _taken(end: str, *, skipna: bool = True) -> Callable[[Kernel, Groups, Inputs], list[Array]]:
    """A value of the ``first`` or ``last`` row of each group, or of those rows that have one."""

    def take(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
        column, array = inputs[0]
        valid = present(column, array) if skipna else None
        if valid is None:
            return [gather(column, array, groups.first if end == "first" else groups.last)]
        ids = np.where(valid, groups.ids, -1)
        return [gather(column, array, (first_rows if end == "first" else last_rows)(ids, groups.count))]

    return take


def _extreme(largest: bool) -> Callable[[Kernel, Groups, Inputs], list[Array]]:
    def take(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
        column, array = inputs[0]
        order, valid = ordered_values(column, array)
        if groups.count == 1:
            return [gather(column, array, _end_of_all(order, groups.ids, valid, largest=largest))]
        ids = groups.ids if valid is None else np.where(valid, groups.ids, -1)
        kept = ids >= 0
        least, most = _ends(order.dtype)
        best = np.full(groups.count + 1, least if largest else most, order.dtype)  # the last is for id -1
        if valid is None and groups.in_runs:
            best[:-1] = (np.maximum if largest else np.minimum).reduceat(order, groups.first)
        else:
            (np.maximum if largest else np.minimum).at(best, ids[kept], order[kept])
        if column.kind == "int" and column.fixed and valid is None and kept.all():  # equal ones are not told apart
            return [best[:-1].astype(array.dtype, copy=False)]
        rows = first_rows(np.where(kept & (order == best[ids]), ids, -1), groups.count)
        return [gather(column, array, rows)]

    return take


def _end_of_all(order: npt.NDArray[Any], ids: Int64s, valid: Bools | None, *, largest: bool) -> Int64s:
    """The first row of those that are least, or most, of all that count; -1 where there is none."""
    kept = ids >= 0 if valid is None else (ids >= 0) & valid
    rows = None if kept.all() else np.flatnonzero(kept)
    some = order if rows is None else order[rows]
    if not len(some):
        return np.array([-1])
    at = int(some.argmax() if largest else some.argmin())
    return np.array([at if rows is None else rows[at]])


def _ends(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    limits = np.iinfo(dtype)
    return limits.min, limits.max


def ordered_values(column: Column, array: Array) -> tuple[npt.NDArray[Any], Bools | None]:
    """Numbers in the order of a column's values, and which rows have one (None: all)."""
    if column.kind == "category":
        return array, None if (array >= 0).all() else array >= 0
    if column.kind not in ("str", "bytes", "decimal"):
        return plain_values(column, array)
    plain = one_array(array)
    if is_text(plain) and are_mostly_different(plain):
        places = dense_ranks(plain)
        return places, None if not plain.null_count else places >= 0
    encoded = plain.dictionary_encode()
    places = np.empty(len(encoded.dictionary) + 1, np.int64)
    places[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(encoded.dictionary))
    codes = pc.fill_null(encoded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return places[codes], None if not array.null_count else codes >= 0


def _truth(every: bool) -> Callable[[Kernel, Groups, Inputs], list[Array]]:
    def look(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
        column, array = inputs[0]
        if column.kind in ("str", "bytes"):
            lengths = pc.fill_null(pc.binary_length(one_array(array)), 0).to_numpy(zero_copy_only=False)
            ids, kept = _valid_rows(groups, present(column, array))
            true = lengths > 0 if kept is None else lengths[kept] > 0
        else:
            ids, values = _values(groups, column, array)
            true = values != 0
        # One row decides: any true one, or any false one.
        decided = np.zeros(groups.count, np.bool_)
        decided[ids[~true if every else true]] = True
        return [as_column(kernel.outputs[0], ~decided if every else decided)]

    return look


def _quantile(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
    column, array = inputs[0]
    ids, values = _values(groups, column, array)
    count = np.bincount(ids, minlength=groups.count)
    starts = np.cumsum(count) - count
    values = _sorted_in_groups(values, ids, starts, count)
    q = 0.5 if kernel.function == "median" else kernel.argument
    at = q * np.maximum(count - 1, 0)
    low = np.floor(at).astype(np.int64)
    if not len(values):
        values = np.zeros(1, values.dtype)
    last = len(values) - 1
    below = values[np.minimum(starts + low, last)]
    above = values[np.minimum(starts + np.minimum(low + 1, np.maximum(count - 1, 0)), last)]
    return [as_column(kernel.outputs[0], between(column, below, above, at - low), count > 0)]


def _sorted_in_groups(values: npt.NDArray[Any], ids: Int64s, starts: Int64s, count: Int64s) -> npt.NDArray[Any]:
    """Values group by group, those of each in their order."""
    if len(values) < _MANY_ROWS * len(count):
        order = np.argsort(values)
        return values[order[stable_order(ids[order], len(count))]]
    values = values[stable_order(ids, len(count))]
    for start, stop in zip(starts.tolist(), (starts + count).tolist(), strict=True):
        values[start:stop].sort()
    return values


def between(column: Column, below: npt.NDArray[Any], above: npt.NDArray[Any], part: Floats) -> npt.NDArray[Any]:
    """The value at a part of the way between two; ticks stay whole."""
    if column.kind in ("datetime", "timedelta"):
        way = above - below
        further = way * part
        nearest = np.rint(further)
        # The part is a float whose last digits are off: what is all but a whole number of ticks is one.
        further = np.where(np.abs(further - nearest) <= way * _PART_ERROR, nearest, further)
        whole = np.floor(further)
        ticks = below + whole.astype(np.int64)
        cut: npt.NDArray[Any] = ticks + ((ticks < 0) & (further > whole))  # towards zero, as pandas does
        return cut
    low, high = below.astype(np.float64), above.astype(np.float64)
    with np.errstate(invalid="ignore"):
        halfway = (part == 0.5) | np.isinf(low)  # where all between is infinite, whatever the part
        between = np.where(halfway, (low + high) / 2, low + (high - low) * part)
    exact: npt.NDArray[Any] = np.where((part == 0) | (low == high), low, between)
    return exact


def _nunique(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
    codes, _ = key_codes(*inputs[0])
    kept = (codes >= 0) & (groups.ids >= 0)
    width = int(codes.max(initial=0)) + 1
    pairs: Int64s = pd.unique(groups.ids[kept] * width + codes[kept])
    return [as_column(kernel.outputs[0], np.bincount(pairs // width, minlength=groups.count))]


def _list(kernel: Kernel, groups: Groups, inputs: Inputs) -> list[Array]:
    column, array = inputs[0]
    output = kernel.outputs[0]
    order = np.flatnonzero(groups.ids >= 0)
    order = order[stable_order(groups.ids[order], groups.count)]
    offsets = np.zeros(groups.count + 1, np.int64)
    np.cumsum(np.bincount(groups.ids[order], minlength=groups.count), out=offsets[1:])
    whole = as_arrow(column, array, nan_is_null=False) if column.fixed else one_array(array)
    if column.kind == "category":
        whole = whole.dictionary_decode()
    values = whole.take(pa.array(order)).cast(output.arrow.value_type)
    made = pa.LargeListArray.from_arrays(pa.array(offsets), values, type=output.arrow)
    return [pa.chunked_array([made])]


_KERNELS: dict[str, Callable[[Kernel, Groups, Inputs], list[Array]]] = {
    "size": _size,
    "count": _count,
    "sum": _sum,
    "total": _from_nothing,
    "merge_total": _from_nothing,
    "moments": _moments,
    "merge_moments": _merge_moments,
    "first": _taken("first"),
    "last": _taken("last"),
    "first_row": _taken("first", skipna=False),
    "last_row": _taken("last", skipna=False),
    "min": _extreme(False),
    "max": _extreme(True),
    "any": _truth(False),
    "all": _truth(True),
    "median": _quantile,
    "quantile": _quantile,
    "nunique": _nunique,
    "list": _list,
}


def finish(kernel: Kernel, inputs: Inputs) -> Array:
    """The array of a result's column, of the columns that whole groups have."""
    output = kernel.outputs[0]
    if kernel.function == "same":
        column, array = inputs[0]
        return array if column.dtype == output.dtype and column.arrow == output.arrow else _recast(output, array)
    if kernel.function == "sum":
        return as_column(output, inputs[0][1] + inputs[1][1])
    if kernel.function == "mean":
        first, rest, count = (array for _, array in inputs)
        return _mean(output, first, rest, count, _units(kernel))
    count, squares = inputs[0][1], inputs[-1][1]
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = squares / (count - kernel.argument)
        values = np.sqrt(variance) if kernel.function == "std" else variance
    return as_column(output, values, count > kernel.argument)


def _mean(output: Column, first: Floats, rest: Floats, count: Int64s, units: int) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (first.astype(np.longdouble) + rest) / (count * np.longdouble(units or 1))
        if output.kind in ("datetime", "timedelta"):
            means = np.where(count > 0, means, 0)
            return as_column(output, means.astype(np.int64), count > 0)
        return as_column(output, means.astype(np.float64), count > 0)


def _recast(output: Column, array: Any) -> Array:
    return as_column(output, array)
