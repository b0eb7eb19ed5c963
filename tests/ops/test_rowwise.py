"""select, drop, rename, filter, assign, astype, fillna, dropna, isin, map_parts on every world, as pandas does them."""

from __future__ import annotations

import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import worlds
from exchanges import LAYOUTS, make_frame, whole
from relations import FEW, THREADS, TIGHT, check_clean, on_ranks
from same_frames import assert_frames_equal
from worlds import World, in_turn, marked

import gcylon_lab as gl
from gcylon_lab import col, lit
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import (
    ArgumentError,
    BudgetExceeded,
    ColumnMissing,
    DuplicateColumns,
    RankError,
    RanksDisagree,
)
from gcylon_lab.runtime.context import current


class Verb:
    """A verb to run on ranks."""

    def __init__(self, name: str, *args: Any, **kwargs: Any) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs

    def __call__(self, table: Any) -> Any:
        return getattr(table, self.name)(*self.args, **self.kwargs)


CONDITIONS = {
    "number": (col("x") > 20, lambda f: f["x"] > 20),
    "nullable": (col("n") < 50, lambda f: (f["n"] < 50).fillna(False)),
    "and": (
        (col("g") % 3 == 0) & col("s").notna() | ~col("b"),
        lambda f: (f["g"] % 3 == 0) & f["s"].notna() | ~f["b"],
    ),
    "text": (
        col("s").str.startswith("p") | (col("c") == "mid"),
        lambda f: f["s"].str.startswith("p").fillna(False) | (f["c"] == "mid"),
    ),
    "contains": (
        col("s").str.contains("P", case=False, na=True) & ~col("s").str.contains("SS", case=False),
        lambda f: f["s"].str.contains("P", case=False, na=True) & ~f["s"].str.contains("SS", case=False),
    ),
    "match": (
        col("s").str.match("[ps]") | col("s").str.fullmatch("m|.*a", na=False),
        lambda f: f["s"].str.match("[ps]") | f["s"].str.fullmatch("m|.*a", na=False),
    ),
    "time": (col("t").dt.year.between(1970, 1972), lambda f: f["t"].dt.year.between(1970, 1972)),
    "isin": (col("k").isin([7, 8, 9]), lambda f: f["k"].isin([7, 8, 9])),
    "none": (col("g") < 0, lambda f: f["g"] < 0),
    "all": (lit(True), lambda f: f["g"] >= 0),
}
ASSIGNED = {
    "y": (col("x") * 2 + col("g"), lambda f: f["x"] * 2 + f["g"]),
    "n": (col("n").fillna(-1), lambda f: f["n"].fillna(-1)),
    "big": (col("x").where(col("b"), 0.0), lambda f: f["x"].where(f["b"], 0.0)),
    "size": (col("s").str.len(), lambda f: f["s"].str.len()),
    "up": (col("s").str.upper(), lambda f: f["s"].str.upper()),
    "day": (col("t").dt.day, lambda f: f["t"].dt.day),
    "late": (col("t") + col("d"), lambda f: f["t"] + f["d"]),
    "seven": (7, lambda f: pd.Series(7, index=f.index)),
    "neg": (-col("k") // 4, lambda f: -f["k"] // 4),
    "over": (1 / col("g"), lambda f: 1 / f["g"]),
    "c": (col("c").astype("str"), lambda f: f["c"].astype("str")),
    "root": (np.sqrt(col("g")) + np.floor(col("x")), lambda f: np.sqrt(f["g"]) + np.floor(f["x"])),
    "twice": (np.float64(2) * col("x"), lambda f: 2 * f["x"]),
    "sign": (
        gl.when(col("x") > 20).then("more").when(col("x") < -20).then("less").otherwise(col("s")),
        lambda f: f["s"].mask(f["x"] < -20, "less").mask(f["x"] > 20, "more"),
    ),
    "first": (
        col("s").str.split("p")[0],
        lambda f: f["s"].str.split("p").str[0].astype(f["s"].dtype),
    ),
    "vowel": (col("s").str.extract("([aeiou])"), lambda f: f["s"].str.extract("([aeiou])", expand=False)),
    "k": (col("k").replace({7: 70, 8: 80}), lambda f: f["k"].replace({7: 70, 8: 80})),
    "seconds": (col("d").dt.total_seconds(), lambda f: f["d"].dt.total_seconds()),
}


PLANS: dict[str, tuple[str, GcylonConfig | None]] = {
    "auto": ("auto", None), "staged": ("staged", TIGHT), "tight": ("auto", TIGHT),
}  # fmt: skip


def in_order(results: list[dict[str, Any]]) -> pd.DataFrame:
    frames = [result["frame"] for result in results]
    assert all(list(frame.dtypes) == list(frames[0].dtypes) for frame in frames)
    return pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)


