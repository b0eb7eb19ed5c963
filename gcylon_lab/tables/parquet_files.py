"""Reading parquet files, each rank its own rows, chunk by chunk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import GcylonError, ReadError, SchemaMismatch
from .arrow_tables import from_arrow
from .arrow_types import TypeClash, held_type, kind_of, merge_types
from .data import Columns, bounded
from .promotion import masked_name
from .read_plans import Paths, RowPiece, expand_paths, spread_rows

PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
_EXACT_IN_FLOAT = 2**53
_READ_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class ParquetPlan:
    """What one rank reads.

    Attributes
    ----------
    pieces : tuple of RowPiece
        In order; empty where there are more ranks than rows.
    first : str
        The first file of all, whose columns a rank without rows takes.
    dtypes : dict
        dtypes that the Arrow types do not tell, the same on all ranks.
    """

    pieces: tuple[RowPiece, ...]
    first: str
    dtypes: Mapping[str, str] = field(default_factory=dict)


def plan_parquet(paths: Paths, size: int, *, columns: Sequence[str] | None = None) -> list[ParquetPlan]:
    """Share the rows of parquet files out evenly, in file order.

    Reads the footers of all files: dtypes that depend on values (ints with nulls are float64 in pandas) are
    decided from the statistics of all of them, so that every rank decides alike.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, folders or patterns.
    size : int
        Number of ranks.
    columns : sequence of str, optional
        Those that will be read; files may differ in the others.

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
    files = expand_paths(paths, PARQUET_SUFFIXES)
    footers = [_footer(path) for path in files]
    _require_same_columns(files, footers, columns)
    _require_types_of_one_kind(files, footers, columns)
    groups = [
        (path, group, footer.row_group(group).num_rows)
        for path, footer in zip(files, footers, strict=True)
        for group in range(footer.num_row_groups)
    ]
    dtypes = _dtypes(footers)
    return [ParquetPlan(tuple(share), files[0], dtypes) for share in spread_rows(groups, size)]


def _footer(path: str) -> Any:
    try:
        return pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: BaseException) -> ReadError:
    return ReadError(f"{path} cannot be read: {error}", advice="Is it a whole parquet file?", path=path)


def _require_same_columns(files: Sequence[str], footers: Sequence[Any], columns: Sequence[str] | None) -> None:
    first = footers[0].schema.to_arrow_schema().names
    for path, footer in zip(files, footers, strict=True):
        names = footer.schema.to_arrow_schema().names
        different = sorted((set(first) ^ set(names)) & set(columns if columns is not None else [*first, *names]))
        if different:
            raise ReadError(
                f"{path} has the columns {names}, but {files[0]} has {first}; they differ in {different}",
                advice="Read files with the same columns, or pass columns=[...] that all have.",
                path=path,
            )


def _require_types_of_one_kind(files: Sequence[str], footers: Sequence[Any], columns: Sequence[str] | None) -> None:
    first: dict[str, tuple[str, Any]] = {}
    for path, footer in zip(files, footers, strict=True):
        for column in footer.schema.to_arrow_schema():
            wanted = columns is None or column.name in columns
            if not wanted or not footer.num_rows or kind_of(column.type) in (None, "null"):
                continue  # categories and the like are looked at with their values
            known_path, known = first.setdefault(column.name, (path, column.type))
            try:
                merge_types(held_type(known), held_type(column.type))
            except TypeClash:
                raise SchemaMismatch(
                    f"column {column.name!r} is {known} in {known_path} and {column.type} in {path}, which have no "
                    "common dtype",
                    advice="Read the files one by one, or leave the column out with columns=[...].",
                    column=column.name,
                    paths=[known_path, path],
                ) from None


def _dtypes(footers: Sequence[Any]) -> dict[str, str]:
    schema = footers[0].schema.to_arrow_schema()
    dtypes = _from_pandas_metadata(schema)
    for name in schema.names:
        type_ = schema.field(name).type
        if name not in dtypes and (pa.types.is_integer(type_) or pa.types.is_boolean(type_)):
            dtypes[name] = _dtype_with_nulls(footers, name, type_)
    return dtypes


def _from_pandas_metadata(schema: Any) -> dict[str, str]:
    """Nullable and string dtypes of a frame that pandas wrote."""
    known: dict[str, str] = {}
    for entry in (schema.pandas_metadata or {}).get("columns", []):
        text, name = entry.get("numpy_type", ""), entry.get("field_name")
        if text.startswith(("Int", "UInt", "Float", "boolean", "string[")) or text.endswith("[pyarrow]"):
            known[name] = text
        elif text == "string":
            known[name] = "string[pyarrow]"
    return known


