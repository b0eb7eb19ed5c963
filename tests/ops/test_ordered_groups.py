"""groupby(sort=True) on every world: groups in the order in which pandas gives those of the whole table."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from exchanges import whole
from relations import FEW, PLAN_IDS, PLANS, THREADS, assert_same_rows, check_clean, on_ranks, together
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.context import current
from gcylon_lab.errors import ArgumentError, BudgetExceeded

NAMED = {"rows": ("x", "size"), "sx": ("x", "sum"), "fs": ("s", "first"), "q": ("g", "quantile", 0.25)}


class InOrder:
    """A sorted group-by to run on ranks."""

    def __init__(self, by: list[str], named: dict[str, Any], groups: dict[str, Any], **options: Any) -> None:
        self.by, self.named, self.groups, self.options = by, named, groups, options

    def __call__(self, table: Any) -> Any:
        return table.groupby(self.by, **self.groups).agg(**self.named, **self.options)


@pytest.mark.parametrize(("strategy", "config"), PLANS, ids=PLAN_IDS)
@pytest.mark.parametrize("world", THREADS, ids=str)
def test_groups_are_in_the_order_of_their_keys(world: World, strategy: str, config: GcylonConfig | None) -> None:
    everything = whole("even", world.size)
    for by in [["k"], ["s", "c"], ["c", "n"]] if strategy == "auto" else [["n", "k"]]:
        named = {new: one for new, one in NAMED.items() if one[0] not in by}
        for dropna in (True, False):
            how = {"dropna": dropna, "sort": True, "as_index": False}
            results = world.run(on_ranks, InOrder(by, named, how, strategy=strategy, config=config), "even")
            groups = everything.groupby(by, dropna=dropna, observed=True, sort=True)
            made = {new: getattr(groups[one[0]], one[1])(*one[2:]) for new, one in named.items()}
            assert_in_this_order(together(results), pd.DataFrame(made).reset_index())
            check_clean(results)
            assert min(len(result["frame"]) for result in results) > 0
            if strategy == "staged":
                assert all(result["tiers"]["device"] == 0 for result in results)


def assert_in_this_order(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    assert len(ours) == len(theirs)
    ours["at"] = theirs["at"] = [f"{i:06}" for i in range(len(theirs))]
    assert_same_rows(ours, theirs, ["at"], rtol=1e-12)


def sized(table: Any) -> Any:
    shown = table.groupby(["k"], sort=True).plan().describe()
    assert "the groups are then sorted by k" in shown and "sorted" not in table.groupby("k").plan().describe()
    return table.groupby("k", sort=True).size()


@pytest.mark.parametrize("world", FEW, ids=str)
def test_sizes_are_sorted_too_and_the_plan_says_how_rows_were_grouped(world: World) -> None:
    results = world.run(on_ranks, sized, "even")
    assert_in_this_order(together(results), whole("even", world.size).groupby("k", as_index=False).size())
    for result in results:
        assert result["explained"].startswith("sort_values: ") and "grouping: each rank" in result["explained"]
    for layout in ("all empty", "one row"):
        frame = together(world.run(on_ranks, sized, layout))
        assert list(frame.columns) == ["k", "size"] and len(frame) == (layout == "one row")


@pytest.mark.parametrize(
    ("groups", "words"), [({"as_index": True}, "as_index=False; to_pandas"), ({"sort": 1}, "sort=1")]
)
def test_an_index_of_keys_is_refused_with_advice(groups: dict[str, Any], words: str) -> None:
    for outcome in World("threads", 2).outcomes(on_ranks, InOrder(["k"], NAMED, groups), "even"):
        assert isinstance(outcome.error, ArgumentError) and words in str(outcome.error)


def kept_errors(limits: list[int]) -> list[tuple[str, int]]:
    """Of each limit what failed, and what is still in use beside the table while the error is kept."""
    context, kept = current(), []
    table = gl.from_local(whole("even", 1))
    before, seen = context.budget.used_bytes + context.spill.used_bytes, []
    for limit in limits:
        config = GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=1, allow_cpu_staging=False)
        try:
            made = table.groupby("g", sort=True).agg(s=("s", "first"), x=("x", "sum"), config=config)
        except BudgetExceeded as error:
            kept.append(error)
            seen.append(
                (context.recorder.operations[-1].verb, context.budget.used_bytes + context.spill.used_bytes - before)
            )
        else:
            made.release()
            seen.append(("", context.budget.used_bytes + context.spill.used_bytes - before))
    return seen


def test_groups_that_cannot_be_sorted_in_the_budget_leave_nothing() -> None:
    for seen in World("threads", 2).run(kept_errors, list(range(30_000, 110_000, 1_000))):
        assert {verb for verb, _ in seen} == {"groupby", "sort_values", ""}
        assert not any(left for _, left in seen)
