"""Plans of distinct rows are what is done: strategy, reason, rounds, and peaks within a tenth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import worlds
from exchanges import held, more_held
from relations import on_ranks
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, BudgetExceeded, ColumnMissing
from gcylon_lab.runtime.context import current

ROWS = 20_000
KEYS = {"few": 50, "many": 10**12}
CALLS: list[tuple[str, Any, dict[str, Any]]] = [
    ("drop_duplicates", "k", {}), ("drop_duplicates", "k", {"keep": "last"}), ("drop_duplicates", "k", {"keep": False}),
    ("drop_duplicates", None, {}), ("unique", "k", {}), ("unique", ["k", "v"], {}),
]  # fmt: skip
# Strategy, and the limit as a multiple of a rank's part.
BUDGETS = [
    ("auto", 20.0), ("direct", 20.0), ("chunked", 6.0), ("auto", 3.0), ("staged", 3.0), ("auto", 1.6), ("auto", 0.4),
]  # fmt: skip


def frame(kind: str, rank: int) -> pd.DataFrame:
    random = np.random.default_rng(rank)
    keys = random.integers(0, KEYS[kind], ROWS)
    values = keys % 3 if kind == "few" else random.random(ROWS)
    made = pd.DataFrame({"k": keys, **dict.fromkeys("vabcdef", values)})
    return made.assign(s=[f"text {n % 1000:03}" * 3 for n in keys.tolist()])


def foreseen_and_done(kind: str, spread: bool) -> list[dict[str, Any]]:
    context, seen = current(), []
    rows = frame(kind, context.rank)
    for verb, columns, how in CALLS:
        for strategy, factor in BUDGETS:
            table = gl.from_local(rows)
            config = GcylonConfig(gpu_memory_limit=int(factor * table.nbytes), min_chunk_rows=64)
            if spread:
                before, table = table, table.shuffle("k")
                before.release()
            options = how | {"strategy": strategy, "config": config}
            before = held(context)
            plan = getattr(table, f"plan_{verb}")(columns, **options)
            more = more_held(context, before)[0]
            assert more == 0, f"a plan of {verb} keeps {more} bytes"
            result = getattr(table, verb)(columns, **options)
            record = context.recorder.operations[-1]
            seen.append(
                {
                    "what": f"{verb} {columns} {how} {strategy} {factor}", "factor": factor, "view": verb == "unique",
                    "plan": plan, "done": result.last_plan, "estimated": plan.predicted_peaks[context.rank],
                    "predicted": record.predicted_peak_bytes, "measured": record.measured_peak_bytes,
                    "limit": config.gpu_memory_limit,
                }
            )  # fmt: skip
            table.release()
            result.release()
    return seen


@pytest.mark.parametrize("spread", [False, True], ids=["", "spread"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_plan_of_rows_that_are_all_different_is_what_is_done(size: int, spread: bool) -> None:
    wrong = []
    for rank_saw in World("threads", size).run(foreseen_and_done, "many", spread):
        for found in rank_saw:
            plan, done = found["plan"], found["done"]
            assert plan.verb == done.verb and plan.budget_bytes == done.budget_bytes == found["limit"]
            alike = plan.strategy == done.strategy and plan.reason == done.reason
            alike &= (plan.rounds > 0) == (done.rounds > 0) == (size > 1 and not spread)
            ratio = found["estimated"] / found["measured"]
            if worlds.ENGINE == "gpu":  # what libcudf takes beside is estimated from above
                near = ratio > 0.9 and found["predicted"] > 0.9 * found["measured"]
                alike |= found["factor"] < 2
            elif found["factor"] > 2:
                near = abs(ratio - 1) < 0.1 and abs(found["predicted"] - found["measured"]) < 0.1 * found["measured"]
                alike &= abs(plan.rounds - done.rounds) <= 1
            elif found["view"] and found["factor"] < 1:  # texts are read back together
                near = 0.9 < ratio < 1.9
            else:
                near = 0.9 < ratio < 1.25 and 0.9 < found["predicted"] / found["measured"] < 1.15
            if not (alike and near):
                wrong.append(
                    f"{found['what']}: {ratio:.2f} {plan.strategy} {done.strategy} {plan.rounds} {done.rounds}"
                )
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("size", [1, 3])
def test_few_different_rows_take_less_than_their_plan_and_what_was_predicted_once_they_were_seen(size: int) -> None:
    for rank_saw in World("threads", size).run(foreseen_and_done, "few", False):
        for found in rank_saw:
            assert found["measured"] <= found["limit"], found["what"]
            if found["factor"] > 2:
                assert found["measured"] < 1.05 * found["estimated"], found
                predicted, measured = found["predicted"], found["measured"]
                high = 1.1 * measured if worlds.ENGINE == "cpu" else found["limit"]
                assert 0.9 * measured <= predicted <= high, (found["what"], predicted, measured)


def described(table: Any) -> list[str]:
    tight = GcylonConfig(gpu_memory_limit=table.nbytes)
    spread = table.shuffle("k")
    return [
        plan.describe()
        for plan in (
            table.plan_drop_duplicates("k"), table.plan_drop_duplicates("k", config=tight), table.plan_unique(["k"]),
            spread.plan_drop_duplicates(["v", "k"], keep=False), spread.plan_drop_duplicates("v"), spread.plan_unique(),
        )
    ]  # fmt: skip


def test_a_plan_says_what_is_sent_and_whether_the_table_is_partitioned_already() -> None:
    frames = [frame("many", rank) for rank in range(2)]
    for result in World("threads", 2).run(on_ranks, described, frames):
        whole, survivors, keys, together, apart, rows = result["value"]
        partial = "where few different rows stand in many"
        assert whole.startswith("drop_duplicates: direct, 1 round") and partial in whole
        if worlds.ENGINE == "cpu":  # GPU ranks drop duplicates without
            assert "found by their keys and positions first" in survivors and partial not in survivors
        assert keys.startswith("unique: direct, 1 round of at most 156 KiB")
        for text in (together, rows):
            assert "nothing is exchanged" in text and "equal keys are on one rank already" in text
        assert "1 round" in apart and partial in apart


def failing(name: str, columns: Any, how: dict[str, Any]) -> None:
    getattr(gl.from_local(pd.DataFrame({"k": [1, 2]})), name)(columns, **how)


TINY = GcylonConfig(gpu_memory_limit=8)


@pytest.mark.parametrize(
    ("verb", "columns", "how", "error"),
    [
        ("drop_duplicates", "nope", {}, ColumnMissing),
        ("unique", ["k", "nope"], {}, ColumnMissing),
        ("drop_duplicates", "k", {"keep": True}, ArgumentError),
        ("unique", "k", {"strategy": "fast"}, ArgumentError),
        ("drop_duplicates", "k", {"strategy": "direct", "config": TINY}, BudgetExceeded),
    ],
)
def test_what_the_verb_refuses_its_plan_refuses_on_all_ranks(verb: str, columns: Any, how: Any, error: type) -> None:
    for name in (verb, f"plan_{verb}"):
        for outcome in World("threads", 2).outcomes(failing, name, columns, how):
            assert isinstance(outcome.error, error), outcome.error
