"""Reordering rows by id, stable, and the bytes that each id takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..protocol.data import Columns, Dealt, one_array, segments_of
from ..protocol.schema import Schema
from .keys.hashing import BLOCK_ROWS
from .keys.scratch_pool import LEAST_KEPT_BYTES, scratch
from .sorting import take_rows
from .take import take_planes

Int64s = npt.NDArray[np.int64]
Ids = npt.NDArray[Any]

# Up to so many ids one pass over the ids for each is faster than a sort (measured; the sort is a radix sort).
_PASSES = 8
_ORDER_ROWS = BLOCK_ROWS  # rows ordered at a time, so that temporaries stay small
_PER_VALUE = 8.125  # of a value that has a length: an offset, and a validity bit


def partition(data: Columns, ids: Ids, n: int) -> tuple[Columns, Int64s]:
    """Reorder rows by id, keeping the order of rows with equal ids.

    Parameters
    ----------
    data : Columns
    ids : ndarray, shape (rows,)
        In [0, n).
    n : int

    Returns
    -------
    Columns, ndarray of int64, shape (n + 1,)
        The rows for id i are [offsets[i], offsets[i + 1]).
    """
    if n == 1 or not data.rows:
        offsets = np.zeros(n + 1, np.int64)
        offsets[1:] = data.rows
        return data, offsets
    at_once = bool(data.schema.blocks) and data.rows <= _ORDER_ROWS
    if n <= _PASSES and not data.schema.variable and not at_once:
        return _by_blocks(data, ids, n)
    order, offsets = _order(ids, n)
    if data.schema.blocks:
        return take_rows(data, order, scratch), offsets
    arrays = tuple(
        _gathered(array, order) if column.fixed else _taken(array, order)
        for column, array in zip(data.schema.columns, data.arrays, strict=True)
    )
    return Columns(data.schema, data.rows, arrays), offsets


def deal(data: Columns, ids: Ids, n: int) -> tuple[Dealt, Int64s]:
    """As `partition`, for a schema with blocks: what is for one id is together."""
    order, offsets = _order(ids, n)
    return deal_rows(data, order, offsets), offsets


def deal_rows(data: Columns, order: Int64s, offsets: Int64s) -> Dealt:
    """Rows in an order, those of each id, which is between two offsets, together."""
    schema, rows, edges = data.schema, data.rows, offsets.tolist()
    dealt: list[npt.NDArray[Any]] = []
    for block, segments in zip(schema.blocks, segments_of(data), strict=True):
        count = len(block.places)
        planes = scratch(rows * count, block.items)
        for start, stop in zip(edges, edges[1:], strict=False):
            if stop > start:
                out = planes[start * count : stop * count].reshape(count, stop - start)
                take_planes(segments, order[start:stop], out)
        dealt.append(planes)
    taken = [_taken(array, order) for array in data.variable]
    return Dealt(schema, rows, offsets, tuple(dealt), Columns(Schema(schema.variable), rows, tuple(taken)))


def is_dealt(data: Columns) -> bool:
    """Whether all rows are together, block by block, as they are."""
    return data.planes is not None and all(len(some) == 1 and some[0].flags.c_contiguous for some in data.planes)


def cut_planes(data: Columns, offsets: Int64s) -> Dealt:
    """Rows as they are, those between two offsets together: copied where they are not yet."""
    schema, edges = data.schema, offsets.tolist()
    dealt: list[npt.NDArray[Any]] = []
    whole = data.planes if len(edges) == 2 and is_dealt(data) else None
    for number, (block, segments) in enumerate(zip(schema.blocks, segments_of(data), strict=True)):
        if whole is not None:
            dealt.append(whole[number][0].reshape(-1))
            continue
        count = len(block.places)
        planes = scratch(data.rows * count, block.items)
        for start, stop in zip(edges, edges[1:], strict=False):
            out = planes[start * count : stop * count].reshape(count, stop - start)
            np.concatenate([segment[:, start:stop] for segment in segments], out=out)
        dealt.append(planes)
    return Dealt(schema, data.rows, offsets, tuple(dealt), Columns(Schema(schema.variable), data.rows, data.variable))


def _by_blocks(data: Columns, ids: Ids, n: int) -> tuple[Columns, Int64s]:
    """Gather block by block: the indices of a block stay in the cache and are never added up or stored."""
    arrays = _places(data.schema, data.rows)
    if data.rows <= _ORDER_ROWS:
        order, offsets = _order(ids, n)
        for column, out in zip(data.arrays, arrays, strict=True):
            column.take(order, out=out, mode="clip")
        return Columns(data.schema, data.rows, arrays), offsets
    offsets = np.zeros(n + 1, np.int64)
    offsets[1:] = np.cumsum(count_ids(ids, n))
    heads = offsets[:-1].tolist()
    for start in range(0, data.rows, _ORDER_ROWS):
        block = ids[start : start + _ORDER_ROWS]
        columns = [array[start : start + _ORDER_ROWS] for array in data.arrays]
        for place, head in enumerate(heads):
            rows = np.flatnonzero(block == place)
            heads[place] = end = head + len(rows)
            for column, out in zip(columns, arrays, strict=True):
                column.take(rows, out=out[head:end], mode="clip")
    return Columns(data.schema, data.rows, arrays), offsets


def _places(schema: Schema, rows: int) -> tuple[npt.NDArray[Any], ...]:
    """Memory for the columns of a piece. That of many small ones of one dtype is one array: it is got at once, and in
    large pages."""
    dtypes = [column.dtype for column in schema.columns if column.dtype is not None]
    planes = {dtype: iter(_equal_places(rows, dtype, count)) for dtype, count in Counter(dtypes).items()}
    return tuple(next(planes[dtype]) for dtype in dtypes)


def _equal_places(rows: int, dtype: np.dtype[Any], count: int) -> Iterable[npt.NDArray[Any]]:
    if rows * dtype.itemsize < LEAST_KEPT_BYTES:
        return scratch(rows * count, dtype).reshape(count, rows)
    return [scratch(rows, dtype) for _ in range(count)]


def count_ids(ids: Ids, n: int) -> Int64s:
    """How many rows have each id; shape (n,)."""
    if n > _PASSES:
        return np.bincount(ids, minlength=n)
    # bincount widens the ids to int64 first; comparing bytes is several times as fast.
    return np.array([np.count_nonzero(ids == place) for place in range(n)], dtype=np.int64)


def _order(ids: Ids, n: int) -> tuple[Int64s, Int64s]:
    offsets = np.zeros(n + 1, np.int64)
    if n > _PASSES:
        np.cumsum(count_ids(ids, n), out=offsets[1:])
        return np.argsort(ids, kind="stable"), offsets
    np.cumsum(count_ids(ids, n), out=offsets[1:])
    order = scratch(len(ids), np.dtype(np.int64))
    heads = offsets[:-1].tolist()
    for start in range(0, len(ids), _ORDER_ROWS):
        block = ids[start : start + _ORDER_ROWS]
        for place, head in enumerate(heads):
            rows = np.flatnonzero(block == place)
            heads[place] = head + len(rows)
            np.add(rows, start, out=order[head : heads[place]])
    return order, offsets


def _gathered(array: npt.NDArray[Any], order: Int64s) -> npt.NDArray[Any]:
    out = scratch(len(order), array.dtype)
    # Indices are in range by construction; "clip" lets numpy write to out directly instead of through a buffer.
    return np.take(array, order, out=out, mode="clip")


def _taken(chunked: Any, order: Int64s) -> Any:
    return pa.chunked_array([one_array(chunked).take(pa.array(order))])


def partition_scratch_bytes(rows: int, n: int) -> int:
    """Temporary bytes at one time of computing ids, then reordering so many rows, beside ids and reordered rows."""
    hashing = 8 * 8 * min(rows, BLOCK_ROWS)
    ordering = 8 * rows + (9 * min(rows, _ORDER_ROWS) if n <= _PASSES else 8 * rows + 16 * n)
    return max(hashing, ordering)


def variable_bytes(data: Columns, ids: Ids, n: int) -> Int64s:
    """Bytes that the variable columns of the rows of each id take, about; shape (n,)."""
    total = np.zeros(n, np.float64)
    if data.rows:
        counts = count_ids(ids, n)
        for column, array in zip(data.schema.columns, data.arrays, strict=True):
            if not column.fixed:
                total += _bytes_by_id(array, ids, counts, n)
    return np.ceil(total).astype(np.int64)


def widest_row_bytes(data: Columns) -> int:
    """About how many bytes the variable columns of that row take in which they take most."""
    alike, lengthy = 0.0, []
    for column, array in zip(data.schema.columns, data.arrays, strict=True):
        if column.fixed or not data.rows:
            continue
        if _lengths(array.slice(0, 0)) is None:
            alike += array.nbytes / data.rows
        else:
            lengthy.append((array, _item_bytes(array)))
            alike += _PER_VALUE
    most = 0.0
    for start in range(0, data.rows if lengthy else 0, BLOCK_ROWS):  # of all rows at once it would take memory
        there = [width * _lengths_of(array.slice(start, BLOCK_ROWS)) for array, width in lengthy]
        most = max(most, float(np.sum(there, axis=0).max()))
    return int(alike + most)


def _item_bytes(chunked: Any) -> float:
    """Bytes of an item of a column of lists, texts or bytes."""
    if not pa.types.is_large_list(chunked.type):
        return 1.0
    items = pc.sum(pc.list_value_length(chunked)).as_py() or 0
    return float(max(chunked.nbytes - _PER_VALUE * len(chunked), 0) / max(items, 1))


def _lengths_of(chunked: Any) -> npt.NDArray[np.float64]:
    found = _lengths(chunked)
    assert found is not None
    return found


def _bytes_by_id(chunked: Any, ids: Ids, counts: Int64s, n: int) -> npt.NDArray[np.float64]:
    """Spread a column's bytes by the length of each value where it has one, else evenly over rows."""
    lengths = _lengths(chunked)
    if lengths is None:
        return np.asarray(counts * (chunked.nbytes / len(chunked)), np.float64)
    by_length = np.bincount(ids, weights=lengths, minlength=n)
    total = by_length.sum()
    per_row = chunked.type.bit_width / 8 if _has_width(chunked.type) else _PER_VALUE
    payload = max(chunked.nbytes - per_row * len(chunked), 0)
    return np.asarray(counts * per_row + (by_length * (payload / total) if total else 0.0), np.float64)


def _has_width(type_: Any) -> bool:
    return bool(pa.types.is_primitive(type_))


def _lengths(chunked: Any) -> npt.NDArray[np.float64] | None:
    type_ = chunked.type
    texts = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    if not texts and not pa.types.is_large_list(type_):
        return None
    lengths = np.empty(len(chunked), np.float64)
    at = 0
    for chunk in chunked.chunks:
        own = lengths[at : at + len(chunk)]
        at += len(chunk)
        if chunk.null_count:
            found = (pc.binary_length if texts else pc.list_value_length)(chunk)
            own[:] = pc.fill_null(found, 0).to_numpy()
        elif len(chunk):
            ends = np.frombuffer(chunk.buffers()[1], np.int64, len(chunk) + 1, 8 * chunk.offset)
            np.subtract(ends[1:], ends[:-1], out=own, casting="unsafe")
    return lengths
