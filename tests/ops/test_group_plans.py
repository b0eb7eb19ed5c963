"""Plans of a group-by's functions: what these need of the rows is said before any is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import worlds
from relations import FEW, TIGHT, on_ranks
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, ColumnMissing
from gcylon_lab.runtime.context import current


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
        assert "of 12 columns only those needed are sent, which are 3" in whole_groups
        assert "instead, which are fewer" not in whole_groups and "of 400 KiB" in whole_groups
        assert "sends partial results instead" in partial and "which are 2" in partial and "staged" in partial
        assert "sent" not in together_already
        assert "list needs all rows" in two_columns and "columns" not in two_columns and "then sort" in two_columns


ROWS = 20_000
SPECS: list[dict[str, Any]] = [
    {"v": "sum"}, {"v": ["mean", "std"]}, {"v": "median"}, {"v": "sum", "a": ["min", "max"]}, {"s": "first"},
    {"t": "size"},
]  # fmt: skip
# Strategy, and the limit as a multiple of a rank's part, of which few columns are used.
BUDGETS = [("auto", 20.0), ("chunked", 8.0), ("staged", 8.0), ("auto", 3.0), ("auto", 0.8), ("auto", 0.4)]


def wide(rank: int) -> pd.DataFrame:
    """Rows of keys that are nearly all different, with columns that are not used."""
    random = np.random.default_rng(rank)
    frame = pd.DataFrame({"k": random.integers(0, 10**12, ROWS), "v": random.random(ROWS)})
    frame = frame.assign(**{name: random.random(ROWS) for name in "abcdef"})
    return frame.assign(s=[f"text {i % 1000}" for i in range(ROWS)], t=["a longer text of this row"] * ROWS)


def foreseen_and_done(by: str, spread: bool) -> list[dict[str, Any]]:
    context, seen = current(), []
    rows = wide(context.rank)
    for spec in SPECS:
        for strategy, factor in BUDGETS:
            table = gl.from_local(rows)
            config = GcylonConfig(gpu_memory_limit=int(factor * table.nbytes), min_chunk_rows=64)
            if spread:
                before, table = table, table.shuffle(by)
                before.release()
            how: dict[str, Any] = {"strategy": strategy, "config": config}
            plan = table.groupby(by).plan(spec, **how)
            result = table.groupby(by).agg(spec, **how)
            seen.append(
                {
                    "what": f"{spec} {strategy} {factor}", "plan": plan, "done": result.last_plan, "factor": factor,
                    "estimated": plan.predicted_peaks[context.rank],
                    "measured": context.recorder.operations[-1].measured_peak_bytes,
                }
            )  # fmt: skip
            table.release()
            result.release()
    return seen


@pytest.mark.parametrize("spread", [False, True], ids=["", "spread"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_only_columns_that_functions_need_are_counted(size: int, spread: bool) -> None:
    wrong = []
    for rank_saw in World("threads", size).run(foreseen_and_done, "k", spread):
        for found in rank_saw:
            plan, done = found["plan"], found["done"]
            ratio = found["estimated"] / found["measured"]
            least, most = (0.95, 1.1) if found["factor"] > 1 else (0.85, 1.75)
            alike = plan.strategy == done.strategy and (plan.rounds > 0) == (done.rounds > 0)
            alike |= worlds.ENGINE == "gpu" and done.strategy == "direct"  # less was in use than claims may be
            if not (alike and least < ratio < worlds.most_predicted(most)):
                wrong.append(f"{found['what']}: {ratio:.2f} {plan.strategy} {done.strategy}")
    assert not wrong, "\n".join(wrong)


def other_strategies(table: Any) -> Any:
    config = GcylonConfig(gpu_memory_limit=20 * table.nbytes)
    plan = table.groupby("k").plan({"v": "sum"}, config=config)
    peaks = {}
    for other in plan.alternatives:
        made = table.groupby("k").agg({"v": "sum"}, strategy=other.strategy, config=config)
        peaks[other.strategy] = current().recorder.operations[-1].measured_peak_bytes / other.predicted_peak_bytes
        made.release()
    return peaks


def test_what_other_strategies_would_take_counts_the_grouping_too() -> None:
    for result in World("threads", 2).run(on_ranks, other_strategies, [wide(rank) for rank in range(2)]):
        assert set(result["value"]) == {"chunked", "staged"}
        assert all(0.9 < ratio < 1.1 for ratio in result["value"].values()), result["value"]


def failing_plan(spec: Any) -> None:
    gl.from_local(pd.DataFrame({"k": [1], "x": [2]})).groupby("k").plan(spec)


@pytest.mark.parametrize(
    ("spec", "error"), [({"y": "sum"}, ColumnMissing), ({"x": "summ"}, ArgumentError), ("summ", ArgumentError)]
)
def test_plans_of_functions_that_cannot_be(spec: Any, error: type) -> None:
    for outcome in World("threads", 2).outcomes(failing_plan, spec):
        assert isinstance(outcome.error, error), outcome.error
