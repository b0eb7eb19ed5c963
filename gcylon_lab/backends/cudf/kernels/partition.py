"""Reordering rows by id on the device, stable, and the bytes that each id takes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
import pylibcudf as plc

from ...protocol.scattering import TILE_ROWS
from ..columns.data import DeviceColumns, column_bytes, current_stream, joined, offsets_of
from ..columns.transfer import Arriving, uploaded
from .gather import take_fixed
from .partition_source import MOST_IDS, SCATTER, SOURCE
from .string_source import TEXTS

Int64s = npt.NDArray[np.int64]

THREADS = 512
_WEIGHING_BLOCKS = 1024


@lru_cache(maxsize=1)
def partition_module() -> Any:
    """The kernels, compiled."""
    return cupy.RawModule(code=f"#define TILE {TILE_ROWS}\n{SOURCE}{SCATTER}{TEXTS}")


def partition(data: DeviceColumns, ids: Any, n: int, offsets: Int64s | None = None) -> tuple[DeviceColumns, Int64s]:
    """Reorder rows by id, keeping the order of rows with equal ids.

    Parameters
    ----------
    data : DeviceColumns
    ids : cupy array, shape (rows,)
        In [0, n).
    n : int
    offsets : ndarray of int64, shape (n + 1,), optional
        Where they are known from counting: with them, and without variable columns, the host does not wait for the
        device.

    Returns
    -------
    DeviceColumns, ndarray of int64, shape (n + 1,)
        The rows for id i are [offsets[i], offsets[i + 1]).
    """
    if n == 1 or not data.rows:
        offsets = np.zeros(n + 1, np.int64)
        offsets[1:] = data.rows
        return data, offsets
    ids = _on_device(ids)
    return _by_tiles(data, ids, n, offsets) if n <= MOST_IDS else _by_sorting(data, ids, n, offsets)


def _by_tiles(data: DeviceColumns, ids: Any, n: int, offsets: Int64s | None) -> tuple[DeviceColumns, Int64s]:
    counts = _tile_counts(ids, n)
    ends = counts.reshape(-1)
    cupy.cumsum(ends, out=ends)
    sources = data.fixed
    targets = [cupy.empty(data.rows, array.dtype) for array in sources]
    pointers = [array.data.ptr for array in sources], [array.data.ptr for array in targets]
    widths = [array.dtype.itemsize for array in sources]
    arriving = None if offsets is not None else Arriving(ends.reshape(n, -1)[:, -1])
    order = None
    if data.schema.variable:  # the rows in their new order, as one more column, which the kernel makes up
        order = cupy.empty(data.rows, np.int32)
        pointers = [*pointers[0], 0], [*pointers[1], order.data.ptr]
        widths.append(4)
    if widths:
        _move(ids, n, ends, pointers, widths)
    variable = _gathered(data, order) if order is not None else []
    if offsets is None:
        assert arriving is not None
        offsets = np.zeros(n + 1, np.int64)
        offsets[1:] = arriving.wait()  # for the counts alone: rows move on while the host goes on
    return joined(data.schema, data.rows, targets, variable), offsets


def _tile_counts(ids: Any, n: int) -> Any:
    """How many rows of each id stand in each tile; shape (n, tiles)."""
    tiles = -(-ids.size // TILE_ROWS)
    counts = cupy.empty((n, tiles), np.int64)
    kernel = partition_module().get_function("count_tiles")
    kernel((tiles,), (THREADS,), (ids, np.int64(ids.size), np.int32(n), bits_of(n), np.int64(tiles), counts))
    return counts


def _move(ids: Any, n: int, ends: Any, pointers: tuple[list[int], list[int]], widths: list[int]) -> None:
    tiles = -(-ids.size // TILE_ROWS)
    table = uploaded(np.array([*pointers, widths], np.uint64))  # one copy: each costs more than it carries
    numbers = np.int64(ids.size), np.int32(n), bits_of(n), np.int64(tiles)
    kernel = partition_module().get_function("move_tiles")
    kernel((tiles,), (THREADS,), (ids, *numbers, ends, table[0], table[1], table[2], np.int32(len(widths))))


def bits_of(n: int) -> np.int32:
    """How many bits ids below n have, as kernels take it."""
    return np.int32((n - 1).bit_length())


def _by_sorting(data: DeviceColumns, ids: Any, n: int, offsets: Int64s | None) -> tuple[DeviceColumns, Int64s]:
    order = cupy.argsort(ids, kind="stable")
    if offsets is None:
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum(count_ids(ids, n), out=offsets[1:])
    fixed = take_fixed(data.fixed, order)
    variable = _gathered(data, order.astype(np.int32)) if data.schema.variable else []
    return joined(data.schema, data.rows, fixed, variable), offsets


def _gathered(data: DeviceColumns, order: Any) -> list[Any]:
    places = plc.Column(plc.DataType(plc.TypeId.INT32), order.size, plc.gpumemoryview(order), None, 0, 0, [])
    unchecked = plc.copying.OutOfBoundsPolicy.DONT_CHECK
    table = plc.copying.gather(plc.Table(data.variable), places, unchecked, stream=current_stream())
    return list(table.columns())


def count_ids(ids: Any, n: int) -> Int64s:
    """How many rows have each id, on the host; shape (n,)."""
    ids = _on_device(ids)
    if not ids.size:
        return np.zeros(n, np.int64)
    counts = _tile_counts(ids, n).sum(axis=1) if n <= MOST_IDS else cupy.bincount(ids, minlength=n)
    return np.asarray(counts.get(), np.int64)


def variable_bytes(data: DeviceColumns, ids: Any, n: int) -> Int64s:
    """Bytes that the variable columns of the rows of each id take, about; shape (n,)."""
    total = np.zeros(n, np.float64)
    if data.rows and data.schema.variable:
        ids = _on_device(ids)
        counts = count_ids(ids, n)
        for column in data.variable:
            total += _bytes_by_id(column, ids, counts, n)
    return np.ceil(total).astype(np.int64)


def _bytes_by_id(column: Any, ids: Any, counts: Int64s, n: int) -> npt.NDArray[np.float64]:
    """Spread a column's bytes by the length of each value where it has one, else evenly over rows."""
    nbytes, rows = column_bytes(column), column.size()
    if column.type().id() not in (plc.TypeId.STRING, plc.TypeId.LIST) or not column.num_children():
        return np.asarray(counts * (nbytes / rows), np.float64)
    ends = offsets_of(column)
    lengths = _weights(ids, ends, n).astype(np.float64)
    per_row = ends.dtype.itemsize + (0.125 if column.null_mask() is not None else 0.0)
    total, payload = lengths.sum(), max(nbytes - per_row * rows, 0.0)
    return np.asarray(counts * per_row + (lengths * (payload / total) if total else 0.0), np.float64)


