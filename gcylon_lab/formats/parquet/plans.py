"""Which rows of parquet files each rank reads: row groups shared out evenly, less those that no filter lets through.

Where the statistics of a row group may mislead, nothing is known of its values.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ...backends.protocol.column import Label
from ...backends.protocol.expressions import Expression
from ...backends.protocol.promotion import masked_name
from ...units import format_count
from ..file_columns import (
    indexes_in_metadata,
    pandas_dtypes,
    require_same_columns,
    require_types_of_one_kind,
    with_indexes,
)
from ..filesystems import Storage, is_url, reading
from ..hive import FolderColumns, folder_columns
from ..read_plans import Paths, RowPiece, find_files, spread_rows
from ..row_filters import Bounds, may_hold

PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
_EXACT_IN_FLOAT = 2**53
_CODE_BYTES = 4  # at the most of a row, where it refers to one of some texts
_HEADER_BYTES = 4096
_NO_FOLDERS = FolderColumns({}, {}, {})


@dataclass(frozen=True, slots=True)
class ParquetPlan:
    """What one rank reads.

    Attributes
    ----------
    pieces : tuple of RowPiece
        In order; empty where there are more ranks than rows.
    first : str
        The first file of all.
    schema : pyarrow.Schema
        Its columns, which a rank without rows takes.
    dtypes : dict
        dtypes that the Arrow types do not tell, the same on all ranks.
    folders : FolderColumns
        Columns that the files do not have, but the folders they are in.
    storage : Storage
    notes : tuple of str
        What all ranks read together, and what was skipped, in words.
    condition : Expression, optional
        Of the rows that are kept, as it is computed.
    indexes : dict
        By path and name: indexes of pandas that are columns, and stand in a file's metadata alone.
    int96_unit : {"ns", "us"}
        In which times are read that files hold as INT96.
    """

    pieces: tuple[RowPiece, ...]
    first: str
    schema: Any
    dtypes: Mapping[str, str] = field(default_factory=dict)
    folders: FolderColumns = _NO_FOLDERS
    storage: Storage = field(default_factory=Storage)
    notes: tuple[str, ...] = ()
    condition: Expression | None = None
    indexes: Mapping[str, Mapping[str, range]] = field(default_factory=dict)
    int96_unit: str = "ns"


class _File:
    """A file's footer."""

    def __init__(self, path: str, footer: Any, storage: Storage, int96_unit: str) -> None:
        self.path = path
        self.footer = footer
        self.rows = footer.num_rows
        self.schema = footer.schema.to_arrow_schema()  # where INT96 is ns
        if int96_unit != "ns" and int96_columns(footer):
            self.schema = open_parquet(path, storage, int96_unit).schema_arrow
        self.groups = [footer.row_group(place) for place in range(footer.num_row_groups)]
        self.leaves = {footer.schema.column(i).path: i for i in range(footer.num_columns)}


def plan_parquet(
    paths: Paths,
    size: int,
    *,
    columns: Sequence[str] | None = None,
    condition: Expression | None = None,
    storage: Storage | None = None,
    int96_unit: str = "ns",
) -> list[ParquetPlan]:
    """Share the rows of parquet files out evenly by the bytes of the columns wanted, in file order.

    Reads the footers of all files: dtypes that depend on values (ints with nulls are float64 in pandas) are
    decided from the statistics of all of them, so that every rank decides alike.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, folders or patterns, or URLs of such. Folders ``key=value`` below them become columns.
    size : int
        Number of ranks.
    columns : sequence of str, optional
        Those that will be read; files may differ in the others.
    condition : Expression, optional
        Row groups of which it cannot hold, by their statistics, are left out.
    storage : Storage, optional
        How URLs are reached.
    int96_unit : {"ns", "us"}
        In which times are read that files hold as INT96.

    Returns
    -------
    list of ParquetPlan, shape (size,)

    Raises
    ------
    ReadError
        If a file is missing, is no parquet file, or has other columns than the first.
    SchemaMismatch
        If a column's types in two files have nothing in common, naming both.
    """
    storage = storage or Storage()
    found = find_files(paths, PARQUET_SUFFIXES, storage)
    files = [_File(file.path, _footer(file.path, storage), storage, int96_unit) for file in found]
    indexes = indexes_in_metadata(files)
    for file in files:
        file.schema = with_indexes(file.schema, indexes[file.path])
    require_same_columns(files, columns)
    require_types_of_one_kind(files, columns)
    schema = files[0].schema
    folders = folder_columns(found, schema)
    condition = folders.by_number(condition)
    weighed = [
        (file.path, place, group.num_rows, _bytes_of(group, columns))
        for file in files
        for place, group in enumerate(file.groups)
        if condition is None or _may_hold(file, group, condition, folders)
    ]
    with reading_parquet(files[0].path):
        dtypes = _dtypes(files) | dict(folders.dtypes)
    notes = _notes(files, weighed, condition)
    return [
        ParquetPlan(
            tuple(share),
            files[0].path,
            schema,
            dtypes,
            folders.only({p.path for p in share}),
            storage,
            notes,
            condition,
            {path: indexes[path] for path in dict.fromkeys(p.path for p in share) if indexes[path]},
            int96_unit,
        )
        for share in spread_rows(weighed, size)
    ]


