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
        self.asked: list[tuple[str, str]] = []  # tables and their columns that were read

    def read(self, name: str, *columns: str, where: Expression | None = None) -> Any:
        """Some columns of a table, of the rows of which a condition holds."""
        path = str(self._folder / f"{name}.parquet")
        looked_at = () if where is None else map(str, where.columns())
        self.asked += [(name, column) for column in dict.fromkeys([*columns, *looked_at])]
        return self._reader.read_parquet(path, columns=list(columns), filters=where)


def _revenue() -> Expression:
    return col("l_extendedprice").astype("float64") * (1 - col("l_discount").astype("float64"))


def pricing_summary(tables: Tables) -> pd.DataFrame:
    """Query 1: sums and means of what was shipped, for each flag and status."""
    columns = ("l_quantity", "l_extendedprice", "l_discount", "l_tax", "l_returnflag", "l_linestatus")
    lines = tables.read("lineitem", *columns, where=col("l_shipdate") <= date(1998, 9, 2))
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


def minimum_cost_supplier(tables: Tables) -> pd.DataFrame:
    """Query 2: who in Europe sells parts of brass for least."""
    of_brass = (col("p_size") == 15) & col("p_type").str.endswith("BRASS")
    parts = tables.read("part", "p_partkey", "p_mfgr", where=of_brass)
    suppliers = tables.read(
        "supplier", "s_suppkey", "s_name", "s_address", "s_nationkey", "s_phone", "s_acctbal", "s_comment"
    )
    suppliers = suppliers.join(_nations_of(tables, "EUROPE"), left_on="s_nationkey", right_on="n_nationkey")
    costs = tables.read("partsupp", "ps_partkey", "ps_suppkey", "ps_supplycost")
    costs = costs.join(parts, left_on="ps_partkey", right_on="p_partkey")
    costs = costs.join(suppliers, left_on="ps_suppkey", right_on="s_suppkey")
    least = costs.groupby("ps_partkey").agg(least=("ps_supplycost", "min"))
    cheapest = costs.join(least, on="ps_partkey").filter(col("ps_supplycost") == col("least"))
    order = ["s_acctbal", "n_name", "s_name", "p_partkey"]
    first = cheapest.sort_values(order, ascending=[False, True, True, True])
    names = ["s_acctbal", "s_name", "n_name", "p_partkey", "p_mfgr", "s_address", "s_phone", "s_comment"]
    return _first_of(first.select(names), 100)


def shipping_priority(tables: Tables) -> pd.DataFrame:
    """Query 3: the ten unshipped orders of most revenue."""
    day = date(1995, 3, 15)
    customers = tables.read("customer", "c_custkey", where=col("c_mktsegment") == "BUILDING")
    columns = ("o_orderkey", "o_custkey", "o_orderdate", "o_shippriority")
    orders = tables.read("orders", *columns, where=col("o_orderdate") < day)
    orders = orders.join(customers, how="semi", left_on="o_custkey", right_on="c_custkey").drop("o_custkey")
    shipped_later = col("l_shipdate") > day
    lines = tables.read("lineitem", "l_orderkey", "l_extendedprice", "l_discount", where=shipped_later)
    lines = lines.assign(revenue=_revenue()).select(["l_orderkey", "revenue"])
    joined = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey")
    groups = joined.groupby(["l_orderkey", "o_orderdate", "o_shippriority"]).agg(revenue=("revenue", "sum"))
    first = groups.sort_values(["revenue", "o_orderdate"], ascending=[False, True])
    return _first_of(first.select(["l_orderkey", "revenue", "o_orderdate", "o_shippriority"]), 10)


def order_priorities(tables: Tables) -> pd.DataFrame:
    """Query 4: orders of a quarter with a line that came late, by priority."""
    quarter = (col("o_orderdate") >= date(1993, 7, 1)) & (col("o_orderdate") < date(1993, 10, 1))
    orders = tables.read("orders", "o_orderkey", "o_orderpriority", where=quarter)
    late = tables.read("lineitem", "l_orderkey", where=col("l_commitdate") < col("l_receiptdate"))
    orders = orders.join(late, how="semi", left_on="o_orderkey", right_on="l_orderkey")
    groups = orders.groupby("o_orderpriority").agg(order_count=("o_orderkey", "size"))
    return _all_of(groups.sort_values("o_orderpriority"))


