"""Window functions on every world: as pandas has them on the whole table, in its order, whatever ranks hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import held, more_held
from relations import THREADS
from worlds import World, in_turn

import gcylon_lab as gl
from gcylon_lab import col
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, BudgetExceeded, ColumnMissing
from gcylon_lab.runtime.context import current

SMALL = GcylonConfig(gpu_memory_limit="300 KiB", chunk_size_bytes=4096, min_chunk_rows=1)


@cache
def whole(rows: int) -> pd.DataFrame:
    """Keys, some missing, of groups of unlike sizes; numbers with ties and gaps, whole numbers, times and texts."""
    rng = np.random.default_rng(11)
    key = rng.integers(0, 9, rows) ** 2 % 7
    return pd.DataFrame(
        {
            "k": np.where(rng.random(rows) < 0.05, None, np.array(list("abcdefg"))[key]),
            "g": rng.integers(0, 3, rows),
            "x": np.where(rng.random(rows) < 0.1, np.nan, rng.integers(0, 50, rows) / 4),
            "n": rng.integers(-5, 9, rows).astype("int32"),
            "b": rng.random(rows) < 0.5,
            "t": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 10**6, rows), "s"),
            "s": [None if i % 5 == 0 else f"text {i}" for i in range(rows)],
        }
    ).astype({"k": "str"})


def mine(frame: pd.DataFrame, rank: int, size: int) -> pd.DataFrame:
    """A rank's rows: rank 1 has none, the last one has few, where there are so many."""
    shares = [0 if rank == 1 else 3 if rank == size - 1 else 40 for rank in range(size)] if size > 2 else [1, 3][:size]
    edges = np.concatenate(([0], np.cumsum(shares))) * len(frame) // sum(shares)
    return frame.iloc[edges[rank] : edges[rank + 1]].reset_index(drop=True)


def on_a_rank(rows: int, made: Callable[[Any], Any]) -> tuple[pd.DataFrame, int, int, Any]:
    """This rank's rows with the column that is made, how many it had, in how many chunks, and what is held after it."""
    context = current()
    frame = mine(whole(rows), context.rank, context.size)
    table = gl.from_local(frame)
    parts, before = len(table._live().chunks), held(context)
    result = table.assign(made=made(table))
    local = result.local()
    result.release()
    return local, table.num_rows, parts, more_held(context, before)


