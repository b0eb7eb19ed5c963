"""The hash form of keys, and the rank of each row.

Equal values hash equally whatever their width, scale, unit, chunking or offset: ints and bools as int64, whole
floats as the int64 they equal, other floats as float64 bits, times in ns where that is exact, decimals by value,
strings and the labels of categories as UTF-8, and every null (None, NaN, NaT, NA) as one constant. Everything is
computed in blocks, so that temporaries stay in the cache and their size does not grow with the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.arrow_types import held_type, kind_of
from ...protocol.data import Columns, slice_columns
from ...protocol.schema import Column, Label, require_hashable
from .hash_strings import text_hashes
from .scratch_pool import scratch

BLOCK_ROWS = 65536
_COMBINE = np.uint64(0x9FB21C651E98DF25)
_HALF = np.uint64(32)

Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_FIRST = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD6E8FEB86659FD93)
NULL_HASH = np.uint64(0x5851F42D4C957F2D)
_ABOVE_INT64 = np.uint64(0xA0761D6478BD642F)  # sets apart what no int64 can equal
_FRACTION = np.uint64(0xE7037ED1A0B428DB)
_TO_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_INT64_MIN = np.iinfo(np.int64).min


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


# ---- of single columns: one 64-bit number per value, equal for equal values of any width


def mixed(bits: Hashes, out: Hashes, spare: Hashes) -> Hashes:
    """Spread bits over all 64: multiply, fold the upper half down, multiply."""
    np.multiply(bits, _FIRST, out=out)
    np.right_shift(out, _HALF, out=spare)
    np.bitwise_xor(out, spare, out=out)
    return np.multiply(out, _SECOND, out=out)


def int_hashes(values: npt.NDArray[Any], room: Hashes) -> Hashes:
    """Hash ints of any width as int64; room has shape (2, rows) and holds the result."""
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        hashes = mixed(values, room[0], room[1])
        above = values > np.uint64(2**63 - 1)
        if above.any():
            hashes[above] ^= _ABOVE_INT64
        return hashes
    if values.dtype.itemsize == 8:
        return mixed(values.view(np.uint64), room[0], room[1])
    room[0].view(np.int64)[:] = values
    return mixed(room[0], room[0], room[1])


def fixed_hashes(column: Column, values: npt.NDArray[Any], room: Hashes) -> Hashes:
    """Hash a block of a fixed column other than ints and categories."""
    if column.kind == "bool":
        return int_hashes(values.view(np.uint8), room)
    if column.kind == "float":
        return _float_hashes(values.astype(np.float64), room)
    ticks = values.view(np.int64)
    nulls = ticks == _INT64_MIN
    return _with_nulls(int_hashes(_in_ns(ticks, column.unit or "ns"), room), nulls)


def arrow_hashes(column: Column, chunked: Any) -> Hashes:
    """Hash a block of a variable column, or the labels of a category."""
    parts = [_chunk_hashes(column, chunk) for chunk in chunked.chunks if len(chunk)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _chunk_hashes(column: Column, array: Any) -> Hashes:
    rows = len(array)
    if column.kind == "null":
        return np.full(rows, NULL_HASH)
    if column.kind in ("str", "bytes"):
        hashes = text_hashes(array)
        room = np.empty_like(hashes)
        mixed(hashes, hashes, room)
    elif column.kind == "decimal":
        hashes = _decimal_hashes(array)
    else:
        hashes = _number_hashes(column.kind, array)
    return _with_nulls(hashes, array.is_null().to_numpy(zero_copy_only=False)) if array.null_count else hashes


def _number_hashes(kind: str, array: Any) -> Hashes:
    room = np.empty((2, len(array)), np.uint64)
    if kind in ("datetime", "timedelta", "time"):
        plain = array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())
        ticks = pc.fill_null(plain, 0).to_numpy().astype(np.int64)
        return int_hashes(_in_ns(ticks, array.type.unit), room)
    if kind == "date":
        return int_hashes(pc.fill_null(array.view(pa.int32()), 0).to_numpy(), room)
    values = pc.fill_null(array, False if kind == "bool" else 0).to_numpy(zero_copy_only=False)
    if kind == "float":
        return _float_hashes(values.astype(np.float64), room)
    return int_hashes(values.view(np.uint8) if kind == "bool" else values, room)


def _with_nulls(hashes: Hashes, nulls: Mask) -> Hashes:
    hashes[nulls] = NULL_HASH
    return hashes


def _float_hashes(values: npt.NDArray[np.float64], room: Hashes) -> Hashes:
    whole = np.trunc(values) == values
    small = whole & (values >= -(2.0**63)) & (values < 2.0**63)
    bits = np.where(small, 0.0, values).view(np.uint64)
    bits[small] = values[small].astype(np.int64).view(np.uint64)
    above = whole & (values >= 2.0**63) & (values < 2.0**64)
    if above.any():
        bits[above] = values[above].astype(np.uint64)
    hashes = mixed(bits, room[0], room[1])
    hashes[above] ^= _ABOVE_INT64
    return _with_nulls(hashes, np.isnan(values))


def _in_ns(ticks: npt.NDArray[np.int64], unit: str) -> npt.NDArray[np.int64]:
    """Ticks of a unit in ns; where that leaves int64, in the finest unit that does not (so all units agree)."""
    if unit == "ns":
        return ticks
    result = ticks
    for target in ("s", "ms", "us", "ns"):  # finer ones overwrite coarser ones wherever they are exact
        if _TO_NS[target] < _TO_NS[unit]:
            factor = _TO_NS[unit] // _TO_NS[target]
            limit = (2**63 - 1) // factor
            exact = (ticks <= limit) & (ticks >= -limit)
            if exact.all():
                result = ticks * np.int64(factor)
            else:
                result = np.where(exact, np.where(exact, ticks, 0) * np.int64(factor), result)
    return result


def _decimal_hashes(array: Any) -> Hashes:
    """Hash decimals by value: trailing zeros are cut off, and whole ones hash as the int they equal."""
    rows, scale = len(array), array.type.scale
    if scale < 0 or not pa.types.is_decimal128(array.type):
        return np.array([_one_decimal(value) for value in array.to_pylist()], np.uint64)
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + rows)].reshape(rows, 2)
    units, scales = words[:, 0].copy(), np.full(rows, scale, np.int64)
    large = words[:, 1] != units >> np.int64(63)  # does not fit 64 bits
    units[large] = 1
    for _ in range(scale):
        cut = (scales > 0) & (units % 10 == 0)
        if not cut.any():
            break
        units[cut] //= 10
        scales[cut] -= 1
    hashes = _scaled(units, scales)
    places = np.flatnonzero(large)
    for place, value in zip(places, array.take(pa.array(places)).to_pylist(), strict=True):
        hashes[place] = _one_decimal(value)
    return hashes


def _scaled(units: npt.NDArray[np.int64], scales: npt.NDArray[np.int64]) -> Hashes:
    room = np.empty((2, len(units)), np.uint64)
    hashes = int_hashes(units, room).copy()
    part = scales != 0
    hashes[part] = (hashes[part] ^ scales[part].view(np.uint64)) * _FRACTION
    return hashes


def _one_decimal(value: Decimal | None) -> int:
    """The hash of one decimal of any size, in Python's ints."""
    if value is None:
        return int(NULL_HASH)
    sign, digits, exponent = value.as_tuple()
    units, scale = int("".join(map(str, digits))) * (-1 if sign else 1), -int(exponent)
    while scale > 0 and units % 10 == 0:
        units, scale = units // 10, scale - 1
    if scale < 0:
        units, scale = units * 10**-scale, 0
    if -(2**63) <= units < 2**63:
        return int(_scaled(np.array([units], np.int64), np.array([scale], np.int64))[0])
    if scale == 0 and 2**63 <= units < 2**64:
        return int(int_hashes(np.array([units], np.uint64), np.empty((2, 1), np.uint64))[0])
    low, rest = units & (2**64 - 1), (units >> 64) & (2**64 - 1)
    both = mixed(np.array([low, rest ^ scale], np.uint64), np.empty(2, np.uint64), np.empty(2, np.uint64))
    return int(both[0]) ^ (int(both[1]) >> 1)
