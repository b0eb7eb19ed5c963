"""Reading Arrow IPC files and streams, each rank its own rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..backends.arrow.tables import empty_planes, from_arrow, is_arrow_dtype, owned_array, plane_schema, table_of
from ..backends.protocol.arrow_types import held_type
from ..backends.protocol.data import Columns, bounded, cut_rows, over_planes
from ..backends.protocol.schema import Schema, require_distinct
from ..errors import ReadError
from ..units import format_bytes, format_count
from .file_columns import (
    index_array,
    indexes_in_metadata,
    ipc_dtypes,
    require_columns,
    require_same_columns,
    require_types_of_one_kind,
    with_indexes,
)
from .filesystems import Storage, is_url, reading
from .in_memory import InMemory
from .ipc_messages import MAGIC, Metadata, is_native, message_at, messages, reader_of
from .read_plans import Paths, RowPiece, expand_paths, spread_rows

Int64s = npt.NDArray[np.int64]

IPC_SUFFIXES = (".arrow", ".arrows", ".feather", ".ipc")
_TIMES_SMALLER = {0: 255, 1: 1 << 15}  # at the most, by LZ4 and by Zstandard
_MOST_EMPTY_ROWS = 1 << 31  # of columns that take no bytes


@dataclass(frozen=True, slots=True)
class IpcPlan:
    """What one rank reads; all but the pieces, whose groups are record batches, is the same on all ranks."""

    pieces: tuple[RowPiece, ...]
    first: str
    schema: Any
    dtypes: Mapping[str, str] = field(default_factory=dict)
    storage: Storage = field(default_factory=Storage)
    notes: tuple[str, ...] = ()
    indexes: Mapping[str, Mapping[str, range]] = field(default_factory=dict)  # as of parquet
    batches: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # the rows of each, of files with indexes
    beside_bytes: int = 0  # what is unpacked or fetched whole, beside the pieces


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    schema: Any
    batches: tuple[int, ...]
    beside_bytes: int = 0

    @property
    def rows(self) -> int:
        return sum(self.batches)


def plan_ipc(
    paths: Paths, size: int, *, columns: Sequence[str] | None = None, storage: Storage | None = None
) -> list[IpcPlan]:
    """Share the rows of Arrow IPC files and streams out evenly, in file order.

    Looks at the headers of all record batches, and at what they say of sizes before memory is taken for it.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, folders or patterns, or URLs of such.
    size : int
        Number of ranks.
    columns : sequence of str, optional
        Those that will be read; files may differ in the others.
    storage : Storage, optional
        How URLs are reached.

    Returns
    -------
    list of IpcPlan, shape (size,)

    Raises
    ------
    ReadError
        If a file is missing, is no IPC file, or has other columns than the first.
    SchemaMismatch
        If a column's types in two files have nothing in common, naming both.
    """
    storage = storage or Storage()
    files = [_look_at(path, storage, columns) for path in expand_paths(paths, IPC_SUFFIXES, storage)]
    indexes = indexes_in_metadata(files)
    files = [replace(file, schema=with_indexes(file.schema, indexes[file.path])) for file in files]
    require_same_columns(files, columns)
    require_types_of_one_kind(files, columns)
    first, count = files[0], sum(len(file.batches) for file in files)
    many = f"{format_count(len(files))} file{'s' * (len(files) != 1)}"
    notes = (f"{format_count(count)} record batch{'es' * (count != 1)} in {many}",)
    with _reading(first.path):
        dtypes = ipc_dtypes(first.schema)
    indexes = {path: ranges for path, ranges in indexes.items() if ranges}
    counts = {file.path: file.batches for file in files if file.path in indexes}
    beside = max(file.beside_bytes for file in files)
    plan = IpcPlan((), first.path, first.schema, dtypes, storage, notes, indexes, counts, beside)
    batches = [(file.path, place, rows, rows) for file in files for place, rows in enumerate(file.batches)]
    return [replace(plan, pieces=tuple(share)) for share in spread_rows(batches, size)]


def _look_at(path: str, storage: Storage, columns: Sequence[str] | None) -> _File:
    with _reading(path):
        schema = _open(path, storage).schema
        str(schema)  # names of types, such as time zones, that are no UTF-8 are met here
        require_distinct(schema.names)
        batches, beside = _sizes_in(path, storage, schema, columns)
        return _File(path, schema, batches, beside)


def _reading(path: str) -> Any:
    return reading(path, "Is it a whole Arrow IPC file or stream?")


def _open(path: str, storage: Storage, fields: list[int] | None = None) -> Any:
    """A reader of a file or a stream, of some fields alone."""
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    source = storage.arrow_file(path)
    magic = source.read(6)
    source.seek(0)
    if magic[:4] == b"FEA1":
        raise ReadError(
            f"{path} is a file of Feather version 1",
            advice="Write it again with version 2, which is Arrow IPC.",
            path=path,
        )
    if magic == MAGIC:
        return pa.ipc.open_file(source, options=options)
    # Arrow takes memory for what a stream says of its first message's size.
    message_at(reader_of(source), storage.size(path), 0)
    source.seek(0)
    return pa.ipc.open_stream(source, options=options)


def _each(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "get_batch"):
        return (reader.get_batch(place) for place in range(reader.num_record_batches))
    return iter(reader)


# ---- what headers say of sizes. Arrow takes memory for what a compressed buffer says that it unpacks to before it
# looks at the rest of it.


def _sizes_in(path: str, storage: Storage, schema: Any, columns: Sequence[str] | None) -> tuple[tuple[int, ...], int]:
    """The rows of each record batch, and what of a file is in memory at once, beside the pieces.

    Raises
    ------
    pa.ArrowInvalid
        If sizes in it cannot be.
    """
    read, size = reader_of(storage.arrow_file(path)), storage.size(path)
    wanted = [place for place, name in enumerate(schema.names) if columns is None or name in columns]
    wanted = wanted or list(range(len(schema.names)))  # as where columns that stand in metadata alone are read

    def prefixes(places: Int64s) -> Int64s:
        return np.array([int.from_bytes(read(at, 8), "little", signed=True) for at in places.tolist()], np.int64)

    fields = [field.type for field in schema]
    flat = _may_be_cut(path, storage, [fields[place] for place in wanted]) and is_native(read, size)
    counts = np.array([_buffers_of(type_, iter(())) for type_ in fields], np.int64)
    rows, labels, most = [], 0, 0
    for header, body, stop in messages(read, size):
        record = header.table(2)
        is_dictionary = header.number(1, "<B") == 2
        if is_dictionary and record is not None:
            record = record.table(1)
        if record is None:
            raise pa.ArrowInvalid("its metadata are damaged")
        cut = flat and not is_dictionary and record.table(3) is None
        taken = _taken(record, body, stop, prefixes, fetched=storage.copies and not cut)
        if is_dictionary:
            labels += int(taken.sum())
            continue
        rows.append(record.number(0, "<q"))
        if rows[-1] > _MOST_EMPTY_ROWS and rows[-1] > 8 * sum(record.structs(2, "<i8, <i8")["f1"].tolist()):
            raise pa.ArrowInvalid(f"a record batch says that it has {format_count(rows[-1])} rows, and holds few bytes")
        more = record.structs(4, "<i8").tolist()  # buffers of views, which differ from batch to batch
        views = iter(more)
        own = np.array([_buffers_of(type_, views) for type_ in fields], np.int64) if more else counts
        most = max(most, _of_columns(taken, own, wanted))
    return tuple(rows), labels + most


def _taken(record: Metadata, body: int, stop: int, prefixes: Callable[[Int64s], Int64s], *, fetched: bool) -> Int64s:
    """Memory that each buffer takes: where it is unpacked, and where it is fetched whole."""
    compression = record.table(3)
    buffers = record.structs(2, "<i8, <i8")
    starts, lengths = buffers["f0"], buffers["f1"]
    if ((starts < 0) | (lengths < 0) | (starts > stop - body - lengths)).any():
        raise pa.ArrowInvalid(f"a buffer lies outside the {stop - body} bytes that its record batch says that it has")
    taken = lengths * fetched
    if compression is None:
        return taken
    packed = np.flatnonzero(lengths)
    if (lengths[packed] < 8).any():
        raise pa.ArrowInvalid("a compressed buffer does not say how long it is")
    unpacked = np.maximum(prefixes(body + starts[packed]), 0)  # -1: as it is
    times = _TIMES_SMALLER.get(compression.number(0, "<b"), 1)
    for at in np.flatnonzero(unpacked > times * lengths[packed])[:1].tolist():
        length, said = int(lengths[packed[at]]), int(unpacked[at])
        raise pa.ArrowInvalid(f"{length} compressed bytes cannot be the {said} ({format_bytes(said)}) that they say")
    taken[packed] += unpacked
    return taken


def _of_columns(taken: Int64s, counts: Int64s, wanted: list[int]) -> int:
    """What buffers take of some columns; of all, where it cannot be told whose they are."""
    ends, sums = np.cumsum(counts), np.append(0, np.cumsum(taken))
    if not len(ends) or ends[-1] != len(taken):
        return int(sums[-1])
    return int((sums[ends] - sums[ends - counts])[wanted].sum())


def _buffers_of(type_: Any, views: Iterator[int]) -> int:
    """How many buffers an array of a type has; ``views`` tells how many more than two each array of views has."""
    is_ = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return _buffers_of(type_.storage_type, views)
    if is_.is_null(type_):
        return 0
    if is_.is_string_view(type_) or is_.is_binary_view(type_):
        return 2 + next(views, 0)
    if is_.is_struct(type_) or is_.is_union(type_):
        own = 2 if is_.is_union(type_) and type_.mode == "dense" else 1
        return own + sum(_buffers_of(type_.field(place).type, views) for place in range(type_.num_fields))
    if is_.is_map(type_):
        return 3 + _buffers_of(type_.key_type, views) + _buffers_of(type_.item_type, views)
    if is_.is_fixed_size_list(type_):
        return 1 + _buffers_of(type_.value_type, views)
    if is_.is_list_view(type_) or is_.is_large_list_view(type_):
        return 3 + _buffers_of(type_.value_type, views)
    if is_.is_list(type_) or is_.is_large_list(type_):
        return 2 + _buffers_of(type_.value_type, views)
    if is_.is_run_end_encoded(type_):
        return _buffers_of(type_.run_end_type, views) + _buffers_of(type_.value_type, views)
    return 3 if _is_text(type_) else 2


# ---- rows that are read from a local file piece by piece: a record batch may be larger than the budget


def _may_be_cut(path: str, storage: Storage, types: Sequence[Any]) -> bool:
    """Whether rows of some types lie side by side in a local file."""
    return storage.copies and not is_url(path) and all(map(_lies_side_by_side, types))


def _lies_side_by_side(type_: Any) -> bool:
    is_ = pa.types
    if is_.is_struct(type_):
        return all(_lies_side_by_side(field.type) for field in type_)
    if is_.is_list(type_) or is_.is_large_list(type_):
        return _lies_side_by_side(type_.value_type)
    plain = (_is_text, is_.is_primitive, is_.is_decimal, is_.is_fixed_size_binary)
    return any(test(type_) for test in plain)


def _is_text(type_: Any) -> bool:
    is_ = pa.types
    return bool(
        is_.is_string(type_) or is_.is_large_string(type_) or is_.is_binary(type_) or is_.is_large_binary(type_)
    )


class _FlatRows:
    """Some columns of a file's record batches, of which any rows can be read."""

    def __init__(
        self, path: str, storage: Storage, schema: Any, names: Sequence[str], dtypes: Mapping[str, str], *, alone: bool
    ) -> None:
        self._file = storage.arrow_file(path)
        self._bytes = reader_of(self._file)
        size = storage.size(path)
        self._messages = [m for m in messages(self._bytes, size) if m.header.number(1, "<B") == 3]
        self._native = is_native(self._bytes, size)
        self._types = [field.type for field in schema]
        self._counts = [_buffers_of(type_, iter(())) for type_ in self._types]
        self._places = [schema.get_field_index(name) for name in names]
        self._schema = pa.schema([schema.field(place) for place in self._places])
        self._held = plane_schema(self._schema, dtypes) if alone else None
        self._even = not any(_is_text(type_) or pa.types.is_nested(type_) for type_ in self._schema.types)
        # An ArrowDtype is of the type that the file has.
        self._widened = [not is_arrow_dtype(dtypes.get(name, "")) for name in names]

    def read(self, group: int, start: int, stop: int, max_bytes: int) -> Iterator[tuple[int, Any]]:
        """Rows of a record batch, in parts of about so many bytes, and where each begins; none where that cannot be.

        They are a record batch, or `Columns` where there are many that are read to where they are held.
        """
        message = self._messages[group]
        record = message.header.table(2)
        if record is None or record.table(3) is not None or not self._native:
            return
        more = record.structs(4, "<i8").tolist()
        views = iter(more)
        counts = [_buffers_of(type_, views) for type_ in self._types] if more else self._counts
        firsts = list(accumulate(counts, initial=0))
        buffers = [(at, size) for at, size in record.structs(2, "<i8, <i8").tolist()]
        own = [buffers[firsts[place] : firsts[place + 1]] for place in self._places]
        each = sum(size for some in own for _, size in some) // max(1, record.number(0, "<q"))
        if self._even:
            max_bytes += max_bytes // 2  # as large as is foretold, so that less is kept for what is larger
        rows = max(8, max_bytes // max(1, each)) & ~7  # bits are cut at whole bytes
        in_planes = self._held is not None and not any(some[0][1] for some in own)
        while start < stop:
            begin, end = start & ~7, min(stop, (start & ~7) + rows)
            if self._held is not None and in_planes:
                end = min(stop, start + rows)
                yield start, self._planes(self._held, message.body, [some[1] for some in own], start, end)
            else:
                types = [self._types[place] for place in self._places]
                arrays = [
                    self._array(type_, message.body, iter(some), begin, end, widened=widened)
                    for type_, some, widened in zip(types, own, self._widened, strict=True)
                ]
                yield start, pa.RecordBatch.from_arrays(arrays, names=self._schema.names).slice(start - begin)
            start = end

    def _planes(self, schema: Schema, body: int, buffers: list[tuple[int, int]], begin: int, end: int) -> Columns:
        """Rows of columns of one width, none of them missing."""
        planes = empty_planes(schema, end - begin)
        low, nbytes = begin * planes.itemsize, (end - begin) * planes.itemsize
        for (at, size), out in zip(buffers, planes.view(np.uint8), strict=True):
            self._file.seek(body + at + low)
            if low + nbytes > size or self._file.readinto(out) != nbytes:
                raise _ends_before(end)
        return over_planes(schema, end - begin, [planes])

    def _array(
        self,
        type_: Any,
        body: int,
        buffers: Iterator[tuple[int, int]],
        begin: int,
        end: int,
        *,
        widened: bool = False,
    ) -> Any:
        """Rows of a column, the first of which is a multiple of 8; texts with wide offsets, as they are held."""

        def part(where: tuple[int, int], low: int, high: int) -> Any:
            at, size = where
            self._file.seek(body + at + low)
            data = self._file.read_buffer(high - low) if 0 <= low <= high <= size else pa.py_buffer(b"")
            if data.size != high - low:
                raise _ends_before(end)
            return data

        def bits(where: tuple[int, int]) -> Any:
            return part(where, begin // 8, (end + 7) // 8)

        def offsets(*, wide: bool) -> npt.NDArray[Any]:
            dtype = np.dtype("<i8" if wide else "<i4")
            held = part(next(buffers), begin * dtype.itemsize, (end + 1) * dtype.itemsize)
            return np.frombuffer(held, dtype)

        is_, rows = pa.types, end - begin
        if not rows:  # there may be no offsets either
            for _ in range(_buffers_of(type_, iter(()))):
                next(buffers)
            return pa.array([], type_)
        marks = next(buffers)
        valid = bits(marks) if marks[1] else None
        if is_.is_struct(type_):
            children = [self._array(field.type, body, buffers, begin, end) for field in type_]
            return pa.Array.from_buffers(type_, rows, [valid], children=children)
        if is_.is_list(type_) or is_.is_large_list(type_):
            ends = offsets(wide=is_.is_large_list(type_))
            first = int(ends[0]) & ~7
            inner = self._array(type_.value_type, body, buffers, first, int(ends[-1]))
            return pa.Array.from_buffers(type_, rows, [valid, pa.py_buffer(ends - first)], children=[inner])
        if not _is_text(type_):
            width = type_.bit_width
            values = next(buffers)
            own = bits(values) if width == 1 else part(values, begin * width // 8, end * width // 8)
            return pa.Array.from_buffers(type_, rows, [valid, own])
        ends = offsets(wide=is_.is_large_string(type_) or is_.is_large_binary(type_))
        if (ends[1:] < ends[:-1]).any():  # looked at before they are twice as wide
            raise pa.ArrowInvalid("offsets of texts are not in order")
        texts = part(next(buffers), int(ends[0]), int(ends[-1]))
        type_ = held_type(type_) if widened else type_
        return pa.Array.from_buffers(type_, rows, [valid, _from_zero(ends, wide=widened), texts])


def _from_zero(ends: npt.NDArray[Any], *, wide: bool) -> Any:
    """Offsets less the first of them, as a buffer; of Arrow's memory, which is used again, where numpy's is new."""
    if ends[0]:
        ends = ends - ends[0]  # before they are widened: both at once takes twice as long
    if not wide or ends.itemsize == 8:
        return pa.py_buffer(ends)
    memory = pa.allocate_buffer(8 * len(ends))
    np.frombuffer(memory, np.int64)[:] = ends
    return memory


def _ends_before(row: int) -> Exception:
    error: Exception = pa.ArrowInvalid(f"a buffer ends before row {row} does")
    return error


def read_ipc_chunks(
    plan: IpcPlan,
    *,
    columns: Sequence[str] | None = None,
    max_bytes: int = 32 * 1024**2,
    max_rows: int | None = None,
) -> Iterator[Columns]:
    """Read what a plan gives to one rank, piece by piece.

    Parameters
    ----------
    plan : IpcPlan
    columns : sequence of str, optional
        Only these, in this order.
    max_bytes : int
        About the largest size of a piece. A record batch that is compressed is unpacked whole beside it, which
        takes the plan's ``beside_bytes``.
    max_rows : int, optional
        The most rows of a piece.

    Yields
    ------
    Columns
        In file order; one without rows where there is nothing to read. Ints and bools with nulls are nullable
        dtypes, unless pandas wrote what they were.

    Raises
    ------
    ReadError
        If a file cannot be read, or has no such column.
    """
    wanted = require_columns(plan.first, plan.schema.names, columns)
    any_rows = False
    for path, first, batch, own in _batches(plan, wanted, max(1, max_bytes // 2)):
        if isinstance(batch, Columns):
            any_rows = True
            yield from bounded(batch, max_bytes, max_rows)
            del batch
            continue
        indexes = plan.indexes.get(path, {})
        # What was read for this piece alone is kept as it is, with strings of which offsets become wider.
        whole = own and batch.nbytes <= 3 * max_bytes // 4
        cuts = [(0, batch.num_rows)] if whole else _pieces(batch, len(wanted), max(1, max_bytes // 2))
        for start, stop in cuts:
            with _reading(path):
                some = [
                    index_array(indexes[name], first + start, first + stop)
                    if name in indexes
                    else batch.column(name)
                    if whole
                    else owned_array(batch.column(name).slice(start, stop - start))
                    for name in wanted
                ]
                data = from_arrow(table_of(some, wanted, stop - start), plan.dtypes, nullable=True, share=whole)
            any_rows = True
            yield from bounded(data, max_bytes, max_rows)
            del data, some
        del batch  # the next one is unpacked before this name is given another
    if not any_rows:
        yield from_arrow(plan.schema.empty_table().select(wanted), plan.dtypes, nullable=True)


def ipc_batches(data: InMemory, columns: Sequence[str] | None = None) -> tuple[Any, Iterator[Any], int]:
    """The record batches of an IPC file or stream in memory, checked before they are given.

    Parameters
    ----------
    data : InMemory
    columns : sequence of str, optional
        Only these, in this order.

    Returns
    -------
    pyarrow.Schema, iterator of RecordBatch, int
        And how many rows they have.

    Raises
    ------
    ReadError
        If they cannot be read, or have no such column.
    """
    (plan,) = plan_ipc(data.path, 1, columns=columns, storage=data)
    wanted = require_columns(plan.first, plan.schema.names, columns)
    schema = pa.schema([plan.schema.field(name) for name in wanted], plan.schema.metadata)
    indexes = plan.indexes.get(data.path, {})

    def batches() -> Iterator[Any]:
        for _, first, batch, _ in _batches(plan, wanted):
            arrays = [
                index_array(indexes[name], first, first + len(batch)) if name in indexes else batch.column(name)
                for name in wanted
            ]
            yield pa.record_batch(arrays, schema=schema)

    return schema, batches(), sum(piece.stop - piece.start for piece in plan.pieces)


def _require_sound(batch: Any, *, in_order: bool = False) -> None:
    if isinstance(batch, Columns):
        return  # of numbers any bytes are some
    batch.validate()
    for array in batch.columns:
        require_sound(array, in_order=in_order)


def _pieces(batch: Any, columns: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Rows of a batch that take about so many bytes, views of text unfolded: many may show one long text."""
    nbytes = max(batch.nbytes, batch.num_rows * columns)  # missing values alone take none, but their rows do
    count = min(batch.num_rows, max(1, -(-nbytes // max_bytes)))
    views = [a for a in batch.columns if pa.types.is_string_view(a.type) or pa.types.is_binary_view(a.type)]
    for i in range(count):
        first, stop = (batch.num_rows * at // count for at in (i, i + 1))
        if not views:
            yield first, stop
            continue
        each = np.full(stop - first, nbytes // batch.num_rows, np.int64)
        for array in views:
            some = array.slice(first, stop - first)
            lengths = np.frombuffer(some.buffers()[1], np.int32)[::4][some.offset : some.offset + len(some)]
            each += np.where(some.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
        yield from ((first + low, first + high) for low, high in cut_rows(each, max_bytes))


def _batches(plan: IpcPlan, wanted: list[str], max_bytes: int = 0) -> Iterator[tuple[str, int, Any, bool]]:
    """Rows of the files, the path of each, the row in it at which they begin where it has an index as a range, and
    whether each column's memory is its own: others are parts of a whole record batch, of columns that nobody wants."""
    path, at = "", 0
    batches: Iterator[Any] = iter(())
    batch: Any = None
    flat: _FlatRows | None = None
    for piece in plan.pieces:
        with _reading(piece.path):
            if piece.path != path or piece.group < at:
                schema = _open(piece.path, plan.storage).schema
                names = [name for name in wanted if name not in plan.indexes.get(piece.path, {})]
                flat = None
                if names and _may_be_cut(piece.path, plan.storage, [schema.field(name).type for name in names]):
                    alone = len(names) == len(wanted)
                    flat = _FlatRows(piece.path, plan.storage, schema, names, plan.dtypes, alone=alone)
                reader = _open(piece.path, plan.storage, [schema.get_field_index(name) for name in names] or None)
                path, at, batches = piece.path, -1, _each(reader)
                if hasattr(reader, "get_batch"):
                    batches = map(reader.get_batch, range(piece.group, reader.num_record_batches))
                    at = piece.group - 1
        before = sum(plan.batches.get(piece.path, ())[: piece.group])
        cut = iter(()) if flat is None else flat.read(piece.group, piece.start, piece.stop, max_bytes)
        some = False
        while True:
            with _reading(piece.path):
                start, batch = next(cut, (0, None))
                if batch is None:
                    break
                _require_sound(batch, in_order=True)
            some = True
            yield piece.path, before + start, batch, plan.storage.copies
            batch = None  # before more is read
        if some:
            continue
        with _reading(piece.path):
            while at < piece.group:
                batch = None
                batch, at = next(batches), at + 1
                _require_sound(batch)  # before anything uses it
        yield piece.path, before + piece.start, batch.slice(piece.start, piece.stop - piece.start), False


def require_sound(array: Any, *, in_order: bool = False) -> None:
    """Look at an array as `Array.validate(full=True)` does. Arrow looks at texts one by one, which takes several times
    longer where all are ASCII.

    Parameters
    ----------
    array : pyarrow.Array
    in_order : bool, default False
        Whether offsets of texts are known to be so already, from the first to the last.

    Raises
    ------
    pa.ArrowInvalid
    """
    type_ = array.type
    wide = pa.types.is_large_string(type_) or pa.types.is_large_binary(type_)
    if wide or pa.types.is_string(type_) or pa.types.is_binary(type_):
        array.validate()
        if _is_ascii(array, np.dtype(np.int64 if wide else np.int32), in_order=in_order):
            return
    array.validate(full=True)


def _is_ascii(array: Any, dtype: np.dtype[Any], *, in_order: bool) -> bool:
    """Whether texts lie one after the other in memory that is there, and are all ASCII."""
    valid, offsets, chars = array.buffers()
    if valid is not None or offsets is None or chars is None or not len(array):
        return False  # how many are missing is to be looked at too
    ends = np.frombuffer(offsets, dtype, len(array) + 1, array.offset * dtype.itemsize)
    first, last = int(ends[0]), int(ends[-1])
    if not 0 <= first <= last <= chars.size or not (in_order or (ends[1:] >= ends[:-1]).all()):
        return False
    return first == last or bool(np.frombuffer(chars, np.int8, last - first, first).min() >= 0)