ALONE = {
    "cumsum": (lambda t: t.x.cumsum(), lambda f: f.x.cumsum()),
    "cumsum of ints": (lambda t: t.n.cumsum(), lambda f: f.n.cumsum()),
    "cumsum of bools": (lambda t: t.b.cumsum(), lambda f: f.b.cumsum()),
    "cumprod": (lambda t: (t.n / 4).cumprod(), lambda f: (f.n / 4).cumprod()),
    "cummax of times": (lambda t: t.t.cummax(), lambda f: f.t.cummax()),
    "cummin": (lambda t: t.x.cummin(), lambda f: f.x.cummin()),
    "ffill of texts": (lambda t: t.s.ffill(), lambda f: f.s.ffill()),
    "bfill": (lambda t: t.x.bfill(), lambda f: f.x.bfill()),
    "shift": (lambda t: t.n.shift(3), lambda f: f.n.shift(3)),
    "shift back": (lambda t: t.t.shift(-70), lambda f: f.t.shift(-70)),
    "shift of texts": (lambda t: t.s.shift(1), lambda f: f.s.shift(1)),
    "shift far": (lambda t: t.x.shift(10_000), lambda f: f.x.shift(10_000)),
    "diff": (lambda t: t.x.diff(2), lambda f: f.x.diff(2)),
    "rolling mean": (lambda t: t.x.rolling(7, 2).mean(), lambda f: f.x.rolling(7, min_periods=2).mean()),
    "rolling max": (lambda t: t.n.rolling(200).max(), lambda f: f.n.rolling(200).max()),
    "expanding": (lambda t: t.x.expanding(4).mean(), lambda f: f.x.expanding(4).mean()),
    "rank": (lambda t: t.x.rank(), lambda f: f.x.rank()),
    "rank in percent": (lambda t: t.x.rank("max", pct=True), lambda f: f.x.rank(method="max", pct=True)),
    "first rank": (lambda t: t.x.rank("first", ascending=False), lambda f: f.x.rank(method="first", ascending=False)),
    "both": (lambda t: t.x - t.x.cumsum().shift(1), lambda f: f.x - f.x.cumsum().shift(1)),
}
IN_GROUPS = {
    "cumsum": (lambda g: g["x"].cumsum(), lambda g: g["x"].cumsum()),
    "cummin": (lambda g: g["n"].cummin(), lambda g: g["n"].cummin()),
    "shift": (lambda g: g["t"].shift(2), lambda g: g["t"].shift(2)),
    "shift back": (lambda g: g["s"].shift(-1), lambda g: g["s"].shift(-1)),
    "ffill": (lambda g: g["x"].ffill(), lambda g: g["x"].ffill()),
    "bfill": (lambda g: g["x"].bfill(), lambda g: g["x"].bfill()),
    "rank": (lambda g: g["x"].rank(), lambda g: g["x"].rank()),
    "dense rank": (lambda g: g["n"].rank("dense"), lambda g: g["n"].rank(method="dense")),
    "rank in percent": (lambda g: g["n"].rank("min", pct=True), lambda g: g["n"].rank(method="min", pct=True)),
    "first rank": (lambda g: g["n"].rank("first"), lambda g: g["n"].rank(method="first")),
    "rolling": (lambda g: g["n"].rolling(4).sum(), lambda g: g["n"].transform(lambda x: x.rolling(4).sum())),
    "cumcount": (lambda g: g.cumcount(), lambda g: g.cumcount()),
    "cumcount from the end": (lambda g: g.cumcount(ascending=False), lambda g: g.cumcount(ascending=False)),
    "ngroup": (lambda g: g.ngroup(), lambda g: g.ngroup()),
    "transform": (lambda g: g["x"].transform("mean"), lambda g: g["x"].transform("mean")),
    "median": (lambda g: g["x"].transform("median"), lambda g: g["x"].transform("median")),
}
KEYS = [["k"], ["k", "g"]]


def check(world: World, rows: int, made: Any, expected: pd.Series[Any], chunks: int, config: Any) -> None:
    outcomes = world.run(on_a_rank, rows, made, config=config)
    frames = [frame for frame, *_ in outcomes]
    assert [len(frame) for frame in frames] == [count for _, count, *_ in outcomes]  # rows stay on their ranks
    assert max(parts for _, _, parts, _ in outcomes) >= chunks
    assert config is not None or not any(any(left) for *_, left in outcomes)  # otherwise rows were staged to make room
    got = pd.concat(frames, ignore_index=True)
    pd.testing.assert_frame_equal(got.drop(columns="made"), whole(rows), check_dtype=False)
    pd.testing.assert_series_equal(
        got["made"], expected, check_dtype=False, check_names=False, check_index_type=False, rtol=1e-9
    )


class Made:
    """What is made of a table; it can be sent to other processes by its name."""

    def __init__(self, name: str, keys: list[str] | None = None) -> None:
        self.name, self.keys = name, keys

    def __call__(self, table: Any) -> Any:
        if self.keys is None:
            return ALONE[self.name][0](table)
        return IN_GROUPS[self.name][0](table.groupby(self.keys))


@pytest.mark.parametrize(("world", "name"), in_turn(THREADS, list(ALONE)))
def test_rows_are_seen_in_the_order_of_the_whole_table(world: World, name: str) -> None:
    check(world, 400, Made(name), ALONE[name][1](whole(400)), 1, None)