def _may_hold(file: _File, group: Any, condition: Expression, folders: FolderColumns) -> bool:
    def bounds(name: Label) -> Bounds | None:
        if name in folders.types:
            return bounds_of_value(folders.value(file.path, str(name)))
        leaf = file.leaves.get(str(name))
        return None if leaf is None else bounds_of(group, leaf, file.schema.field(name).type)

    return group.num_rows > 0 and may_hold(condition, bounds)


def _bytes_of(group: Any, columns: Sequence[str] | None) -> int:
    if columns is None:
        return int(group.total_byte_size)
    chunks = (group.column(i) for i in range(group.num_columns))
    return sum(c.total_uncompressed_size for c in chunks if c.path_in_schema.split(".")[0] in columns)


def _notes(files: Sequence[_File], kept: Sequence[tuple[Any, ...]], condition: Expression | None) -> tuple[str, ...]:
    groups = sum(len(file.groups) for file in files)
    if condition is None:
        return (f"{_count(groups, 'row group')} in {_count(len(files), 'file')}",)
    unread = len({file.path for file in files} - {path for path, *_ in kept})
    return (
        f"{format_count(groups - len(kept))} of {_count(groups, 'row group')} skipped by statistics and folders, "
        f"{format_count(unread)} of {_count(len(files), 'file')} whole",
    )


def _count(n: int, what: str) -> str:
    return f"{format_count(n)} {what}{'s' * (n != 1)}"


def _footer(path: str, storage: Storage) -> Any:
    with reading_parquet(path), storage.open(path) as file:
        return pq.read_metadata(file)


def int96_columns(footer: Any) -> list[str]:
    """The columns with such times, in lists and structs too."""
    columns = (footer.schema.column(place) for place in range(footer.num_columns))
    return list(dict.fromkeys(c.path.split(".")[0] for c in columns if c.physical_type == "INT96"))


def reading_parquet(path: str) -> Any:
    """A context in which what goes wrong is an error that names the file."""
    return reading(path, "Is it a whole parquet file?")


def open_parquet(path: str, storage: Storage, int96_unit: str, coded: Sequence[str] = ()) -> Any:
    """Open a file; its times in INT96 are read in a unit, and some columns as the dictionaries that it holds."""
    source = storage.open(path) if is_url(path) else path
    # Without buffering ahead, a column chunk is read as it is decoded: memory stays bounded in large row groups.
    return pq.ParquetFile(
        source,
        pre_buffer=False,
        buffer_size=1 << 20,
        coerce_int96_timestamp_unit=int96_unit,
        read_dictionary=list(coded) or None,
    )