def assert_frame(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    theirs = theirs.reset_index(drop=True)
    assert_frames_equal(ours, theirs, check_column_type=False, check_index_type=False)


@pytest.mark.parametrize(("world", "name", "staged"), in_turn(THREADS, list(CONDITIONS), [False, True]), ids=str)
def test_filter(world: World, name: str, staged: bool) -> None:
    condition, pandas = CONDITIONS[name]
    strategy, config = [*PLANS.values()][(list(CONDITIONS).index(name) + staged) % 3]  # in pieces at least once
    results = world.run(on_ranks, Verb("filter", condition, strategy=strategy, config=config), "even", staged)
    everything = whole("even", world.size)
    assert_frame(in_order(results), everything[pandas(everything)])
    check_clean(results)
    assert all(result["sent"] == 0 for result in results)
    for rank, result in enumerate(results):
        assert_frames_equal(result["input"], make_frame("even", rank, world.size))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_filter_and_assign_on_every_layout(layout: str) -> None:
    world, everything = World("threads", 3), whole(layout, 3)
    condition, pandas = CONDITIONS["and"]
    assert_frame(in_order(world.run(on_ranks, Verb("filter", condition), layout)), everything[pandas(everything)])
    expected = everything.assign(y=everything["x"] * 2 + everything["g"])
    assert_frame(in_order(world.run(on_ranks, Verb("assign", y=ASSIGNED["y"][0]), layout)), expected)


@pytest.mark.parametrize(
    ("plan", "world", "staged"),
    marked(in_turn(list(PLANS), [World("threads", 2), World("threads", 4), World("mpi", 2)], [False, True])),
)
def test_assign(plan: str, world: World, staged: bool) -> None:
    strategy, config = PLANS[plan]
    named = {name: one for name, (one, _) in ASSIGNED.items()}
    everything = whole("even", world.size)
    expected = everything.assign(**{name: pandas(everything) for name, (_, pandas) in ASSIGNED.items()})
    if worlds.ENGINE == "gpu":  # as the table of differences says of letters that become several
        expected["up"] = [text if pd.isna(text) else text.upper() for text in everything["s"]]
        expected["up"] = expected["up"].astype(everything["s"].dtype)
    results = world.run(on_ranks, Verb("assign", strategy=strategy, config=config, **named), "even", staged)
    assert_frame(in_order(results), expected)
    check_clean(results)
    if strategy == "staged":
        assert all(result["tiers"]["device"] == 0 for result in results)


@pytest.mark.cpu_alone
@pytest.mark.parametrize("world", THREADS, ids=str)
def test_assign_does_not_pay_for_what_it_leaves(world: World) -> None:
    for used in world.run(bytes_beside):
        assert used["made"] == used["new"] < used["table"] / 4
        assert used["after"] == used["made"] + used["table"]
        assert used["end"] == used["before"]


def bytes_beside() -> dict[str, int]:
    budget = gl.current().budget
    before = budget.used_bytes
    table = gl.from_local(make_frame("even", 0, 1))
    held = budget.used_bytes
    more = table.assign(y=col("g") + 1)
    assert more.num_rows == table.num_rows  # its rows are made
    made = budget.used_bytes - held
    size = table.nbytes
    new = 8 * table.num_rows
    table.release()
    after = budget.used_bytes  # the columns live on in the other table
    assert more.local()["y"].tolist() == [g + 1 for g in more.local()["g"]]
    more.release()
    return {
        "before": before, "table": size, "made": made, "new": new, "after": after - before, "end": budget.used_bytes,
    }  # fmt: skip


def viewed() -> list[int]:
    """Bytes in use with a table, with a view of it, without the table, without both."""
    budget = gl.current().budget
    table = gl.from_local(make_frame("even", 0, 1))
    used = [budget.used_bytes]
    some = table.select(["x", "s"])
    used.append(budget.used_bytes)
    table.release()
    used.append(budget.used_bytes)
    assert some.sum("x") > 0
    some.release()
    return [*used, budget.used_bytes]


@pytest.mark.cpu_alone
def test_a_view_pays_for_nothing_and_keeps_what_it_shows() -> None:
    ((table, both, view, none),) = World("threads", 1).run(viewed)
    assert table == both == view > 0 == none


@pytest.mark.parametrize("world", FEW, ids=str)
@pytest.mark.parametrize("staged", [False, True], ids=["held", "staged"])
def test_columns_are_chosen_and_renamed(world: World, staged: bool) -> None:
    everything = whole("even", world.size)
    cases = [
        (Verb("select", ["s", "g"]), everything[["s", "g"]]),
        (Verb("select", "m"), everything[["m"]]),
        (Verb("drop", ["x", "l", "o"]), everything.drop(columns=["x", "l", "o"])),
        (Verb("rename", {"x": "k", "k": "x"}), everything.rename(columns={"x": "k", "k": "x"})),
    ]
    for verb, expected in cases:
        results = world.run(on_ranks, verb, "even", staged)
        assert_frame(in_order(results), expected)
        check_clean_counts(results)


def check_clean_counts(results: list[dict[str, Any]]) -> None:
    assert all(result["left"][0] <= 0 for result in results)


@pytest.mark.parametrize("world", THREADS, ids=str)
def test_other_verbs(world: World) -> None:
    everything = whole("even", world.size)
    fill = {"x": 0.5, "n": -1, "s": "?"}
    plain = ["g", "k", "x", "b"]
    cases = [
        (Verb("astype", {"k": "int64", "g": "str"}), everything.astype({"k": "int64", "g": "str"})),
        (Verb("fillna", fill), everything.fillna(fill)),
        (Verb("dropna"), everything.dropna()),
        (Verb("dropna", ["x", "s"], how="all"), everything.dropna(subset=["x", "s"], how="all")),
        (Verb("dropna", "n"), everything.dropna(subset="n")),
    ]
    for verb, expected in cases:
        assert_frame(in_order(world.run(on_ranks, verb, "even")), expected)
    chain = world.run(on_ranks, chained, "even")
    expected = everything[plain].isin([1, 7, 0.5]).assign(b=everything["b"].isin([True]))
    assert_frame(in_order(chain), expected)


def chained(table: Any) -> Any:
    return table.select(["g", "k", "x", "b"]).isin({"g": [1, 7, 0.5], "k": [1, 7, 0.5], "x": [1, 7, 0.5], "b": [True]})


def keeps_partitioning(table: Any) -> list[Any]:
    spread = table.shuffle("k")
    tables = [
        spread.filter(col("x") > 3), spread.assign(y=col("x") + 1), spread.rename({"k": "key"}), spread.select(["k"]),
        spread.assign(k=col("k") + 1), spread.drop("k"), spread.astype({"k": "str"}),
    ]  # fmt: skip
    before = len(gl.current().recorder.operations)
    tables[0].groupby("k").size()
    tables[2].groupby("key").size()
    return [t.partitioning and t.partitioning.keys for t in tables] + [
        sum(op.sent_bytes for op in list(gl.current().recorder.operations)[before:])
    ]


def test_partitioning_is_remembered_where_keys_stay() -> None:
    for result in World("threads", 2).run(on_ranks, keeps_partitioning, "even"):
        assert result["value"] == [("k",), ("k",), ("key",), ("k",), None, None, None, 0]


def doubled(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"g": frame["g"] * 2, "rows": len(frame), "e": frame["x"].isna()})


