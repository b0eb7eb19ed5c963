"""Queries of TPC-H with the verbs that everybody has, as examples: the same code from a notebook and on each rank.

    lab = gl.Cluster(2)
    pricing_summary(Tables(lab, "tpch"))          # handles

    %%px
    pricing_summary(Tables(gl, "tpch"))           # the tables of this rank; all ranks run it

Each reads only the columns that it needs and drops rows early. Prices are decimals in the files. Where they are
multiplied they are converted to float64 before: exact products of three of them need more digits than a decimal has.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd

from ...backends.protocol.expressions import Expression, col


class Tables:
    """TPC-H's parquet files in a folder.

    Parameters
    ----------
    reader : Cluster or module
        What has ``read_parquet``: a cluster, or ``gcylon_lab`` itself on a rank.
    folder : str or Path
    """

    def __init__(self, reader: Any, folder: str | Path) -> None:
        self._reader = reader
        self._folder = Path(folder)
        self.read_bytes = 0

    def read(self, name: str, *columns: str) -> Any:
        """Some columns of a table."""
        table = self._reader.read_parquet(str(self._folder / f"{name}.parquet"), columns=list(columns))
        self.read_bytes += table.nbytes
        return table


def _revenue() -> Expression:
    return col("l_extendedprice").astype("float64") * (1 - col("l_discount").astype("float64"))


def pricing_summary(tables: Tables) -> pd.DataFrame:
    """Query 1: sums and means of what was shipped, for each flag and status."""
    lines = tables.read(
        "lineitem", "l_quantity", "l_extendedprice", "l_discount", "l_tax", "l_returnflag", "l_linestatus", "l_shipdate"
    )
    lines = lines.filter(col("l_shipdate") <= date(1998, 9, 2)).drop("l_shipdate")
    lines = lines.assign(disc_price=_revenue())
    lines = lines.assign(charge=col("disc_price") * (1 + col("l_tax").astype("float64")))
    groups = lines.groupby(["l_returnflag", "l_linestatus"]).agg(
        sum_qty=("l_quantity", "sum"),
        sum_base_price=("l_extendedprice", "sum"),
        sum_disc_price=("disc_price", "sum"),
        sum_charge=("charge", "sum"),
        avg_qty=("l_quantity", "mean"),
        avg_price=("l_extendedprice", "mean"),
        avg_disc=("l_discount", "mean"),
        count_order=("l_quantity", "size"),
    )
    return _all_of(groups.sort_values(["l_returnflag", "l_linestatus"]))


def shipping_priority(tables: Tables) -> pd.DataFrame:
    """Query 3: the ten unshipped orders of most revenue."""
    day = date(1995, 3, 15)
    customers = tables.read("customer", "c_custkey", "c_mktsegment").filter(col("c_mktsegment") == "BUILDING")
    orders = tables.read("orders", "o_orderkey", "o_custkey", "o_orderdate", "o_shippriority")
    orders = orders.filter(col("o_orderdate") < day)
    orders = orders.join(customers, how="semi", left_on="o_custkey", right_on="c_custkey").drop("o_custkey")
    lines = tables.read("lineitem", "l_orderkey", "l_extendedprice", "l_discount", "l_shipdate")
    lines = lines.filter(col("l_shipdate") > day).assign(revenue=_revenue()).select(["l_orderkey", "revenue"])
    joined = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey")
    groups = joined.groupby(["l_orderkey", "o_orderdate", "o_shippriority"]).agg(revenue=("revenue", "sum"))
    first = groups.sort_values(["revenue", "o_orderdate"], ascending=[False, True])
    return _first_of(first.select(["l_orderkey", "revenue", "o_orderdate", "o_shippriority"]), 10)


def local_supplier_volume(tables: Tables) -> pd.DataFrame:
    """Query 5: revenue of the nations of Asia with their own suppliers."""
    regions = tables.read("region", "r_regionkey", "r_name").filter(col("r_name") == "ASIA")
    nations = tables.read("nation", "n_nationkey", "n_name", "n_regionkey")
    nations = nations.join(regions, how="semi", left_on="n_regionkey", right_on="r_regionkey").drop("n_regionkey")
    suppliers = tables.read("supplier", "s_suppkey", "s_nationkey")
    suppliers = suppliers.join(nations, left_on="s_nationkey", right_on="n_nationkey").drop("n_nationkey")
    customers = tables.read("customer", "c_custkey", "c_nationkey")
    customers = customers.join(nations, how="semi", left_on="c_nationkey", right_on="n_nationkey")
    orders = tables.read("orders", "o_orderkey", "o_custkey", "o_orderdate")
    orders = orders.filter((col("o_orderdate") >= date(1994, 1, 1)) & (col("o_orderdate") < date(1995, 1, 1)))
    orders = orders.join(customers, left_on="o_custkey", right_on="c_custkey").select(["o_orderkey", "c_nationkey"])
    lines = tables.read("lineitem", "l_orderkey", "l_suppkey", "l_extendedprice", "l_discount")
    lines = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey").assign(revenue=_revenue())
    lines = lines.select(["l_suppkey", "c_nationkey", "revenue"])
    local = lines.join(suppliers, left_on=["l_suppkey", "c_nationkey"], right_on=["s_suppkey", "s_nationkey"])
    groups = local.groupby("n_name").agg(revenue=("revenue", "sum"))
    return _all_of(groups.sort_values("revenue", ascending=False))


def forecast_revenue_change(tables: Tables) -> pd.DataFrame:
    """Query 6: what small discounts cost in a year."""
    lines = tables.read("lineitem", "l_shipdate", "l_discount", "l_quantity", "l_extendedprice")
    chosen = lines.filter(
        (col("l_shipdate") >= date(1994, 1, 1))
        & (col("l_shipdate") < date(1995, 1, 1))
        & col("l_discount").between(Decimal("0.05"), Decimal("0.07"))
        & (col("l_quantity") < 24)
    )
    saved = chosen.assign(revenue=col("l_extendedprice").astype("float64") * col("l_discount").astype("float64"))
    return pd.DataFrame({"revenue": [saved.sum("revenue")]})


def product_type_profit(tables: Tables) -> pd.DataFrame:
    """Query 9: profit with green parts, for each nation and year."""
    parts = tables.read("part", "p_partkey", "p_name").filter(col("p_name").str.contains("green")).select("p_partkey")
    lines = tables.read(
        "lineitem", "l_orderkey", "l_partkey", "l_suppkey", "l_quantity", "l_extendedprice", "l_discount"
    )
    lines = lines.join(parts, how="semi", left_on="l_partkey", right_on="p_partkey")
    costs = tables.read("partsupp", "ps_partkey", "ps_suppkey", "ps_supplycost")
    lines = lines.join(costs, left_on=["l_partkey", "l_suppkey"], right_on=["ps_partkey", "ps_suppkey"])
    cost = col("ps_supplycost").astype("float64") * col("l_quantity").astype("float64")
    lines = lines.assign(amount=_revenue() - cost).select(["l_orderkey", "l_suppkey", "amount"])
    nations = tables.read("nation", "n_nationkey", "n_name")
    suppliers = tables.read("supplier", "s_suppkey", "s_nationkey")
    suppliers = suppliers.join(nations, left_on="s_nationkey", right_on="n_nationkey").select(["s_suppkey", "n_name"])
    lines = lines.join(suppliers, left_on="l_suppkey", right_on="s_suppkey").select(["l_orderkey", "n_name", "amount"])
    orders = tables.read("orders", "o_orderkey", "o_orderdate")
    orders = orders.assign(o_year=col("o_orderdate").dt.year).drop("o_orderdate")
    lines = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey")
    groups = lines.groupby(["n_name", "o_year"]).agg(sum_profit=("amount", "sum"))
    return _all_of(groups.sort_values(["n_name", "o_year"], ascending=[True, False]))


def shipping_modes(tables: Tables) -> pd.DataFrame:
    """Query 12: urgent and other orders that came late by mail and ship."""
    lines = tables.read("lineitem", "l_orderkey", "l_shipmode", "l_shipdate", "l_commitdate", "l_receiptdate")
    late = lines.filter(
        col("l_shipmode").isin(["MAIL", "SHIP"])
        & (col("l_commitdate") < col("l_receiptdate"))
        & (col("l_shipdate") < col("l_commitdate"))
        & (col("l_receiptdate") >= date(1994, 1, 1))
        & (col("l_receiptdate") < date(1995, 1, 1))
    ).select(["l_orderkey", "l_shipmode"])
    joined = late.join(
        tables.read("orders", "o_orderkey", "o_orderpriority"), left_on="l_orderkey", right_on="o_orderkey"
    )
    urgent = col("o_orderpriority").isin(["1-URGENT", "2-HIGH"])
    joined = joined.assign(high_line_count=urgent.astype("int64"), low_line_count=(~urgent).astype("int64"))
    groups = joined.groupby("l_shipmode").agg({"high_line_count": "sum", "low_line_count": "sum"})
    return _all_of(groups.sort_values("l_shipmode"))


def customer_distribution(tables: Tables) -> pd.DataFrame:
    """Query 13: how many customers have how many orders."""
    orders = tables.read("orders", "o_orderkey", "o_custkey", "o_comment")
    orders = orders.filter(~col("o_comment").str.contains("special.*requests", regex=True)).drop("o_comment")
    joined = tables.read("customer", "c_custkey").join(orders, how="left", left_on="c_custkey", right_on="o_custkey")
    counts = joined.groupby("c_custkey").agg(c_count=("o_orderkey", "count"))
    groups = counts.groupby("c_count").agg(custdist=("c_custkey", "size"))
    return _all_of(groups.sort_values(["custdist", "c_count"], ascending=False))


def large_volume_customers(tables: Tables) -> pd.DataFrame:
    """Query 18: the hundred dearest of the orders of more than 300 pieces."""
    pieces = tables.read("lineitem", "l_orderkey", "l_quantity").groupby("l_orderkey").agg(pieces=("l_quantity", "sum"))
    large = pieces.filter(col("pieces") > 300)
    orders = tables.read("orders", "o_orderkey", "o_custkey", "o_orderdate", "o_totalprice")
    orders = orders.join(large, left_on="o_orderkey", right_on="l_orderkey")
    customers = tables.read("customer", "c_custkey", "c_name")
    joined = customers.join(orders, left_on="c_custkey", right_on="o_custkey")
    first = joined.sort_values(["o_totalprice", "o_orderdate"], ascending=[False, True])
    names = ["c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice", "pieces"]
    return _first_of(first.select(names), 100)


def _all_of(table: Any) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas(limit=None)
    return frame


def _first_of(table: Any, rows: int) -> pd.DataFrame:
    frame: pd.DataFrame = table.head(rows)
    return frame


QUERIES: dict[int, Callable[[Tables], pd.DataFrame]] = {
    1: pricing_summary,
    3: shipping_priority,
    5: local_supplier_volume,
    6: forecast_revenue_change,
    9: product_type_profit,
    12: shipping_modes,
    13: customer_distribution,
    18: large_volume_customers,
}
