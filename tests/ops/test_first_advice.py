"""The first limit that an error advises is enough for all that follows, and not far more than that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import worlds
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import BudgetExceeded
from gcylon_lab.runtime.context import current

VERBS = ("shuffle", "sort_values", "groupby", "drop_duplicates", "join")
TOO_HIGH, GPU_TOO_HIGH = 5, 8  # such a part of the advised limit is refused too; libcudf's own memory is unknown


def wide_rows(rank: int) -> pd.DataFrame:
    return pd.DataFrame(
        {"k": range(4 * rank, 4 * rank + 4), "s": [chr(97 + n) * worlds.scaled(500_000) for n in range(4)]}
    )


def one_long_row(rank: int) -> pd.DataFrame:
    texts = [f"short {n}" for n in range(3000)]
    if rank == 0:
        texts[1500] = "z" * worlds.scaled(500_000)
    return pd.DataFrame({"k": np.arange(3000) * 2 + rank, "s": texts})


def numbers(rank: int) -> pd.DataFrame:
    random = np.random.default_rng(rank)
    return pd.DataFrame({"k": random.integers(0, 3000, 20_000), "s": random.random(20_000)})


def long_tailed(rank: int) -> pd.DataFrame:
    random = np.random.default_rng(rank)
    lengths = np.minimum(random.pareto(1.2, 5000) * 10 + 1, 20_000).astype(int)
    return pd.DataFrame({"k": random.integers(0, 5000, 5000), "s": ["x" * n for n in lengths.tolist()]})


def one_key(rank: int) -> pd.DataFrame:
    return numbers(rank).assign(k=7)


FRAMES = {
    "wide_rows": wide_rows,
    "one_long_row": one_long_row,
    "numbers": numbers,
    "one_key": one_key,
    "long_tailed": long_tailed,
}
# Limits that are refused, with what may be staged, and without.
LIMITS = {"wide_rows": 600_000, "one_long_row": 600_000, "numbers": 100_000, "one_key": 480_000, "long_tailed": 30_000}


def tables(frame: pd.DataFrame) -> tuple[gl.Table, gl.Table]:
    return gl.from_local(frame), gl.from_local(frame.drop_duplicates("k").rename(columns={"s": "t"}))


def run(verb: str, kind: str, table: gl.Table, right: gl.Table, how: dict[str, Any]) -> tuple[int, str]:
    """Run a verb: the limit that would do where it is refused, and what the error says."""
    with_limit = how["config"]
    try:
        if verb == "join":
            table.join(right, on="k", **how)
        elif verb == "groupby":
            table.groupby("k").agg({"s": "sum" if kind in ("numbers", "one_key") else "max"}, **how)
        else:
            getattr(table, verb)("k", **how)
    except BudgetExceeded as error:
        error.__traceback__ = None
        assert error.numbers["would_do"] > with_limit.gpu_memory_limit
        return int(error.numbers["would_do"]), str(error)
    return 0, ""


def follow(verb: str, kind: str, stage: bool, strategy: str) -> list[str]:
    """What is wrong with the first advice."""
    how: dict[str, Any] = {"strategy": strategy}
    # Rounds of one row would take seconds, and on GPU ranks minutes.
    few = 64 if kind == "one_key" or (kind == "long_tailed" and worlds.ENGINE == "gpu") else 1
    limit = worlds.scaled(LIMITS[kind]) if kind in ("wide_rows", "one_long_row") else LIMITS[kind]
    config = GcylonConfig(gpu_memory_limit=limit, allow_cpu_staging=stage, min_chunk_rows=few)
    rows = FRAMES[kind](current().rank)
    both = tables(rows)
    advised, said = run(verb, kind, *both, how | {"config": config})
    if not advised:
        return []
    wrong = []
    for made_anew in (False, True):
        if made_anew:
            for table in both:
                table.release()
            both = tables(rows)
        again, why = run(verb, kind, *both, how | {"config": config.with_values(gpu_memory_limit=advised)})
        if again:
            wrong.append(f"{advised} is enough, then {again}: {said} Then: {why}")
    less, _ = run(
        verb,
        kind,
        *both,
        how | {"config": config.with_values(gpu_memory_limit=advised // int(worlds.most_predicted(1) * TOO_HIGH))},
    )
    if not less:
        wrong.append(f"{advised} is far too much: {said}")
    if stage and strategy != "direct" and "let it stage" in said:
        wrong.append(f"it stages already: {said}")
    return wrong


@pytest.mark.parametrize(
    ("strategy", "stage"),
    [("auto", True), ("auto", False), ("direct", True), ("staged", True)],
    ids=["auto", "auto-unstaged", "direct", "staged"],
)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("numbers", marks=pytest.mark.cpu_alone("what libcudf takes fills a limit of 100 kB"))
        if kind == "numbers"
        else kind
        for kind in FRAMES
    ],
)
@pytest.mark.parametrize("verb", VERBS)
def test_the_first_advice_does(verb: str, kind: str, stage: bool, strategy: str) -> None:
    for wrong in World("threads", 2).run(follow, verb, kind, stage, strategy):
        assert not wrong, "\n".join(wrong)


def many_pairs(rows: int, how: str, strategy: str, stage: bool) -> tuple[int, int, int]:
    """The limits that were advised, one after the other, at a join in which every row meets every other: how many, the
    last one, and the peak under it."""
    limit, advised = 2 * 2**20, 0
    here = slice(current().rank, None, current().size)
    k = np.ones(rows, np.int64)
    left, right = pd.DataFrame({"k": k, "a": np.arange(rows)}), pd.DataFrame({"k": k, "b": np.arange(rows)})
    while advised < 9:
        config = GcylonConfig(gpu_memory_limit=limit, allow_cpu_staging=stage)
        tables = (gl.from_local(left[here], config=config), gl.from_local(right[here], config=config))
        try:
            tables[0].join(tables[1], how, "k", strategy=strategy, config=config)
            break
        except BudgetExceeded as error:
            advised, limit = advised + 1, error.numbers["would_do"]
            error.__traceback__ = None
    return advised, limit, current().recorder.operations[-1].measured_peak_bytes


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("how", ["inner", "outer"])
@pytest.mark.parametrize(("strategy", "stage"), [("auto", False), ("direct", False), ("direct", True)])
def test_the_result_of_a_join_is_counted_before_it_is_refused(size: int, how: str, strategy: str, stage: bool) -> None:
    found = World("threads", size).run(many_pairs, 700, how, strategy, stage)
    assert all(advised == 1 for advised, _, _ in found), found
    assert max(peak / limit for _, limit, peak in found) > 0.9, found
