"""Columns on CPU ranks as numpy values, and back: rows taken by number, with a place for what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..protocol.data import Array, Segments, one_array, planes_together
from ..protocol.schema import Column
from .keys.key_groups import Int64s

Bools = npt.NDArray[np.bool_]

_MISSING = {"f": np.nan, "c": np.nan, "M": "NaT", "m": "NaT"}


def gather(column: Column, array: Array, rows: Int64s) -> Array:
    """Rows of a column in another order; -1 gives a missing value, which the column must have a place for."""
    missing = rows < 0
    if not column.fixed:
        taken = one_array(array).take(pa.array(rows, mask=missing if missing.any() else None))
        return pa.chunked_array([taken], type=column.arrow)
    if not len(array):
        return np.full(len(rows), null_item(column), column.dtype) if len(rows) else array
    result = array[rows]
    if missing.any():
        result[missing] = null_item(column)
    return result


def take_planes(segments: Segments, rows: Int64s, out: npt.NDArray[Any]) -> None:
    """Put rows of planes, by number, into an array of shape (planes, rows)."""
    first = 0
    for segment in segments:
        planes = segment
        if not planes.flags.c_contiguous:
            # numpy would copy it first. With what lies between its planes it has no gaps, and that is never looked at.
            width = planes.strides[0] // planes.itemsize
            planes = np.lib.stride_tricks.as_strided(planes, (len(planes), width), writeable=False)
        # Numbers are in range by construction; "clip" lets numpy write to out directly instead of through a buffer.
        np.take(planes, rows, axis=1, out=out[first : first + len(planes)], mode="clip")
        first += len(planes)


def reorder_planes(segments: Segments, order: Int64s) -> None:
    """Bring the rows of planes into an order, in place."""
    for segment in segments:
        for first in range(0, len(segment), step := planes_together(segment)):
            some = segment[first : first + step]
            taken = np.empty(some.shape, some.dtype)
            take_planes((some,), order, taken)
            some[:] = taken


def take_some(array: Any, rows: Int64s) -> Any:
    """Rows of a chunked array, none of them missing, as one array. Of few rows in their order each chunk is asked for
    its own, as to make one array of all chunks would copy all rows."""
    if array.num_chunks < 2 or 2 * len(rows) > len(array) or (rows[1:] < rows[:-1]).any():
        return one_array(array).take(pa.array(rows))
    begins = np.concatenate(([0], np.cumsum([len(chunk) for chunk in array.chunks])))
    cuts = np.searchsorted(rows, begins).tolist()
    taken = [
        chunk.take(pa.array(rows[start:stop] - begin))
        for chunk, begin, start, stop in zip(array.chunks, begins, cuts[:-1], cuts[1:], strict=False)
        if start < stop
    ]
    return pa.concat_arrays(taken) if taken else pa.array([], type=array.type)


def null_item(column: Column) -> Any:
    """What stands for a missing value in a fixed column.

    Raises
    ------
    ValueError
        If it has no place for one.
    """
    dtype = np.dtype(column.dtype)
    if column.kind == "category":
        return -1
    if column.kind == "period":
        return np.iinfo(np.int64).min
    if dtype.kind not in _MISSING:
        raise ValueError(f"column {column.name!r} ({column.describe()}) cannot hold a missing value")
    return np.array(_MISSING[dtype.kind], dtype)[()]


def as_column(column: Column, values: npt.NDArray[Any], valid: Bools | None = None) -> Array:
    """Numbers as the array of a column; ticks where it holds times."""
    if column.dtype is not None:
        result = values.view(column.dtype) if column.dtype.kind in "mM" else values.astype(column.dtype, copy=False)
        if valid is not None and not valid.all():
            result = result.copy()
            result[~valid] = null_item(column)
        return result
    mask = None if valid is None or valid.all() else ~valid
    type_ = column.arrow
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        return pa.chunked_array([pa.array(values, pa.int64(), mask=mask).view(type_)])
    return pa.chunked_array([pa.array(values, mask=mask).cast(type_)])
