"""Reading parquet files, each rank its own rows, chunk by chunk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from .arrow_tables import from_arrow
from .data import Columns, bounded
from .file_columns import index_array, require_columns
from .int96 import CHECKED_WITH, int96_columns, require_same_times
from .parquet_plans import ParquetPlan, open_parquet, reading_parquet

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
    for path, batch in _batches(plan, wanted, max_bytes, max_rows):
        with reading_parquet(path):
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


def _wanted(plan: ParquetPlan, columns: Sequence[str] | None) -> list[str]:
    names = [name for name in plan.schema.names if not re.fullmatch(r"__index_level_\d+__", name)]
    names += plan.folders.types
    return require_columns(plan.first, names, columns)


def _batches(plan: ParquetPlan, wanted: list[str], max_bytes: int, max_rows: int | None) -> Iterator[tuple[str, Any]]:
    """Tables of about half the limit at most, the other half is for the columns made of them; and a file of each."""
    kept: list[Any] = []
    path, nbytes, rows = "", 0, 0
    for path, batch in _raw_batches(plan, wanted, max_bytes):
        if kept and (
            nbytes + batch.nbytes > max_bytes // 2
            or (max_rows and rows + batch.num_rows > max_rows)
            or batch.schema != kept[0].schema
        ):
            yield path, pa.Table.from_batches(kept)
            kept, nbytes, rows = [], 0, 0
        kept.append(batch)
        nbytes, rows = nbytes + batch.nbytes, rows + batch.num_rows
    if kept:
        yield path, pa.Table.from_batches(kept)


def _raw_batches(plan: ParquetPlan, wanted: list[str], max_bytes: int) -> Iterator[tuple[str, Any]]:
    file: _OpenFile | None = None
    for piece in plan.pieces:
        with reading_parquet(piece.path):
            if file is None or piece.path != file.path:
                file = _OpenFile(plan, piece.path, wanted)
            for start, batch in file.batches(piece.group, max_bytes):
                low, high = max(piece.start - start, 0), min(piece.stop - start, batch.num_rows)
                if low < high:
                    first = file.first_rows[piece.group] + start
                    yield piece.path, file.completed(batch.slice(low, high - low), first + low)
                if start + batch.num_rows >= piece.stop:
                    break


class _OpenFile:
    """A file of which some columns are read, and what it does not hold of them itself."""

    def __init__(self, plan: ParquetPlan, path: str, wanted: list[str]) -> None:
        self.path = path
        self._wanted = wanted
        self._folders = plan.folders
        self._indexes = plan.indexes.get(path, {})
        self._names = [n for n in wanted if n not in plan.folders.types and n not in self._indexes]
        self._unit = plan.int96_unit
        self._file = open_parquet(path, plan.storage, self._unit)
        footer = self._file.metadata
        self._times = [name for name in int96_columns(footer) if name in self._names]
        units = CHECKED_WITH[self._unit] if self._times else ()
        self._checks = [open_parquet(path, plan.storage, unit) for unit in units]
        groups = [footer.row_group(place).num_rows for place in range(footer.num_row_groups)]
        self.first_rows = [0, *accumulate(groups)]

    def batches(self, group: int, max_bytes: int) -> Iterator[tuple[int, Any]]:
        """Batches of a row group, and the row in it at which each begins."""
        rows = _rows_of(self._file.metadata.row_group(group), max_bytes)
        how: dict[str, Any] = {"batch_size": rows, "row_groups": [group], "use_threads": False}
        checks = [check.iter_batches(columns=self._times, **how) for check in self._checks]
        start = 0
        for batch in self._file.iter_batches(columns=self._names, **how):
            if checks:
                require_same_times(self.path, self._times, self._unit, batch, [next(check) for check in checks])
            yield start, batch
            start += batch.num_rows

    def completed(self, batch: Any, first: int) -> Any:
        """Rows of the file from a row on, with the columns that folders and metadata name."""
        rows = batch.num_rows
        named = {n: self._folders.array(self.path, n, rows) for n in self._wanted if n in self._folders.types}
        named |= {n: index_array(self._indexes[n], first, first + rows) for n in self._wanted if n in self._indexes}
        if not named:
            return batch
        arrays = [named[name] if name in named else batch.column(name) for name in self._wanted]
        return pa.RecordBatch.from_arrays(arrays, names=self._wanted)


def _rows_of(group: Any, max_bytes: int) -> int:
    """Rows to decode at a time: decoded rows are taken to be up to four times their size in the file."""
    row_bytes = max(1, 4 * group.total_byte_size // max(1, group.num_rows))
    return int(min(max(1, max_bytes // 2 // row_bytes), _READ_ROWS))
