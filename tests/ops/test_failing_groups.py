"""Group-bys that fail, on one rank or all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import held, more_held
from relations import FEW, THREADS
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import ColumnMissing, DuplicateColumns, UnsupportedDtype


def failing_on_one(strategy: str) -> str:
    """One rank's sum passes int64; all are told, and go on."""
    context = gl.current()
    top = 2**62 if context.rank == 1 else 1
    table = gl.from_local(pd.DataFrame({"k": [1, 2] * 50, "v": np.full(100, top)}))
    before = held(context)
    try:
        table.groupby("k").agg({"v": "sum"}, strategy=strategy)
    except UnsupportedDtype as error:
        assert (more := more_held(context, before)[0]) <= 0, f"{more} bytes more are in use"
        assert table.groupby("k").agg({"v": "max"}).num_rows <= 2
        return str(error)
    raise AssertionError("no error")


@pytest.mark.parametrize("strategy", ["auto", "staged"])
@pytest.mark.parametrize("world", FEW, ids=str)
def test_what_fails_on_one_rank_is_told_to_all(world: World, strategy: str) -> None:
    told = set(world.run(failing_on_one, strategy))
    assert len(told) == 1
    assert "[rank 1]" in told.pop()


def failing(by: list[str], named: dict[str, Any]) -> None:
    """Fails on all ranks alike; the next verb works."""
    context = gl.current()
    table = gl.from_local(
        pd.DataFrame({"k": [1, 2], "v": [1.0, 2.0], "l": [[1], [2]], "c": pd.Categorical(["a", "b"])})
    )
    table.groupby(by).agg(**named)
    raise AssertionError(f"no error on rank {context.rank}")


@pytest.mark.parametrize("world", THREADS, ids=str)
@pytest.mark.parametrize(
    ("by", "named", "error", "words"),
    [
        (["l"], {"n": ("v", "sum")}, UnsupportedDtype, "'l'"),
        (["k"], {"n": ("c", "min")}, UnsupportedDtype, "'c'"),
        (["k"], {"n": ("l", "nunique")}, UnsupportedDtype, "'l'"),
        (["nope"], {"n": ("v", "sum")}, ColumnMissing, "'nope'"),
        (["k"], {"n": ("nope", "sum")}, ColumnMissing, "'nope'"),
        (["k"], {"k": ("v", "sum")}, DuplicateColumns, "'k'"),
    ],
)
def test_what_cannot_be_is_refused_by_name_on_all_ranks(
    world: World, by: list[str], named: dict[str, Any], error: type, words: str
) -> None:
    for outcome in world.outcomes(failing, by, named):
        assert isinstance(outcome.error, error), outcome.error
        assert words in str(outcome.error)