def dictionary_bytes(path: str, chunk: Any) -> int:
    """Bytes of the texts of a column chunk whose rows refer to them; 0 where there are others too, or none is known.

    The footer does not say it: the header of their page does, which is Thrift's compact form (fields 1 and 2, each a
    byte for its type and a number).
    """
    if is_url(path) or not chunk.has_dictionary_page or not chunk.dictionary_page_offset:
        return 0
    with open(path, "rb") as file:
        file.seek(chunk.dictionary_page_offset)
        head = file.read(16)
    numbers, at = [], 0
    for _ in range(2):
        if head[at : at + 1] != b"\x15":
            return 0
        value, shift, at = 0, 0, at + 1
        while at < len(head):
            value |= (head[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if head[at - 1] < 0x80:
                break
        numbers.append(value >> 1)
    kind, nbytes = numbers
    of_rows = chunk.total_uncompressed_size - nbytes
    return nbytes if kind == 2 and of_rows <= _CODE_BYTES * chunk.num_values + _HEADER_BYTES else 0


def _dtypes(files: Sequence[_File]) -> dict[str, str]:
    schema = files[0].schema
    dtypes = pandas_dtypes(schema)
    for name in schema.names:
        type_ = schema.field(name).type
        if name not in dtypes and (pa.types.is_integer(type_) or pa.types.is_boolean(type_)):
            dtypes[name] = _dtype_with_nulls(files, name, type_)
    return dtypes


def _dtype_with_nulls(files: Sequence[_File], name: str, type_: Any) -> str:
    """What ints and bools with nulls become, as in pandas; "" where there are none, nullable ints where not exact."""
    nulls = False
    low: float = 0
    high: float = 0
    for statistics in _statistics(files, name):
        if statistics is None or not statistics.has_null_count:
            return ""  # unknown: decided chunk by chunk
        nulls |= statistics.null_count > 0
        if statistics.has_min_max:
            if not isinstance(statistics.min, (int, float)):
                return ""  # another file holds something else under this name; it is not read, or refused
            low, high = min(low, statistics.min), max(high, statistics.max)
    if not nulls:
        return ""
    if pa.types.is_boolean(type_):
        return "object"
    exact = -_EXACT_IN_FLOAT <= low and high <= _EXACT_IN_FLOAT
    return "float64" if exact else masked_name(np.dtype(type_.to_pandas_dtype()))


def _statistics(files: Sequence[_File], name: str) -> Iterator[Any]:
    for file in files:
        leaf = file.leaves.get(name)
        for group in file.groups:
            if group.num_rows:
                yield None if leaf is None else group.column(leaf).statistics


def bounds_of(group: Any, leaf: int, type_: Any) -> Bounds | None:
    """Bounds of one flat column.

    Parameters
    ----------
    group : pyarrow.parquet.RowGroupMetaData
    leaf : int
        The column's place in it.
    type_ : pyarrow.DataType
        Of the column as it is read.
    """
    statistics = group.column(leaf).statistics
    if statistics is None:
        return None
    missing = not statistics.has_null_count or statistics.null_count > 0
    if not statistics.has_min_max:
        nothing = statistics.has_null_count and statistics.null_count == group.num_rows
        return Bounds(None, None) if nothing else None
    try:
        return _bounds(statistics.min, statistics.max, type_, missing=missing)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        return None


def _bounds(low: Any, high: Any, type_: Any, *, missing: bool) -> Bounds | None:
    # NaN has no place in the statistics of floats, and counts as missing here.
    if pa.types.is_float64(type_):
        return Bounds(float(low), float(high), True, True)
    if pa.types.is_float32(type_):  # a value is brought to float32 before it is compared, which may round it
        low, high = (float(np.nextafter(np.float32(n), np.float32(to))) for n, to in ((low, -np.inf), (high, np.inf)))
        return Bounds(low, high)
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return Bounds(low, high, missing, True) if isinstance(low, int) else None
    if pa.types.is_timestamp(type_) and isinstance(low, (dt.datetime, pd.Timestamp, np.datetime64)):
        return Bounds(_time(low, type_.tz), _time(high, type_.tz), missing, True)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return Bounds(low, high, missing) if isinstance(low, str) else None  # long ones are cut
    if pa.types.is_date32(type_) or pa.types.is_decimal(type_):
        return Bounds(low, high, missing, True) if isinstance(low, (dt.date, Decimal)) else None
    return None


def _time(value: Any, tz: str | None) -> pd.Timestamp:
    time = pd.Timestamp(value)
    if not tz:
        return time
    return (time.tz_localize("UTC") if time.tz is None else time).tz_convert(tz)


def bounds_of_value(value: Any) -> Bounds:
    """Bounds of a column that has one value in all rows, None where it is missing."""
    if value is None:
        return Bounds(None, None)
    known = pd.Timestamp(value) if isinstance(value, dt.datetime) else value
    return Bounds(known, known, False, True)
