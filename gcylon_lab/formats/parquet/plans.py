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

from ...backends.arrow.tables import EXACT_IN_FLOAT
from ...backends.protocol.expressions import Expression
from ...backends.protocol.promotion import masked_name
from ...backends.protocol.schema import Label
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
from .footer import Footer, RowGroup, Statistics, footer_of, value_of

PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
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
    footers : dict
        By path: what the files say of themselves, as it was planned with.
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
    footers: Mapping[str, Footer] = field(default_factory=dict, repr=False, compare=False)

    def footer(self, path: str) -> Footer:
        """That of a file."""
        return self.footers.get(path) or footer_of(path, self.storage)


class _File:
    """A file's footer."""

    def __init__(self, path: str, footer: Footer, storage: Storage, int96_unit: str) -> None:
        self.path = path
        self.footer = footer
        self.rows = footer.rows
        self.schema = footer.metadata.schema.to_arrow_schema()  # where INT96 is ns
        if int96_unit != "ns" and int96_columns(footer):
            self.schema = open_parquet(path, storage, footer, int96_unit).schema_arrow

    def bounds(self, group: RowGroup, name: str) -> Bounds | None:
        """What the statistics say of a column's values in a row group; None where they may mislead."""
        leaf = self.footer.leaf_of.get(name, -1)
        known = None if leaf < 0 else group.statistics(leaf)
        if known is None:
            return None
        if known.bounds is None:
            return Bounds(None, None) if known.nulls == group.rows else None
        type_ = self.schema.field(name).type
        try:
            low, high = (value_of(raw, self.footer.leaves[leaf], type_) for raw in known.bounds)
            return _bounds(low, high, type_, missing=known.nulls != 0)
        except (TypeError, ValueError, OverflowError, pa.ArrowException):
            return None


def plan_parquet(
    paths: Paths,
    size: int,
    *,
    columns: Sequence[str] | None = None,
    condition: Expression | None = None,
    storage: Storage | None = None,
    int96_unit: str = "ns",
    nullable: Sequence[str] = (),
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
    nullable : sequence of str
        Ints that are of a nullable dtype, whatever their statistics say.

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
    files = []
    for path in (file.path for file in found):
        with reading_parquet(path):
            files.append(_File(path, footer_of(path, storage), storage, int96_unit))
    indexes = indexes_in_metadata(files)
    for file in files:
        file.schema = with_indexes(file.schema, indexes[file.path])
    require_same_columns(files, columns)
    require_types_of_one_kind(files, columns)
    schema = files[0].schema
    folders = folder_columns(found, schema)
    condition = folders.by_number(condition)
    weighed: list[tuple[str, int, int, int]] = []
    for file in files:
        with reading_parquet(file.path):
            weighed += _weighed(file, columns, condition, folders)
    with reading_parquet(files[0].path):
        dtypes = _dtypes(files, columns) | dict(folders.dtypes)
        ints = (field for field in schema if field.name in nullable and pa.types.is_integer(field.type))
        dtypes |= {field.name: masked_name(np.dtype(field.type.to_pandas_dtype())) for field in ints}
    notes = _notes(files, weighed, condition)
    footers = {file.path: file.footer for file in files}
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
            {path: footers[path] for path in dict.fromkeys(p.path for p in share)},
        )
        for share in spread_rows(weighed, size)
    ]


def _weighed(
    file: _File, columns: Sequence[str] | None, condition: Expression | None, folders: FolderColumns
) -> Iterator[tuple[str, int, int, int]]:
    """The row groups of which a condition may hold: the place, the rows and the bytes of each."""
    leaves = None if columns is None else file.footer.leaves_of(columns)
    for place, group in enumerate(file.footer.groups):
        if condition is None or _may_hold(file, group, condition, folders):
            nbytes = group.nbytes if leaves is None else sum(group.chunk(leaf).nbytes for leaf in leaves)
            yield file.path, place, group.rows, nbytes


def _may_hold(file: _File, group: RowGroup, condition: Expression, folders: FolderColumns) -> bool:
    def bounds(name: Label) -> Bounds | None:
        if name in folders.types:
            return bounds_of_value(folders.value(file.path, str(name)))
        return file.bounds(group, str(name))

    return group.rows > 0 and may_hold(condition, bounds)


def _notes(files: Sequence[_File], kept: Sequence[tuple[Any, ...]], condition: Expression | None) -> tuple[str, ...]:
    groups = sum(len(file.footer.groups) for file in files)
    if condition is None:
        return (f"{_count(groups, 'row group')} in {_count(len(files), 'file')}",)
    unread = len({file.path for file in files} - {path for path, *_ in kept})
    return (
        f"{format_count(groups - len(kept))} of {_count(groups, 'row group')} skipped by statistics and folders, "
        f"{format_count(unread)} of {_count(len(files), 'file')} whole",
    )


def _count(n: int, what: str) -> str:
    return f"{format_count(n)} {what}{'s' * (n != 1)}"


def int96_columns(footer: Footer) -> list[str]:
    """The columns with such times, in lists and structs too."""
    return list(dict.fromkeys(c.path.split(".")[0] for c in footer.leaves if c.physical_type == "INT96"))


def reading_parquet(path: str) -> Any:
    """A context in which what goes wrong is an error that names the file."""
    return reading(path, "Is it a whole parquet file?")


def open_parquet(path: str, storage: Storage, footer: Footer, int96_unit: str, coded: Sequence[str] = ()) -> Any:
    """Open a file; its times in INT96 are read in a unit, and some columns as the dictionaries that it holds."""
    source = storage.open(path) if is_url(path) else path
    # Without buffering ahead, a column chunk is read as it is decoded: memory stays bounded in large row groups.
    return pq.ParquetFile(
        source,
        metadata=footer.metadata,
        pre_buffer=False,
        buffer_size=1 << 20,
        coerce_int96_timestamp_unit=int96_unit,
        read_dictionary=list(coded) or None,
    )


def _dtypes(files: Sequence[_File], columns: Sequence[str] | None) -> dict[str, str]:
    schema = files[0].schema
    dtypes = pandas_dtypes(schema)
    wanted = set(schema.names if columns is None else columns) - dtypes.keys()
    for column in schema:
        if column.name in wanted and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
            dtypes[column.name] = _dtype_with_nulls(files, column.name, column.type)
    return dtypes


def _dtype_with_nulls(files: Sequence[_File], name: str, type_: Any) -> str:
    """What ints and bools with nulls become, as in pandas; "" where there are none, nullable ints where not exact."""
    known = []
    for file, leaf, one in _statistics(files, name):
        if one is None or one.nulls is None:
            return ""  # unknown: decided chunk by chunk
        known.append((file, leaf, one))
    if not any(one.nulls for _, _, one in known):
        return ""
    if pa.types.is_boolean(type_):
        return "object"
    for file, leaf, one in known:
        for raw in one.bounds or ():
            value = value_of(raw, file.footer.leaves[leaf], file.schema.field(name).type)
            if not isinstance(value, (int, float)):
                return ""  # another file holds something else under this name; it is not read, or refused
            if not -EXACT_IN_FLOAT <= value <= EXACT_IN_FLOAT:
                return masked_name(np.dtype(type_.to_pandas_dtype()))
    return "float64"


def _statistics(files: Sequence[_File], name: str) -> Iterator[tuple[_File, int, Statistics | None]]:
    """Of a column in each row group, and where it is in a file."""
    for file in files:
        leaf = file.footer.leaf_of.get(name, -1)
        for group in file.footer.groups:
            if group.rows:
                yield file, leaf, None if leaf < 0 else group.statistics(leaf)


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
