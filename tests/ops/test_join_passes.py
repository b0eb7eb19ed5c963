"""Joins in several passes: in memory beside their tables, where both sides at once do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import worlds
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from joins import HOWS, answer, check, frames, join
from worlds import World, in_turn

import gcylon_lab as gl
from gcylon_lab.backends.protocol.join_columns import JoinSpec
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.exchange.buckets import BucketRoute
from gcylon_lab.errors import ArgumentError, BudgetExceeded
from gcylon_lab.memory.budget import exceeded
from gcylon_lab.operators.join.distribution import JoinDistribution
from gcylon_lab.operators.join.passes import JoinCosts, JoinSizes, join_memory, peaks_of, plan_passes
from gcylon_lab.runtime.context import current

TWO = World("threads", 2)
LIMITS_OF_CPUS = pytest.mark.cpu_alone(
    "a limit that asks for passes is one that CPU engines need; random budgets, and tests/gpu, have GPU ranks"
)
Frames = list[pd.DataFrame]


def numbers(size: int, rows: int, keys: int, seed: int = 0, hot: float = 0.0) -> tuple[Frames, Frames]:
    """Both sides of numbers; ``hot`` is the share of the left side's rows with one key."""
    rng = np.random.default_rng(seed)
    lefts, rights = [], []
    for _ in range(size):
        k = np.where(rng.random(rows) < hot, 7, rng.integers(0, keys, rows))
        lefts.append(pd.DataFrame({"k": k, **{name: rng.random(rows) for name in "abc"}}))
        rights.append(pd.DataFrame({"k": rng.integers(0, keys, rows), "z": rng.random(rows)}))
    return lefts, rights


def limited(sides: tuple[Frames, Frames], factor: float, **more: Any) -> GcylonConfig:
    """A budget of so many times the rank with most rows has."""
    here = max(sum(int(f.memory_usage(index=False).sum()) for f in pair) for pair in zip(*sides, strict=True))
    return GcylonConfig(gpu_memory_limit=int(factor * here), min_chunk_rows=64, **more)


def joined(lefts: Frames, rights: Frames, arguments: dict[str, Any], *more: Any, **named: Any) -> dict[str, Any]:
    """As `join`, with the plan before, and what was staged."""
    found = join(lefts, rights, arguments, *more, **named)
    record = current().recorder.operations[-1]
    return found | {"staged": record.staged_bytes, "rounds": record.rounds_done}


def planned(lefts: Frames, rights: Frames, how: str, config: GcylonConfig) -> tuple[Any, Any, list[float], int]:
    context = current()
    left, right = gl.from_local(lefts[context.rank]), gl.from_local(rights[context.rank])
    before = left.plan_join(right, how, "k", config=config)
    after = left.join(right, how, "k", config=config).last_plan
    record = context.recorder.operations[-1]
    predicted = (before.predicted_peaks[context.rank], record.predicted_peak_bytes)
    return before, after, [peak / record.measured_peak_bytes for peak in predicted], record.staged_bytes


CASES: list[Any] = [*in_turn([World("single", 1), TWO, World("threads", 3)], HOWS)]
CASES += [pytest.param(World("mpi", 2), how, marks=pytest.mark.mpi) for how in ("outer", "semi")]


@pytest.mark.parametrize(("world", "how"), CASES, ids=str)
def test_passes_stay_in_memory_and_give_all_rows(world: World, how: str) -> None:
    sides = numbers(world.size, 6000, 6000)
    indicated = {"indicator": True} if how in HOWS[:4] else {}
    arguments = {"how": how, "on": "k", **indicated}
    config = limited(sides, 4.0, allow_cpu_staging=False)
    results = world.run(joined, *sides, arguments, "auto", config)
    check(results, answer(*sides, **arguments))
    # On GPU ranks a filter makes no pairs, and one rank alone copies no rows: so both sides fit at once.
    at_once = worlds.ENGINE == "gpu" and (how in ("semi", "anti") or world.size == 1)
    for result in results:
        assert at_once or (" passes, " in result["explain"] and result["record"]["strategy"] == "chunked")
        assert result["staged"] == 0 and result["tiers"]["disk"] == 0