@pytest.mark.cpu_alone
@pytest.mark.parametrize("world", FEW, ids=str)
@pytest.mark.parametrize("staged", [False, True], ids=["held", "staged"])
def test_map_parts(world: World, staged: bool) -> None:
    results = world.run(on_ranks, Verb("map_parts", doubled), "one rank empty", staged)
    everything = whole("one rank empty", world.size)
    ours = in_order(results)
    assert ours["g"].tolist() == (everything["g"] * 2).tolist()
    assert ours["rows"].tolist() == [len(r["frame"]) for r in results for _ in range(len(r["frame"]))]
    pieces = world.run(on_ranks, Verb("map_parts", doubled, by_chunk=True, config=TIGHT), "one rank empty", staged)
    pd.testing.assert_series_equal(in_order(pieces)["g"], ours["g"])
    check_clean(pieces)


def broken(frame: pd.DataFrame) -> pd.DataFrame:
    if gl.current().rank == 1:
        raise ZeroDivisionError("on rank 1")
    return frame


def failing(verb: Verb) -> Any:
    """Fails on all ranks alike; what comes next works."""
    table = gl.from_local(make_frame("even", gl.current().rank, gl.current().size))
    try:
        verb(table)
    except gl.GcylonError as error:
        table.filter(col("g") > 3).release()
        raise error
    raise AssertionError("no error")


