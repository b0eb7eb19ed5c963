"""union, intersect, difference on every world, with every strategy, as SQL has them: rows counted in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joins import LAYOUTS, frames, rows, whole
from relations import FEW, PLANS, THREADS, TIGHT
from sets import VERBS, check_sets, counted, set_verb, two
from test_random_joins import KINDS, column
from worlds import World, in_turn

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import (
    ArgumentError,
    BudgetExceeded,
    ColumnMissing,
    SchemaMismatch,
    UnsupportedDtype,
)
from gcylon_lab.runtime.context import current

COLUMNS = ["k", "s", "f", "b", "m", "t", "c"]


def tables(layout: str, size: int, rows_: int = 120) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Two tables of every kind of column, in which rows stand several times; the second has another column order."""
    made = []
    for frame_list, repeat in zip(frames(layout, size, rows_), (2, 3), strict=True):
        made.append([frame.drop(columns="w", errors="ignore") for frame in frame_list for _ in range(1)])
        made[-1] = [pd.concat([frame] * repeat, ignore_index=True) if len(frame) else frame for frame in made[-1]]
    lefts, rights = made
    names = ["k", "s", "f", "b"]
    return [left[names] for left in lefts], [right[names[::-1]] for right in rights]


@pytest.mark.parametrize(("world", "verb", "layout"), in_turn(THREADS, VERBS, LAYOUTS), ids=str)
def test_rows_are_counted_as_sql_does(world: World, verb: str, layout: str) -> None:
    lefts, rights = tables(layout, world.size)
    for every in (False, True):
        # Of the plans every second in turn: all meet each verb, and rows that are counted and that are not.
        plans = PLANS[(every + VERBS.index(verb)) % 2 :: 2] if layout in ("even", "one key") else PLANS[-1:]
        for strategy, config in plans:
            how = {"all": every, "strategy": strategy}
            results = world.run(set_verb, lefts, rights, verb, how, config)
            check_sets(results, counted(verb, every, lefts, rights))
            assert all(result["verb"] == verb for result in results)


@pytest.mark.parametrize("world", FEW[2:], ids=str)
@pytest.mark.parametrize("verb", VERBS)
def test_staged_inputs_on_mpi(world: World, verb: str) -> None:
    lefts, rights = tables("even", world.size)
    for every in (False, True):
        results = world.run(set_verb, lefts, rights, verb, {"all": every}, TIGHT, True)
        check_sets(results, counted(verb, every, lefts, rights))


@pytest.mark.parametrize("before", [(["k"], ["k"]), (["k"], None), (None, ["s", "k"]), (["k"], ["s"])], ids=str)
def test_what_is_together_is_not_shuffled(before: Any) -> None:
    world = World("threads", 3)
    lefts, rights = tables("even", world.size)
    for verb, every in (("union", False), ("intersect", True), ("difference", False)):
        results = world.run(set_verb, lefts, rights, verb, {"all": every}, None, False, before)
        check_sets(results, counted(verb, every, lefts, rights))
        spread = results[0]["partitioning"]
        if before == (["k"], ["k"]):
            assert all(result["sent"] == 0 and "not shuffled" in result["explained"] for result in results)
        else:
            assert "is partitioned by" in results[0]["explained"]
        homes = [set(result["frame"][list(spread.keys)].itertuples(index=False, name=None)) for result in results]
        homes = [{key for key in home if all(value == value for value in key)} for home in homes]
        assert sum(map(len, homes)) == len(set().union(*homes))  # each key is on one rank, as is remembered


def test_dtypes_are_brought_together() -> None:
    left = pd.DataFrame(
        {"i": np.array([1, 2, 3], np.int8), "f": np.array([1, 2, 3]), "c": pd.Categorical(["a", "b", "a"])}
    )
    right = pd.DataFrame({"i": [3, 2**40, 1], "f": [3.0, 0.5, np.nan], "c": pd.Categorical(["a", "z", None])})
    world = World("threads", 2)
    for verb in VERBS:
        lefts, rights = [left, left[:0]], [right[:0], right]
        results = world.run(set_verb, lefts, rights, verb, {"all": True})
        check_sets(results, counted(verb, True, lefts, rights))
        for result in results:
            assert list(map(str, result["frame"].dtypes)) == ["int64", "float64", "category"]
            assert list(result["frame"]["c"].cat.categories) == ["a", "b", "z"]


@pytest.mark.parametrize("dtype", ["numpy", "arrow"])
def test_times_of_different_zones_are_instants(dtype: str) -> None:
    times = pd.Series(pd.date_range("2024-03-31", periods=40, freq="h", tz="UTC").as_unit("us"))
    left = pd.DataFrame({"t": times[:30].dt.tz_convert("Europe/Berlin"), "k": 1})
    right = pd.DataFrame({"t": times[20:].dt.tz_convert("Asia/Tokyo").dt.as_unit("ns"), "k": 1})
    same = right.assign(t=right["t"].dt.tz_convert("Europe/Berlin"))
    if dtype == "arrow":
        left, right = (f.astype({"t": pd.ArrowDtype(pa.timestamp("us", f["t"].dt.tz.key))}) for f in (left, right))
    for verb in VERBS:
        for every in (False, True):
            results = World("threads", 2).run(
                set_verb, [left[:11], left[11:]], [right[:0], right], verb, {"all": every}
            )
            for result in results:
                assert result["frame"]["t"].dt.tz.key == "Europe/Berlin"
                result["frame"] = result["frame"].assign(t=result["frame"]["t"].astype("datetime64[ns, UTC]"))
            plain = [f.assign(t=f["t"].astype("datetime64[ns, UTC]")) for f in (left, same)]
            check_sets(results, counted(verb, every, [plain[0]], [plain[1]]))
    for ordered in (True, False):
        how = {"ordered": ordered, "check_dtype": False}
        moved = left.assign(t=left["t"].dt.tz_convert("America/Chicago"))
        found = World("threads", 2).run(set_verb, [left[:7], left[7:]], [moved, moved[:0]], "equals", how)
        assert [one["value"] for one in found] == [True, True]