def local_supplier_volume(tables: Tables) -> pd.DataFrame:
    """Query 5: revenue of the nations of Asia with their own suppliers."""
    nations = _nations_of(tables, "ASIA")
    suppliers = tables.read("supplier", "s_suppkey", "s_nationkey")
    suppliers = suppliers.join(nations, left_on="s_nationkey", right_on="n_nationkey").drop("n_nationkey")
    customers = tables.read("customer", "c_custkey", "c_nationkey")
    customers = customers.join(nations, how="semi", left_on="c_nationkey", right_on="n_nationkey")
    year = (col("o_orderdate") >= date(1994, 1, 1)) & (col("o_orderdate") < date(1995, 1, 1))
    orders = tables.read("orders", "o_orderkey", "o_custkey", where=year)
    orders = orders.join(customers, left_on="o_custkey", right_on="c_custkey").select(["o_orderkey", "c_nationkey"])
    lines = tables.read("lineitem", "l_orderkey", "l_suppkey", "l_extendedprice", "l_discount")
    lines = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey").assign(revenue=_revenue())
    lines = lines.select(["l_suppkey", "c_nationkey", "revenue"])
    local = lines.join(suppliers, left_on=["l_suppkey", "c_nationkey"], right_on=["s_suppkey", "s_nationkey"])
    groups = local.groupby("n_name").agg(revenue=("revenue", "sum"))
    return _all_of(groups.sort_values("revenue", ascending=False))


def forecast_revenue_change(tables: Tables) -> pd.DataFrame:
    """Query 6: what small discounts cost in a year."""
    condition = (
        (col("l_shipdate") >= date(1994, 1, 1))
        & (col("l_shipdate") < date(1995, 1, 1))
        & col("l_discount").between(Decimal("0.05"), Decimal("0.07"))
        & (col("l_quantity") < 24)
    )
    chosen = tables.read("lineitem", "l_discount", "l_extendedprice", where=condition)
    saved = chosen.assign(revenue=col("l_extendedprice").astype("float64") * col("l_discount").astype("float64"))
    return pd.DataFrame({"revenue": [saved.sum("revenue")]})


def volume_shipping(tables: Tables) -> pd.DataFrame:
    """Query 7: what France and Germany shipped to each other, by year."""
    nations = tables.read("nation", "n_nationkey", "n_name", where=col("n_name").isin(["FRANCE", "GERMANY"]))
    suppliers = tables.read("supplier", "s_suppkey", "s_nationkey")
    suppliers = suppliers.join(nations, left_on="s_nationkey", right_on="n_nationkey")
    suppliers = suppliers.select(["s_suppkey", "n_name"]).rename({"n_name": "supp_nation"})
    customers = tables.read("customer", "c_custkey", "c_nationkey")
    customers = customers.join(nations, left_on="c_nationkey", right_on="n_nationkey")
    customers = customers.select(["c_custkey", "n_name"]).rename({"n_name": "cust_nation"})
    orders = tables.read("orders", "o_orderkey", "o_custkey")
    orders = orders.join(customers, left_on="o_custkey", right_on="c_custkey").select(["o_orderkey", "cust_nation"])
    columns = ("l_orderkey", "l_suppkey", "l_extendedprice", "l_discount", "l_shipdate")
    years = (col("l_shipdate") >= date(1995, 1, 1)) & (col("l_shipdate") <= date(1996, 12, 31))
    lines = tables.read("lineitem", *columns, where=years)
    lines = lines.assign(volume=_revenue(), l_year=col("l_shipdate").dt.year)
    lines = lines.select(["l_orderkey", "l_suppkey", "volume", "l_year"])
    lines = lines.join(suppliers, left_on="l_suppkey", right_on="s_suppkey")
    lines = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey")
    lines = lines.filter(col("supp_nation") != col("cust_nation"))
    keys = ["supp_nation", "cust_nation", "l_year"]
    return _all_of(lines.groupby(keys).agg(revenue=("volume", "sum")).sort_values(keys))