@pytest.mark.parametrize("world", FEW, ids=str)
@pytest.mark.parametrize(
    ("verb", "error", "words"),
    [
        (Verb("filter", col("nope") > 1), ColumnMissing, "'nope'"),
        (Verb("filter", "x > 1"), ArgumentError, "'x > 1'"),
        (
            Verb("filter", len),
            ArgumentError,
            "Expected a condition, got a function. Give one such as",
        ),
        (Verb("assign", u=col("x") * 2, y=col("s") + col("x")), ArgumentError, "y=(col('s') + col('x')) cannot be"),
        (Verb("astype", "float32"), ArgumentError, "s=col('s').astype('float32') cannot be"),
        (Verb("filter", col("x") + 1), ArgumentError, "float64"),
        (Verb("filter", col("s") > 1), ArgumentError, "col('s') > 1"),
        (Verb("assign", y=col("s") + col("x")), ArgumentError, "col('s') + col('x')"),
        (Verb("assign", y=col("nope")), ColumnMissing, "'nope'"),
        (Verb("astype", {"s": "int64"}), ArgumentError, "astype"),
        (Verb("fillna", 0), gl.errors.GcylonError, "as in fillna({'x': 0})"),
        (Verb("select", ["g", "nope"]), ColumnMissing, "'nope'"),
        (Verb("select", []), ArgumentError, "columns=[] is empty or names a column twice"),
        (Verb("rename", {"x": "g"}), DuplicateColumns, "'g'"),
        (Verb("dropna", how="most"), ArgumentError, "how='most' is invalid. Expected 'any' or 'all'."),
        (Verb("map_parts", broken), RankError, "on rank 1"),
        (Verb("map_parts", len), gl.errors.GcylonError, "DataFrame"),
    ],
    ids=lambda value: value.name if isinstance(value, Verb) else None,
)
def test_what_cannot_be_is_told_to_all(world: World, verb: Verb, error: type, words: str) -> None:
    outcomes = world.outcomes(failing, verb)
    for outcome in outcomes:
        assert isinstance(outcome.error, error), outcome.error
        assert words in str(outcome.error)


def disagreeing(table: Any) -> Any:
    return table.filter(col("x") > gl.current().rank)


@pytest.mark.parametrize("world", THREADS, ids=str)
def test_ranks_that_ask_for_different_things_are_told(world: World) -> None:
    for outcome in world.outcomes(on_ranks, disagreeing, "even"):
        assert isinstance(outcome.error, RanksDisagree)
        assert "col('x') > 1" in str(outcome.error)