@pytest.mark.parametrize("how", HOWS)
def test_passes_of_every_kind_of_column(how: str) -> None:
    sides = frames("even", 2, rows=1500)
    lefts = [frame.assign(k=np.arange(len(frame)) * 2 + rank) for rank, frame in enumerate(sides[0])]
    rights = [frame.assign(k=np.arange(len(frame)) * 3 + rank) for rank, frame in enumerate(sides[1])]
    config = limited((lefts, rights), 3.5)
    results = TWO.run(joined, lefts, rights, {"how": how, "on": ["k", "s"]}, "auto", config)
    check(results, answer(lefts, rights, how=how, on=["k", "s"]))
    # On GPU ranks both sides fit at once, unless rows of the right one that have met none are looked for.
    at_once = worlds.ENGINE == "gpu" and how not in ("right", "outer")
    assert at_once or all(" passes, " in result["explain"] for result in results)


@LIMITS_OF_CPUS
@pytest.mark.parametrize("before", [(["k"], ["k"]), (["k"], None), (None, ["k"])], ids=str)
def test_passes_of_sides_that_are_spread_by_the_keys(before: Any) -> None:
    """What becomes of a row does not depend on how it came to its rank."""
    sides = numbers(3, 5000, 20_000)
    results = World("threads", 3).run(
        joined, *sides, {"how": "outer", "on": "k"}, "auto", limited(sides, 3.5), False, before
    )
    check(results, answer(*sides, how="outer", on="k"))
    once = World("threads", 3).run(join, *sides, {"how": "outer", "on": "k"}, "direct", None, False, before)
    for one, other in zip(results, once, strict=True):
        assert " passes, " in one["explain"] and one["staged"] == 0
        assert one["partitioning"] == other["partitioning"]
        assert sorted(one["frame"]["k"]) == sorted(other["frame"]["k"])  # on the same rank


@LIMITS_OF_CPUS
@pytest.mark.parametrize("how", ["inner", "left", "outer", "semi"])
def test_the_plan_says_passes_and_the_peak(how: str) -> None:
    sides = numbers(2, 40_000, 10**9)
    for side in sides:  # as many pairs as the plan assumes: each key once on either side
        for rank, frame in enumerate(side):
            frame["k"] = np.random.default_rng(rank).permutation(40_000) * 2 + rank
    for factor in (6.0, 3.0, 2.2):
        for before, after, ratios, staged in TWO.run(planned, *sides, how, limited(sides, factor)):
            assert before.strategy == after.strategy == "chunked"
            assert before.passes > 1 and abs(before.passes - after.passes) <= 1 + after.passes // 8
            assert before.reason == after.reason and f"{after.passes} passes" in after.describe()
            assert all(0.9 <= ratio <= 1.1 for ratio in ratios), ratios
            assert not staged


@LIMITS_OF_CPUS
@pytest.mark.parametrize(
    ("size", "hot", "factor", "how"), [(2, 0.7, 6.0, "inner"), (3, 0.6, 5.0, "anti"), (3, 0.7, 8.0, "left")]
)
def test_the_peak_of_passes_with_a_hot_key_is_foreseen(size: int, hot: float, factor: float, how: str) -> None:
    """Ranks that send its rows, and get few, need memory for copies of them; of few rows ordering takes more each."""
    sides = numbers(size, 9000, 10**9, seed=size, hot=hot)
    for left, right in zip(*sides, strict=True):
        del left["b"], left["c"]
        right["k"] = left["k"].where(left["k"] != 7, right["k"])
    for _, after, ratios, staged in World("threads", size).run(planned, *sides, how, limited(sides, factor)):
        assert after.passes > 1 and not staged
        assert 0.9 <= ratios[1] <= 1.1, ratios


def test_what_is_brought_to_other_dtypes_at_the_end_stays_in_memory() -> None:
    """Rows of earlier passes have whole numbers where a later one tells that some are missing."""
    sides = numbers(1, 20_000, 10)
    for place, side in enumerate(sides):  # a tenth of the keys has no partner
        number = np.arange(20_000)
        side[0] = side[0].assign(k=number * 7919 % 10**9 + place * (number % 10 == 0), w=number)
    for how in ("right", "outer"):
        (result,) = World("single", 1).run(joined, *sides, {"how": how, "on": "k"}, "auto", limited(sides, 2.3))
        check([result], answer(*sides, how=how, on="k"))
        assert " passes, " in result["explain"] and result["record"]["strategy"] == "chunked"
        assert not result["staged"]