def widest_row_bytes(data: DeviceColumns) -> int:
    """About how many bytes the variable columns of that row take in which they take most: of each its longest value."""
    most = 0.0
    for column in data.variable if data.rows else ():
        nbytes, rows = column_bytes(column), column.size()
        if column.type().id() not in (plc.TypeId.STRING, plc.TypeId.LIST) or not column.num_children():
            most += nbytes / rows
            continue
        ends = offsets_of(column)
        per_row = ends.dtype.itemsize + (0.125 if column.null_mask() is not None else 0.0)
        item = 1.0
        if column.type().id() == plc.TypeId.LIST:
            items = int((ends[-1] - ends[0]).get())
            item = max(nbytes - per_row * rows, 0.0) / max(items, 1)
        most += per_row + item * _longest(ends)
    return int(most)


def _longest(ends: Any) -> int:
    """The longest of the values that end there, found in no memory but for a number's."""
    found, rows = cupy.zeros(1, np.uint64), ends.size - 1
    kernel = partition_module().get_function(f"longest_{ends.dtype.name}")
    kernel((min(_WEIGHING_BLOCKS, -(-rows // THREADS)),), (THREADS,), (ends, np.int64(rows), found))
    return int(found.get()[0])


def _weights(ids: Any, ends: Any, n: int) -> npt.NDArray[Any]:
    if n > MOST_IDS:
        return np.asarray(cupy.bincount(ids, weights=cupy.diff(ends), minlength=n).get())
    sums = cupy.zeros(n, np.uint64)
    kernel = partition_module().get_function(f"weigh_{ends.dtype.name}")
    blocks = min(_WEIGHING_BLOCKS, -(-ids.size // THREADS))
    kernel((blocks,), (THREADS,), (ids, ends, np.int64(ids.size), np.int32(n), sums))
    return np.asarray(sums.get())


def _on_device(ids: Any) -> Any:
    return uploaded(np.ascontiguousarray(ids)) if isinstance(ids, np.ndarray) else ids
