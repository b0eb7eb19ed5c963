"""Rows of a table, or of a slice of one: `Data`, as any backend has them, and `Columns` in host memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .schema import Block, Column, Label, Schema, plane_items

Int64s = npt.NDArray[np.int64]
Ids = npt.NDArray[Any]  # or an array of the same kind on a GPU
_BAND_BYTES = 128 * 1024
_FEW_RUNS = 4  # columns a run of planes: with fewer, arrays of their own are as good
Words = npt.NDArray[np.uint64]  # values of a column as numbers in their order
Segments = tuple[Any, ...]  # arrays of shape (columns, rows), of columns that follow each other
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


class Columns:
    """Columns of equal length. Never changed once made.

    Where the schema has blocks, the fixed columns may be planes of arrays of shape (columns, rows): then no array of a
    column is made before it is asked for.

    Parameters
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

    __slots__ = (
        "__weakref__", "_arrays", "_nbytes", "_planes", "_variable", "_views", "external_bytes", "rows", "schema",
    )  # fmt: skip

    def __init__(self, schema: Schema, rows: int, arrays: tuple[Array, ...], external_bytes: int = 0) -> None:
        self.schema, self.rows, self.external_bytes = schema, rows, external_bytes
        self._arrays: tuple[Array, ...] | None = arrays
        self._nbytes = -1
        self._views: tuple[tuple[memoryview, int], ...] | None = None
        self._planes: tuple[Segments, ...] | None = None
        self._variable: tuple[Array, ...] = ()  # where there are planes

    def __reduce__(self) -> tuple[Any, ...]:
        return (Columns, (self.schema, self.rows, self.arrays, self.external_bytes))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The array of each column."""
        if self._arrays is None:
            assert self._planes is not None
            made: list[Any] = [None] * len(self.schema.columns)
            for block, segments in zip(self.schema.blocks, self._planes, strict=True):
                for place, array in zip(block.places, _each(block, segments), strict=True):
                    made[place] = array
            if self._variable:
                left = iter(self._variable)
                made = [next(left) if array is None else array for array in made]
            self._arrays = tuple(made)
        return self._arrays

    @property
    def variable(self) -> tuple[Array, ...]:
        """The arrays of the variable columns."""
        if self._planes is not None:
            return self._variable
        return tuple([a for c, a in zip(self.schema.columns, self.arrays, strict=True) if c.dtype is None])

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers; for a slice, of the slice."""
        if self._nbytes < 0:  # Arrow walks all buffers for it, and it is asked for often
            if self._planes is not None:
                more = sum([int(array.nbytes) for array in self._variable])
                self._nbytes = self.rows * self.schema.row_bytes + more
            else:
                self._nbytes = sum([int(array.nbytes) for array in self.arrays])
        return self._nbytes

    @property
    def byte_views(self) -> tuple[tuple[memoryview, int], ...]:
        """The bytes of each fixed column, read-only, and of an item: slices of these take far less than views anew."""
        planes = self._planes
        if self._views is None and planes is not None and all(len(p) == 1 and p[0].flags.c_contiguous for p in planes):
            views = views_of_planes(self.schema, self.rows, [some[0] for some in planes])
            self._views = tuple([(view.toreadonly(), width) for view, width in views])
        if self._views is None:
            fixed = zip(self.schema.columns, self.arrays, strict=True)
            # By way of uint8, as datetimes have no buffer of their own.
            views = [(a.view(np.uint8).data.toreadonly(), a.itemsize) for c, a in fixed if c.dtype is not None]
            self._views = tuple(views)
        return self._views

    @property
    def planes(self) -> tuple[Segments, ...] | None:
        """The fixed columns as planes, by block; None where they are arrays of their own."""
        return self._planes

    def array(self, name: Label) -> Array:
        """The array of a column."""
        place = self.schema.place(name)
        if self._arrays is None and self._planes is not None:
            number, plane = self.schema.plane(place)
            if number < 0:
                return self._variable[self.schema.variable.index(self.schema.columns[place])]
            for segment in self._planes[number]:
                if plane < len(segment):
                    dtype = self.schema.columns[place].dtype
                    assert dtype is not None
                    return segment[plane].view(dtype)
                plane -= len(segment)
        return self.arrays[place]

    def variable_batch(self, start: int, stop: int) -> Any:
        """Rows [start, stop) of the variable columns as one record batch."""
        arrays = [one_array(array.slice(start, stop - start)) for array in self.variable]
        return pa.record_batch(arrays, schema=variable_schema(self.schema.variable))


