"""Infinite and missing values, and none at all: what verbs give of them is told by their meaning, on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError
from gcylon_lab.runtime.context import current

INF = np.inf
TIMES = ["2021-10-30", "2021-10-31", "2021-11-01"]


def table_of(frame: pd.DataFrame) -> gl.Table:
    """A table of which each rank has its share of the rows, in two chunks."""
    rank, size = current().rank, current().size
    piece = frame.iloc[len(frame) * rank // size : len(frame) * (rank + 1) // size].reset_index(drop=True)
    return gl.from_local([piece.iloc[:1], piece.iloc[1:].reset_index(drop=True)])


def made(frame: pd.DataFrame, make: Any) -> Any:
    return table_of(frame).assign(made=make).to_pandas()["made"]


def windowed(frame: pd.DataFrame, make: Any, size: int) -> pd.Series[Any]:
    result: pd.Series[Any] = World("threads", size).run(made, frame, make)[0]
    return result


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("dtype", ["float64", "Float64", pd.ArrowDtype(pa.float64())], ids=str)
def test_infinite_values_are_values(size: int, dtype: Any) -> None:
    values = pd.Series([1.0, INF, 2.0, -INF, None, 3.0], dtype=dtype)
    frame = pd.DataFrame({"k": [0, 0, 0, 0, 0, 1], "x": values, "y": values.iloc[1:].tolist() + [1.0]}).astype(
        {"y": dtype}
    )
    missing = [np.nan]
    for make, expected in (
        (lambda t: t.x.cumsum(), [1, INF, INF, *3 * missing]),
        (lambda t: t.groupby("k")["x"].cumsum(), [1, INF, INF, *2 * missing, 3]),
        (lambda t: (t.x - 1).cumprod(), [0, *5 * missing]),
        (lambda t: t.x.cummax(), [1, INF, INF, INF, np.nan, INF]),
        (lambda t: t.y.cummin(), [INF, 2, -INF, np.nan, -INF, -INF]),
    ):
        assert windowed(frame, make, size).astype("float64").tolist() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("dtype", "values", "sums", "wide"),
    [
        ("boolean", [True, None, True, True], [1, None, 2, 3], "Int64"),
        (pd.ArrowDtype(pa.bool_()), [True, None, True, True], [1, None, 2, 3], pd.ArrowDtype(pa.int64())),
        (pd.ArrowDtype(pa.int8()), [100, 100, None, 100], [100, 200, None, 300], pd.ArrowDtype(pa.int64())),
        ("Int8", [100, 100, None, 100], [100, 200, None, 300], "Int64"),
        ("uint8", [200, 200, 0, 1], [200, 400, 400, 401], "uint64"),
    ],
)
@pytest.mark.parametrize("size", [1, 2])
def test_sums_of_narrow_ints_are_64_bits_wide(size: int, dtype: Any, values: Any, sums: Any, wide: Any) -> None:
    found = windowed(pd.DataFrame({"x": pd.Series(values, dtype=dtype)}), lambda t: t.x.cumsum(), size)
    pd.testing.assert_series_equal(found, pd.Series(sums, dtype=wide, name="made"))


def test_extremes_of_times_beside_rows_without_a_key() -> None:
    times = pd.to_datetime([None, TIMES[1], None, TIMES[0], TIMES[2]])
    frame = pd.DataFrame({"k": [1, 1, None, 1, None], "t": times})
    for make, last in (
        (lambda t: t.groupby("k")["t"].cummin(), TIMES[0]),
        (lambda t: t.groupby("k")["t"].cummax(), TIMES[1]),
    ):
        found = windowed(frame, make, 2)
        expected = pd.Series(pd.to_datetime([None, TIMES[1], None, last, None]))
        pd.testing.assert_series_equal(found, expected, check_names=False)
    found = windowed(frame, lambda t: t.groupby("k")["t"].shift(0), 2)
    pd.testing.assert_series_equal(found, frame["t"].where(frame["k"].notna()), check_names=False)


@pytest.mark.parametrize("periods", [0, 1, 3])
@pytest.mark.parametrize("name", ["count", "sum", "mean", "min"])
def test_rows_up_to_each_that_are_enough(name: str, periods: int) -> None:
    frame = pd.DataFrame({"x": [None, 1.0, None, 2.0, 4.0]})
    found = windowed(frame, lambda t: getattr(t.x.expanding(periods), name)(), 2)
    pd.testing.assert_series_equal(found, getattr(frame.x.expanding(periods), name)(), check_names=False)


def quantiles(frame: pd.DataFrame, q: float) -> tuple[Any, Any]:
    table = table_of(frame)
    groups = table.assign(k=1).groupby("k").agg(t=("t", "quantile", q), d=("d", "quantile", q)).to_pandas()
    return table.quantile(q), groups[["t", "d"]].iloc[0]


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_quantiles_of_times_do_not_lack_a_tick(unit: str) -> None:
    start, minutes = pd.Timestamp("2020-01-01"), pd.Timedelta(minutes=10)
    for rows, q in ((41, 0.35), (200, 0.3), (31, 0.77)):
        times = pd.Series(pd.date_range(start, periods=rows, freq=minutes)).dt.as_unit(unit)
        frame = pd.DataFrame({"t": times, "d": (times - pd.Timestamp("2021-01-01")).dt.as_unit(unit)})
        further = pd.Timedelta(seconds=round((rows - 1) * q * 600))
        for found in World("threads", 2).run(quantiles, frame, q)[0]:
            assert found["t"] == start + further
            assert found["d"] == start - pd.Timestamp("2021-01-01") + further


NOTHING = pd.DataFrame(
    {
        "n": pd.array([None] * 3, "Int64"),
        "f": pd.array([None] * 3, "Float64"),
        "d": pd.array([None] * 3, pd.ArrowDtype(pa.decimal128(9, 2))),
        "s": pd.array([None] * 3, "str"),
        "a": pd.array([None] * 3, pd.ArrowDtype(pa.string())),
        "b": pd.array([None] * 3, "boolean"),
        "x": [1.0, 1.0, 1.0],
    }
)


def of_nothing(frame: pd.DataFrame) -> dict[str, Any]:
    table = table_of(frame)
    return {
        "histograms": [table.histogram(name, 4) for name in "nfd"],
        "described": table.describe("d"),
        "texts": table.describe(["s", "b"]),
        "every": table.describe(["s", "x"]),
        "corr": table.corr(["n", "f", "d"]),
        "any": table.any(["s", "a", "d", "x"]).tolist(),
        "all": table.all(["s", "a", "d", "x"]).tolist(),
    }


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("size", [1, 2])
def test_columns_without_values(size: int, rows: int) -> None:
    frame = NOTHING.iloc[:rows]
    for found in World("threads", size).run(of_nothing, frame):
        for counts, edges in found["histograms"]:
            assert counts.tolist() == [0] * 4 and edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
        assert found["described"]["d"].isna().tolist() == [False, *[True] * 7]
        pd.testing.assert_frame_equal(found["texts"], frame[["s", "b"]].describe(), check_dtype=False)
        pd.testing.assert_frame_equal(found["every"], frame[["s", "x"]].describe(include="all"), check_dtype=False)
        assert found["corr"].isna().all(axis=None)
        assert found["any"] == [False, False, False, rows > 0] and found["all"] == [True] * 4


def bins(frame: pd.DataFrame) -> None:
    table = table_of(frame)
    with pytest.raises(ArgumentError, match=r"column 'i' has values from 1 to inf, between which there are no 4 even"):
        table.histogram("i", 4)
    assert table.histogram("i", [0, 1.5, 3])[0].tolist() == [1, 1]
    for name in "in":
        with pytest.raises(ArgumentError, match="with bins=4 has no even ones between"):
            gl.cut(table[name], 4)
    assert set(table.assign(c=gl.cut(table.x, 4)).to_pandas()["c"]) == {"(1.999, 2]"}


def test_even_bins_of_values_that_have_none() -> None:
    frame = pd.DataFrame({"i": [1.0, INF, 2.0], "n": pd.array([None] * 3, "Int64"), "x": [2.0] * 3})
    World("threads", 2).run(bins, frame)


def near(frame: pd.DataFrame) -> dict[str, list[Any]]:
    table = table_of(frame)
    other = table.assign(n=table.n - 2).select(["t", "n", "x"])
    found = {
        "times": table.merge_asof(other.drop("n"), "t"),
        "ints": table.merge_asof(other.drop("t"), "n"),
        "near": table.merge_asof(other.drop("t"), "n", tolerance=3),
        "too far": table.merge_asof(other.drop("t"), "n", tolerance=1),
        "after": table.merge_asof(other.drop("t"), "n", direction="forward", tolerance=2),
    }
    return {name: one.to_pandas()["x_y"].tolist() for name, one in found.items()}


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_rows_without_a_time_are_near_none_and_long_ints_are_exact(dtype: str) -> None:
    numbers = np.array([17 * 10**17 + 1, 17 * 10**17 + 5, 17 * 10**17 + 9, 5], dtype)
    times = pd.to_datetime([TIMES[0], None, TIMES[2], None])
    frame = pd.DataFrame({"t": times, "n": numbers, "x": [1.0, 2.0, 3.0, 4.0]})
    missing = np.nan
    for found in World("threads", 2).run(near, frame):
        assert found["times"] == pytest.approx([1, missing, 3, missing], nan_ok=True)
        assert found["ints"] == found["near"] == [1, 2, 3, 4]
        assert found["too far"] == pytest.approx([missing] * 4, nan_ok=True)
        assert found["after"] == pytest.approx([2, 3, missing, missing], nan_ok=True)


def no_columns(frame: pd.DataFrame) -> list[tuple[int, int]]:
    table = table_of(frame)
    return [table.corr(numeric_only=True).shape, table.cov([]).shape]


def test_correlations_of_no_columns() -> None:
    assert World("threads", 2).run(no_columns, pd.DataFrame({"s": ["a", "b"]}))[0] == [(0, 0), (0, 0)]


@pytest.mark.parametrize("codes", [[-1, -1, -1, -1], [-1, 0, -1, 0]])
def test_last_rows_of_groups_without_a_category(codes: list[int]) -> None:
    frame = pd.DataFrame({"k": pd.Categorical.from_codes(codes, ["a", "b"]), "x": [1.0, 2.0, 4.0, 8.0]})
    sums = windowed(frame, lambda t: t.groupby("k", dropna=False)["x"].rolling(2, 1).sum(), 2)
    assert sums.tolist() == ([1, 3, 6, 12] if codes[1] < 0 else [1, 2, 5, 10])
    sums = windowed(frame, lambda t: t.groupby("k")["x"].rolling(2, 1).sum(), 2)
    assert sums.isna().tolist() == [code < 0 for code in codes]


def counted(frame: pd.DataFrame, dropna: bool) -> pd.DataFrame:
    counts = table_of(frame).groupby("k", dropna=dropna)["x"].value_counts()
    return counts.sort_values(["k", "x"]).to_pandas()


@pytest.mark.parametrize("dropna", [True, False])
def test_values_are_counted_in_the_group_without_a_key_too(dropna: bool) -> None:
    frame = pd.DataFrame({"k": ["a", None, None, None, "a"], "x": [1.0, 2.0, 2.0, np.nan, np.nan]})
    expected = frame.groupby("k", dropna=dropna)["x"].value_counts().reset_index()
    found = World("threads", 2).run(counted, frame, dropna)[0]
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def without_missing(frame: pd.DataFrame, how: str) -> list[int]:
    rows: list[int] = table_of(frame).dropna(how=how).to_pandas()["c0"].isna().tolist()
    return rows


@pytest.mark.parametrize("columns", [5, 1500])
def test_rows_with_missing_values_of_many_columns(columns: int) -> None:
    frame = pd.DataFrame({f"c{i}": [1.0, np.nan, np.nan] for i in range(columns)})
    frame.iloc[1, -1] = 2.0
    assert World("threads", 2).run(without_missing, frame, "any")[0] == [False]
    assert World("threads", 2).run(without_missing, frame, "all")[0] == [False, True]


@pytest.mark.parametrize("dtype", ["float64", "Float32"])
def test_quantiles_beside_infinite_values(dtype: str) -> None:
    for values, expected in (([-INF, 1], -INF), ([1, INF], INF), ([-INF, -INF], -INF), ([-INF, INF], np.nan)):
        column = pd.Series(values, dtype=dtype)
        for found in World("threads", 2).run(quantiles, pd.DataFrame({"t": column, "d": column}), 0.3)[0]:
            assert pd.array(found, "Float64").to_numpy(na_value=np.nan) == pytest.approx([expected] * 2, nan_ok=True)
