"""Every kind of join, strategy and layout, on every world: the rows and dtypes that pandas gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from joins import HOWS, LAYOUTS, PLANS, TIGHT, TWO, answer, check, frames, join, numbers
from worlds import World, in_turn

from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import BudgetExceeded


def everywhere() -> list:
    """All kinds of join meet every world, layout and strategy, but not every combination: each second, or third."""
    few = [World("single", 1), World("threads", 2), World("threads", 4)]
    cases = [
        (few[(i + j + p) % 3], layout, *(PLANS[0], PLANS[3])[p], how)
        for i, layout in enumerate(LAYOUTS)
        for j, how in enumerate(HOWS)
        for p in (0, 1)
        if (i + j + p) % 2 == 0
    ]
    others = [
        (world, layout, *plan)
        for world in (World("threads", 1), World("threads", 3), World("mpi", 2))
        for layout in LAYOUTS[:2]
        for plan in PLANS
    ]
    cases += [(*case, how) for i, case in enumerate(others) for j, how in enumerate(HOWS) if (i + j) % 3 == 0]
    return [
        pytest.param(
            *case,
            marks=[pytest.mark.mpi] if case[0].kind == "mpi" else [],
            id="-".join(map(str, [*case[:3], case[4]])),
        )
        for case in cases
    ]


@pytest.mark.parametrize(("world", "layout", "strategy", "config", "how"), everywhere())
def test_join(world: World, layout: str, strategy: str, config: GcylonConfig | None, how: str) -> None:
    sides = frames(layout, world.size, 60 if layout == "one key" else 120)  # of one key nearly all rows make pairs
    results = world.run(join, *sides, {"how": how, "on": "k"}, strategy, config)
    check(results, answer(*sides, how=how, on="k"))
    if strategy == "staged":
        assert all(result["tiers"]["device"] == 0 for result in results)


@pytest.mark.parametrize(
    ("world", "on", "how"),
    in_turn([World("single", 1), World("threads", 3)], [["s"], ["f"], ["k", "s", "f"], ["f", "k"]], HOWS),
    ids=str,
)
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


@pytest.mark.parametrize("how", ["inner", "outer", "semi"])
def test_a_budget_of_a_tenth_of_the_input(how: str) -> None:
    """Neither side, nor the result, nor an index of a side fits: buckets, staged."""
    sides = numbers(np.random.default_rng(1), 12_000, 10_000)
    tenth = sum(int(f.memory_usage(index=False).sum()) for part in sides for f in part) // 2 // 10
    config = GcylonConfig(gpu_memory_limit=tenth)
    results = TWO.run(join, *sides, {"how": how, "on": "k"}, "auto", config)
    check(results, answer(*sides, how=how, on="k"))
    assert all(result["record"]["strategy"] == "staged" for result in results)
    assert "buckets" in results[0]["explain"]


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_an_output_larger_than_the_budget(how: str) -> None:
    lefts, rights = numbers(np.random.default_rng(2), 1_000, 20)
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
    n = 6_000
    k = np.where(rng.random(n) < 0.9, 7, rng.integers(0, 1000, n))
    one = [pd.DataFrame({"k": k[i::2], "x": np.arange(n)[i::2]}) for i in range(2)]
    few = np.concatenate((np.arange(500, 500 + n - 3), [7] * 3))
    wide = {f"y{place}": np.arange(n) for place in range(6)}
    other = [pd.DataFrame({"k": few, **wide})[i::2].reset_index(drop=True) for i in range(2)]
    sides = (one, other) if build == "left" else (other, one)
    config = GcylonConfig(gpu_memory_limit="128 KiB", min_chunk_rows=1)
    indicated = {"indicator": True} if how in HOWS[:4] else {}
    results = TWO.run(join, *sides, {"how": how, "on": "k", **indicated}, "auto", config)
    check(results, answer(*sides, how=how, on="k", **indicated))
    if how not in ("semi", "anti"):
        assert f"the indexed side ({build}) does not fit" in results[0]["explain"]


def test_dtypes_do_not_depend_on_the_rank_that_lacks_a_row() -> None:
    """One rank's rows all have a partner, another's have not: ints are floats on both; where none lacks, ints stay."""
    left = pd.DataFrame({"k": np.arange(64), "a": np.arange(64)})
    for missing in (0, 1, 40):
        right = pd.DataFrame({"k": np.arange(missing, 64), "b": np.arange(missing, 64), "o": True})
        for how in ("left", "outer"):
            results = TWO.run(join, [left[:32], left[32:]], [right[:9], right[9:]], {"how": how, "on": "k"})
            check(results, answer([left], [right], how=how, on="k"))
