"""describe on every world: pandas' own of the whole table, the same on every rank."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from exchanges import LAYOUTS, whole
from relations import FEW, THREADS, TIGHT, check_clean, on_ranks
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, ColumnMissing, UnsupportedDtype
from gcylon_lab.runtime.context import current

TICK = pd.Timedelta(1, "us")  # pandas interpolates times as floats


class Describing:
    """describe to run on ranks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs

    def __call__(self, table: Any) -> Any:
        return table.describe(*self.args, **self.kwargs)


class Reducing:
    """A reduction to run on ranks."""

    def __init__(self, name: str, *args: Any, **kwargs: Any) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs

    def __call__(self, table: Any) -> Any:
        return getattr(table, self.name)(*self.args, **self.kwargs)


def assert_described(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    assert ours.index.tolist() == theirs.index.tolist()
    pd.testing.assert_index_equal(ours.columns, theirs.columns)
    assert ours.dtypes.tolist() == theirs.dtypes.tolist()
    for name in theirs:
        for a, b in zip(ours[name], theirs[name], strict=True):
            if pd.isna(a) or pd.isna(b):
                assert a is b or (np.isnan(a) and np.isnan(b))
            elif isinstance(b, (pd.Timestamp, pd.Timedelta)):
                assert type(a) is type(b) and abs(a - b) <= TICK
                assert getattr(a, "tz", None) == getattr(b, "tz", None)
            else:
                assert a == pytest.approx(b, rel=1e-6 if "32" in name else 1e-12)  # pandas adds float32 up as such


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("world", THREADS, ids=str)
def test_what_is_described_is_what_pandas_describes(world: World, layout: str) -> None:
    everything = whole(layout, world.size).drop(columns="m")  # decimals are objects to pandas
    results = world.run(on_ranks, Describing(), layout)
    assert_described(results[-1]["value"].drop(columns="m", errors="ignore"), everything.describe())
    for result in results[1:]:
        pd.testing.assert_frame_equal(result["value"], results[0]["value"])
    check_clean(results)


@pytest.mark.parametrize("world", FEW, ids=str)
def test_percentiles_have_the_labels_and_the_order_of_pandas(world: World) -> None:
    names = ["x", "t", "d", "n", "g"]
    for i, percentiles in enumerate(([0.9, 0.1], np.array([0.5]), [], (0.00012, 0.999), [0, 1, 0.251])):
        expected = whole("even", world.size)[names].describe(percentiles=percentiles, include="all")
        staged = (i + world.size // 2) % 2 == 0  # each also on a world where it is the other way
        verb = Describing(names, percentiles=percentiles, config=TIGHT if staged else None)
        results = world.run(on_ranks, verb, "even", staged)
        assert_described(results[0]["value"], expected)
        check_clean(results)


def many_dtypes() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    rows = 3000
    ints = pd.Series(rng.integers(0, 500, rows)).mask(rng.random(rows) < 0.1)
    times = pd.Series(pd.to_datetime(rng.integers(-(10**9), 10**9, rows), unit="s")).mask(rng.random(rows) < 0.1)
    spans = pd.Series(pd.to_timedelta(rng.integers(-(10**6), 10**6, rows), unit="s")).mask(rng.random(rows) < 0.1)
    return pd.DataFrame(
        {
            "f32": ints.astype("float32"), "Int32": ints.astype("Int32"), "Float32": ints.astype("Float32"),
            "u8": pd.Series(rng.integers(0, 255, rows), dtype="uint8"), "ints": ints.astype("int64[pyarrow]"),
            "doubles": ints.astype("double[pyarrow]"), "s": times.astype("datetime64[s]"), "ns": times.astype("M8[ns]"),
            "zone": times.dt.tz_localize("Europe/Oslo", ambiguous="NaT", nonexistent="NaT"),
            "stamps": times.astype(pd.ArrowDtype(pa.timestamp("us"))),
            "stamps of a zone": times.dt.tz_localize("UTC").astype(pd.ArrowDtype(pa.timestamp("ms", "Asia/Tokyo"))),
            "spans": spans.astype("m8[ms]"), "durations": spans.astype(pd.ArrowDtype(pa.duration("ns"))),
            "no time": pd.Series(pd.NaT, range(rows), dtype="M8[us]"), "no Int": pd.Series(pd.NA, range(rows), "Int8"),
            "no span": pd.Series(pd.NaT, range(rows), dtype="m8[s]"),
        }
    )  # fmt: skip


@pytest.mark.parametrize("config", [None, TIGHT, GcylonConfig(gpu_memory_limit="64 KiB")], ids=["", "tight", "tiny"])
@pytest.mark.parametrize("size", [1, 3])
def test_dtypes_are_those_of_pandas(size: int, config: GcylonConfig | None) -> None:
    frame = many_dtypes()
    parts = [frame.iloc[len(frame) * r // size : len(frame) * (r + 1) // size] for r in range(size)]
    results = World("threads", size).run(on_ranks, Describing(include="all", config=config), parts, bool(config))
    assert_described(results[0]["value"], frame.describe(include="all"))
    check_clean(results)


@pytest.mark.parametrize("size", [1, 3])
def test_dtypes_alone_and_with_hardly_a_row_are_those_of_pandas(size: int) -> None:
    frame = many_dtypes()
    for name in frame:
        few = [frame[[name]].iloc[rank : rank + 1] for rank in range(size)]
        value = World("threads", size).run(on_ranks, Describing(name, percentiles=[0.3]), few)[0]["value"]
        assert_described(value, pd.concat(few).describe(percentiles=[0.3]))


def test_columns_are_chosen_by_dtypes_as_pandas_does() -> None:
    world, frame = World("threads", 2), many_dtypes()
    parts = [frame.iloc[:1000], frame.iloc[1000:]]
    for how in (
        {}, {"include": "datetimetz"}, {"include": ["datetime", np.int64]}, {"exclude": ["number", "datetime"]},
        {"include": "number", "exclude": "timedelta"},
    ):  # fmt: skip
        ours = world.run(on_ranks, Describing(**how), parts)[0]["value"]
        theirs = frame.describe(**how)
        assert_described(ours, theirs)
    only = [part[["zone"]].assign(text="a") for part in parts]
    assert_described(world.run(on_ranks, Describing(), only)[0]["value"], frame[["zone"]].describe())


def test_decimals_are_described_as_floats() -> None:
    everything = whole("even", 2)
    ours = World("threads", 2).run(on_ranks, Describing(), "even")[0]["value"]
    pd.testing.assert_frame_equal(ours[["m"]].dropna(), everything[["m"]].astype("float64").describe())
    empty = World("threads", 2).run(on_ranks, Describing(["m"]), "all empty")[0]["value"]
    assert empty["m"].dtype == "float64" and empty["m"].iloc[0] == 0 and empty["m"].iloc[1:].isna().all()


@pytest.mark.parametrize("world", FEW, ids=str)
def test_timedeltas_have_a_std(world: World) -> None:
    spans = whole("even", world.size)["d"]
    for how in ({}, {"ddof": 0, "config": TIGHT}):
        result = world.run(on_ranks, Reducing("std", "d", **how), "even", bool(how))[0]["value"]
        assert abs(result - spans.std(ddof=how.get("ddof", 1))) <= TICK
    assert world.run(on_ranks, Reducing("std", "d"), "all empty")[0]["value"] is pd.NaT


def few_values() -> pd.DataFrame:
    lone = [None, 7] if current().rank else [None, None]
    values = {"a": pd.array(lone, "Int64"), "b": pd.array([None, None], "Int64")}
    return gl.from_local(pd.DataFrame(values)).describe()


def test_describe_of_one_value_and_of_none() -> None:
    for found in World("threads", 2).run(few_values):
        assert found["a"].fillna(-1).tolist() == [1, 7, -1, 7, 7, 7, 7, 7]
        assert found["b"].fillna(-1).tolist() == [0, -1, -1, -1, -1, -1, -1, -1]


def failing(columns: Any, how: dict[str, Any]) -> None:
    names = ["s", "date"] if columns == "texts" else None
    frame = pd.DataFrame({"v": [1.0, 2.0], "s": ["a", "b"], "date": [dt.date(2020, 1, 1), None]})
    table = gl.from_local(frame if names is None else frame[names])
    try:
        table.describe(None if names else columns, **how)
    except gl.GcylonError as error:
        assert table.count("s") == 2 * gl.current().size  # what comes next works
        raise error


@pytest.mark.parametrize(
    ("columns", "how", "error", "words"),
    [
        (None, {"include": ["str"]}, UnsupportedDtype, "value_counts('s')"),
        ("texts", {}, ArgumentError, "no columns of numbers or times"),
        (None, {"exclude": ["number", object, "str"]}, ArgumentError, "no columns of numbers or times"),
        (None, {"include": "nothing"}, ArgumentError, "include='nothing'"),
        (None, {"include": "all", "exclude": "number"}, ArgumentError, "exclude='number'"),
        (["v", "nope"], {}, ColumnMissing, "'nope'"),
        (None, {"percentiles": [1.5]}, ArgumentError, "percentiles=[1.5]"),
        (None, {"percentiles": [0.5, 0.5]}, ArgumentError, "percentiles cannot contain duplicates"),
        (None, {"percentiles": 0.5}, ArgumentError, "Give different ones in [0, 1]"),
        (None, {"percentiles": ["a"]}, ArgumentError, "for percentiles, got ['a']"),
    ],
)
def test_what_cannot_be_described_is_refused_on_all_ranks(columns: Any, how: Any, error: type, words: str) -> None:
    for outcome in World("threads", 3).outcomes(failing, columns, how):
        assert isinstance(outcome.error, error), outcome.error
        assert words in str(outcome.error)