@pytest.mark.cpu_alone
def test_too_small_a_budget_is_told_or_done_in_pieces() -> None:
    config = GcylonConfig(gpu_memory_limit="40 KiB", min_chunk_rows=1)
    verb = Verb("filter", CONDITIONS["number"][0], config=config)
    results = World("threads", 2).run(on_ranks, verb, "even")
    check_clean(results)
    everything = whole("even", 2)
    assert_frame(in_order(results), everything[everything["x"] > 20])
    alone = Verb("filter", lit(True), config=config.with_values(allow_disk_spill=False))
    for outcome in World("threads", 2).outcomes(on_ranks, alone, "even"):
        assert isinstance(outcome.error, gl.errors.BudgetExceeded)


def test_expressions_say_what_they_are_and_travel() -> None:
    one = ((col("x") + 1) * 2 > 3) & ~col("s").isin(["a"]) | col("t").dt.year.between(1, 2)
    again = pickle.loads(pickle.dumps(one))
    assert repr(again) == repr(one)
    assert repr(one).startswith("(((((col('x') + 1) * 2) > 3) & ~col('s').isin(")
    assert list(one.columns()) == ["x", "s", "t"]
    with pytest.raises(TypeError, match="& | ~"):
        bool(col("x") > 1)
    with pytest.raises(AttributeError, match="there are"):
        col("s").str.nonsense()


def test_mixed_dtypes_are_computed_in_the_common_one() -> None:
    frames = [pd.DataFrame({"v": np.array([100], "int8")}), pd.DataFrame({"v": np.array([1000], "int64")})]
    results = World("threads", 2).run(on_ranks, Verb("assign", w=col("v") * 2), frames)
    assert in_order(results)["w"].tolist() == [200, 2000]


def frame_that_does_not_fit() -> tuple[int, list[int]]:
    """All of a staged table for a function, under too small a limit, then under the one that is advised."""
    context = current()
    table = gl.from_local(pd.DataFrame({"g": range(2000), "s": ["x" * 20] * 2000}))
    table._part.stage(context.workspace, 2**40, 4000)
    with pytest.raises(BudgetExceeded) as caught:
        table.map_parts(len, config=GcylonConfig(gpu_memory_limit=30_000))
    assert "by_chunk=True" in caught.value.advice
    limit = caught.value.numbers["would_do"]
    made = table.map_parts(lambda frame: frame.head(1), config=GcylonConfig(gpu_memory_limit=limit))
    return table.nbytes, [limit, made.num_rows, context.recorder.operations[-1].measured_peak_bytes]


@pytest.mark.cpu_alone
def test_the_limit_that_a_frame_for_a_function_is_advised_to_have_does() -> None:
    for nbytes, (limit, rows, peak) in World("threads", 2).run(frame_that_does_not_fit):
        assert rows == 1 and peak <= limit <= 2 * nbytes + 1000, "chunks are let go of once they are joined"


TIMES = pd.DataFrame(
    {
        "t": pd.array(["2024-02-29 12:00:00.000000001", None, "1969-12-31"], "datetime64[ns]"),
        "d": pd.array([1, None, -1], "timedelta64[us]"),
        "u": np.array([0, 100, 255], np.uint8),
        "f": np.array([0.1, np.nan, 3e38], np.float32),
        "b": [True, False, True],
    }
)


