"""Arguments of joins, and joins that fail: told to all ranks, with nothing left behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from joins import TWO, answer, check, failing, frames, join, numbers
from worlds import World

from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import (
    ArgumentError,
    BudgetExceeded,
    ColumnMissing,
    DuplicateColumns,
    RanksDisagree,
)


# ---- arguments
def test_validate_tells_all_ranks_how_many_rows_repeat_a_key() -> None:
    once = [pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [3, 4]})]
    twice = [pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [1, 1]})]
    for sides, validate, side in (
        ((twice, once), "one_to_one", "left"),
        ((twice, once), "1:m", "left"),
        ((once, twice), "m:1", "right"),
        ((once, twice), "1:1", "right"),
    ):
        outcomes = TWO.outcomes(join, *sides, {"how": "inner", "on": "k", "validate": validate})
        for outcome in outcomes:
            assert isinstance(outcome.error, ArgumentError)
            assert outcome.error.numbers["side"] == side
            assert outcome.error.numbers["repeated_rows"] == 2
    many = [pd.DataFrame({"k": np.arange(10)})] * 2
    for outcome in TWO.outcomes(join, many, once, {"how": "inner", "on": "k", "validate": "1:1"}):
        assert outcome.error.numbers["repeated_rows"] == 10  # those of all ranks
    for sides, validate in (
        ((twice, once), "m:1"),
        ((once, twice), "1:m"),
        ((once, once), "1:1"),
        ((twice, twice), "m:m"),
    ):
        results = TWO.run(join, *sides, {"how": "inner", "on": "k", "validate": validate})
        check(results, answer(*sides, how="inner", on="k"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"how": "sideways", "on": "k"}, ArgumentError),
        ({"how": "inner", "on": "nowhere"}, ColumnMissing),
        ({"how": "inner", "left_on": "k"}, ArgumentError),
        ({"how": "inner", "on": "k", "left_on": "k", "right_on": "k"}, ArgumentError),
        ({"how": "inner", "left_on": ["k", "w"], "right_on": "k"}, ArgumentError),
        ({"how": "cross", "on": "k"}, ArgumentError),
        ({"how": "inner", "on": "k", "suffixes": (None, None)}, ArgumentError),
        ({"how": "inner", "on": "k", "suffixes": ("", "")}, ArgumentError),
        ({"how": "inner", "on": "k", "indicator": "w"}, ArgumentError),
        ({"how": "semi", "on": "k", "indicator": True}, ArgumentError),
        ({"how": "inner", "on": "k", "validate": "1-1"}, ArgumentError),
        ({"how": "inner", "on": "k", "suffixes": ("_x", "")}, None),
    ],
)
def test_arguments_are_checked_on_all_ranks(arguments: dict[str, Any], error: type | None) -> None:
    sides = frames("even", 2, rows=10)
    if error is None:
        check(TWO.run(join, *sides, arguments), answer(*sides, **arguments))
        return
    for outcome in TWO.outcomes(join, *sides, arguments):
        assert isinstance(outcome.error, error)


def test_suffixes_that_make_a_name_twice() -> None:
    left, right = pd.DataFrame({"k": [1], "a": [1], "a_x": [1]}), pd.DataFrame({"k": [1], "a": [1]})
    for outcome in TWO.outcomes(join, [left] * 2, [right] * 2, {"how": "inner", "on": "k"}):
        assert isinstance(outcome.error, DuplicateColumns)


def by_rank(lefts: list[pd.DataFrame], rights: list[pd.DataFrame], hows: list[str]) -> None:
    from gcylon_lab.runtime.context import current

    join(lefts, rights, {"how": hows[current().rank], "on": "k"})


def test_ranks_that_ask_for_different_joins_disagree() -> None:
    for outcome in TWO.outcomes(by_rank, *frames("even", 2, rows=10), ["inner", "left"]):
        assert isinstance(outcome.error, RanksDisagree)


@pytest.mark.parametrize("world", [TWO, pytest.param(World("mpi", 2), marks=pytest.mark.mpi)], ids=str)
def test_a_join_that_fails_leaves_nothing_and_the_next_one_works(world: World) -> None:
    lefts, rights = numbers(np.random.default_rng(2), 2_000, 20)
    cases = [
        ({"how": "inner", "on": "k", "strategy": "direct"}, BudgetExceeded, "1 MiB"),
        ({"how": "inner", "on": "k", "validate": "1:1"}, ArgumentError, "64 MiB"),
        ({"how": "inner", "left_on": "k", "right_on": "nowhere"}, ColumnMissing, "64 MiB"),
    ]
    for arguments, kind, limit in cases:
        for found, used, after, explained in world.run(
            failing, lefts, rights, arguments, GcylonConfig(gpu_memory_limit=limit)
        ):
            assert found is kind
            assert after == used
            assert explained.startswith("join: direct")