def national_market_share(tables: Tables) -> pd.DataFrame:
    """Query 8: the share of Brazil in what America buys of a type of parts, by year."""
    parts = tables.read("part", "p_partkey", where=col("p_type") == "ECONOMY ANODIZED STEEL")
    lines = tables.read("lineitem", "l_orderkey", "l_partkey", "l_suppkey", "l_extendedprice", "l_discount")
    lines = lines.join(parts, how="semi", left_on="l_partkey", right_on="p_partkey")
    lines = lines.assign(volume=_revenue()).select(["l_orderkey", "l_suppkey", "volume"])
    customers = tables.read("customer", "c_custkey", "c_nationkey")
    buyers = _nations_of(tables, "AMERICA").select("n_nationkey")
    customers = customers.join(buyers, how="semi", left_on="c_nationkey", right_on="n_nationkey")
    years = (col("o_orderdate") >= date(1995, 1, 1)) & (col("o_orderdate") <= date(1996, 12, 31))
    orders = tables.read("orders", "o_orderkey", "o_custkey", "o_orderdate", where=years)
    orders = orders.join(customers.select("c_custkey"), how="semi", left_on="o_custkey", right_on="c_custkey")
    orders = orders.assign(o_year=col("o_orderdate").dt.year).select(["o_orderkey", "o_year"])
    lines = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey")
    suppliers = tables.read("supplier", "s_suppkey", "s_nationkey")
    suppliers = suppliers.join(
        tables.read("nation", "n_nationkey", "n_name"), left_on="s_nationkey", right_on="n_nationkey"
    )
    lines = lines.join(suppliers.select(["s_suppkey", "n_name"]), left_on="l_suppkey", right_on="s_suppkey")
    lines = lines.assign(of_brazil=col("volume").where(col("n_name") == "BRAZIL", 0.0))
    groups = lines.groupby("o_year").agg(of_brazil=("of_brazil", "sum"), volume=("volume", "sum"))
    groups = groups.assign(mkt_share=col("of_brazil") / col("volume")).select(["o_year", "mkt_share"])
    return _all_of(groups.sort_values("o_year"))


def product_type_profit(tables: Tables) -> pd.DataFrame:
    """Query 9: profit with green parts, for each nation and year."""
    parts = tables.read("part", "p_partkey", where=col("p_name").str.contains("green"))
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


def returned_items(tables: Tables) -> pd.DataFrame:
    """Query 10: the twenty customers who sent back most in a quarter."""
    quarter = (col("o_orderdate") >= date(1993, 10, 1)) & (col("o_orderdate") < date(1994, 1, 1))
    orders = tables.read("orders", "o_orderkey", "o_custkey", where=quarter)
    returned = col("l_returnflag") == "R"
    lines = tables.read("lineitem", "l_orderkey", "l_extendedprice", "l_discount", where=returned)
    lines = lines.assign(revenue=_revenue()).select(["l_orderkey", "revenue"])
    lines = lines.join(orders, left_on="l_orderkey", right_on="o_orderkey")
    lost = lines.groupby("o_custkey").agg(revenue=("revenue", "sum"))
    customers = tables.read(
        "customer", "c_custkey", "c_name", "c_acctbal", "c_phone", "c_address", "c_comment", "c_nationkey"
    )
    customers = customers.join(lost, left_on="c_custkey", right_on="o_custkey")
    nations = tables.read("nation", "n_nationkey", "n_name")
    customers = customers.join(nations, left_on="c_nationkey", right_on="n_nationkey")
    names = ["c_custkey", "c_name", "revenue", "c_acctbal", "n_name", "c_address", "c_phone", "c_comment"]
    return _first_of(customers.sort_values("revenue", ascending=False).select(names), 20)


def important_stock(tables: Tables) -> pd.DataFrame:
    """Query 11: parts that are worth more of Germany's stock than a supplier's share."""
    everybody = tables.read("supplier", "s_suppkey", "s_nationkey")
    nations = tables.read("nation", "n_nationkey", where=col("n_name") == "GERMANY")
    suppliers = everybody.join(nations, how="semi", left_on="s_nationkey", right_on="n_nationkey")
    stock = tables.read("partsupp", "ps_partkey", "ps_suppkey", "ps_availqty", "ps_supplycost")
    stock = stock.join(suppliers.select("s_suppkey"), how="semi", left_on="ps_suppkey", right_on="s_suppkey")
    stock = stock.assign(value=col("ps_supplycost").astype("float64") * col("ps_availqty"))
    groups = stock.groupby("ps_partkey").agg(value=("value", "sum"))
    groups = groups.filter(col("value") > stock.sum("value") / everybody.count_rows())
    return _all_of(groups.sort_values(["value", "ps_partkey"], ascending=[False, True]))


