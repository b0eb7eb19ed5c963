"""Reading parquet files, each rank its own rows, chunk by chunk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import GcylonError
from .arrow_tables import from_arrow
from .data import Columns, bounded
from .file_columns import require_columns
from .filesystems import Storage, is_url
from .hive import FolderColumns
from .parquet_plans import ParquetPlan, unreadable_parquet

_READ_ROWS = 1 << 16


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
        yield from_arrow(_empty(plan).select(wanted), plan.dtypes)


def _empty(plan: ParquetPlan) -> Any:
    table = plan.schema.empty_table()
    for name, type_ in plan.folders.types.items():
        table = table.append_column(name, pa.array([], type_))
    return table


def _open(path: str, storage: Storage) -> Any:
    source = storage.open(path) if is_url(path) else path
    # Without buffering ahead, a column chunk is read as it is decoded: memory stays bounded in large row groups.
    return pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20)


def _wanted(plan: ParquetPlan, columns: Sequence[str] | None) -> list[str]:
    names = [name for name in plan.schema.names if not re.fullmatch(r"__index_level_\d+__", name)]
    names += plan.folders.types
    return require_columns(plan.first, names, columns)


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
    in_files = [name for name in wanted if name not in plan.folders.types]
    for piece in plan.pieces:
        try:
            if file is None or piece.path != path:
                file, path = _open(piece.path, plan.storage), piece.path
            rows = _rows_of(file.metadata.row_group(piece.group), max_bytes)
            at = 0
            for batch in file.iter_batches(rows, row_groups=[piece.group], columns=in_files, use_threads=False):
                low, high = max(piece.start - at, 0), min(piece.stop - at, batch.num_rows)
                at += batch.num_rows
                if low < high:
                    yield _with_folders(batch.slice(low, high - low), piece.path, wanted, plan.folders)
                if at >= piece.stop:
                    break
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, GcylonError):
                raise
            raise unreadable_parquet(piece.path, error) from None


def _with_folders(batch: Any, path: str, wanted: list[str], folders: FolderColumns) -> Any:
    named = {name: folders.array(path, name, batch.num_rows) for name in wanted if name in folders.types}
    if not named:
        return batch
    arrays = [named[name] if name in named else batch.column(name) for name in wanted]
    return pa.RecordBatch.from_arrays(arrays, names=wanted)


def _rows_of(group: Any, max_bytes: int) -> int:
    """Rows to decode at a time: decoded rows are taken to be up to four times their size in the file."""
    row_bytes = max(1, 4 * group.total_byte_size // max(1, group.num_rows))
    return int(min(max(1, max_bytes // 2 // row_bytes), _READ_ROWS))