def dear(lefts: Frames, rights: Frames, config: GcylonConfig, strategy: str) -> tuple[Any, Any, int]:
    context = current()
    left, right = gl.from_local(lefts[context.rank]), gl.from_local(rights[context.rank])
    before = left.plan_join(right, "inner", "k", config=config, strategy=strategy)
    after = left.join(right, "inner", "k", config=config, strategy=strategy).last_plan
    return before, after, context.recorder.operations[-1].staged_bytes


@LIMITS_OF_CPUS
def test_many_passes_give_way_to_staging_unless_they_are_asked_for() -> None:
    """Each pass looks at all rows: near twice the input, where most of the memory is the result's, there are many."""
    sides = numbers(2, 20_000, 10**9)
    for side in sides:
        for rank, frame in enumerate(side):
            frame["k"] = np.random.default_rng(rank).permutation(20_000) * 2 + rank
    for before, after, staged in TWO.run(dear, *sides, limited(sides, 2.0), "auto"):
        assert before.strategy == after.strategy == "staged" and staged
        assert before.notes[1] == after.notes[1]
        assert "19 passes would fit into memory, but each looks at 40,000 rows: about 1.67 ms in all" in after.notes[1]
        assert "and staging 2.59 MiB about 1.36 ms" in after.notes[1]
    for config, strategy in (
        (limited(sides, 2.0), "chunked"),
        (limited(sides, 2.0, allow_disk_spill=False), "auto"),
        (limited(sides, 2.5), "auto"),
    ):
        for before, after, staged in TWO.run(dear, *sides, config, strategy):
            assert before.strategy == after.strategy == "chunked" and not staged
            assert before.passes > 1 and after.passes > 1 and len(after.notes) == 1


def test_a_key_with_most_rows_is_staged() -> None:
    """No bucket is smaller than that key's rows: what does not fit goes the staged way, inside the budget."""
    sides = numbers(2, 20_000, 4000, hot=0.9)
    sides[1][:] = [frame.drop_duplicates("k") for frame in sides[1]]
    results = TWO.run(joined, *sides, {"how": "left", "on": "k"}, "auto", limited(sides, 3.0))
    check(results, answer(*sides, how="left", on="k"))
    assert any(result["staged"] for result in results)
    assert len({result["record"]["strategy"] for result in results}) == 1


@LIMITS_OF_CPUS
def test_more_pairs_than_foreseen_are_staged() -> None:
    """The first pass tells: what is left does not fit any more."""
    sides = numbers(2, 4000, 700)
    results = TWO.run(joined, *sides, {"how": "inner", "on": "k"}, "auto", limited(sides, 5.0))
    check(results, answer(*sides, how="inner", on="k"))
    assert "fitted into memory, and what was left did not" in results[0]["explain"]
    assert all(result["record"]["strategy"] == "staged" for result in results)
    refused = TWO.outcomes(joined, *sides, {"how": "inner", "on": "k"}, "chunked", limited(sides, 5.0))
    assert all(isinstance(outcome.error, BudgetExceeded) for outcome in refused)


@pytest.mark.parametrize(("how", "empty"), [("left", 1), ("right", 0)])
def test_rows_that_meet_nobody_are_staged_where_they_do_not_fit(how: str, empty: int) -> None:
    """There is no first piece to foresee the result by: it is made, and staged, before the plan asks for its size."""
    sides = numbers(2, 3000, 10**9)
    sides[empty][:] = [frame[:0] for frame in sides[empty]]
    results = TWO.run(joined, *sides, {"how": how, "on": "k"}, "auto", limited(sides, 0.9))
    check(results, answer(*sides, how=how, on="k"))
    assert all(result["record"]["strategy"] == "staged" for result in results)


@LIMITS_OF_CPUS
def test_validate_looks_at_every_pass() -> None:
    sides = numbers(2, 6000, 10**9)
    twice = [sides[1][0], pd.concat([sides[1][1], sides[1][0][:1]], ignore_index=True)]
    config = limited(sides, 4.0)
    arguments = {"how": "left", "on": "k", "validate": "1:1"}
    results = TWO.run(joined, *sides, arguments, "auto", config)
    assert all(" passes, " in result["explain"] for result in results)
    check(results, answer(*sides, **arguments))
    for outcome in TWO.outcomes(joined, sides[0], twice, arguments, "auto", config):
        assert isinstance(outcome.error, ArgumentError) and outcome.error.numbers["repeated_rows"] == 1