def _each(block: Block, segments: Segments) -> Iterator[Array]:
    """The arrays of a block's columns."""
    stretches, first = iter(block.stretches), 0
    start, stop, dtype = next(stretches)
    for segment in segments:
        end = first + len(segment)
        while start < end:
            yield from segment[max(start, first) - first : min(stop, end) - first].view(dtype)
            if stop > end:
                break
            start, stop, dtype = next(stretches, (end, end, None))
        first = end


def columns_of_planes(schema: Schema, rows: int, planes: Sequence[Segments], variable: Sequence[Array] = ()) -> Columns:
    """Columns whose fixed ones are planes: for each block of the schema arrays of shape (columns, rows), of its items,
    which hold its columns one after the other; and the variable ones."""
    data = Columns(schema, rows, ())
    data._arrays, data._planes, data._variable = None, tuple(planes), tuple(variable)
    return data


def new_planes(schema: Schema, rows: int) -> list[Array]:
    """Memory for the fixed columns of a schema with blocks."""
    return [np.empty((len(block.places), rows), block.items) for block in schema.blocks]


def over_planes(schema: Schema, rows: int, planes: Sequence[Array], variable: Sequence[Array] = ()) -> Columns:
    """Columns over one array a block, whatever its shape."""
    shaped = [(array.reshape(len(b.places), rows),) for b, array in zip(schema.blocks, planes, strict=True)]
    return columns_of_planes(schema, rows, shaped, variable)


def copied_together(columns: Iterable[tuple[Column, Array]], rows: int, most: int) -> Columns:
    """Columns, at most so many, of arrays whose fixed ones are copied into planes, one after the other as they come."""
    planes: dict[int, Array] = {}
    counts: dict[int, int] = {}
    found: list[Column] = []
    variable: list[Array] = []
    for column, array in columns:
        found.append(column)
        if column.dtype is None:
            variable.append(array)
            continue
        width = column.dtype.itemsize
        if width not in planes:  # what is never written of it takes no memory
            planes[width], counts[width] = np.empty((most, rows), plane_items(width)), 0
        planes[width][counts[width]] = array.view(planes[width].dtype)
        counts[width] += 1
    schema = Schema(found)
    used = [array[: counts[width]] for width, array in planes.items()]
    if schema.blocks:
        return over_planes(schema, rows, used, variable)
    left, fixed = iter(variable), {width: iter(array) for width, array in planes.items()}
    arrays = [next(left) if c.dtype is None else next(fixed[c.dtype.itemsize]).view(c.dtype) for c in found]
    return Columns(schema, rows, tuple(arrays))


def segments_of(data: Columns) -> tuple[Segments, ...]:
    """The fixed columns by block, as arrays of shape (columns, rows); of one column each where there are no planes."""
    if data._planes is not None:
        return data._planes
    arrays = data.arrays
    return tuple(
        tuple([arrays[place].view(block.items)[None] for place in block.places]) for block in data.schema.blocks
    )


def view_of_planes(planes: Array) -> memoryview:
    """The bytes of an array of planes, which has no gaps; writable where that is."""
    view: memoryview = planes.reshape(-1).view(np.uint8).data
    return view


