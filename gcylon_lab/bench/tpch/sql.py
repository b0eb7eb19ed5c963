"""The same queries in SQL for DuckDB, and how its answers are compared with ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
# Products of prices are float64 with us and decimals there: each is right to 2 in 10^16, and their sums are carried in
# more digits. All else is compared exactly.
NEAR = 1e-12

_REVENUE = "sum(l_extendedprice * (1 - l_discount))"

SQL: dict[int, str] = {
    1: f"""
        select l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), {_REVENUE},
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice),
               avg(l_discount), count(*)
        from lineitem where l_shipdate <= date '1998-09-02' group by all order by 1, 2""",
    3: f"""
        select l_orderkey, {_REVENUE} as revenue, o_orderdate, o_shippriority
        from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
          and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate limit 10""",
    5: f"""
        select n_name, {_REVENUE} as revenue
        from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
          and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
          and r_name = 'ASIA' and o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'
        group by n_name order by revenue desc""",
    6: """
        select sum(l_extendedprice * l_discount) from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
          and l_discount between 0.05 and 0.07 and l_quantity < 24""",
    9: """
        select n_name, year(o_orderdate) as o_year,
               sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity)
        from part, supplier, lineitem, partsupp, orders, nation
        where s_suppkey = l_suppkey and ps_suppkey = l_suppkey and ps_partkey = l_partkey and p_partkey = l_partkey
          and o_orderkey = l_orderkey and s_nationkey = n_nationkey and p_name like '%green%'
        group by n_name, o_year order by n_name, o_year desc""",
    12: """
        select l_shipmode, count(*) filter (o_orderpriority in ('1-URGENT', '2-HIGH')),
               count(*) filter (o_orderpriority not in ('1-URGENT', '2-HIGH'))
        from orders, lineitem
        where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
          and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01' and l_receiptdate < date '1995-01-01'
        group by l_shipmode order by l_shipmode""",
    13: """
        select c_count, count(*) as custdist from (
            select c_custkey, count(o_orderkey) as c_count from customer left join orders
              on c_custkey = o_custkey and o_comment not like '%special%requests%' group by c_custkey)
        group by c_count order by custdist desc, c_count desc""",
    18: """
        select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
        from customer, orders, lineitem
        where o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 300)
          and c_custkey = o_custkey and o_orderkey = l_orderkey
        group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        order by o_totalprice desc, o_orderdate limit 100""",
}


class Duck:
    """DuckDB over the same files, read anew by every query.

    Parameters
    ----------
    folder : str or Path
        With a parquet file for each table.
    threads : int
        As many as there are ranks.
    """

    def __init__(self, folder: str | Path, threads: int) -> None:
        import duckdb

        self._link = duckdb.connect(config={"threads": threads})
        for name in TABLES:
            self._link.execute(f"create view {name} as from read_parquet('{Path(folder) / name}.parquet')")

    def ask(self, number: int) -> list[tuple[Any, ...]]:
        """The rows of a query's answer, in order, as Python values."""
        rows: list[tuple[Any, ...]] = self._link.execute(SQL[number]).fetchall()
        return rows

    def close(self) -> None:
        """Give it back."""
        self._link.close()


def first_difference(frame: pd.DataFrame, expected: Sequence[Sequence[Any]]) -> str:
    """Where our answer differs from the one expected; "" if it does not.

    Ints, text, dates and decimals are compared exactly, float64 within `NEAR`.
    """
    if len(frame) != len(expected):
        return f"{len(frame)} rows, but {len(expected)} expected"
    for number, (ours, theirs) in enumerate(zip(_rows(frame), expected, strict=True)):
        if len(ours) != len(theirs):
            return f"{len(ours)} columns, but {len(theirs)} expected"
        for name, one, other in zip(frame.columns, ours, theirs, strict=True):
            if not _equal(one, other):
                return f"row {number}, {name}: {one!r}, but {other!r} expected"
    return ""


def _rows(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    return list(zip(*(frame[name].tolist() for name in frame.columns), strict=True))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and other is not None:
        return math.isclose(one, float(other), rel_tol=NEAR)
    return bool(one == other)