def shipping_modes(tables: Tables) -> pd.DataFrame:
    """Query 12: urgent and other orders that came late by mail and ship."""
    condition = (
        col("l_shipmode").isin(["MAIL", "SHIP"])
        & (col("l_commitdate") < col("l_receiptdate"))
        & (col("l_shipdate") < col("l_commitdate"))
        & (col("l_receiptdate") >= date(1994, 1, 1))
        & (col("l_receiptdate") < date(1995, 1, 1))
    )
    late = tables.read("lineitem", "l_orderkey", "l_shipmode", where=condition)
    joined = late.join(
        tables.read("orders", "o_orderkey", "o_orderpriority"), left_on="l_orderkey", right_on="o_orderkey"
    )
    urgent = col("o_orderpriority").isin(["1-URGENT", "2-HIGH"])
    joined = joined.assign(high_line_count=urgent.astype("int64"), low_line_count=(~urgent).astype("int64"))
    groups = joined.groupby("l_shipmode").agg({"high_line_count": "sum", "low_line_count": "sum"})
    return _all_of(groups.sort_values("l_shipmode"))


def customer_distribution(tables: Tables) -> pd.DataFrame:
    """Query 13: how many customers have how many orders."""
    plain = ~col("o_comment").str.contains("special.*requests", regex=True)
    orders = tables.read("orders", "o_orderkey", "o_custkey", where=plain)
    joined = tables.read("customer", "c_custkey").join(orders, how="left", left_on="c_custkey", right_on="o_custkey")
    counts = joined.groupby("c_custkey").agg(c_count=("o_orderkey", "count"))
    groups = counts.groupby("c_count").agg(custdist=("c_custkey", "size"))
    return _all_of(groups.sort_values(["custdist", "c_count"], ascending=False))


def promotion_effect(tables: Tables) -> pd.DataFrame:
    """Query 14: the share of parts on promotion in a month's revenue, in percent."""
    month = (col("l_shipdate") >= date(1995, 9, 1)) & (col("l_shipdate") < date(1995, 10, 1))
    lines = tables.read("lineitem", "l_partkey", "l_extendedprice", "l_discount", where=month)
    lines = lines.assign(revenue=_revenue()).select(["l_partkey", "revenue"])
    lines = lines.join(tables.read("part", "p_partkey", "p_type"), left_on="l_partkey", right_on="p_partkey")
    lines = lines.assign(promoted=col("revenue").where(col("p_type").str.startswith("PROMO"), 0.0))
    return pd.DataFrame({"promo_revenue": [100 * lines.sum("promoted") / lines.sum("revenue")]})


def top_supplier(tables: Tables) -> pd.DataFrame:
    """Query 15: who has shipped most in a quarter."""
    quarter = (col("l_shipdate") >= date(1996, 1, 1)) & (col("l_shipdate") < date(1996, 4, 1))
    lines = tables.read("lineitem", "l_suppkey", "l_extendedprice", "l_discount", where=quarter)
    totals = lines.assign(revenue=_revenue()).groupby("l_suppkey").agg(total_revenue=("revenue", "sum"))
    best = totals.filter(col("total_revenue") == totals.max("total_revenue"))
    suppliers = tables.read("supplier", "s_suppkey", "s_name", "s_address", "s_phone")
    first = suppliers.join(best, left_on="s_suppkey", right_on="l_suppkey").sort_values("s_suppkey")
    return _all_of(first.select(["s_suppkey", "s_name", "s_address", "s_phone", "total_revenue"]))


def parts_and_suppliers(tables: Tables) -> pd.DataFrame:
    """Query 16: how many suppliers without complaints there are for some kinds of parts."""
    condition = (
        (col("p_brand") != "Brand#45")
        & ~col("p_type").str.startswith("MEDIUM POLISHED")
        & col("p_size").isin([49, 14, 23, 45, 19, 3, 36, 9])
    )
    parts = tables.read("part", "p_partkey", "p_brand", "p_type", "p_size", where=condition)
    complaints = col("s_comment").str.contains("Customer.*Complaints", regex=True)
    blamed = tables.read("supplier", "s_suppkey", where=complaints)
    offers = tables.read("partsupp", "ps_partkey", "ps_suppkey")
    offers = offers.join(blamed, how="anti", left_on="ps_suppkey", right_on="s_suppkey")
    offers = offers.join(parts, left_on="ps_partkey", right_on="p_partkey")
    keys = ["p_brand", "p_type", "p_size"]
    groups = offers.groupby(keys).agg(supplier_cnt=("ps_suppkey", "nunique"))
    return _all_of(groups.sort_values(["supplier_cnt", *keys], ascending=[False, True, True, True]))