def views_of_planes(schema: Schema, rows: int, planes: Sequence[Array]) -> list[tuple[memoryview, int]]:
    """The bytes of each fixed column, in schema order, and of an item, of planes without gaps."""
    wholes = [view_of_planes(array) for array in planes]
    found: list[tuple[memoryview, int]] = []
    for place, column in enumerate(schema.columns):
        if column.dtype is not None:
            (number, plane), width = schema.plane(place), column.dtype.itemsize
            found.append((wholes[number][plane * rows * width : (plane + 1) * rows * width], width))
    return found


def planes_together(planes: Array) -> int:
    """How many planes are copied at once, where that is in memory that nobody has claimed."""
    return max(1, _BAND_BYTES // max(int(planes.shape[1]) * int(planes.itemsize), 1))


def put_rows(data: Columns, planes: Sequence[Array], start: int) -> None:
    """Copy all rows into planes, one array a block, from a row on."""
    stop = start + data.rows
    for segments, out in zip(segments_of(data), planes, strict=True):
        np.concatenate(segments, out=out[:, start:stop])


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """Rows in order of the ranks that they go to. The fixed columns of a block are planes of one array for each of
    these, so that what a rank gets of them is in one place.

    Attributes
    ----------
    schema : Schema
    rows : int
    offsets : ndarray of int64
        Where the rows of each rank begin, and where the last ones end.
    planes : tuple of ndarray
        Of each block, of rank after rank.
    variable : Columns
        The variable columns alone.
    """

    schema: Schema
    rows: int
    offsets: Int64s
    planes: tuple[Array, ...]
    variable: Columns

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum([int(planes.nbytes) for planes in self.planes]) + self.variable.nbytes

    def planes_for(self, start: int, stop: int) -> list[Array]:
        """Those of rows [start, stop), all of one rank: shape (columns, rows); copied where they are not all that it
        gets."""
        first = int(self.offsets[np.searchsorted(self.offsets, start, "right") - 1])
        end = int(self.offsets[np.searchsorted(self.offsets, start, "right")])
        found = []
        for block, planes in zip(self.schema.blocks, self.planes, strict=True):
            count = len(block.places)
            own = planes[first * count : end * count].reshape(count, end - first)
            found.append(np.ascontiguousarray(own[:, start - first : stop - first]))
        return found


def planes_of(data: Columns) -> list[Array]:
    """The fixed columns as one array a block, without gaps: copied where they are none."""
    found = []
    for block, segments in zip(data.schema.blocks, segments_of(data), strict=True):
        whole = segments[0]
        if len(segments) > 1 or not whole.flags.c_contiguous:
            whole = np.concatenate(segments, out=np.empty((len(block.places), data.rows), block.items))
        found.append(whole)
    return found


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
        planes = [tuple([segment[:, start:stop] for segment in segments]) for segments in data._planes]
        variable = [array.slice(start, stop - start) for array in data._variable]
        return columns_of_planes(data.schema, stop - start, planes, variable)
    arrays = tuple(
        array[start:stop] if column.fixed else array.slice(start, stop - start)
        for column, array in zip(data.schema.columns, data.arrays, strict=True)
    )
    return Columns(data.schema, stop - start, arrays)


def select_columns(data: Columns, names: Sequence[Label]) -> Columns:
    """Some columns, without a copy; data itself where they are all, in order."""
    schema = data.schema.select(names)
    if schema is data.schema:
        return data
    if schema.blocks and data._planes is not None:
        chosen = chosen_planes(data.schema, schema)
        if sum([len(runs) for runs in chosen]) <= len(schema.fixed) // _FEW_RUNS:
            planes = [
                tuple([part for run in runs for part in _planes_between(data._planes[run.block], run.first, run.stop)])
                for runs in chosen
            ]
            return columns_of_planes(schema, data.rows, planes, [data.array(c.name) for c in schema.variable])
    return Columns(schema, data.rows, tuple([data.array(name) for name in schema.names]))


class Run(NamedTuple):
    """Planes [first, stop) of a block."""

    block: int
    first: int
    stop: int


@lru_cache(maxsize=32)
def chosen_planes(schema: Schema, chosen: Schema) -> tuple[tuple[Run, ...], ...]:
    """Where the planes of some of a schema's columns are, by the blocks of these."""
    found = []
    for block in chosen.blocks:
        runs: list[Run] = []
        for place in block.places:
            number, plane = schema.plane(schema.place(chosen.columns[place].name))
            if runs and runs[-1].block == number and runs[-1].stop == plane:
                runs[-1] = Run(number, runs[-1].first, plane + 1)
            else:
                runs.append(Run(number, plane, plane + 1))
        found.append(tuple(runs))
    return tuple(found)


def _planes_between(segments: Segments, first: int, stop: int) -> Iterator[Array]:
    """Planes [first, stop) of segments."""
    for segment in segments:
        if first < len(segment) and stop > 0:
            yield segment[max(first, 0) : stop]
        first, stop = first - len(segment), stop - len(segment)


def with_columns(data: Columns, made: Mapping[Label, tuple[Column, Array]]) -> Columns:
    """Columns with others in their places, or behind them where they have new names."""
    columns = tuple([column for column, _ in made.values()])
    schema = (_kept_with_columns if data.schema.blocks else _with_columns)(data.schema, columns)
    new = {column.name: array for column, array in made.values()}
    if data._planes is None or not schema.blocks:
        known = data.schema
        arrays = [new[c.name] if c.name in new else data.arrays[known.place(c.name)] for c in schema.columns]
        return Columns(schema, data.rows, tuple(arrays))
    planes: list[Segments] = []
    for block, runs in zip(schema.blocks, _kept_planes(data.schema, schema, frozenset(new)), strict=True):
        segments: list[Array] = []
        for run in runs:
            if isinstance(run, Run):
                segments += _planes_between(data._planes[run.block], run.first, run.stop)
            else:
                segments.append(new[run.name].view(block.items)[None])
        planes.append(tuple(segments))
    variable = [new[c.name] if c.name in new else data.array(c.name) for c in schema.variable]
    return columns_of_planes(schema, data.rows, planes, variable)


def _with_columns(schema: Schema, columns: tuple[Column, ...]) -> Schema:
    every = {column.name: column for column in (*schema.columns, *columns)}
    return Schema(list(every.values()))


_kept_with_columns = lru_cache(maxsize=16)(_with_columns)  # of thousands of columns each piece would make them anew


@lru_cache(maxsize=16)
def _kept_planes(schema: Schema, made: Schema, new: frozenset[Label]) -> tuple[tuple[Run | Column, ...], ...]:
    """The planes of a schema that another one has, by its blocks, and the columns that come anew."""
    found = []
    for block in made.blocks:
        runs: list[Run | Column] = []
        for place in block.places:
            column = made.columns[place]
            if column.name in new:
                runs.append(column)
                continue
            number, plane = schema.plane(schema.place(column.name))
            last = runs[-1] if runs else None
            if isinstance(last, Run) and (last.block, last.stop) == (number, plane):
                runs[-1] = Run(number, last.first, plane + 1)
            else:
                runs.append(Run(number, plane, plane + 1))
        found.append(tuple(runs))
    return tuple(found)


def relabelled(data: Columns, schema: Schema) -> Columns:
    """The same columns under a schema of other names."""
    if data._planes is not None:
        return columns_of_planes(schema, data.rows, data._planes, data._variable)
    return Columns(schema, data.rows, data.arrays)


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
    if schema.blocks:
        planes, rows = new_planes(schema, sum([piece.rows for piece in pieces])), 0
        for piece in pieces:
            put_rows(piece, planes, rows)
            rows += piece.rows
        each = zip(*[piece.variable for piece in pieces], strict=True) if schema.variable else ()
        variable = [concat_arrays(column, one) for column, one in zip(schema.variable, each, strict=True)]
        return over_planes(schema, rows, planes, variable)
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