def failing(lefts: Frames, rights: Frames, config: GcylonConfig) -> tuple[str, int, int]:
    """The error of a join, and what was in use before and after it."""
    context, text = current(), ""
    left, right = gl.from_local(lefts[context.rank]), gl.from_local(rights[context.rank])
    used = context.budget.used_bytes + context.spill.used_bytes
    try:
        left.join(right, on="k", config=config).release()
    except gl.GcylonError as error:
        text = str(error.with_traceback(None))
    return text, used, context.budget.used_bytes + context.spill.used_bytes


def raising(monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    """Let rank 1 fail to choose its rows of passes after the first."""
    choose = BucketRoute.split

    def split(self: Any, workspace: Any, piece: Any, first_row: int) -> Any:
        if workspace.transport.rank == 1 and self._first and self._last < self._buckets:
            raise error()
        return choose(self, workspace, piece, first_row)

    monkeypatch.setattr(BucketRoute, "split", split)


def test_an_error_in_a_pass_reaches_all_ranks_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, lambda: OSError("no such row"))
    sides = numbers(2, 6000, 6000)
    for text, used, after in TWO.run(failing, *sides, limited(sides, 3.0)):
        assert "no such row" in text and after == used


def test_a_rank_without_memory_for_a_pass_lets_all_stage_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = numbers(2, 6000, 10**9)  # of a left join as many rows as were estimated
    results = TWO.run(joined, *sides, {"how": "left", "on": "k"}, "auto", limited(sides, 3.0))
    assert all(" passes, " in result["explain"] and not result["staged"] for result in results)
    raising(monkeypatch, lambda: exceeded("Rows of a pass", 1000, 0, 100))
    results = TWO.run(joined, *sides, {"how": "left", "on": "k"}, "auto", limited(sides, 3.0))
    check(results, answer(*sides, how="left", on="k"))
    assert all("1 passes fitted" in result["explain"] for result in results)
    assert any(result["staged"] for result in results)
    for text, used, after in TWO.run(failing, *sides, limited(sides, 3.0, allow_cpu_staging=False)):
        assert "Rows of a pass" in text and after == used


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    return {
        "size": draw(st.sampled_from([1, 2, 3])),
        "rows": draw(st.integers(0, 3000)),
        "keys": draw(st.sampled_from([3, 300, 3000, 10**6])),
        "seed": draw(st.integers(0, 2**16)),
        "hot": draw(st.sampled_from([0.0, 0.0, 0.5, 0.95])),
        "factor": draw(st.sampled_from([1.7, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0])),
        "how": draw(st.sampled_from(HOWS)),
        "stages": draw(st.booleans()),
    }


# A piece that was looked up in the index left no byte for a row of the result.
NOTHING_LEFT = {
    "size": 3, "rows": 144, "keys": 3, "seed": 2, "hot": 0.95, "factor": 1.7, "how": "inner", "stages": True,
    "least": 16384,
}  # fmt: skip


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(case=cases())
@example(case=NOTHING_LEFT)
@example(case=NOTHING_LEFT | {"rows": 140, "keys": 300, "seed": 0})  # nor for a chunk to be read back beside it
@example(case=NOTHING_LEFT | {"size": 4, "keys": 300, "seed": 120, "hot": 0.5, "factor": 0.5, "how": "left"})
def test_random_budgets(case: dict[str, Any]) -> None:
    """Whatever fits or not: all rows, inside the budget; without staging, or all ranks say alike that it does not."""
    sides = numbers(case["size"], case["rows"], case["keys"], case["seed"], case["hot"])
    if case["keys"] < 3000:  # not millions of pairs
        sides[1][:] = [frame[:30] for frame in sides[1]]
    world, arguments = World("threads", case["size"]), {"how": case["how"], "on": "k"}
    least = case.get("least", 32768)  # below it chunks are larger than what is free beside an index
    config = limited((sides[0], sides[1]), case["factor"], allow_cpu_staging=case["stages"])
    config = replace(config, gpu_memory_limit=max(int(config.gpu_memory_limit), least))
    outcomes = world.outcomes(joined, *sides, arguments, "auto", config)
    if not case["stages"] and all(isinstance(outcome.error, BudgetExceeded) for outcome in outcomes):
        return
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    check([outcome.value for outcome in outcomes], answer(*sides, **arguments))


