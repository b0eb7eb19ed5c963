"""Plans of a group-by's functions: what these need of the rows is said before any is read."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from relations import FEW, TIGHT, on_ranks
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, ColumnMissing


def plans_of_functions(table: Any) -> Any:
    groups = table.groupby("k")
    return [
        plan.describe()
        for plan in (
            groups.plan({"x": ["sum", "median"], "g": "nunique"}, config=TIGHT),
            groups.plan(total=("x", "sum"), rows=("s", "size"), strategy="staged"),
            table.shuffle("k").groupby("k").plan({"x": "median"}),
            table.select(["k", "x"]).groupby("k", sort=True).plan({"x": "list"}),
        )
    ]


@pytest.mark.parametrize("world", FEW, ids=str)
def test_plans_of_functions_say_what_these_need(world: World) -> None:
    for result in world.run(on_ranks, plans_of_functions, "even"):
        whole_groups, partial, together_already, two_columns = result["value"]
        assert "median and nunique need all rows of a key on one rank: no partial results are sent" in whole_groups
        assert "counts all 12 columns; only those needed are sent, which are 3" in whole_groups
        assert "instead, which are fewer" not in whole_groups and "of 400 KiB" in whole_groups
        assert "sends partial results instead" in partial and "which are 2" in partial and "staged" in partial
        assert "sent" not in together_already
        assert "list needs all rows" in two_columns and "columns" not in two_columns and "then sort" in two_columns


def failing_plan(spec: Any) -> None:
    gl.from_local(pd.DataFrame({"k": [1], "x": [2]})).groupby("k").plan(spec)


@pytest.mark.parametrize(
    ("spec", "error"), [({"y": "sum"}, ColumnMissing), ({"x": "summ"}, ArgumentError), ("sum", ArgumentError)]
)
def test_plans_of_functions_that_cannot_be(spec: Any, error: type) -> None:
    for outcome in World("threads", 2).outcomes(failing_plan, spec):
        assert isinstance(outcome.error, error), outcome.error
