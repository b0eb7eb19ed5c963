"""The tables of ``gcylon-lab bench gpu --tables tpch``: rows of TPC-H, with nulls put in, and a plain table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .cases import KEY_RANGE

_GROUPS_AT_ONCE = 16  # of 4 MB each
_NULL_EVERY = 7


@dataclass(frozen=True, slots=True)
class BenchTable:
    """A table of the bench.

    Attributes
    ----------
    name, key : str
    nulled : tuple of str
        Columns in which every seventh row, by its key, is made null: TPC-H has none.
    row_bytes : int
        About what a row takes in memory, for the ceiling.
    """

    name: str
    key: str
    nulled: tuple[str, ...] = ()
    row_bytes: int = 32


TABLES = {
    table.name: table
    for table in (
        BenchTable("plain", "k"),
        BenchTable("lineitem", "l_orderkey", ("l_comment", "l_discount", "l_shipdate"), 210),
        BenchTable("orders", "o_orderkey", ("o_comment", "o_totalprice", "o_orderdate"), 160),
    )
}


@dataclass(frozen=True, slots=True)
class TableCase:
    """One line: a table, a strategy, and the budget in multiples of a rank's bytes, with the input alive."""

    table: str
    strategy: str
    budget: float

    @property
    def name(self) -> str:
        """As it is asked for and shown."""
        return f"{self.table} {self.strategy}"


# Strings are packed, sent and unpacked, so tables with them need more than columns of one width.
BUDGETS = {
    "plain": {"direct": 4.0, "chunked": 2.15, "staged": 1.15},
    "lineitem": {"direct": 5.0, "chunked": 3.0, "staged": 1.3},
    "orders": {"direct": 5.0, "chunked": 3.2, "staged": 1.3},
}
CASES = tuple(
    TableCase(table, strategy, budget) for table, budgets in BUDGETS.items() for strategy, budget in budgets.items()
)


def case_named(name: str) -> TableCase:
    """The case of a name."""
    return next(case for case in CASES if case.name == name)


def count_rows(folder: Path, table: str) -> int:
    """Rows of a table's file."""
    return int(pq.ParquetFile(folder / f"{table}.parquet").metadata.num_rows)


def arrow_pieces(folder: Path, table: BenchTable, rank: int, size: int) -> Iterator[pa.Table]:
    """This rank's share of a table's file, some row groups at a time, with nulls put in."""
    source = pq.ParquetFile(folder / f"{table.name}.parquet")
    groups = source.metadata.num_row_groups
    mine = range(rank * groups // size, (rank + 1) * groups // size)
    if not mine:
        yield _with_nulls(source.schema_arrow.empty_table(), table)  # a rank without rows needs the columns too
    for first in range(mine.start, mine.stop, _GROUPS_AT_ONCE):
        several = list(range(first, min(first + _GROUPS_AT_ONCE, mine.stop)))
        yield _with_nulls(source.read_row_groups(several), table)


def _with_nulls(rows: pa.Table, table: BenchTable) -> pa.Table:
    keys = rows[table.key]
    cut = pc.equal(pc.subtract(keys, pc.multiply(pc.divide(keys, _NULL_EVERY), _NULL_EVERY)), 0)
    arrays, fields = [], []
    for field in rows.schema:
        array, kind = rows[field.name], field.type
        if pa.types.is_string_view(kind):
            kind = pa.string()
            array = array.cast(kind)
        if field.name in table.nulled:
            array = pc.if_else(cut, pa.scalar(None, kind), array)
        arrays.append(array)
        fields.append(pa.field(field.name, kind))
    return pa.table(arrays, schema=pa.schema(fields))


def frames(folder: Path, table: BenchTable, rank: int, size: int, plain_rows: int) -> Iterator[pd.DataFrame]:
    """This rank's rows as frames; of the plain table ``plain_rows``, which are made."""
    if table.name != "plain":
        for piece in arrow_pieces(folder, table, rank, size):
            yield piece.to_pandas(types_mapper=pd.ArrowDtype)
        return
    random, left = np.random.default_rng(rank), plain_rows
    while left:
        n = min(left, max(1, plain_rows // 8))
        left -= n
        columns: dict[str, Any] = {"k": random.integers(0, KEY_RANGE, n)}
        yield pd.DataFrame(columns | {f"v{i}": random.random(n) for i in range(3)})
