"""drop_duplicates, unique and value_counts on every world, as pandas does them on the whole table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import LAYOUTS, whole
from hypothesis import given, settings
from hypothesis import strategies as st
from relations import FEW, PLANS, THREADS, TIGHT, assert_same_rows, check_clean, on_ranks, together
from worlds import World, in_turn

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, ColumnMissing, UnsupportedDtype
from gcylon_lab.runtime.context import current


class Verb:
    """A verb to run on ranks."""

    def __init__(self, name: str, *args: Any, **kwargs: Any) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs

    def __call__(self, table: Any) -> Any:
        return getattr(table, self.name)(*self.args, **self.kwargs)


SUBSETS = [["k"], ["s", "c"], ["n"], ["m", "b"], ["x"]]


@pytest.mark.parametrize(("world", "layout", "keep"), in_turn(THREADS, LAYOUTS, ["first", "last"]), ids=str)
def test_one_whole_row_of_each_key_stays(world: World, layout: str, keep: str) -> None:
    everything = whole(layout, world.size)
    for i, subset in enumerate(SUBSETS):
        # Of the plans every second in turn: all meet every subset and world, the first row of a key or the last.
        plans = PLANS[(i + (keep == "last")) % 2 :: 2] if layout == "even" else PLANS[:1]
        for strategy, config in plans:
            verb = Verb("drop_duplicates", subset, keep=keep, strategy=strategy, config=config)
            results = world.run(on_ranks, verb, layout)
            expected = everything.drop_duplicates(subset, keep=keep)
            assert_same_rows(together(results), expected, ["g"])
            check_clean(results)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("world", THREADS, ids=str)
def test_rows_that_stand_there_once_stay(world: World, layout: str) -> None:
    everything = whole(layout, world.size)
    for i, subset in enumerate(("k", ["s", "c"], ["n", "b"], ["m"], ["g"])):
        plans = PLANS[(i + world.size // 2) % 2 :: 2] if layout == "even" else PLANS[:1]  # all, on one world or other
        for strategy, config in plans:
            verb = Verb("drop_duplicates", subset, keep=False, strategy=strategy, config=config)
            results = world.run(on_ranks, verb, layout)
            assert_same_rows(together(results), everything.drop_duplicates(subset, keep=False), ["g"])
            check_clean(results)
            if strategy == "staged":
                assert all(result["tiers"]["device"] == 0 for result in results)


def once(table: Any) -> Any:
    spread = table.shuffle("k").drop_duplicates(["k", "n"], keep=False)
    assert spread.partitioning.keys == ("k",) and "nothing is exchanged" in spread.explain()
    return spread


def whole_rows_once(table: Any) -> Any:
    small = table.assign(count=gl.col("g") % 61).select(["count", "k", "b"])
    return small.drop_duplicates(keep=False)


@pytest.mark.parametrize("world", FEW, ids=str)
@pytest.mark.parametrize("staged", [False, True], ids=["held", "staged"])
def test_rows_that_stand_there_once_are_found_where_they_are(world: World, staged: bool) -> None:
    everything = whole("even", world.size)
    assert_same_rows(
        together(world.run(on_ranks, once, "even", staged)), everything.drop_duplicates(["k", "n"], keep=False), ["g"]
    )
    small = everything.assign(count=everything["g"] % 61)[["count", "k", "b"]]
    assert_same_rows(
        together(world.run(on_ranks, whole_rows_once, "even", staged)),
        small.drop_duplicates(keep=False),
        list(small.columns),
    )


@pytest.mark.parametrize("world", FEW, ids=str)
def test_staged_inputs_and_all_columns(world: World) -> None:
    everything = whole("even", world.size)
    for keep in ("first", "last", False):
        results = world.run(on_ranks, Verb("drop_duplicates", "k", keep=keep, config=TIGHT), "even", True)
        assert_same_rows(together(results), everything.drop_duplicates("k", keep=keep), ["g"])
    results = world.run(on_ranks, without_lists_twice, "even")
    assert_same_rows(together(results), everything.drop(columns=["l", "g"]).drop_duplicates(), ["s", "k", "x", "n"])


def without_lists_twice(table: Any) -> Any:
    return table.drop(["l", "g"]).drop_duplicates()


@pytest.mark.parametrize("world", THREADS, ids=str)
def test_unique_and_value_counts(world: World) -> None:
    everything = whole("even", world.size)
    for i, subset in enumerate(SUBSETS):
        for j, (strategy, config) in enumerate((PLANS[0], PLANS[3])):
            results = world.run(on_ranks, Verb("unique", subset, strategy=strategy, config=config), "even")
            assert_same_rows(together(results), everything[subset].drop_duplicates(), subset)
            dropna = (i + j + world.size // 2) % 2 == 0  # the other way on the other world
            verb = Verb("value_counts", subset, dropna=dropna, strategy=strategy, config=config)
            counts = everything[subset].value_counts(dropna=dropna).reset_index()
            counts = counts[counts["count"] > 0]
            assert_same_rows(together(world.run(on_ranks, verb, "even")), counts, subset)


def after_shuffle(table: Any) -> Any:
    return table.shuffle("k", keep_order=True).drop_duplicates(["k", "b"])


@pytest.mark.parametrize("world", THREADS, ids=str)
def test_what_is_together_is_not_shuffled(world: World) -> None:
    results = world.run(on_ranks, after_shuffle, "even")
    assert all(result["sent"] == 0 and "nothing is exchanged" in result["explained"] for result in results)
    expected = whole("even", world.size).drop_duplicates(["k", "b"])
    assert_same_rows(together(results), expected, ["g"])


def failing(name: str, *args: Any, **kwargs: Any) -> None:
    table = gl.from_local(pd.DataFrame({"k": [1, 2], "l": [[1], [2]]}))
    getattr(table, name)(*args, **kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "words"),
    [
        ((), {}, UnsupportedDtype, "'l'"),
        (("l",), {}, UnsupportedDtype, "'l'"),
        (("nope",), {}, ColumnMissing, "'nope'"),
        (("k",), {"keep": "none"}, ArgumentError, "keep='none' is invalid. Expected 'first', 'last' or False"),
        (("k",), {"keep": True}, ArgumentError, "keep=True"),
        (("k",), {"keep": 0}, ArgumentError, "keep=0"),
    ],
)
def test_what_cannot_be_is_refused_on_all_ranks(args: Any, kwargs: Any, error: type, words: str) -> None:
    for outcome in World("threads", 2).outcomes(calling, args, kwargs):
        assert isinstance(outcome.error, error)
        assert words in str(outcome.error)


def calling(args: Any, kwargs: Any) -> None:
    failing("drop_duplicates", *args, **kwargs)


@settings(max_examples=60)
@given(
    values=st.lists(st.sampled_from([0.0, -0.0, 1.5, None, float("nan")]), max_size=30),
    size=st.integers(1, 4),
    cuts=st.lists(st.integers(0, 30), min_size=3, max_size=3),
    keep=st.sampled_from(["first", "last", False]),
    strategy=st.sampled_from(["auto", "direct", "chunked", "staged"]),
    staged=st.booleans(),
)
def test_any_rows_on_any_ranks(
    values: list[Any], size: int, cuts: list[int], keep: str | bool, strategy: str, staged: bool
) -> None:
    frame = pd.DataFrame({"v": np.array(values, dtype="float64"), "g": np.arange(len(values))})
    edges = [0, *sorted(min(c, len(frame)) for c in cuts[: size - 1]), len(frame)]
    frames = [frame.iloc[start:stop] for start, stop in zip(edges[:-1], edges[1:], strict=True)]
    config = GcylonConfig(gpu_memory_limit="64 KiB", min_chunk_rows=1)
    verb = Verb("drop_duplicates", "v", keep=keep, strategy=strategy, config=config)
    ours = together(World("threads", size).run(on_ranks, verb, frames, staged))
    assert sorted(ours["g"]) == frame.drop_duplicates("v", keep=keep)["g"].tolist()


def held_or_refused(verb: str, limits: Sequence[float]) -> list[tuple[float, int, int]]:
    """Of limits in parts of a rank's rows: the peak in the same, rows, and what is staged of them."""
    rows, seen, context = 20_000, [], current()
    random = np.random.default_rng(context.rank)
    table = gl.from_local(pd.DataFrame({name: random.integers(0, 2**40, rows) for name in "kxy"}))
    other = gl.from_local(pd.DataFrame({name: random.integers(0, 2**40, rows // 100) for name in "kxy"}))
    nbytes = table.nbytes  # which padding makes more of while it is staged
    for limit in limits:
        how = {
            "strategy": "direct",
            "config": GcylonConfig(gpu_memory_limit=int(limit * nbytes), chunk_size_bytes=rows),
        }
        if verb == "drop_duplicates":
            made = table.drop_duplicates(**how)
        elif verb == "standing once":
            made = table.drop_duplicates(keep=False, **how)
        elif verb == "groupby":
            made = table.groupby("k").agg({"x": "sum", "y": "sum"}, **how)
        else:
            made = getattr(table, verb)(other, **how)
        peak = context.recorder.operations[-1].measured_peak_bytes / nbytes
        seen.append((peak, made.count_rows(), made._live().staged_bytes))
        made.release()
    return seen


@pytest.mark.parametrize("verb", ["drop_duplicates", "standing once", "groupby", "difference", "union"])
def test_a_result_that_is_to_be_held_is_not_evicted_for_work(verb: str) -> None:
    limits = (1.4, 1.6, 2.6, 3, 4)
    for seen in World("threads", 2).run(held_or_refused, verb, limits):
        for limit, (peak, rows, staged) in zip(limits, seen, strict=True):
            assert peak <= limit and not staged
            assert rows == (40_400 if verb == "union" else 40_000)
