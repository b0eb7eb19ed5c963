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


def slice_columns(data: Columns, start: int, stop: int) -> Columns:
    """Rows [start, stop), without a copy."""
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
