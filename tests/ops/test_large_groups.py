"""Groups whose rows do not fit into the budget at once: what pandas gives, in passes over them, inside the budget."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import worlds
from grouped import Grouped, by_pandas
from relations import THREADS, assert_same_rows, check_clean, on_ranks, together
from worlds import World, called, in_turn

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import BudgetExceeded
from gcylon_lab.runtime.context import current

ROWS = 6000
SMALL = GcylonConfig(gpu_memory_limit="160 KiB", min_chunk_rows=64)  # a group takes some 480 KiB at once
NAMED = {
    "mx": ("x", "median"), "q": ("x", "quantile", 0.9), "mi": ("i", "median"), "mt": ("t", "median"),
    "nx": ("x", "nunique"), "ns": ("s", "nunique"), "nf": ("few", "nunique"), "sx": ("x", "sum"), "sd": ("x", "std"),
    "rows": ("x", "size"), "lo": ("s", "min"), "first": ("i", "first"), "mo": ("none", "median"), "md": ("d", "median"),
}  # fmt: skip


def frames(size: int, key: Any) -> list[pd.DataFrame]:
    """Rows of some keys; ``key`` takes a generator, and gives them."""
    found = []
    for rank in range(size):
        rng = np.random.default_rng(rank)
        x = np.where(rng.random(ROWS) < 0.1, np.nan, rng.normal(size=ROWS) * 10.0 ** rng.integers(-9, 9, ROWS))
        cents = rng.integers(0, 10**4, ROWS)
        values = {
            "k": key(rng),
            "x": x,
            "i": rng.integers(-(2**62), 2**62, ROWS),
            "t": pd.to_datetime(rng.integers(0, 10**9, ROWS) * 2, unit="s"),
            "s": np.where(rng.random(ROWS) < 0.1, None, rng.integers(0, 5000, ROWS).astype("U8").astype(object)),
            "few": pd.array(rng.integers(0, 3, ROWS), "Int8"),
            "none": np.full(ROWS, np.nan),
            "d": [Decimal(int(one)) / 100 for one in cents],
        }
        found.append(pd.DataFrame(values))
    return found


def three(rng: Any) -> Any:
    return rng.integers(0, 3, ROWS)


def some_lack_one(rng: Any) -> Any:
    return np.where(rng.random(ROWS) < 0.4, np.nan, 7.0)


def one_among_many(rng: Any) -> Any:
    return np.where(rng.random(ROWS) < 0.7, -1, rng.integers(0, 3000, ROWS))


@pytest.mark.parametrize(
    ("world", "key", "dropna", "strategy"),
    in_turn([World("single", 1), *THREADS], [three, some_lack_one, one_among_many], [True, False], ["auto", "staged"]),
    ids=called,
)
def test_it_is_what_pandas_gives(world: World, key: Any, dropna: bool, strategy: str) -> None:
    given = frames(world.size, key)
    everything = pd.concat(given, ignore_index=True)
    everything["d"] = everything["d"].astype("float64")
    expected = by_pandas(everything, ["k"], NAMED, dropna)
    results = world.run(on_ranks, Grouped(["k"], NAMED, dropna=dropna, config=SMALL, strategy=strategy), given, True)
    check_clean(results)
    assert_same_rows(together(results), expected, ["k"], rtol=1e-12)


@pytest.mark.parametrize("limit", [170, 200, 220])
def test_keys_of_one_part_of_the_hash_are_told_apart(limit: int) -> None:
    """Buckets of two halve them in vain: each of these groups is small, and does not fit with three more."""
    rng = np.random.default_rng(4)
    everything = pd.DataFrame({"k": rng.integers(0, 50, 8000), "x": rng.normal(size=8000), "y": 0.0, "z": 0.0})
    everything["s"] = [f"s{i % 20}" for i in range(8000)]
    given = [everything.iloc[:2038], everything.iloc[2038:5812], everything.iloc[5812:]]
    config = GcylonConfig(gpu_memory_limit=f"{limit} KiB", chunk_size_bytes=8192, min_chunk_rows=1)
    named = {"m": ("x", "median"), "n": ("s", "nunique")}
    results = World("threads", 3).run(on_ranks, Grouped(["k"], named, config=config), given)
    check_clean(results)
    assert_same_rows(together(results), by_pandas(everything, ["k"], named), ["k"], rtol=1e-12)


@pytest.mark.parametrize("key", [three, one_among_many])
def test_peaks_are_predicted(key: Any) -> None:
    named = {name: one for name, one in NAMED.items() if one[0] in ("x", "i", "t")}
    columns = ["k", "x", "i", "t"]
    given = [frame[columns] for frame in frames(2, key)]
    for result in World("threads", 2).run(on_ranks, Grouped(["k"], named, config=SMALL), given, True):
        assert 0.8 < result["predicted"] / result["peak"] < worlds.most_predicted(1.3)


def test_lists_need_the_rows_of_a_key_at_once() -> None:
    verb = Grouped(["k"], {"x": ("x", "list"), "m": ("x", "median")}, config=SMALL)
    for outcome in World("threads", 2).outcomes(on_ranks, verb, [frame[["k", "x"]] for frame in frames(2, three)]):
        assert isinstance(outcome.error, BudgetExceeded)
        assert "groupby of the rows of one key" in str(outcome.error) and "is enough" in str(outcome.error)


@pytest.mark.parametrize("others", [500, 3000])
@pytest.mark.parametrize("limit", ["420 KiB", "700 KiB"])
def test_a_group_somewhat_too_large_among_many_small_ones(limit: str, others: int) -> None:
    """Few buckets would do for all rows: those of other keys are split off until the large group stands alone."""
    rng = np.random.default_rng(others)
    k = np.where(rng.random(ROWS) < 0.7, -1, rng.integers(0, others, ROWS))
    frame = pd.DataFrame({"k": k, "i": rng.integers(-(2**62), 2**62, ROWS)})
    named = {"mi": ("i", "median"), "ni": ("i", "nunique"), "si": ("i", "first")}
    verb = Grouped(["k"], named, config=GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=64))
    results = World("single", 1).run(on_ranks, verb, [frame], True)
    check_clean(results)
    assert_same_rows(together(results), by_pandas(frame, ["k"], named), ["k"], rtol=1e-12)


def test_rows_that_are_held_give_way_to_a_look_at_their_texts() -> None:
    """Rows that came take most of the budget, and were still counted while how many keys they have was found."""
    given = []
    for rank in range(2):
        rng = np.random.default_rng(rank)
        given.append(
            pd.DataFrame({"k": np.array([*"abc"], object)[rng.integers(0, 3, ROWS)], "i": rng.integers(0, 100, ROWS)})
        )
    verb = Grouped(["k"], {"ni": ("i", "nunique")}, config=GcylonConfig(gpu_memory_limit="260 KiB", min_chunk_rows=64))
    results = World("threads", 2).run(on_ranks, verb, given)
    check_clean(results)
    assert_same_rows(together(results), by_pandas(pd.concat(given), ["k"], {"ni": ("i", "nunique")}), ["k"])


@pytest.mark.parametrize("strategy", ["auto", "staged"])
@pytest.mark.parametrize(
    "named", [{"n": ("i", "size")}, {"s": ("i", "sum"), "f": ("i", "first"), "v": ("x", "std")}], ids=len
)
def test_a_key_of_some_rows_among_keys_of_one(named: Any, strategy: str) -> None:
    """Partial results are not worth it for most keys: the rows of one that repeats are brought together at the end."""
    given = []
    for rank in range(2):
        rng = np.random.default_rng(rank)
        k = np.where(rng.random(4 * ROWS) < 0.04, np.nan, rng.random(4 * ROWS))
        given.append(pd.DataFrame({"k": k, "i": np.arange(4 * ROWS) + rank, "x": rng.random(4 * ROWS)}))
    config = GcylonConfig(gpu_memory_limit="66 KiB", min_chunk_rows=64)
    verb = Grouped(["k"], named, dropna=False, config=config, strategy=strategy)
    results = World("threads", 2).run(on_ranks, verb, given, True)
    check_clean(results)
    everything = pd.concat(given, ignore_index=True)
    assert_same_rows(together(results), by_pandas(everything, ["k"], named, False), ["k"], rtol=1e-12)


def beside_its_input() -> tuple[float, float, pd.DataFrame, pd.DataFrame]:
    """Medians of a table that takes more than half of the limit, and stays in memory; how often it was written."""
    context, n = current(), 30_000
    frame = pd.DataFrame({"k": np.arange(n) * 7919 % 2003, "x": np.arange(n) / 7})
    table = gl.from_local(frame)
    limit = int(1.7 * table.nbytes)
    before = context.spill.written_bytes
    result = table.groupby("k").agg({"x": "median"}, config=gl.GcylonConfig(gpu_memory_limit=limit))
    written = context.spill.written_bytes - before
    assert table.tiers["device"] == table.nbytes
    peak = context.recorder.operations[-1].measured_peak_bytes / limit
    expected = frame.groupby("k", as_index=False).agg({"x": "median"})
    return written / table.nbytes, peak, result.local().sort_values("k", ignore_index=True), expected


def test_an_input_in_memory_is_split_once() -> None:
    """Into buckets that fit what it leaves free: those that would only fit the whole limit were each split again."""
    ((written, peak, found, expected),) = World("single", 1).run(beside_its_input)
    assert written < 1.5 and peak <= 1
    pd.testing.assert_frame_equal(found, expected)
