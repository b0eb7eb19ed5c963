"""Reading Arrow IPC files and streams, each rank its own rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ..backends.arrow.tables import from_arrow
from ..backends.protocol.data import Columns, bounded
from ..backends.protocol.schema import require_distinct
from ..errors import ReadError
from ..units import format_count
from .file_columns import (
    index_array,
    indexes_in_metadata,
    pandas_dtypes,
    require_columns,
    require_same_columns,
    require_types_of_one_kind,
    with_indexes,
)
from .filesystems import Storage, is_url, reading
from .read_plans import Paths, RowPiece, expand_paths, spread_rows

IPC_SUFFIXES = (".arrow", ".arrows", ".feather", ".ipc")


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


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    schema: Any
    batches: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.batches)


def plan_ipc(
    paths: Paths, size: int, *, columns: Sequence[str] | None = None, storage: Storage | None = None
) -> list[IpcPlan]:
    """Share the rows of Arrow IPC files and streams out evenly, in file order.

    Looks at all record batches: local files are mapped for it, of remote streams all is read.

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
    files = [_look_at(path, storage) for path in expand_paths(paths, IPC_SUFFIXES, storage)]
    indexes = indexes_in_metadata(files)
    files = [replace(file, schema=with_indexes(file.schema, indexes[file.path])) for file in files]
    require_same_columns(files, columns)
    require_types_of_one_kind(files, columns)
    first, count = files[0], sum(len(file.batches) for file in files)
    many = f"{format_count(len(files))} file{'s' * (len(files) != 1)}"
    notes = (f"{format_count(count)} record batch{'es' * (count != 1)} in {many}",)
    with _reading(first.path):
        dtypes = _dtypes(first.schema)
    indexes = {path: ranges for path, ranges in indexes.items() if ranges}
    counts = {file.path: file.batches for file in files if file.path in indexes}
    plan = IpcPlan((), first.path, first.schema, dtypes, storage, notes, indexes, counts)
    batches = [(file.path, place, rows, rows) for file in files for place, rows in enumerate(file.batches)]
    return [replace(plan, pieces=tuple(share)) for share in spread_rows(batches, size)]


def _dtypes(schema: Any) -> dict[str, str]:
    """As for parquet; and ints and bools that were Python objects are so again."""
    objects = [
        entry["field_name"]
        for entry in (schema.pandas_metadata or {}).get("columns", [])
        if entry.get("numpy_type") == "object" and entry.get("field_name") in schema.names
    ]
    plain = (name for name in objects if _is_plain(schema.field(name).type))
    return pandas_dtypes(schema) | dict.fromkeys(plain, "object")


def _is_plain(type_: Any) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_floating(type_))


def _look_at(path: str, storage: Storage) -> _File:
    with _reading(path):
        schema = _open(path, storage).schema
        str(schema)  # names of types, such as time zones, that are no UTF-8 are met here
        require_distinct(schema.names)
        # The rows of a batch are those of any column: of the one that is cheapest to look at.
        narrow = min(range(len(schema)), key=lambda i: _width(schema.field(i).type), default=None)
        reader = _open(path, storage, None if narrow is None else [narrow])
        return _File(path, schema, tuple(batch.num_rows for batch in _each(reader)))


def _width(type_: Any) -> int:
    try:
        return int(type_.bit_width)
    except ValueError:
        return 1 << 20


def _reading(path: str) -> Any:
    return reading(path, "Is it a whole Arrow IPC file or stream?")


def _open(path: str, storage: Storage, fields: list[int] | None = None) -> Any:
    """A reader of a file or a stream, of some fields alone."""
    options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    # A batch of a mapped file is in memory only as far as it is looked at.
    source = pa.PythonFile(storage.open(path), "r") if is_url(path) else pa.memory_map(path)
    magic = source.read(6)
    source.seek(0)
    if magic[:4] == b"FEA1":
        raise ReadError(
            f"{path} is a file of Feather version 1",
            advice="Write it again with version 2, which is Arrow IPC.",
            path=path,
        )
    kind = pa.ipc.open_file if magic == b"ARROW1" else pa.ipc.open_stream
    return kind(source, options=options)


def _each(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "get_batch"):
        return (reader.get_batch(place) for place in range(reader.num_record_batches))
    return iter(reader)


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
        About the largest size of a piece. A record batch that is compressed is unpacked whole beside it.
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
    for path, first, batch in _batches(plan, wanted):
        indexes = plan.indexes.get(path, {})
        count = min(batch.num_rows, max(1, -(-2 * batch.nbytes // max(1, max_bytes))))
        for i in range(count):
            start, stop = (batch.num_rows * at // count for at in (i, i + 1))
            with _reading(path):
                some = [
                    index_array(indexes[name], first + start, first + stop)
                    if name in indexes
                    else _owned(batch.column(name).slice(start, stop - start))
                    for name in wanted
                ]
                data = from_arrow(_table(some, wanted, stop - start), plan.dtypes, nullable=True)
            any_rows = True
            yield from bounded(data, max_bytes, max_rows)
    if not any_rows:
        yield from_arrow(plan.schema.empty_table().select(wanted), plan.dtypes, nullable=True)


def _table(arrays: list[Any], names: list[str], rows: int) -> Any:
    if not arrays:
        return pa.Table.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.table(arrays, names=names)


def _batches(plan: IpcPlan, wanted: list[str]) -> Iterator[tuple[str, int, Any]]:
    """Rows of the files, the path of each, and the row in it at which they begin where it has an index as a range."""
    path, at = "", 0
    batches: Iterator[Any] = iter(())
    batch: Any = None
    for piece in plan.pieces:
        with _reading(piece.path):
            if piece.path != path or piece.group < at:
                schema = _open(piece.path, plan.storage).schema
                names = [name for name in wanted if name not in plan.indexes.get(piece.path, {})]
                reader = _open(piece.path, plan.storage, [schema.get_field_index(name) for name in names] or None)
                path, at, batches = piece.path, -1, _each(reader)
                if hasattr(reader, "get_batch"):
                    batches = map(reader.get_batch, range(piece.group, reader.num_record_batches))
                    at = piece.group - 1
            while at < piece.group:
                batch, at = next(batches), at + 1
                # Before anything uses it: what offsets and indices of a damaged file point to may be anywhere.
                batch.validate(full=True)
        first = sum(plan.batches.get(piece.path, ())[: piece.group]) + piece.start
        yield piece.path, first, batch.slice(piece.start, piece.stop - piece.start)


def _owned(array: Any) -> Any:
    """A copy: a mapped file may change, and a slice of a batch would keep all of it."""
    if pa.types.is_dictionary(array.type):
        labels = pa.concat_arrays([array.dictionary])
        return pa.DictionaryArray.from_arrays(pa.concat_arrays([array.indices]), labels, ordered=array.type.ordered)
    return pa.concat_arrays([array])