def _dtype_with_nulls(footers: Sequence[Any], name: str, type_: Any) -> str:
    """What ints and bools with nulls become, as in pandas; "" where there are none, nullable ints where not exact."""
    nulls = False
    low: float = 0
    high: float = 0
    for statistics in _statistics(footers, name):
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


def _statistics(footers: Sequence[Any], name: str) -> Iterator[Any]:
    for footer in footers:
        leaf = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == name), None)
        for group in range(footer.num_row_groups):
            if footer.row_group(group).num_rows:
                yield None if leaf is None else footer.row_group(group).column(leaf).statistics


def read_parquet_chunks(
    plan: ParquetPlan,
    *,
    columns: Sequence[str] | None = None,
    max_bytes: int = 32 * 1024**2,
    max_rows: int | None = None,
) -> Iterator[Columns]:
    """Read what a plan gives to one rank, piece by piece.

    Parameters
    ----------
    plan : ParquetPlan
    columns : sequence of str, optional
        Only these, in this order.
    max_bytes : int
        About the largest size of a piece. A row larger than that is a piece of its own.
    max_rows : int, optional
        The most rows of a piece.

    Yields
    ------
    Columns
        In file order; one without rows where there is nothing to read, so that the columns are known. Labels of
        categories may differ from piece to piece.

    Raises
    ------
    ReadError
        If a file cannot be read, or has no such column.
    """
    wanted = _wanted(plan, columns)
    any_rows = False
    for batch in _batches(plan, wanted, max_bytes, max_rows):
        data = from_arrow(batch.select(wanted), plan.dtypes)
        any_rows = True
        yield from bounded(data, max_bytes, max_rows)
    if not any_rows:
        yield from_arrow(_open(plan.first).schema_arrow.empty_table().select(wanted), plan.dtypes)


def _open(path: str) -> Any:
    try:
        # Without buffering ahead, a column chunk is read as it is decoded: memory stays bounded in large row groups.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from None


def _wanted(plan: ParquetPlan, columns: Sequence[str] | None) -> list[str]:
    names = [name for name in _open(plan.first).schema_arrow.names if not re.fullmatch(r"__index_level_\d+__", name)]
    missing = [name for name in columns or () if name not in names]
    if missing:
        raise ReadError(
            f"{plan.first} has no column {missing[0]!r}; its columns are {names}",
            advice="Name one of them.",
            path=plan.first,
            column=missing[0],
        )
    return names if columns is None else list(columns)


def _batches(plan: ParquetPlan, wanted: list[str], max_bytes: int, max_rows: int | None) -> Iterator[Any]:
    """Tables of about half the limit at most: the other half is for the columns made of them."""
    kept: list[Any] = []
    nbytes = rows = 0
    for batch in _raw_batches(plan, wanted, max_bytes):
        if kept and (
            nbytes + batch.nbytes > max_bytes // 2
            or (max_rows and rows + batch.num_rows > max_rows)
            or batch.schema != kept[0].schema
        ):
            yield pa.Table.from_batches(kept)
            kept, nbytes, rows = [], 0, 0
        kept.append(batch)
        nbytes, rows = nbytes + batch.nbytes, rows + batch.num_rows
    if kept:
        yield pa.Table.from_batches(kept)


def _raw_batches(plan: ParquetPlan, wanted: list[str], max_bytes: int) -> Iterator[Any]:
    file, path = None, ""
    for piece in plan.pieces:
        try:
            if file is None or piece.path != path:
                file, path = _open(piece.path), piece.path
            rows = _rows_of(file.metadata.row_group(piece.group), max_bytes)
            at = 0
            for batch in file.iter_batches(rows, row_groups=[piece.group], columns=wanted, use_threads=False):
                low, high = max(piece.start - at, 0), min(piece.stop - at, batch.num_rows)
                at += batch.num_rows
                if low < high:
                    yield batch.slice(low, high - low)
                if at >= piece.stop:
                    break
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, GcylonError):
                raise
            raise _unreadable(piece.path, error) from None


def _rows_of(group: Any, max_bytes: int) -> int:
    """Rows to decode at a time: decoded rows are taken to be up to four times their size in the file."""
    row_bytes = max(1, 4 * group.total_byte_size // max(1, group.num_rows))
    return int(min(max(1, max_bytes // 2 // row_bytes), _READ_ROWS))
