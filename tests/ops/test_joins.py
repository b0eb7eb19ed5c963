"""Every kind of join, strategy and layout, on every world: the rows and dtypes that pandas gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from joins import HOWS, LAYOUTS, answer, check, failing, frames, join, rows, whole
from unlike_keys import REFUSED, UNLIKE, equal
from worlds import World

from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import (
    ArgumentError,
    BudgetExceeded,
    ColumnMissing,
    DuplicateColumns,
    RanksDisagree,
    SchemaMismatch,
    UnsupportedDtype,
)

TIGHT = GcylonConfig(gpu_memory_limit="200 KiB", chunk_size_bytes=4096, min_chunk_rows=1)
PLANS = [("auto", None), ("direct", None), ("chunked", None), ("staged", TIGHT)]
IDS = ["auto", "direct", "chunked", "staged"]
TWO = World("threads", 2)


def everywhere() -> list:
    cases = []
    for world in (World("single", 1), World("threads", 2), World("threads", 4)):
        cases += [(world, layout, *plan) for layout in LAYOUTS for plan in (PLANS[0], PLANS[3])]
    for world in (World("threads", 1), World("threads", 3), World("mpi", 2)):
        cases += [(world, layout, *plan) for layout in LAYOUTS[:2] for plan in PLANS]
    # Of the kinds of join every third in turn: all meet every world, layout and strategy, but not every combination.
    return [
        pytest.param(
            *case,
            how,
            marks=[pytest.mark.mpi] if case[0].kind == "mpi" else [],
            id="-".join(map(str, [*case[:3], how])),
        )
        for i, case in enumerate(cases)
        for j, how in enumerate(HOWS)
        if (i + j) % 3 == 0
    ]


@pytest.mark.parametrize(("world", "layout", "strategy", "config", "how"), everywhere())
def test_join(world: World, layout: str, strategy: str, config: GcylonConfig | None, how: str) -> None:
    sides = frames(layout, world.size)
    results = world.run(join, *sides, {"how": how, "on": "k"}, strategy, config)
    check(results, answer(*sides, how=how, on="k"))
    if strategy == "staged":
        assert all(result["tiers"]["device"] == 0 for result in results)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", [["s"], ["f"], ["k", "s", "f"], ["f", "k"]], ids="-".join)
@pytest.mark.parametrize("world", [World("single", 1), World("threads", 3)], ids=str)
def test_keys_with_missing_values(world: World, on: list[str], how: str) -> None:
    """None, NaN and -0.0 among keys: missing ones match each other, and -0.0 is 0.0."""
    sides = frames("even", world.size, rows=60)
    check(world.run(join, *sides, {"how": how, "on": on}), answer(*sides, how=how, on=on))


@pytest.mark.parametrize("how", [*HOWS[:4]])
@pytest.mark.parametrize("strategy", ["auto", "staged"])
def test_different_names_suffixes_and_indicator(how: str, strategy: str) -> None:
    lefts, rights = frames("even", 2)
    rights = [frame.rename(columns={"k": "q"}) for frame in rights]
    arguments: dict[str, Any] = {
        "how": how, "left_on": ["k", "s"], "right_on": ["q", "s"], "suffixes": ("_l", None), "indicator": "from",
    }  # fmt: skip
    check(TWO.run(join, lefts, rights, arguments, strategy), answer(lefts, rights, **arguments))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("world", [World("threads", 3), pytest.param(World("mpi", 2), marks=pytest.mark.mpi)], ids=str)
def test_staged_inputs(world: World, how: str) -> None:
    sides = frames("even", world.size)
    results = world.run(join, *sides, {"how": how, "on": "k"}, "auto", TIGHT, True)
    check(results, answer(*sides, how=how, on="k"))


@pytest.mark.parametrize("strategy", ["auto", "staged"])
def test_cross(strategy: str) -> None:
    for layout in ("even", "left empty", "right empty", "all empty"):
        sides = frames(layout, 3, rows=20)
        results = World("threads", 3).run(join, *sides, {"how": "cross", "indicator": True}, strategy)
        check(results, answer(*sides, how="cross", indicator=True))


def numbers(rng: np.random.Generator, n: int, keys: int) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    def side(names: list[str]) -> list[pd.DataFrame]:
        made = [
            pd.DataFrame({"k": rng.integers(0, keys, n)} | {name: rng.random(n) for name in names}) for _ in range(2)
        ]
        return made

    return side(["x", "y"]), side(["z"])


@pytest.mark.parametrize("how", ["inner", "outer", "semi"])
def test_a_budget_of_a_tenth_of_the_input(how: str) -> None:
    """Neither side, nor the result, nor an index of a side fits: buckets, staged."""
    sides = numbers(np.random.default_rng(1), 60_000, 50_000)
    tenth = sum(int(f.memory_usage(index=False).sum()) for part in sides for f in part) // 2 // 10
    config = GcylonConfig(gpu_memory_limit=tenth)
    results = TWO.run(join, *sides, {"how": how, "on": "k"}, "auto", config)
    check(results, answer(*sides, how=how, on="k"))
    assert all(result["record"]["strategy"] == "staged" for result in results)
    assert "buckets" in results[0]["explain"]


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_an_output_larger_than_the_budget(how: str) -> None:
    lefts, rights = numbers(np.random.default_rng(2), 2_000, 20)
    config = GcylonConfig(gpu_memory_limit="1 MiB")
    expected = answer(lefts, rights, how=how, on="k")
    assert expected.memory_usage(index=False).sum() > 5 * 2**20
    results = TWO.run(join, lefts, rights, {"how": how, "on": "k"}, "auto", config)
    check(results, expected)
    outcomes = TWO.outcomes(join, lefts, rights, {"how": how, "on": "k"}, "direct", config)
    assert all(isinstance(outcome.error, BudgetExceeded) for outcome in outcomes)
    assert len({str(outcome.error) for outcome in outcomes}) == 1


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("build", ["left", "right"])
def test_a_key_that_no_bucket_can_split(how: str, build: str) -> None:
    """Nine tenths of the side that is indexed have one key: its rows are taken block by block."""
    rng = np.random.default_rng(3)
    n = 12_000
    k = np.where(rng.random(n) < 0.9, 7, rng.integers(0, 1000, n))
    one = [pd.DataFrame({"k": k[i::2], "x": np.arange(n)[i::2]}) for i in range(2)]
    few = np.concatenate((np.arange(500, 500 + n - 3), [7] * 3))
    wide = {f"y{place}": np.arange(n) for place in range(6)}
    other = [pd.DataFrame({"k": few, **wide})[i::2].reset_index(drop=True) for i in range(2)]
    sides = (one, other) if build == "left" else (other, one)
    config = GcylonConfig(gpu_memory_limit="256 KiB", min_chunk_rows=1)
    indicated = {"indicator": True} if how in HOWS[:4] else {}
    results = TWO.run(join, *sides, {"how": how, "on": "k", **indicated}, "auto", config)
    check(results, answer(*sides, how=how, on="k", **indicated))
    if how not in ("semi", "anti"):
        assert f"the indexed side ({build}) does not fit" in results[0]["explain"]


# ---- keys of unlike dtypes


@pytest.mark.parametrize("case", UNLIKE)
@pytest.mark.parametrize("how", ["inner", "left", "right"])
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize("size", [3])
def test_unlike_keys_are_compared_exactly(case: str, how: str, turned: bool, size: int) -> None:
    a, b, matching = UNLIKE[case]
    a, b = (b, a) if turned else (a, b)
    left = pd.DataFrame({"k": a}).assign(x=lambda f: np.arange(len(f)) * 1.5)
    right = pd.DataFrame({"k": b}).assign(y=lambda f: np.arange(len(f)) * 2.5)
    lefts = [left.iloc[rank::size].reset_index(drop=True) for rank in range(size)]
    rights = [right.iloc[::-1].iloc[rank::size].reset_index(drop=True) for rank in range(size)]
    results = World("threads", size).run(join, lefts, rights, {"how": how, "on": "k"})
    got = whole([result["frame"] for result in results])
    expected = {(i, j) for i, p in enumerate(left["k"]) for j, q in enumerate(right["k"]) if equal(p, q)}
    assert len(expected) == matching
    if how == "left":
        expected |= {(i, None) for i in range(len(left)) if i not in {pair[0] for pair in expected}}
    if how == "right":
        expected |= {(None, j) for j in range(len(right)) if j not in {pair[1] for pair in expected}}
    places = [
        (None if pd.isna(x) else round(x / 1.5), None if pd.isna(y) else round(y / 2.5))
        for x, y in zip(got["x"], got["y"], strict=True)
    ]
    assert sorted(places, key=str) == sorted(expected, key=str)
    for key, (i, j) in zip(got["k"], places, strict=True):
        assert equal(key, left["k"].iloc[i] if i is not None else right["k"].iloc[j])


@pytest.mark.parametrize("how", HOWS[:4])
def test_times_of_different_zones_meet_as_instants(how: str) -> None:
    times = pd.Series(pd.date_range("2024-03-31", periods=40, freq="h", tz="UTC").as_unit("us"))
    left = pd.DataFrame({"t": times[:30].dt.tz_convert("Europe/Berlin"), "x": range(30)})
    right = pd.DataFrame({"t": times[20:].dt.tz_convert("Asia/Tokyo").dt.as_unit("ms"), "y": range(20)})
    wanted = left.merge(right, on="t", how=how)
    results = TWO.run(join, [left[:11], left[11:]], [right[:0], right], {"on": "t", "how": how})
    zone = "Asia/Tokyo" if how == "right" else "Europe/Berlin"
    for result in results:
        assert result["frame"]["t"].dt.tz.key == zone
    utc = [f.assign(t=f["t"].astype("datetime64[ns, UTC]")) for f in (wanted, *(r["frame"] for r in results))]
    assert rows(pd.concat(utc[1:])) == rows(utc[0])


@pytest.mark.parametrize("case", REFUSED)
def test_keys_that_cannot_be_compared_are_an_error_on_every_rank(case: str) -> None:
    a, b = REFUSED[case]
    left, right = pd.DataFrame({"kay": a}), pd.DataFrame({"kay": b})
    for one, other in ((left, right), (right, left)):
        outcomes = TWO.outcomes(join, [one, one], [other, other], {"how": "outer", "on": "kay"})
        for outcome in outcomes:
            assert isinstance(outcome.error, SchemaMismatch)
            assert "'kay'" in str(outcome.error)


def test_keys_that_cannot_be_hashed_are_named() -> None:
    frame = pd.DataFrame({"k": pd.Series([[1], [2]], dtype=object)})
    for outcome in TWO.outcomes(join, [frame] * 2, [frame] * 2, {"how": "inner", "on": "k"}):
        assert isinstance(outcome.error, UnsupportedDtype)


def test_ints_that_float64_would_change_are_refused() -> None:
    left, right = pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [1], "big": [2**53 + 1]})
    for outcome in TWO.outcomes(join, [left] * 2, [right, right[:0]], {"how": "left", "on": "k"}):
        assert isinstance(outcome.error, SchemaMismatch)
        assert "'big'" in str(outcome.error) and str(2**53 + 1) in str(outcome.error)
    right = right.astype({"big": "Int64"})
    results = TWO.run(join, [left] * 2, [right, right[:0]], {"how": "left", "on": "k"})
    check(results, answer([left] * 2, [right, right[:0]], how="left", on="k"))


def test_ints_of_an_earlier_block_that_float64_would_change_are_refused() -> None:
    """The rows that lack the ints come after those that have them."""
    left = pd.DataFrame({"k": np.arange(100), "big": 2**53 + 1 + np.arange(100)})
    right = pd.DataFrame({"k": np.arange(95, 105)})
    for outcome in World("single", 1).outcomes(join, [left], [right], {"how": "outer", "on": "k"}):
        assert isinstance(outcome.error, SchemaMismatch)
        assert outcome.error.agreed  # by the join, not by whoever reads its result
        assert "'big'" in str(outcome.error)


def test_dtypes_do_not_depend_on_the_rank_that_lacks_a_row() -> None:
    """One rank's rows all have a partner, another's have not: ints are floats on both; where none lacks, ints stay."""
    left = pd.DataFrame({"k": np.arange(64), "a": np.arange(64)})
    for missing in (0, 1, 40):
        right = pd.DataFrame({"k": np.arange(missing, 64), "b": np.arange(missing, 64), "o": True})
        for how in ("left", "outer"):
            results = TWO.run(join, [left[:32], left[32:]], [right[:9], right[9:]], {"how": how, "on": "k"})
            check(results, answer([left], [right], how=how, on="k"))


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
    from gcylon_lab.context import current

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


# ---- where rows meet


def test_a_small_side_goes_to_all_ranks() -> None:
    lefts, rights = frames("even", 3, rows=400)
    rights = [frame[:5] for frame in rights]
    for how in ("inner", "left", "semi", "anti"):
        results = World("threads", 3).run(join, lefts, rights, {"how": how, "on": "k"})
        assert "broadcast join: the right side is small" in results[0]["explain"]
        check(results, answer(lefts, rights, how=how, on="k"))
    for how in ("right", "outer"):
        results = World("threads", 3).run(join, lefts, rights, {"how": how, "on": "k"})
        assert "shuffle join" in results[0]["explain"]
        check(results, answer(lefts, rights, how=how, on="k"))
    results = World("threads", 3).run(join, rights, lefts, {"how": "right", "on": "k"})
    assert "broadcast join: the left side is small" in results[0]["explain"]
    check(results, answer(rights, lefts, how="right", on="k"))


def test_validating_the_large_side_of_a_broadcast_shuffles() -> None:
    lefts, rights = frames("even", 2, rows=400)
    rights = [frame[:5].assign(k=[rank * 5 + i for i in range(5)]) for rank, frame in enumerate(rights)]
    for outcome in TWO.outcomes(join, lefts, rights, {"how": "left", "on": "k", "validate": "1:m"}):
        assert isinstance(outcome.error, ArgumentError)
    results = TWO.run(join, lefts, rights, {"how": "left", "on": "k", "validate": "m:1"})
    assert "broadcast" in results[0]["explain"]
    check(results, answer(lefts, rights, how="left", on="k"))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    ("before", "moved"),
    [
        ((["k"], ["k"]), "none is shuffled again"),
        ((["k"], None), "only the right side is shuffled"),
        ((None, ["s"]), "only the left side is shuffled"),
        ((["s", "k"], ["s", "k"]), "none is shuffled again"),
        ((["s", "k"], ["k", "s"]), "only the"),
        ((["f"], ["f"]), ""),
    ],
    ids=str,
)
def test_a_side_that_is_spread_by_the_keys_is_not_shuffled_again(how: str, before: Any, moved: str) -> None:
    lefts, rights = frames("even", 3)
    sides = lefts, [pd.concat([frame] * 3, ignore_index=True) for frame in rights]
    results = World("threads", 3).run(join, *sides, {"how": how, "on": ["k", "s"]}, "auto", None, False, before)
    if how not in ("semi", "anti") or None not in before:  # of their right side only the keys would move
        assert moved in results[0]["explain"]
    if moved.startswith("none"):
        assert all(result["sent"] == 0 for result in results)
    check(results, answer(*sides, how=how, on=["k", "s"]))


def chained(lefts: list[pd.DataFrame], rights: list[pd.DataFrame], how: str) -> tuple[Any, str, pd.DataFrame]:
    import gcylon_lab as gl
    from gcylon_lab.context import current

    rank = current().rank
    left, right = gl.from_local(lefts[rank]), gl.from_local(rights[rank])
    once = left.join(right, how, left_on="k", right_on="q")
    again = once.join(right, "inner", left_on="q" if how == "right" else "k", right_on="q", suffixes=("", "_again"))
    return once.partitioning, again.explain(), again.local()


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_the_result_remembers_how_it_is_spread(how: str) -> None:
    lefts, rights = frames("even", 3)
    lefts, rights = [f[["k", "w"]] for f in lefts], [f[["k", "u"]].rename(columns={"k": "q"}) for f in rights]
    results = World("threads", 3).run(chained, lefts, rights, how)
    once = whole(lefts).merge(whole(rights), how, left_on="k", right_on="q")
    again = once.merge(whole(rights), left_on="q" if how == "right" else "k", right_on="q", suffixes=("", "_again"))
    assert rows(whole([frame for *_, frame in results])) == rows(again)
    if how == "outer":  # rows without a left key are spread by the right one
        assert results[0][0] is None
    else:
        assert "none is shuffled again" not in results[0][1]
        assert "is spread by" in results[0][1]