def small_quantity_orders(tables: Tables) -> pd.DataFrame:
    """Query 17: what a year would lose without small orders of some parts."""
    boxes = (col("p_brand") == "Brand#23") & (col("p_container") == "MED BOX")
    parts = tables.read("part", "p_partkey", where=boxes)
    lines = tables.read("lineitem", "l_partkey", "l_quantity", "l_extendedprice")
    lines = lines.join(parts, how="semi", left_on="l_partkey", right_on="p_partkey")
    means = lines.groupby("l_partkey").agg(mean=("l_quantity", "mean"))
    small = lines.join(means, on="l_partkey").filter(col("l_quantity").astype("float64") < 0.2 * col("mean"))
    yearly = float(small.sum("l_extendedprice")) / 7.0 if small.count_rows() else None
    return pd.DataFrame({"avg_yearly": [yearly]})


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


def discounted_revenue(tables: Tables) -> pd.DataFrame:
    """Query 19: revenue of three brands in small boxes, sent by air and handed over in person."""
    by_air = col("l_shipmode").isin(["AIR", "AIR REG"]) & (col("l_shipinstruct") == "DELIVER IN PERSON")
    columns = ("l_partkey", "l_quantity", "l_extendedprice", "l_discount")
    lines = tables.read("lineitem", *columns, where=by_air)
    parts = tables.read("part", "p_partkey", "p_brand", "p_container", "p_size")
    lines = lines.join(parts, left_on="l_partkey", right_on="p_partkey")
    boxes = {
        "Brand#12": (["SM CASE", "SM BOX", "SM PACK", "SM PKG"], 1, 5),
        "Brand#23": (["MED BAG", "MED BOX", "MED PKG", "MED PACK"], 10, 10),
        "Brand#34": (["LG CASE", "LG BOX", "LG PACK", "LG PKG"], 20, 15),
    }
    of_brands = [
        (col("p_brand") == brand)
        & col("p_container").isin(containers)
        & col("l_quantity").between(least, least + 10)
        & col("p_size").between(1, largest)
        for brand, (containers, least, largest) in boxes.items()
    ]
    chosen = lines.filter(of_brands[0] | of_brands[1] | of_brands[2]).assign(revenue=_revenue())
    return pd.DataFrame({"revenue": [chosen.sum("revenue")]})


def potential_promotion(tables: Tables) -> pd.DataFrame:
    """Query 20: who in Canada has more of forest parts than half of what a year sold."""
    parts = tables.read("part", "p_partkey", where=col("p_name").str.startswith("forest"))
    year = (col("l_shipdate") >= date(1994, 1, 1)) & (col("l_shipdate") < date(1995, 1, 1))
    lines = tables.read("lineitem", "l_partkey", "l_suppkey", "l_quantity", where=year)
    lines = lines.join(parts, how="semi", left_on="l_partkey", right_on="p_partkey")
    sold = lines.groupby(["l_partkey", "l_suppkey"]).agg(sold=("l_quantity", "sum"))
    stock = tables.read("partsupp", "ps_partkey", "ps_suppkey", "ps_availqty")
    stock = stock.join(sold, left_on=["ps_partkey", "ps_suppkey"], right_on=["l_partkey", "l_suppkey"])
    stock = stock.filter(col("ps_availqty") > 0.5 * col("sold").astype("float64")).select("ps_suppkey")
    nations = tables.read("nation", "n_nationkey", where=col("n_name") == "CANADA")
    suppliers = tables.read("supplier", "s_suppkey", "s_name", "s_address", "s_nationkey")
    suppliers = suppliers.join(nations, how="semi", left_on="s_nationkey", right_on="n_nationkey")
    suppliers = suppliers.join(stock, how="semi", left_on="s_suppkey", right_on="ps_suppkey")
    return _all_of(suppliers.sort_values("s_name").select(["s_name", "s_address"]))