@pytest.mark.parametrize(
    "of",
    [
        lambda f: f["t"] + np.timedelta64(1, "D"),
        lambda f: f["t"] - np.timedelta64(1, "ns"),
        lambda f: f["d"].fillna(np.timedelta64(1, "s")),
        lambda f: f["d"].where(f["b"], np.timedelta64(1, "ms")),
        lambda f: np.timedelta64(1, "ns") + f["d"],
        lambda f: np.datetime64("2024-02-29T12:00:00.000000001") <= f["t"],
        lambda f: np.datetime64("2024-02-29") - f["t"],
        lambda f: np.int64(200) + f["u"],
        lambda f: np.float64(10) * f["f"],
        lambda f: np.array(200) + f["u"],
        lambda f: True ^ f["b"],
        lambda f: f["u"].replace({pd.NA: 1, 255: 7}),
    ],
)
def test_values_of_numpy_and_pandas_keep_their_dtypes(of: Any) -> None:
    """On either side of an operator; numpy takes a timedelta64 for a whole number, and makes an int of nanoseconds."""
    want = of(TIMES)

    def body() -> pd.Series:
        return gl.from_local(TIMES).assign(y=of({name: col(name) for name in TIMES})).local()["y"]

    (got,) = World("threads", 1).run(body)
    pd.testing.assert_series_equal(got, want, check_names=False)


CHOSEN = pd.DataFrame(
    {
        "b": [True, False, False],
        "u": np.array([1, 2**64 - 1, 2**63], np.uint64),
        "U": pd.array([1, 2**64 - 1, None], "UInt64"),
        "I": pd.array([1, 2**63 - 1, None], "Int64"),
        "f": np.array([1, 0.1, np.nan], np.float32),
        "t": pd.array(["2024-01-01", "1500-01-01", None], "datetime64[us]"),
        "z": pd.array(["2024-01-01", "2024-01-02", None], "datetime64[us, Europe/Berlin]"),
        "c": pd.Categorical(["lo", "hi", None], ["lo", "hi"], ordered=True),
        "s": pd.array(["é", "", None], "str"),
        "dec": [Decimal("1.10"), Decimal("99.95"), None],
    }
)


def chosen(value: Any, name: str) -> pd.Series:
    def body() -> pd.Series:
        return gl.from_local(CHOSEN).assign(y=gl.when(col("b")).then(value).otherwise(col(name))).local()["y"]

    (got,) = World("threads", 1).run(body)
    return got


@pytest.mark.parametrize("name", [*"UIftzcs", "dec"])
def test_no_value_beside_a_column_leaves_it_its_dtype(name: str) -> None:
    want = CHOSEN[name].where(~CHOSEN["b"], None)
    pd.testing.assert_series_equal(chosen(None, name), want, check_names=False)


@pytest.mark.parametrize("name", ["u", "U", "dec"])
def test_an_int_beside_a_column_changes_none_of_its_values(name: str) -> None:
    want = CHOSEN[name].where(~CHOSEN["b"], Decimal("0.00") if name == "dec" else 0)
    pd.testing.assert_series_equal(chosen(0, name), want, check_names=False)


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        (col("u").mask(col("b"), -2), "float64"),
        (col("u").where(~col("b"), col("i")), "float64"),
        (col("i").where(~col("b"), col("u")), "float64"),
        (gl.when(col("b")).then(-1).otherwise(col("u")), "float64"),
        (col("t").mask(col("b"), col("n")), "datetime64[ns]"),
    ],
)
def test_a_dtype_that_values_decide_is_the_same_on_all_ranks(expression: Any, dtype: str) -> None:
    """Where uint64 meets a negative number, or a time nanoseconds, in rows of one rank alone."""

    def body() -> tuple[str, str]:
        first = current().rank == 0
        frame = pd.DataFrame({"u": np.array([1, 2], np.uint64), "i": [-1, 2], "b": [first, False]})
        late = pd.Timestamp("2024-01-01 00:00:00.000000001")
        made = gl.from_local(frame.assign(t=late.as_unit("us", round_ok=True), n=late)).assign(y=expression)
        return made.dtypes["y"], str(made.local()["y"].dtype)

    assert World("threads", 2).run(body) == [(dtype, dtype)] * 2


def test_values_that_are_none_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"Expected a whole number for periods, got np.timedelta64\(1,'D'\)"):
        col("t").shift(np.timedelta64(1, "D"))
    with pytest.raises(ArgumentError, match=r"replace looks for col\('y'\)"):
        col("x").replace({col("y"): 1})
