"""The hash form of keys, and the rank of each row.

Equal values hash equally whatever their width, scale, unit, chunking or offset: ints and bools as int64, whole
floats as the int64 they equal, other floats as float64 bits, times in ns where that is exact, decimals by value,
strings and the labels of categories as UTF-8, and every null (None, NaN, NaT, NA) as one constant. Everything is
computed in blocks, so that temporaries stay in the cache and their size does not grow with the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...protocol.arrow_types import held_type, kind_of
from ...protocol.column import Column, Label, require_hashable
from ...protocol.data import Columns, slice_columns
from .hash_forms import NULL_HASH, arrow_hashes, fixed_hashes, int_hashes
from .scratch_pool import scratch

BLOCK_ROWS = 65536
_COMBINE = np.uint64(0x9FB21C651E98DF25)
_HALF = np.uint64(32)

Hashes = npt.NDArray[np.uint64]


def id_dtype(n: int) -> np.dtype[Any]:
    """The smallest unsigned type that holds ids in [0, n)."""
    return np.dtype(np.uint8 if n <= 1 << 8 else np.uint16 if n <= 1 << 16 else np.uint32)


def partition_ids(
    data: Columns, keys: Sequence[Label], n: int, into: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """The id in [0, n) of each row, by the hash form of its keys.

    Parameters
    ----------
    data : Columns
    keys : sequence of labels
        At least one.
    n : int
        Number of ids, at most 2**32.
    into : ndarray of that dtype, shape (rows,), optional
        Where they are to be.

    Returns
    -------
    ndarray of uint8, uint16 or uint32, shape (rows,)

    Raises
    ------
    UnsupportedDtype
        If a key cannot be hashed (complex, lists, structs, maps, and categories of them).
    """
    keyed = [require_hashable(data.schema[key]) for key in keys]
    chosen = Columns(data.schema.select(keys), data.rows, tuple(data.array(key) for key in keys))
    ids = scratch(data.rows, id_dtype(n)) if into is None else into
    if n == 1:
        ids.fill(0)
        return ids
    for start, hashes in _blocks(chosen, keyed):
        ids[start : start + len(hashes)] = _reduced(hashes, n)
    return ids


def bucket_ids(
    data: Columns, keys: Sequence[Label], size: int, buckets: int, into: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """The ids of `partition_ids` for ``size * buckets``, with those of a bucket beside each other.

    Returns
    -------
    ndarray of uint8, uint16 or uint32, shape (rows,)
        ``bucket * size + rank`` where `partition_ids` gives ``rank * buckets + bucket``.
    """
    ids = partition_ids(data, keys, size * buckets, into)
    if buckets == 1:
        return ids
    by_bucket: npt.NDArray[Any] = ids % buckets * size + ids // buckets
    if into is None:
        return by_bucket
    into[:] = by_bucket
    return into


def _blocks(data: Columns, columns: Sequence[Column]) -> Iterator[tuple[int, Hashes]]:
    """Hashes of all keys together, block by block; each block is overwritten by the next."""
    room = scratch(2 * min(BLOCK_ROWS, data.rows), np.dtype(np.uint64)).reshape(2, -1)
    for start in range(0, data.rows, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, data.rows)
        block = data if stop - start == data.rows else slice_columns(data, start, stop)
        total: Hashes | None = None
        for column, array in zip(columns, block.arrays, strict=True):
            hashes = _hashes(column, array, room[:, : stop - start])
            if total is None:
                total = hashes if len(columns) == 1 else hashes.copy()
            else:
                np.multiply(total, _COMBINE, out=total)
                np.add(total, hashes, out=total)
        if total is not None:
            yield start, total


def _hashes(column: Column, array: Any, room: Hashes) -> Hashes:
    if column.kind == "category":
        labels: Hashes = _label_hashes(column)[array]
        return labels
    if column.kind == "int" and column.fixed:
        return int_hashes(array, room)
    return fixed_hashes(column, array, room) if column.fixed else arrow_hashes(column, array)


@lru_cache(maxsize=16)
def _label_hashes(column: Column) -> Hashes:
    """Hashes of a category's labels, and of null at the end, where code -1 finds it."""
    type_ = held_type(column.labels.type)
    labels = Column(column.name, kind_of(type_) or "", column.label_pandas, arrow=type_)
    hashes = arrow_hashes(labels, pa.chunked_array([column.labels.cast(type_)]))
    return np.append(hashes, NULL_HASH)


def _reduced(hashes: Hashes, n: int) -> Hashes:
    """Map hashes to [0, n) by multiply and shift on their upper half; overwrites them."""
    if n & (n - 1) == 0:
        return np.right_shift(hashes, np.uint64(64 - (n.bit_length() - 1)), out=hashes)
    np.right_shift(hashes, _HALF, out=hashes)
    np.multiply(hashes, np.uint64(n), out=hashes)
    return np.right_shift(hashes, _HALF, out=hashes)
