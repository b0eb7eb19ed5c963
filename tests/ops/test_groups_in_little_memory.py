"""Group-bys that do not fit at once: buckets, states put aside, and limits that would do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import worlds
from grouped import PARTIAL, Grouped, by_pandas
from relations import assert_same_rows, check_clean, on_ranks, together
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import BudgetExceeded
from gcylon_lab.runtime.context import current


def test_skew_is_worked_on_in_buckets() -> None:
    rng = np.random.default_rng(2)
    frames = [
        pd.DataFrame({"k": np.where(rng.random(9000) < 0.3, 7, rng.integers(0, 10**6, 9000)), "s": ["x" * 20] * 9000})
        for _ in range(4)
    ]
    config = GcylonConfig(gpu_memory_limit="2 MiB", chunk_size_bytes=32768, min_chunk_rows=64)
    named = {"n": ("s", "count"), "u": ("s", "nunique"), "f": ("s", "last")}
    results = World("threads", 4).run(on_ranks, Grouped(["k"], named, config=config), frames)
    check_clean(results)
    assert_same_rows(together(results), by_pandas(pd.concat(frames), ["k"], named), ["k"])


def test_peaks_are_those_of_all_steps() -> None:
    frames = [pd.DataFrame({"k": np.arange(20_000) % 9, "x": np.arange(20_000) / 7}) for _ in range(2)]
    for result in World("threads", 2).run(on_ranks, Grouped(["k"], {"x": ("x", "sum")}), frames):
        # Before partial results are exchanged, grouping works on all rows at once.
        cpu = worlds.ENGINE == "cpu"  # GPU ranks take less than is estimated for them
        assert result["peak"] > 20_000 * (16 + 64 if cpu else 16)
        assert result["peak"] <= result["predicted"] <= (1.5 if cpu else 4) * result["peak"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_state_that_does_not_fit_is_put_aside(ranks: int) -> None:
    rng = np.random.default_rng(4)
    texts = np.array([f"{i:0200d}" for i in range(4000)])
    # Where rows of a key stand together, few of them promise few keys.
    frames = [pd.DataFrame({"k": np.sort(rng.integers(0, 4000, 20_000))}) for _ in range(ranks)]
    for frame in frames:
        frame["s"] = texts[(frame["k"] * 7) % 4000]
        frame["v"] = rng.normal(size=len(frame))
    named = {"f": ("s", "first"), "m": ("s", "max"), "v": ("v", "sum"), "n": ("v", "size"), "d": ("v", "std")}
    config = GcylonConfig(gpu_memory_limit="2 MiB", min_chunk_rows=64)
    for strategy in ("auto", "staged"):
        verb = Grouped(["k"], named, config=config, strategy=strategy)
        results = World("threads", ranks).run(on_ranks, verb, frames)
        check_clean(results)
        assert ("partial results" if ranks > 1 else "goes through its rows once") in results[0]["explained"]
        assert_same_rows(together(results), by_pandas(pd.concat(frames), ["k"], named), ["k"], rtol=1e-12)


def test_without_staging_it_fits_or_all_ranks_are_told() -> None:
    config = GcylonConfig(gpu_memory_limit="400 KiB", min_chunk_rows=1, allow_disk_spill=False)
    for limit, fits in (("400 KiB", True), ("60 KiB", False)):
        verb = Grouped(["k"], PARTIAL, config=config.with_values(gpu_memory_limit=limit))
        outcomes = World("threads", 2).outcomes(on_ranks, verb, "even")
        if fits:
            assert all(outcome.error is None for outcome in outcomes)
        else:
            assert all(isinstance(outcome.error, gl.errors.BudgetExceeded) for outcome in outcomes)
            assert len({str(outcome.error) for outcome in outcomes}) == 1


def keyless_at_first() -> list[pd.DataFrame]:
    """Rows in many pieces, of which the first ones, or all, have no key."""
    rows, config = 300, GcylonConfig(chunk_size_bytes=1024, min_chunk_rows=1)
    keys = {"late": [None] * 250 + [1.0, 2.0] * 25, "never": [None] * rows}
    made = []
    for values in keys.values():
        table = gl.from_local(pd.DataFrame({"k": np.array(values, dtype=float), "v": np.arange(rows)}))
        made.append(table.groupby("k").agg(low=("v", "min"), last=("v", "last"), config=config).to_pandas())
    return made


@pytest.mark.parametrize("size", [1, 2])
def test_pieces_without_a_key_may_come_first(size: int) -> None:
    late, never = World("threads", size).run(keyless_at_first)[0]
    assert late.sort_values("k").values.tolist() == [[1.0, 250, 298], [2.0, 251, 299]]
    assert never.empty and never.dtypes["low"] == np.int64


def hot_lists(limit: int) -> tuple[int, int]:
    """One key with nearly all rows of three ranks, unequal ones: what is advised, and what was in use after it."""
    context = current()
    rows = 3000 + 500 * context.rank
    keys = np.where(np.arange(rows) % 50, 7, np.arange(rows) * context.size + context.rank)
    table = gl.from_local(pd.DataFrame({"k": keys, "x": np.arange(rows) / 3, "g": np.arange(rows)}))
    grouped = table.groupby("k")
    with pytest.raises(BudgetExceeded) as caught:
        grouped.agg(x=("x", "list"), g=("g", "nunique"), config=GcylonConfig(gpu_memory_limit=limit))
    would_do = caught.value.numbers["would_do"]
    made = grouped.agg(x=("x", "list"), g=("g", "nunique"), config=GcylonConfig(gpu_memory_limit=would_do))
    return would_do, made.num_rows


def test_the_limit_that_a_hot_key_is_advised_to_have_does() -> None:
    results = World("threads", 3).run(hot_lists, 120_000)
    assert len({would_do for would_do, _ in results}) == 1 and sum(rows for _, rows in results) > 100


def long_lists(limit: int) -> list[int]:
    """Many small groups before a large one, whose last step fits only once they are apart."""
    keys = np.minimum(np.arange(420), 120)
    table = gl.from_local(pd.DataFrame({"k": keys, "x": [f"{i:0200}" for i in range(420)]}))
    made = table.groupby("k").agg(x=("x", "list"), config=GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=1))
    return made.local()["k"].tolist()


@pytest.mark.parametrize("limit", [285_000, 300_000])
def test_groups_are_made_once_where_the_last_step_of_one_does_not_fit_at_first(limit: int) -> None:
    (keys,) = World("threads", 1).run(long_lists, limit)
    assert sorted(keys) == list(range(121))


def held_result(limit: int) -> tuple[int, int]:
    first, rows = 250 * current().rank, np.arange(250)
    numbers = first + rows
    table = gl.from_local(pd.DataFrame({"i": numbers % 37, "j": numbers % 11, "x": numbers * 1.0}))
    config = GcylonConfig(gpu_memory_limit=limit, chunk_size_bytes=2048, min_chunk_rows=1)
    groups = table.groupby(["i", "j"]).agg(x=("x", "median"), strategy="chunked", config=config)
    return groups.num_rows, groups.tiers.get("disk", 0)


@pytest.mark.cpu_alone("what libcudf takes fills such a limit")
@pytest.mark.parametrize("limit", [13_500, 15_000, 16_500])
def test_a_result_that_made_room_for_the_work_comes_back_where_it_fits(limit: int) -> None:
    found = World("threads", 2).run(held_result, limit)
    assert sum(rows for rows, _ in found) == 37 * 11
    assert [staged for _, staged in found] == [0, 0]
