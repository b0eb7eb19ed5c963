"""groupby(sort=True) on every world: groups in the order in which pandas gives those of the whole table."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import worlds
from exchanges import whole
from relations import FEW, PLAN_IDS, PLANS, THREADS, assert_same_rows, check_clean, on_ranks, together
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, BudgetExceeded
from gcylon_lab.runtime.context import current

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
    assert "the groups are then sorted by k" in shown and "\nthen sort_values: direct, " in shown
    assert "sorted" not in table.groupby("k").plan().describe() and table.groupby("k").plan().then is None
    return table.groupby("k", sort=True).size()


@pytest.mark.parametrize("world", FEW, ids=str)
def test_sizes_are_sorted_too_and_the_plan_says_how_rows_were_grouped(world: World) -> None:
    results = world.run(on_ranks, sized, "even")
    assert_in_this_order(together(results), whole("even", world.size).groupby("k", as_index=False).size())
    for result in results:
        assert result["explained"].startswith("groupby: ") and "\n  each rank sends" in result["explained"]
        assert "\nthen sort_values: " in result["explained"]
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
    context, kept, seen = current(), [], []
    table = gl.from_local(whole("even", 1))

    def in_use() -> int:
        return worlds.claimed_bytes(context) + context.spill.used_bytes

    before = in_use()
    for limit in limits:
        config = GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=1, allow_cpu_staging=False)
        try:
            made = table.groupby("g", sort=True).agg(s=("s", "first"), x=("x", "sum"), config=config)
        except BudgetExceeded as error:
            kept.append(error)
            seen.append((context.recorder.operations[-1].verb, in_use() - before))
        else:
            made.release()
            seen.append(("", in_use() - before))
    return seen


def test_groups_that_cannot_be_sorted_in_the_budget_leave_nothing() -> None:
    # What sorts on a GPU takes a MiB however few rows there are.
    limits = range(30_000, 110_000, 1_000) if worlds.ENGINE == "cpu" else range(30_000, 4_000_000, 50_000)
    for seen in World("threads", 2).run(kept_errors, list(limits)):
        assert {verb for verb, _ in seen} == {"groupby", "sort_values", ""}
        assert not any(left for _, left in seen)


def distinct(times: int = 1) -> pd.DataFrame:
    """Rows of keys that are all different."""
    keys = [n * 7919 % (times * 20011) for n in range(times * 20_000)]
    return pd.DataFrame({"k": keys, "a": 1.0, "b": range(times * 20_000)})


DISTINCT = distinct()


def estimated(limit: str, strategy: str, size: int, spread: bool) -> list[Any]:
    """What was planned for both steps, how they ran, and the peaks that were measured."""
    context = current()
    rows = distinct(worlds.scaled(1)) if limit == "100 MiB" else DISTINCT  # of which peaks are judged
    table = gl.from_local(rows.iloc[context.rank :: size])
    if spread:
        table = table.shuffle("k")
    how: dict[str, Any] = {"strategy": strategy, "config": GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=1)}
    groups = table.groupby("k", sort=True)
    plan = groups.plan(**how)
    ran = groups.agg({"a": "max", "b": "max"}, **how).last_plan
    peaks = [operation.measured_peak_bytes for operation in list(context.recorder.operations)[-2:]]
    return list(zip((plan, plan.then), (ran, ran.then), peaks, strict=True))


@pytest.mark.parametrize("spread", [False, True], ids=["", "spread"])
@pytest.mark.parametrize(
    ("limit", "strategy"),
    [
        ("100 MiB", "auto"), ("100 MiB", "direct"), ("100 MiB", "chunked"), ("100 MiB", "staged"), ("500 KiB", "auto"),
        ("500 KiB", "staged"), ("300 KiB", "auto"), ("2460 KiB", "auto"),
        *(pytest.param(limit, "auto", marks=pytest.mark.cpu_alone("a sort on a GPU takes 1 MiB, which leaves few rows"))
          for limit in ("1230 KiB", "1350 KiB")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 2])
def test_both_steps_are_planned_as_they_run(size: int, limit: str, strategy: str, spread: bool) -> None:
    """Of keys that are all different: as many groups as rows are what a plan counts with."""
    for steps in World("threads", size).run(estimated, limit, strategy, size, spread):
        for planned, ran, peak in steps:
            assert (planned.verb, planned.budget_bytes) == (ran.verb, ran.budget_bytes)
            if planned.verb == "sort_values" or limit == "100 MiB":
                assert planned.strategy == ran.strategy and planned.reason == ran.reason
                assert abs(planned.rounds - ran.rounds) <= max(1, ran.rounds // 4)
            if limit == "100 MiB":
                assert 0.95 < planned.predicted_peak_bytes / peak < worlds.most_predicted(1.15)
                assert 0.95 < ran.predicted_peak_bytes / peak < worlds.most_predicted(1.15)
            assert peak <= 1.25 * planned.predicted_peak_bytes
        assert steps[1][0].assumption == "assuming as many groups as rows, each as wide as one"
        assert steps[0][0].highest_peak_bytes == max(planned.predicted_peak_bytes for planned, _, _ in steps)


def too_many(table: Any) -> Any:
    config = GcylonConfig(gpu_memory_limit="1 MiB", min_chunk_rows=1)
    groups = table.shuffle("k").groupby("k", sort=True)
    plan = groups.plan(strategy="direct", config=config)
    return plan.then is None and plan.describe()


def test_a_sort_that_fits_only_fewer_groups_is_no_error_of_the_plan() -> None:
    frames = [DISTINCT.iloc[rank::2] for rank in range(2)]
    for result in World("threads", 2).run(on_ranks, too_many, frames):
        assert "then sorted by k; were they as many as the rows" in result["value"]
        # On GPU ranks no room that others make would do.
        needs = " needs" if worlds.ENGINE == "cpu" else ", even if all tables were evicted, needs"
        assert f"sort_values with strategy='direct'{needs}" in result["value"]
