"""What ranks send each other for a group-by: nothing, partial results, or rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import whole
from grouped import Grouped, by_pandas
from relations import FEW, THREADS, assert_same_rows, on_ranks, together
from worlds import World


def twice(table: Any) -> Any:
    return table.shuffle("k").groupby(["s", "k"]).agg({"x": "sum"})


def again(table: Any) -> Any:
    return table.groupby("k").agg(x=("x", "sum"), s=("s", "first")).groupby(["k"]).agg({"x": "max", "s": "list"})


@pytest.mark.parametrize("world", FEW, ids=str)
@pytest.mark.parametrize("chain", [twice, again])
def test_what_is_together_is_not_shuffled_again(world: World, chain: Any) -> None:
    results = world.run(on_ranks, chain, "even")
    for result in results:
        assert result["sent"] == 0
        assert "nothing is exchanged" in result["explained"]
        assert "partitioned by 'k' already" in result["explained"]
        assert result["partitioning"].keys == ("k",)
    if chain is twice:
        expected = by_pandas(whole("even", world.size), ["s", "k"], {"x": ("x", "sum")})
        assert_same_rows(together(results), expected, ["s", "k"])


def plans(table: Any) -> Any:
    spread = table.shuffle("k")
    shown = [t.groupby(by).plan() for t, by in ((table, "k"), (spread, "k"), (spread, ["s", "k"]), (spread, "s"))]
    return [(plan.verb, plan.rounds > 0, plan.describe()) for plan in shown]


@pytest.mark.parametrize("world", THREADS, ids=str)
def test_plans_say_whether_it_is_shuffled(world: World) -> None:
    for result in world.run(on_ranks, plans, "even"):
        assert [one[:2] for one in result["value"]] == [
            ("groupby", True), ("groupby", False), ("groupby", False), ("groupby", True),
        ]  # fmt: skip
        assert "partial results" in result["value"][0][2]
        assert "nothing is exchanged" in result["value"][1][2]


def other_keys(table: Any) -> Any:
    return table.shuffle(["k", "s"]).groupby("k").agg({"x": "sum"})


@pytest.mark.parametrize("world", THREADS, ids=str)
def test_what_is_spread_by_more_keys_is_shuffled(world: World) -> None:
    results = world.run(on_ranks, other_keys, "even")
    assert sum(result["sent"] for result in results) > 0
    expected = by_pandas(whole("even", world.size), ["k"], {"x": ("x", "sum")})
    assert_same_rows(together(results), expected, ["k"])


def test_few_keys_send_partial_results_and_many_send_rows() -> None:
    def frames(keys: int) -> list[pd.DataFrame]:
        rng = np.random.default_rng(1)
        return [pd.DataFrame({"k": rng.integers(0, keys, 20_000), "x": rng.normal(size=20_000)}) for _ in range(2)]

    verb = Grouped(["k"], {"x": ("x", "sum")})
    few, many = (World("threads", 2).run(on_ranks, verb, frames(keys)) for keys in (50, 10**9))
    assert sum(r["sent"] for r in few) < 20_000 and "partial results" in few[0]["explained"]
    assert sum(r["sent"] for r in many) > 200_000 and "partial results" not in many[0]["explained"]
