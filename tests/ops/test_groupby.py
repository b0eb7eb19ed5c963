"""groupby(...).agg on every world: what pandas gives of the whole table, inside the budget, by every strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import LAYOUTS, whole
from grouped import PARTIAL, WHOLE, Grouped, by_pandas
from hypothesis import given, settings
from hypothesis import strategies as st
from relations import PLANS, THREADS, TIGHT, assert_same_rows, check_clean, late, on_ranks, together
from worlds import World, in_turn

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig

KEYS = [["k"], ["k", "s"], ["c", "n"], ["m"], ["t"]]


NAMED = {"partial": PARTIAL, "whole": WHOLE}


def everywhere() -> list[Any]:
    worlds = [World("single", 1), World("threads", 2), World("threads", 4)]
    cases = in_turn(worlds, ["even"], KEYS, PLANS, list(NAMED))
    cases += in_turn(worlds, LAYOUTS[1:], KEYS[:2], [PLANS[0], PLANS[3]], list(NAMED))
    cases += in_turn([World("mpi", 2)], ["one rank empty"], KEYS[:2], [PLANS[0], PLANS[3]], list(NAMED))
    return [
        pytest.param(
            world, layout, keys, *plan, NAMED[named], marks=[pytest.mark.mpi] if world.kind == "mpi" else [],
            id="-".join(map(str, (world, layout, keys, plan[0], named))),
        )
        for world, layout, keys, plan, named in cases
    ]  # fmt: skip


@pytest.mark.parametrize(("world", "layout", "by", "strategy", "config", "named"), everywhere())
def test_it_is_what_pandas_gives(
    world: World, layout: str, by: list[str], strategy: str, config: GcylonConfig | None, named: dict[str, Any]
) -> None:
    if config is not None and layout in ("one key", "all on the last rank"):
        config = config.with_values(gpu_memory_limit="1 MiB")
    everything = whole(layout, world.size)
    if everything["m"].isna().all():  # a column without values has no dtype
        named = {new: one for new, one in named.items() if one[0] not in ("m", "s")}
    results = world.run(on_ranks, Grouped(by, named, strategy=strategy, config=config), layout)
    ours = together(results)
    assert list(ours.columns) == [*by, *named]
    check_clean(results)
    if len(everything):
        assert_same_rows(ours, by_pandas(everything, by, named), by, rtol=1e-12)
    else:
        assert not len(ours)
    if strategy == "staged":
        assert all(r["tiers"]["device"] == 0 for r in results)


@pytest.mark.parametrize("world", THREADS, ids=str)
@pytest.mark.parametrize("named", [PARTIAL, WHOLE], ids=["partial", "whole"])
def test_missing_keys_are_groups_where_asked(world: World, named: dict[str, Any]) -> None:
    for by in KEYS[1:]:
        results = world.run(on_ranks, Grouped(by, named, dropna=False), "even")
        assert_same_rows(together(results), by_pandas(whole("even", world.size), by, named, dropna=False), by)


@pytest.mark.parametrize("world", THREADS, ids=str)
def test_staged_inputs(world: World) -> None:
    for named in (PARTIAL, WHOLE):
        results = world.run(on_ranks, Grouped(["k"], named, config=TIGHT), "even", True)
        assert_same_rows(together(results), by_pandas(whole("even", world.size), ["k"], named), ["k"])
        check_clean(results)


def floats(rows: int, keys: int) -> list[pd.DataFrame]:
    rng = np.random.default_rng(5)
    return [
        pd.DataFrame({"k": rng.integers(0, keys, rows), "v": rng.normal(size=rows) * 10.0 ** rng.integers(-9, 9, rows)})
        for _ in range(3)
    ]


@pytest.mark.cpu_alone("GPU ranks add floats in any order; deterministic=True is tested with GPUs")
@pytest.mark.parametrize("keys", [11, 10_000])
def test_sums_of_floats_have_the_same_bits_however_they_are_run(keys: int) -> None:
    frames, world = floats(5000, keys), World("threads", 3)
    named = {"v": ("v", "sum"), "m": ("v", "mean")}
    runs = [Grouped(["k"], named, strategy=strategy, config=config) for strategy, config in PLANS] * 4
    first = together(world.run(on_ranks, runs[0], frames))
    for run in runs:
        ours = together(world.run(late, on_ranks, run, frames, run.options["config"] is TIGHT))
        assert_same_rows(ours, first, ["k"], check_exact=True)


@pytest.mark.cpu_alone("GPU ranks do not carry what an addition of floats loses")
def test_sums_of_floats_are_near_the_true_ones_on_any_number_of_ranks() -> None:
    values = [1e16, 0.1, 1.0, 0.2, -1e16, 0.3, 1.0, 0.4]
    for size in (1, 2, 4):
        frames = [
            pd.DataFrame({"k": list("ab") * (4 // size), "v": values[r * 8 // size : (r + 1) * 8 // size]})
            for r in range(size)
        ]
        ours = together(World("threads", size).run(on_ranks, Grouped(["k"], {"v": ("v", "sum")}), frames))
        assert dict(zip(ours["k"], ours["v"], strict=True)) == {"a": 2.0, "b": 1.0}


def test_ranks_with_other_dtypes_and_labels() -> None:
    frames = [
        pd.DataFrame({"k": pd.Series([1, 2, 1], dtype="int8"), "c": pd.Categorical(["b", "a", "b"]), "v": [1, 2, 3]}),
        pd.DataFrame({"k": pd.Series([2, 3], dtype="int64"), "c": pd.Categorical(["z", "a"]), "v": [4.5, 5.0]}),
        pd.DataFrame({"k": [], "c": pd.Categorical([]), "v": []}),
    ]
    for named in ({"c": ("c", "last"), "v": ("v", "sum")}, {"c": ("c", "nunique"), "v": ("v", "median")}):
        results = World("threads", 3).run(on_ranks, Grouped(["k"], named), frames)
        one = pd.concat([f.astype({"k": "int64", "c": pd.CategoricalDtype(["a", "b", "z"])}) for f in frames])
        assert_same_rows(together(results), by_pandas(one, ["k"], named), ["k"])
    results = World("threads", 3).run(on_ranks, Grouped(["c"], {"v": ("v", "max")}), frames)
    assert sorted(together(results)["c"]) == ["a", "b", "z"]


def test_specs_name_their_columns() -> None:
    frame = pd.DataFrame({"k": [1, 1, 2], "x": [1.0, 2.0, 5.0], "y": [3, 4, 5]})
    with gl.initialize(sample_hz=0, engine="cpu"):
        groups = gl.from_local(frame).groupby("k")
        made = groups.agg({"x": "sum", "y": ["min", ("quantile", 0.5), ("var", 0)]}, n=("y", "size")).local()
        assert list(made.columns) == ["k", "x", "y_min", "y_quantile_0.5", "y_var", "n"]
        assert made["y_var"].tolist() == [0.25, 0.0]
        assert groups.size().local()["size"].tolist() == [2, 1]
        for wrong in ({"x": "total"}, {"x": ("sum", 1)}, {"x": ("quantile", 2)}, {}):
            with pytest.raises(gl.errors.ArgumentError):
                groups.agg(wrong)


_values = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, 3.0, float("nan"), float("inf")]))

_rows = st.lists(
    st.tuples(st.sampled_from([None, "", "a", "é", "bb"]), st.one_of(st.none(), st.integers(-3, 3)), _values),
    max_size=40,
)


@settings(max_examples=60)
@given(
    rows=_rows, size=st.integers(1, 4), cuts=st.lists(st.integers(0, 40), min_size=3, max_size=3), dropna=st.booleans(),
    plan=st.sampled_from([("auto", None), ("direct", None), ("chunked", None), ("staged", TIGHT), ("auto", TIGHT)]),
    staged=st.booleans(),
)  # fmt: skip
def test_any_rows_on_any_ranks(
    rows: list[Any], size: int, cuts: list[int], dropna: bool, plan: tuple[str, Any], staged: bool
) -> None:
    frame = pd.DataFrame(
        {
            "a": pd.Series([row[0] for row in rows], dtype="str"),
            "b": pd.array([row[1] for row in rows], dtype="Int64"),
            "v": pd.Series([row[2] for row in rows], dtype="float64"),
        }
    )
    edges = [0, *sorted(min(c, len(frame)) for c in cuts[: size - 1]), len(frame)]
    frames = [frame.iloc[start:stop] for start, stop in zip(edges[:-1], edges[1:], strict=True)]
    named = {
        "s": ("v", "sum"), "m": ("v", "mean"), "lo": ("v", "min"), "f": ("b", "first"), "n": ("a", "count"),
        "u": ("b", "nunique"), "any": ("v", "any"), "r": ("v", "size"),
    }  # fmt: skip
    for by in (["a"], ["b"], ["a", "b"], ["v"]):
        chosen = {new: one for new, one in named.items() if one[0] not in by or one[1] == "size"}
        chosen = chosen if by != ["v"] else {"f": ("b", "first"), "n": ("a", "count")}
        grouped = Grouped(by, chosen, dropna=dropna, strategy=plan[0], config=plan[1])
        ours = together(World("threads", size).run(on_ranks, grouped, frames, staged))
        if not len(frame):
            assert not len(ours)
            continue
        theirs = by_pandas(frame, by, chosen, dropna)
        ours["_"] = theirs["_"] = 0
        for one in (ours, theirs):
            if "v" in by:
                one["v"] = one["v"] + 0.0  # either zero may stand for both
        assert_same_rows(ours, theirs, by)