@pytest.mark.parametrize(("world", "name", "keys"), in_turn(THREADS, list(IN_GROUPS), KEYS))
def test_groups_are_seen_in_the_order_of_the_whole_table(world: World, name: str, keys: list[str]) -> None:
    check(world, 400, Made(name, keys), IN_GROUPS[name][1](whole(400).groupby(keys)), 1, None)


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["cumsum", "shift back", "rank"])
def test_processes_see_the_same(name: str) -> None:
    check(World("mpi", 2), 400, Made(name), ALONE[name][1](whole(400)), 1, None)


@pytest.mark.parametrize("name", ["cumsum", "shift back", "rolling mean", "ffill of texts", "rank", "bfill"])
def test_chunks_and_a_small_budget_change_nothing(name: str) -> None:
    check(World("threads", 2), 9000, Made(name), ALONE[name][1](whole(9000)), 5, SMALL)


@pytest.mark.parametrize("name", ["cumsum", "shift", "transform", "rolling"])
def test_groups_in_chunks_and_a_small_budget(name: str) -> None:
    expected = IN_GROUPS[name][1](whole(9000).groupby(["k"]))
    check(World("threads", 2), 9000, Made(name, ["k"]), expected, 5, SMALL)


def steps_of_a_transform(keys: str) -> list[str]:
    context = current()
    frame = mine(whole(20_000), context.rank, context.size)
    table = gl.from_local(frame.assign(r=np.arange(len(frame)) * 7919 % 14_983))
    before = len(context.recorder.operations)
    made = table.assign(m=table.groupby(keys)["x"].transform("sum"))
    assert made.num_rows == len(frame)
    return [one.verb for one in list(context.recorder.operations)[before:]]


def test_what_few_groups_give_goes_to_the_rows_and_sorts_none() -> None:
    few, many = (World("threads", 2).run(steps_of_a_transform, keys)[0] for keys in ("k", "r"))
    assert "row_order" in few and "sort_values" not in few and "sort_values" in many


def refused(table: Any, made: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        table.assign(made=made(table))
    assert table.assign(again=table.x.cumsum()).num_rows == table.num_rows


def refusals() -> None:
    context = current()
    table = gl.from_local(mine(whole(400), context.rank, context.size))
    before = context.budget.used_bytes
    refused(table, lambda t: t.s.cumprod(), ArgumentError, r"col\('s'\).cumprod\(\) cannot be computed")
    refused(table, lambda t: col("nope").cumsum(), ColumnMissing, "There is no column 'nope'")
    refused(table, lambda t: col("x").cumsum().over("nope"), ColumnMissing, "There is no column 'nope'")
    for made, said in (
        (lambda: table.x.shift(1.5), "Expected a whole number for periods"),
        (lambda: table.x.rolling(0), "Expected a whole number for window"),
        (lambda: table.x.rolling(3, 4), "min_periods=4 is more than window=3"),
        (lambda: table.x.rank("best"), "method='best' is invalid"),
        (lambda: table.x.over("k"), "looks at no other rows"),
        (lambda: table.groupby("k")["x"].transform(len), "takes the name of a function, got a function"),
    ):
        with pytest.raises(ArgumentError, match=said):
            made()
    assert context.budget.used_bytes == before


@pytest.mark.cpu_alone("what libcudf takes fills such a limit")
def test_what_cannot_be_is_told_by_all_ranks_and_leaves_nothing() -> None:
    World("threads", 2).run(refusals)


def far(periods: int) -> None:
    table = gl.from_local(mine(whole(40_000), current().rank, current().size))
    with pytest.raises(BudgetExceeded, match="rows at the edges of all ranks"):
        table.assign(made=table.x.shift(periods))


def test_rows_far_away_that_do_not_fit_are_refused_with_numbers() -> None:
    World("threads", 2).run(far, 20_000, config=GcylonConfig(gpu_memory_limit="400 KiB", min_chunk_rows=1))
