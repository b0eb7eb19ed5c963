"""A sum over the rows of a table that no order of the rows changes, and every changed value does; on GPUs and CPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...api.table import Table
from ...engine.store.workspace import Workspace

_MIX = np.uint64(0x9E3779B97F4A7C15)


def rows_and_sum(table: Table, workspace: Workspace) -> tuple[int, int]:
    """This rank's rows, and the sum of their hashes modulo 2**64; staged chunks are read back one by one."""
    rows, total = 0, 0
    for chunk in table._part.chunks:
        with chunk.load(workspace) as data:
            rows += data.rows
            total += device_sum(data) if workspace.backend.on_gpu else host_sum(data)
    return rows, total % 2**64


def stray_rows(table: Table, workspace: Workspace, key: str) -> int:
    """Rows of this rank that belong on another, by their key."""
    transport, stray = workspace.transport, 0
    for chunk in table._part.chunks:
        with chunk.load(workspace) as data:
            stray += int((workspace.backend.partition_ids(data, [key], transport.size) != transport.rank).sum())
    return stray


def descents(table: Table, workspace: Workspace, key: str) -> int:
    """Collective: all ranks call it. How often a key is less than the one before it, over all ranks.

    Parameters
    ----------
    table : Table
    workspace : Workspace
    key : str
        An int64 column without negative numbers.
    """
    count, first, last = 0, -1, -1
    for chunk in table._part.chunks:
        with chunk.load(workspace) as data:
            if not data.rows:
                continue
            keys: Any = data.array(key)  # type: ignore[attr-defined]
            count += int((keys[1:] < keys[:-1]).sum()) + int(int(keys[0]) < last)
            first, last = (int(keys[0]) if first < 0 else first), int(keys[-1])
    ends = workspace.transport.agree(np.array([first, last, count], dtype=np.int64))
    full = [(int(low), int(high)) for low, high, _ in ends if low >= 0]
    return int(ends[:, 2].sum()) + sum(low < high for (_, high), (low, _) in zip(full, full[1:], strict=False))


def device_sum(data: Any) -> int:
    """Sum of libcudf's xxHash64 of whole rows, nulls included."""
    import cupy
    import pylibcudf as plc

    from ...backends.cudf.columns.data import as_array, as_column, current_stream

    if not data.rows:
        return 0
    columns = [
        as_column(column, array) if column.fixed else array
        for column, array in zip(data.schema, data.arrays, strict=True)
    ]
    hashes = plc.hashing.xxhash_64(plc.Table(columns), stream=current_stream())
    return int(cupy.sum(as_array(hashes, np.uint64), dtype=cupy.uint64))


def host_sum(data: Any) -> int:
    """The same of columns in host memory, by way of text for what has no fixed width: for small tables."""
    total = np.zeros(data.rows, np.uint64)
    for column, array in zip(data.schema, data.arrays, strict=True):
        total = (total ^ (_bits(array) if column.fixed else _hashes(array))) * _MIX
        total ^= total >> np.uint64(29)
    return int(total.sum(dtype=np.uint64))


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    wide = array if array.dtype.itemsize == 8 else array.astype(np.int64)
    return np.ascontiguousarray(wide).view(np.uint64)


def _hashes(array: Any) -> npt.NDArray[np.uint64]:
    import pandas as pd
    import pyarrow as pa

    texts = array.cast(pa.string()).to_pandas().fillna("\0none").to_numpy(dtype=object)
    hashes: npt.NDArray[np.uint64] = pd.util.hash_array(texts, categorize=False)
    return hashes