@pytest.mark.parametrize(
    ("left", "right", "error", "words"),
    [
        (
            {"k": [1]},
            {"k": ["a"]},
            SchemaMismatch,
            "'k' cannot be brought to one dtype: int64 in this table; str in the",
        ),
        ({"k": [1]}, {"j": [1]}, ColumnMissing, "The other table has no column 'k', which this table has"),
        ({"k": [1]}, {"k": [1], "j": [1]}, ColumnMissing, "This table has no column 'j', which the other table has"),
        ({"k": [1], "l": [[1]]}, {"k": [1], "l": [[1]]}, UnsupportedDtype, "'l'"),
        ({"t": pd.to_datetime(["2020"])}, {"t": pd.to_datetime(["2020"], utc=True)}, SchemaMismatch, "'t'"),
        ({"k": [2**53 + 1]}, {"k": [0.5]}, SchemaMismatch, "9007199254740993"),
        ({}, {}, ArgumentError, "There are no columns"),
    ],
    ids=["kinds", "columns", "more columns", "lists", "zones", "values", "none"],
)
def test_what_cannot_be_is_refused_on_all_ranks(left: Any, right: Any, error: type, words: str) -> None:
    for verb in VERBS:
        for outcome in World("threads", 2).outcomes(
            set_verb, [pd.DataFrame(left)] * 2, [pd.DataFrame(right)] * 2, verb, {}
        ):
            assert isinstance(outcome.error, error), outcome.error
            assert words in str(outcome.error)


def with_no_table(verb: str) -> None:
    table = gl.from_local(pd.DataFrame({"k": [1, 2]}))
    for other, how, words in (
        (None, {}, "Expected another table for"),
        (table, {"all": 1}, "all=1 is invalid. Expected True or False"),
    ):
        with pytest.raises(ArgumentError, match=words):
            getattr(table, verb)(other, **how)
    assert table.union(table).count_rows() == 2


@pytest.mark.parametrize("verb", VERBS)
def test_arguments_are_checked_on_all_ranks(verb: str) -> None:
    World("threads", 2).run(with_no_table, verb)


def repeated_a_lot(times: int, limit: str) -> tuple[int, int, int]:
    """One row that stands in each table so often: the result is made block by block."""
    context = current()
    config = GcylonConfig(gpu_memory_limit=limit)
    frame = pd.DataFrame({"k": np.zeros(times, np.int64), "s": pd.Series(["text"] * times, dtype="str")})
    left, right = two([frame] * context.size, [frame[: times // 2]] * context.size, True)
    result = left.difference(right, all=True, config=config)
    record = context.recorder.operations[-1]
    return result.count_rows(), record.measured_peak_bytes, context.workspace.limit_for(config)


def test_many_equal_rows_are_made_block_by_block() -> None:
    for count, peak, limit in World("threads", 2).run(repeated_a_lot, 60_000, "256 KiB"):
        assert count == 60_000 and peak <= limit


def without_staging() -> Any:
    config = GcylonConfig(gpu_memory_limit="64 KiB", allow_cpu_staging=False)
    frame = pd.DataFrame({"k": np.arange(6000), "j": np.arange(6000)})
    left, right = two([frame] * 2, [frame] * 2)
    used = current().budget.used_bytes
    with pytest.raises(BudgetExceeded):
        left.intersect(right, config=config)
    assert current().budget.used_bytes == used
    return left.intersect(right).count_rows()


def test_what_does_not_fit_is_an_error_and_inputs_stay() -> None:
    assert World("threads", 2).run(without_staging) == [6000, 6000]


@st.composite
def sides(draw: Any, size: int) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    made = []
    for _ in range(2):
        count = draw(st.integers(0, 40))
        frame = pd.DataFrame({f"k{place}": column(draw, kind, count) for place, kind in enumerate(kinds)})
        cuts = sorted(draw(st.lists(st.integers(0, count), min_size=size - 1, max_size=size - 1)))
        edges = [0, *cuts, count]
        made.append([frame.iloc[a:b].reset_index(drop=True) for a, b in zip(edges[:-1], edges[1:], strict=True)])
    return made[0], made[1]


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    data=st.data(),
    size=st.sampled_from([1, 2, 3]),
    verb=st.sampled_from([*VERBS, "equals"]),
    every=st.booleans(),
    plan=st.sampled_from([("auto", False), ("staged", True), ("auto", True), ("chunked", True), ("direct", False)]),
    staged=st.booleans(),
)
def test_random_tables(data: Any, size: int, verb: str, every: bool, plan: tuple[str, bool], staged: bool) -> None:
    lefts, rights = data.draw(sides(size))
    strategy, tight = plan
    config = GcylonConfig(gpu_memory_limit="64 KiB", chunk_size_bytes=1024, min_chunk_rows=1) if tight else None
    world = World("threads", size)
    if verb == "equals":
        same = data.draw(st.booleans())  # the same rows cut in another way, or others
        rights = rights if not same else [whole(lefts[::-1])] + [lefts[0][:0]] * (size - 1)
        found = world.run(set_verb, lefts, rights, "equals", {"ordered": False}, config, staged)
        expected = rows(whole(lefts)) == rows(whole(rights))
        assert [one["value"] for one in found] == [expected] * size
        return
    results = world.run(set_verb, lefts, rights, verb, {"all": every, "strategy": strategy}, config, staged)
    check_sets(results, counted(verb, every, lefts, rights))
