"""Variances and sums that come together from ranks and chunks: their digits, and what their type does not hold."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from relations import FEW, TIGHT
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import UnsupportedDtype
from gcylon_lab.runtime.context import current

WORLDS = [World("single", 1), *FEW]
CONSTANTS = (0.1, 1e9 + 0.1, -0.0023000007)


def spread_of(values: Any, strategy: str, config: Any) -> tuple[Any, ...]:
    """Var and std of this rank's share of values: of groups, of the column, and as describe has it."""
    context = current()
    mine = np.array_split(values, context.size)[context.rank]
    table = gl.from_local(pd.DataFrame({"k": np.arange(len(mine)) % 3, "v": mine}))
    groups = table.groupby("k").agg({"v": ["var", "std"]}, strategy=strategy, config=config).local()
    return groups, table.var("v", config=config), table.std("v"), table.describe(["v"]).loc["std", "v"]


@pytest.mark.parametrize("world", WORLDS, ids=str)
@pytest.mark.parametrize("strategy", ["direct", "chunked", "staged"])
def test_equal_values_have_no_spread(world: World, strategy: str) -> None:
    for value in CONSTANTS:
        config = None if strategy == "direct" else TIGHT.with_values(gpu_memory_limit="1 MiB")
        for groups, *whole in world.run(spread_of, np.full(3001, value), strategy, config):
            assert (groups[["v_var", "v_std"]] == 0).all().all() and whole == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_a_small_spread_of_large_values_keeps_its_digits(world: World) -> None:
    values = np.random.default_rng(1).random(5000) / 100 + 1e6
    exact = float(np.var(values - 1e6, ddof=1))  # which is exact of values so near to each other
    for _, var, std, described in world.run(spread_of, values, "direct", None):
        assert var == pytest.approx(exact, rel=1e-12)
        assert std == described == pytest.approx(exact**0.5, rel=1e-12)


LARGE = pa.array([Decimal(6 * 10**37)] * 8, pa.decimal128(38, 0))
BEYOND = {
    "decimals": pd.Series(LARGE, dtype=pd.ArrowDtype(LARGE.type)),
    "timedeltas": pd.Series([pd.Timedelta.max] * 8),
    "int64": pd.Series([2**62] * 8),
    "uint64": pd.Series([2**63] * 8, dtype="uint64"),
}


def summed(series: pd.Series, *, grouped: bool, as_floats: bool) -> float:
    """The sum of a column of which every rank has one value, so that only sums of sums are too large."""
    table = gl.from_local(pd.DataFrame({"k": 1, "v": series.iloc[:1]}))
    if as_floats:
        table = table.astype({"v": "float64"})
    if not grouped:
        return float(table.sum("v"))
    made = table.groupby("k").agg(v=("v", "sum")).local()
    return float(made["v"].sum())


def refused(series: pd.Series, grouped: bool) -> tuple[str, float]:
    """The error, and what its advice gives."""
    with pytest.raises(UnsupportedDtype) as caught:
        summed(series, grouped=grouped, as_floats=False)
    assert "astype({'v': 'float64'})" in caught.value.advice
    return str(caught.value), summed(series, grouped=grouped, as_floats=True)


@pytest.mark.parametrize("grouped", [False, True], ids=["column", "groups"])
@pytest.mark.parametrize("name", BEYOND)
@pytest.mark.parametrize("world", FEW, ids=str)
def test_sums_of_sums_are_refused_too_by_the_column_of_the_table(world: World, name: str, grouped: bool) -> None:
    series = BEYOND[name]
    found = world.run(refused, series, grouped)
    assert all("a sum of column 'v'" in text and "does not hold" in text for text, _ in found)
    value = series[0].value if name == "timedeltas" else float(series[0])
    total = sum(made for _, made in found) if grouped else found[0][1]
    assert total == pytest.approx(world.size * value, rel=1e-12)
