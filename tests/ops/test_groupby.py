"""groupby(...).agg on every world: what pandas gives of the whole table, inside the budget, by every strategy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import LAYOUTS, whole
from hypothesis import given, settings
from hypothesis import strategies as st
from relations import FEW, PLANS, THREADS, TIGHT, assert_same_rows, check_clean, late, on_ranks, together
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.context import current
from gcylon_lab.errors import BudgetExceeded, ColumnMissing, DuplicateColumns, UnsupportedDtype

PARTIAL = {
    "rows": ("x", "size"), "sx": ("x", "sum"), "mx": ("x", "mean"), "sdx": ("x", "std"), "cn": ("n", "count"),
    "sn": ("n", "sum"), "mn": ("t", "min"), "mxs": ("s", "max"), "fs": ("s", "first"), "lc": ("c", "last"),
    "anyb": ("b", "any"), "allb": ("b", "all"), "md": ("d", "min"), "sm": ("m", "sum"),
}  # fmt: skip
WHOLE = PARTIAL | {
    "med": ("x", "median"), "q": ("g", "quantile", 0.25), "nus": ("s", "nunique"), "li": ("g", "list"),
}  # fmt: skip
KEYS = [["k"], ["k", "s"], ["c", "n"], ["m"], ["t"]]


class Grouped:
    """A group-by to run on ranks."""

    def __init__(self, by: list[str], named: dict[str, Any], **options: Any) -> None:
        self.by, self.named, self.options = by, named, options
        self.dropna = options.pop("dropna", True)

    def __call__(self, table: Any) -> Any:
        return table.groupby(self.by, dropna=self.dropna).agg(**self.named, **self.options)


def by_pandas(frame: pd.DataFrame, by: list[str], named: dict[str, Any], dropna: bool = True) -> pd.DataFrame:
    groups = frame.groupby(by, dropna=dropna, observed=True, sort=False)
    made = {}
    for new, (column, function, *argument) in named.items():
        if function == "list":
            made[new] = groups[column].agg(list)
        else:
            made[new] = getattr(groups[column], function)(*argument)
    return pd.DataFrame(made).reset_index()


def everywhere() -> list[Any]:
    cases = []
    for world in (World("single", 1), World("threads", 2), World("threads", 4)):
        for layout in LAYOUTS:
            plans = PLANS if layout == "even" else [PLANS[0], PLANS[3]]
            cases += [
                (world, layout, keys, *plan) for keys in (KEYS if layout == "even" else KEYS[:2]) for plan in plans
            ]
    cases += [(World("mpi", 2), "one rank empty", keys, *plan) for keys in KEYS[:2] for plan in (PLANS[0], PLANS[3])]
    return [
        pytest.param(*case, marks=[pytest.mark.mpi] if case[0].kind == "mpi" else [], id="-".join(map(str, case[:4])))
        for case in cases
    ]


@pytest.mark.parametrize("named", [PARTIAL, WHOLE], ids=["partial", "whole"])
@pytest.mark.parametrize(("world", "layout", "by", "strategy", "config"), everywhere())
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


def twice(table: Any) -> Any:
    return table.shuffle("k").groupby(["s", "k"]).agg({"x": "sum"})


def again(table: Any) -> Any:
    return table.groupby("k").agg(x=("x", "sum"), s=("s", "first")).groupby(["k"]).agg({"x": "max", "s": "list"})


@pytest.mark.parametrize("world", FEW, ids=str)
@pytest.mark.parametrize("chain", [twice, again])
def test_what_is_together_is_not_shuffled_again(world: World, chain: Any) -> None:
    results = world.run(on_ranks, chain, "even")
    for result in results:
        assert result["sent"] == 0
        assert "nothing is exchanged" in result["explained"]
        assert "partitioned by 'k' already" in result["explained"]
        assert result["partitioning"].keys == ("k",)
    if chain is twice:
        expected = by_pandas(whole("even", world.size), ["s", "k"], {"x": ("x", "sum")})
        assert_same_rows(together(results), expected, ["s", "k"])


def plans(table: Any) -> Any:
    spread = table.shuffle("k")
    shown = [t.groupby(by).plan() for t, by in ((table, "k"), (spread, "k"), (spread, ["s", "k"]), (spread, "s"))]
    return [(plan.verb, plan.rounds > 0, plan.describe()) for plan in shown]


@pytest.mark.parametrize("world", THREADS, ids=str)
def test_plans_say_whether_it_is_shuffled(world: World) -> None:
    for result in world.run(on_ranks, plans, "even"):
        assert [one[:2] for one in result["value"]] == [
            ("groupby", True), ("groupby", False), ("groupby", False), ("groupby", True),
        ]  # fmt: skip
        assert "partial results" in result["value"][0][2]
        assert "nothing is exchanged" in result["value"][1][2]


def other_keys(table: Any) -> Any:
    return table.shuffle(["k", "s"]).groupby("k").agg({"x": "sum"})


@pytest.mark.parametrize("world", THREADS, ids=str)
def test_what_is_spread_by_more_keys_is_shuffled(world: World) -> None:
    results = world.run(on_ranks, other_keys, "even")
    assert sum(result["sent"] for result in results) > 0
    expected = by_pandas(whole("even", world.size), ["k"], {"x": ("x", "sum")})
    assert_same_rows(together(results), expected, ["k"])


def test_few_keys_send_partial_results_and_many_send_rows() -> None:
    def frames(keys: int) -> list[pd.DataFrame]:
        rng = np.random.default_rng(1)
        return [pd.DataFrame({"k": rng.integers(0, keys, 20_000), "x": rng.normal(size=20_000)}) for _ in range(2)]

    verb = Grouped(["k"], {"x": ("x", "sum")})
    few, many = (World("threads", 2).run(on_ranks, verb, frames(keys)) for keys in (50, 10**9))
    assert sum(r["sent"] for r in few) < 20_000 and "partial results" in few[0]["explained"]
    assert sum(r["sent"] for r in many) > 200_000 and "partial results" not in many[0]["explained"]


def floats(rows: int, keys: int) -> list[pd.DataFrame]:
    rng = np.random.default_rng(5)
    return [
        pd.DataFrame({"k": rng.integers(0, keys, rows), "v": rng.normal(size=rows) * 10.0 ** rng.integers(-9, 9, rows)})
        for _ in range(3)
    ]


@pytest.mark.parametrize("keys", [11, 10_000])
def test_sums_of_floats_have_the_same_bits_however_they_are_run(keys: int) -> None:
    frames, world = floats(5000, keys), World("threads", 3)
    named = {"v": ("v", "sum"), "m": ("v", "mean")}
    runs = [Grouped(["k"], named, strategy=strategy, config=config) for strategy, config in PLANS] * 4
    first = together(world.run(on_ranks, runs[0], frames))
    for run in runs:
        ours = together(world.run(late, on_ranks, run, frames, run.options["config"] is TIGHT))
        assert_same_rows(ours, first, ["k"], check_exact=True)


def test_sums_of_floats_are_near_the_true_ones_on_any_number_of_ranks() -> None:
    values = [1e16, 0.1, 1.0, 0.2, -1e16, 0.3, 1.0, 0.4]
    for size in (1, 2, 4):
        frames = [
            pd.DataFrame({"k": list("ab") * (4 // size), "v": values[r * 8 // size : (r + 1) * 8 // size]})
            for r in range(size)
        ]
        ours = together(World("threads", size).run(on_ranks, Grouped(["k"], {"v": ("v", "sum")}), frames))
        assert dict(zip(ours["k"], ours["v"], strict=True)) == {"a": 2.0, "b": 1.0}


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
        assert result["peak"] > 20_000 * (16 + 64)
        assert result["peak"] <= result["predicted"] <= 1.5 * result["peak"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_state_that_does_not_fit_is_put_aside(ranks: int) -> None:
    rng = np.random.default_rng(4)
    texts = np.array([f"{i:0200d}" for i in range(4000)])
    frames = [pd.DataFrame({"k": rng.integers(0, 4000, 20_000)}) for _ in range(ranks)]
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


def failing_on_one(strategy: str) -> str:
    """One rank's sum passes int64; all are told, and go on."""
    context = gl.current()
    top = 2**62 if context.rank == 1 else 1
    table = gl.from_local(pd.DataFrame({"k": [1, 2] * 50, "v": np.full(100, top)}))
    before = context.budget.used_bytes
    try:
        table.groupby("k").agg({"v": "sum"}, strategy=strategy)
    except UnsupportedDtype as error:
        assert context.budget.used_bytes == before
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


def test_specs_name_their_columns() -> None:
    frame = pd.DataFrame({"k": [1, 1, 2], "x": [1.0, 2.0, 5.0], "y": [3, 4, 5]})
    with gl.initialize(sample_hz=0):
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


@settings(max_examples=60, deadline=None)
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