def test_the_limit_that_a_refused_join_advises_does() -> None:
    """Chunks are shares of the limit: a little more of it, and they take a little more too."""
    sides = numbers(4, 144, 3000, 249)
    for frame in (*sides[0], *sides[1]):
        frame[f"s{frame.shape[1]}"] = ["t" * (row % 23) for row in range(len(frame))]
    world, arguments, limit = World("threads", 4), {"how": "semi", "on": "k"}, 12_282
    refused = world.outcomes(joined, *sides, arguments, "auto", GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=64))
    assert all(isinstance(outcome.error, BudgetExceeded) for outcome in refused)
    error = refused[0].error
    assert isinstance(error, BudgetExceeded) and str(error.numbers["would_do"]) in error.advice
    config = GcylonConfig(gpu_memory_limit=error.numbers["would_do"], min_chunk_rows=64)
    check(world.run(joined, *sides, arguments, "auto", config), answer(*sides, **arguments))


# ---- planning alone


def sizes_of(*results: float, received: float = 10.0) -> JoinSizes:
    rows = np.full((len(results), 2), received)
    none = np.zeros((len(results), 2, 2))
    return JoinSizes(rows, rows / 10, rows / 10, np.array([results, results]).T, none, none[0, :, :1])


COSTS = JoinCosts(1.0, 1.0, 1.0, 1.0, 1, 1)


def test_passes_follow_each_other_and_keep_the_limit() -> None:
    limits = np.array([300.0, 260.0])
    sizes = sizes_of(*[10.0] * 16)
    passes = plan_passes(sizes, COSTS, np.zeros(2), limits)
    assert passes is not None and len(passes) > 1
    assert [one.first for one in passes[1:]] == [one.last for one in passes[:-1]] and passes[-1].last == 16
    assert (peaks_of(sizes, COSTS, limits, passes) <= limits).all()
    lengths = [one.last - one.first for one in passes]
    assert lengths == sorted(lengths, reverse=True)  # the result takes the memory of later ones
    rest = plan_passes(sizes_of(*[10.0] * 16), COSTS, np.full(2, 160.0 - 30), limits, 13)
    assert rest is not None and rest[0].first == 13


def test_one_bucket_that_does_not_fit_is_told() -> None:
    limits = np.array([300.0, 300.0])
    assert plan_passes(sizes_of(*[10.0] * 9), COSTS, np.zeros(2), limits) is not None
    assert plan_passes(sizes_of(*[10.0] * 4, 400.0, *[10.0] * 4), COSTS, np.zeros(2), limits) is None
    assert plan_passes(sizes_of(*[40.0] * 9), COSTS, np.zeros(2), limits) is None  # the result alone does not


@pytest.mark.parametrize(("on_gpu", "chunks", "at_once"), [(True, 8, False), (True, 1, True), (False, 8, True)])
def test_chunks_that_would_be_joined_to_be_indexed_are_counted(on_gpu: bool, chunks: int, at_once: bool) -> None:
    """On GPUs: of one rank with 4 GB, and 2 GB to be indexed, in 16 GB; the result takes 5 GB."""
    rows, gb = 125_000_000, 10**9
    costs = JoinCosts(16.0, 13.0, 16.0, 40.0, 10**7, gb // 2, hashes_anew=on_gpu)
    apart = (4 * gb, 2 * gb) if chunks > 1 else (0, 0)
    sizes = np.array([[4 * gb, rows, 2 * gb, rows, 16 * gb, 6 * gb, 0, 0, *apart]], np.int64)
    spec = JoinSpec("inner", ("k",), ("k",))
    meeting = JoinDistribution("local", (), ("k",), ("k",), "one rank has all rows")
    memory = join_memory(spec, meeting, "right", sizes, costs, "auto")
    assert (memory.passes == 1) is at_once and memory.passes >= 1
    assert (memory.peaks <= 16 * gb).all()
