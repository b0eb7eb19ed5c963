"""Rows of a table, or of a slice of one: `Data`, as any backend has them, and `Columns` in host memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .column import Column, Label
from .schema import Schema

Int64s = npt.NDArray[np.int64]
Ids = npt.NDArray[Any]  # or an array of the same kind on a GPU
Words = npt.NDArray[np.uint64]  # values of a column as numbers in their order
Array = Any  # a contiguous numpy array for a fixed column, a pyarrow ChunkedArray for a variable one


class Data(Protocol):
    """Columns of equal length, with their schema. Never changed once made."""

    @property
    def schema(self) -> Schema: ...

    @property
    def rows(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers; for a slice, of the slice."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Columns of equal length. Never changed once made.

    Attributes
    ----------
    schema : Schema
    rows : int
        Kept even where there is no column.
    arrays : tuple
        In schema order: for a fixed column a contiguous ndarray of shape (rows,), for a variable one a
        pyarrow ChunkedArray of the schema's Arrow type.
    external_bytes : int
        How many of its bytes are in memory that another library has handed over; of slices it is not told.
    """

    schema: Schema
    rows: int
    arrays: tuple[Array, ...]
    external_bytes: int = 0
    _nbytes: int = field(default=-1, init=False, repr=False)
    _views: tuple[tuple[memoryview, int], ...] | None = field(default=None, init=False, repr=False)
    _planes: Array | None = field(default=None, init=False, repr=False)

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers; for a slice, of the slice."""
        if self._nbytes < 0:  # Arrow walks all buffers for it, and it is asked for often
            object.__setattr__(self, "_nbytes", sum(int(array.nbytes) for array in self.arrays))
        return self._nbytes

    @property
    def byte_views(self) -> tuple[tuple[memoryview, int], ...]:
        """The bytes of each fixed column, read-only, and of an item: slices of these take far less than views anew."""
        if self._views is None:
            fixed = zip(self.schema.columns, self.arrays, strict=True)
            # By way of uint8, as datetimes have no buffer of their own.
            views = [(a.view(np.uint8).data.toreadonly(), a.itemsize) for c, a in fixed if c.dtype is not None]
            object.__setattr__(self, "_views", tuple(views))
        assert self._views is not None
        return self._views

    @property
    def planes(self) -> Array | None:
        """The fixed columns as one array of shape (columns, rows), where `columns_of_planes` has made these of one."""
        return self._planes

    def array(self, name: Label) -> Array:
        """The array of a column."""
        return self.arrays[self.schema.place(name)]

    def variable_batch(self, start: int, stop: int) -> Any:
        """Rows [start, stop) of the variable columns as one record batch."""
        columns = self.schema.variable
        arrays = [
            one_array(array.slice(start, stop - start))
            for column, array in zip(self.schema.columns, self.arrays, strict=True)
            if not column.fixed
        ]
        return pa.record_batch(arrays, schema=variable_schema(columns))


def columns_of_planes(schema: Schema, rows: int, planes: Array, variable: Sequence[Array] = ()) -> Columns:
    """Columns whose fixed ones are planes of one array, of shape (columns, rows) and of items of `Schema.plane_bytes`;
    and the variable ones."""
    fixed: list[Array] = []
    for start, stop, dtype in schema.stretches:
        fixed.extend(planes[start:stop].view(dtype))
    if schema.variable:
        left = (iter(variable), iter(fixed))
        fixed = [next(left[column.fixed]) for column in schema.columns]
    data = Columns(schema, rows, tuple(fixed))
    object.__setattr__(data, "_planes", planes)
    if not schema.variable:
        object.__setattr__(data, "_nbytes", rows * schema.row_bytes)
    return data


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """Rows in order of the ranks that they go to. The fixed columns are planes of one array for each of these, so that
    what a rank gets of them is in one place.

    Attributes
    ----------
    schema : Schema
    rows : int
    offsets : ndarray of int64
        Where the rows of each rank begin, and where the last ones end.
    planes : ndarray
        Of rank after rank.
    variable : Columns
        The variable columns alone.
    """

    schema: Schema
    rows: int
    offsets: Int64s
    planes: Array
    variable: Columns

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return int(self.planes.nbytes) + self.variable.nbytes

    def planes_for(self, start: int, stop: int) -> Array:
        """Those of rows [start, stop), all of one rank: shape (columns, rows); copied where they are not all that it
        gets."""
        first = int(self.offsets[np.searchsorted(self.offsets, start, "right") - 1])
        end = int(self.offsets[np.searchsorted(self.offsets, start, "right")])
        count = len(self.schema.fixed)
        planes = self.planes[first * count : end * count].reshape(count, end - first)
        return np.ascontiguousarray(planes[:, start - first : stop - first])


def plane_items(schema: Schema) -> np.dtype[Any]:
    """What the array of planes of a schema is made of."""
    return np.dtype(f"{'u' if schema.plane_bytes <= 8 else 'V'}{schema.plane_bytes}")


def planes_of(data: Columns) -> Array:
    """The fixed columns as one array of shape (columns, rows), without gaps: copied where they are none."""
    if data._planes is not None:
        return np.ascontiguousarray(data._planes)
    arrays = [array for column, array in _pairs(data) if column.fixed]
    together = np.empty((len(arrays), data.rows), plane_items(data.schema))
    for start, stop, dtype in data.schema.stretches:
        np.concatenate(arrays[start:stop], out=together[start:stop].reshape(-1).view(dtype))
    return together


def variable_schema(columns: Sequence[Column]) -> Any:
    """The Arrow schema of variable columns; fields are named by position."""
    return _schema_of(tuple([column.arrow for column in columns]))


@lru_cache(maxsize=256)  # made for each message
def _schema_of(types: tuple[Any, ...]) -> Any:
    return pa.schema([pa.field(str(place), one) for place, one in enumerate(types)])


def one_array(chunked: Any) -> Any:
    """A chunked array as one array; copied only where it has several chunks."""
    if chunked.num_chunks == 1:
        return chunked.chunk(0)
    return chunked.combine_chunks() if chunked.num_chunks else pa.array([], type=chunked.type)


def empty_array(column: Column) -> Array:
    """The array of a column without rows."""
    if column.dtype is not None:
        return np.empty(0, column.dtype)
    return pa.chunked_array([], type=column.arrow)


def empty_columns(schema: Schema) -> Columns:
    """No rows of a schema."""
    return Columns(schema, 0, tuple(map(empty_array, schema.columns)))


def _pairs(data: Columns) -> Iterator[tuple[Column, Array]]:
    return zip(data.schema.columns, data.arrays, strict=True)


def slice_columns(data: Columns, start: int, stop: int) -> Columns:
    """Rows [start, stop), without a copy."""
    if data._planes is not None:
        variable = [data.array(column.name).slice(start, stop - start) for column in data.schema.variable]
        return columns_of_planes(data.schema, stop - start, data._planes[:, start:stop], variable)
    arrays = tuple(
        array[start:stop] if column.fixed else array.slice(start, stop - start)
        for column, array in zip(data.schema.columns, data.arrays, strict=True)
    )
    return Columns(data.schema, stop - start, arrays)


def bounded(data: Columns, max_bytes: int, max_rows: int | None) -> Iterator[Columns]:
    """Slices of data of at most about so many bytes, and of so many rows; data itself where it keeps the limits."""
    count = max(-(-data.nbytes // max(1, max_bytes)), -(-data.rows // max_rows) if max_rows else 1, 1)
    count = min(count, max(1, data.rows))
    for i in range(count):
        yield data if count == 1 else slice_columns(data, data.rows * i // count, data.rows * (i + 1) // count)


def cut_rows(row_bytes: npt.NDArray[np.int64], max_bytes: int) -> Iterator[tuple[int, int]]:
    """Rows from a first up to another that take at most so many bytes together, or one row that takes more."""
    ends, start = np.cumsum(row_bytes), 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + max_bytes, "right")))
        yield start, stop
        start = stop


def concat_columns(pieces: Sequence[Columns]) -> Columns:
    """All rows of pieces of one schema, in order, copied."""
    schema = pieces[0].schema
    planes = [piece._planes for piece in pieces if piece._planes is not None]
    if len(planes) == len(pieces):
        whole, rows = np.concatenate(planes, axis=1), sum(piece.rows for piece in pieces)
        variable = [concat_arrays(column, [piece.array(column.name) for piece in pieces]) for column in schema.variable]
        return columns_of_planes(schema, rows, whole, variable)
    arrays = tuple(
        concat_arrays(column, [piece.arrays[place] for piece in pieces]) for place, column in enumerate(schema.columns)
    )
    return Columns(schema, sum(piece.rows for piece in pieces), arrays)


def concat_arrays(column: Column, arrays: Sequence[Array]) -> Array:
    """All rows of arrays of one column, in order, copied."""
    if column.fixed:
        return np.concatenate(arrays)
    return _copied(column, [chunk for array in arrays for chunk in array.chunks])


def _copied(column: Column, chunks: list[Any]) -> Any:
    chunks = [chunk for chunk in chunks if len(chunk)]
    return pa.chunked_array([pa.concat_arrays(chunks)] if chunks else [], type=column.arrow)