def waiting_orders(tables: Tables) -> pd.DataFrame:
    """Query 21: who in Saudi Arabia alone kept orders of several suppliers waiting.

    An order has lines of several suppliers where the least and the greatest of their keys differ.
    """
    lines = tables.read("lineitem", "l_orderkey", "l_suppkey", "l_commitdate", "l_receiptdate")
    lines = lines.assign(late=col("l_receiptdate") > col("l_commitdate"))
    lines = lines.select(["l_orderkey", "l_suppkey", "late"])
    ends = {"least": ("l_suppkey", "min"), "greatest": ("l_suppkey", "max")}
    several = lines.groupby("l_orderkey").agg(**ends).filter(col("least") != col("greatest"))
    late = lines.filter(col("late")).drop("late")
    alone = late.groupby("l_orderkey").agg(**ends).filter(col("least") == col("greatest"))
    orders = tables.read("orders", "o_orderkey", where=col("o_orderstatus") == "F")
    nations = tables.read("nation", "n_nationkey", where=col("n_name") == "SAUDI ARABIA")
    suppliers = tables.read("supplier", "s_suppkey", "s_name", "s_nationkey")
    suppliers = suppliers.join(nations, how="semi", left_on="s_nationkey", right_on="n_nationkey")
    late = late.join(suppliers.select(["s_suppkey", "s_name"]), left_on="l_suppkey", right_on="s_suppkey")
    late = late.join(alone.select("l_orderkey"), how="semi", on="l_orderkey")
    late = late.join(several.select("l_orderkey"), how="semi", on="l_orderkey")
    late = late.join(orders, how="semi", left_on="l_orderkey", right_on="o_orderkey")
    groups = late.groupby("s_name").agg(numwait=("l_orderkey", "size"))
    return _first_of(groups.sort_values(["numwait", "s_name"], ascending=[False, True]), 100)


def sales_opportunity(tables: Tables) -> pd.DataFrame:
    """Query 22: customers of seven countries who have money and no order."""
    countries = col("c_phone").str.slice(0, 2).isin(["13", "31", "23", "29", "30", "18", "17"])
    customers = tables.read("customer", "c_custkey", "c_phone", "c_acctbal", where=countries)
    customers = customers.assign(cntrycode=col("c_phone").str.slice(0, 2)).drop("c_phone")
    mean = customers.filter(col("c_acctbal") > 0).mean("c_acctbal")
    customers = customers.filter(col("c_acctbal").astype("float64") > mean)
    orders = tables.read("orders", "o_custkey")
    customers = customers.join(orders, how="anti", left_on="c_custkey", right_on="o_custkey")
    groups = customers.groupby("cntrycode").agg(numcust=("c_custkey", "size"), totacctbal=("c_acctbal", "sum"))
    return _all_of(groups.sort_values("cntrycode"))


def _nations_of(tables: Tables, region: str) -> Any:
    """Keys and names of the nations of a region."""
    regions = tables.read("region", "r_regionkey", where=col("r_name") == region)
    nations = tables.read("nation", "n_nationkey", "n_name", "n_regionkey")
    nations = nations.join(regions, how="semi", left_on="n_regionkey", right_on="r_regionkey")
    return nations.select(["n_nationkey", "n_name"])


def _all_of(table: Any) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas(limit=None)
    return frame


def _first_of(table: Any, rows: int) -> pd.DataFrame:
    frame: pd.DataFrame = table.head(rows)
    return frame


QUERIES: dict[int, Callable[[Tables], pd.DataFrame]] = {
    1: pricing_summary,
    2: minimum_cost_supplier,
    3: shipping_priority,
    4: order_priorities,
    5: local_supplier_volume,
    6: forecast_revenue_change,
    7: volume_shipping,
    8: national_market_share,
    9: product_type_profit,
    10: returned_items,
    11: important_stock,
    12: shipping_modes,
    13: customer_distribution,
    14: promotion_effect,
    15: top_supplier,
    16: parts_and_suppliers,
    17: small_quantity_orders,
    18: large_volume_customers,
    19: discounted_revenue,
    20: potential_promotion,
    21: waiting_orders,
    22: sales_opportunity,
}
