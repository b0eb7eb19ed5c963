"""pivot_table, crosstab, melt, merge_asof, cut, histogram, corr and cov: as pandas has them on the whole table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import held, more_held
from relations import THREADS
from worlds import World, in_turn

import gcylon_lab as gl
from gcylon_lab import col
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, ColumnMissing, UnsupportedDtype
from gcylon_lab.runtime.context import current

ROWS = 300
SMALL = GcylonConfig(gpu_memory_limit="200 KiB", chunk_size_bytes=4096, min_chunk_rows=1)


def whole(rows: int = ROWS) -> pd.DataFrame:
    """Rows with missing keys and values, large means, and times with ties."""
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "a": np.where(rng.random(rows) < 0.05, None, np.array(["p", "q", "r"])[rng.integers(0, 3, rows)]),
            "b": rng.integers(0, 4, rows),
            "x": np.where(rng.random(rows) < 0.1, np.nan, 1e6 + rng.integers(0, 40, rows) / 8),
            "y": rng.normal(size=rows),
            "t": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, rows) * 7, "h"),
        }
    ).astype({"a": "str"})


def marks(rows: int = 60) -> pd.DataFrame:
    """Rows for `merge_asof`: unsorted, with ties and a missing value."""
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "t": pd.Timestamp("2024-01-03") + pd.to_timedelta(rng.integers(0, 90, rows) * 21, "h"),
            "b": rng.integers(0, 4, rows),
            "mark": np.where(np.arange(rows) == 7, np.nan, np.arange(rows) * 1.0),
        }
    )


def share(frame: pd.DataFrame) -> pd.DataFrame:
    """This rank's rows; of more than two ranks one has none."""
    rank, size = current().rank, current().size
    shares = [1, 3] if size == 2 else [2, 0, 5, 1][:size]
    edges = np.cumsum([0, *shares]) * len(frame) // sum(shares)
    return frame.iloc[edges[rank] : edges[rank + 1]].reset_index(drop=True)


def sorted_asof(left: pd.DataFrame, right: pd.DataFrame, **how: Any) -> pd.DataFrame:
    """pandas' answer, in the order of the left rows; it wants both sorted."""
    numbered = left.assign(row=range(len(left))).sort_values("t", kind="stable")
    found = pd.merge_asof(numbered, right.sort_values("t", kind="stable"), on="t", **how)
    return found.sort_values("row").drop(columns="row").reset_index(drop=True)


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.reset_index()
    frame.columns = [str(name) for name in frame.columns]
    return frame


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[pd.DataFrame], Any]]] = {
    "pivot": (lambda t: t.pivot_table("y", "a", "b", "sum"), lambda f: plain(f.pivot_table("y", "a", "b", "sum"))),
    "pivot of two": (
        lambda t: t.pivot_table("y", ["b", "a"], gl.col("t").dt.month, "max", fill_value=0),
        lambda f: plain(f.assign(m=f.t.dt.month).pivot_table("y", ["b", "a"], "m", "max", fill_value=0)),
    ),
    "pivot without columns": (lambda t: t.pivot_table("y", "b"), lambda f: plain(f.pivot_table("y", "b"))),
    "crosstab": (lambda t: t.crosstab("b", "a"), lambda f: plain(pd.crosstab(f.b, f.a))),
    "melt": (lambda t: t.melt(["a", "b"], ["x", "y"]), lambda f: f.melt(["a", "b"], ["x", "y"])),
    "melt of one": (lambda t: t.melt("a", "y", "what", "much"), lambda f: f.melt("a", "y", "what", "much")),
    "asof": (
        lambda t: t.merge_asof(made(marks().drop(columns="b")), "t"),
        lambda f: sorted_asof(f, marks().drop(columns="b")),
    ),
    "asof by": (lambda t: t.merge_asof(made(marks()), "t", "b"), lambda f: sorted_asof(f, marks(), by="b")),
    "asof forward": (
        lambda t: t.merge_asof(made(marks()), "t", "b", direction="forward", allow_exact_matches=False),
        lambda f: sorted_asof(f, marks(), by="b", direction="forward", allow_exact_matches=False),
    ),
    "asof near": (
        lambda t: t.merge_asof(made(marks()), "t", "b", tolerance=pd.Timedelta("9h")),
        lambda f: sorted_asof(f, marks(), by="b", tolerance=pd.Timedelta("9h")),
    ),
    "cut": (
        lambda t: t.assign(c=gl.cut(t.y, [-1, 0, 0.5, 4], labels=["low", "mid", "high"])),
        lambda f: f.assign(c=pd.cut(f.y, [-1, 0, 0.5, 4], labels=["low", "mid", "high"]).astype("str")),
    ),
    "cut on the left": (
        lambda t: t.assign(c=gl.cut(t.b, [0, 1, 3], labels=False, right=False, include_lowest=True)),
        lambda f: f.assign(c=pd.cut(f.b, [0, 1, 3], labels=False, right=False, include_lowest=True)),
    ),
    "cut evenly": (
        lambda t: t.assign(c=gl.cut(t.y, 5, labels=False)),
        lambda f: f.assign(c=pd.cut(f.y, 5, labels=False)),
    ),
}


def made(frame: pd.DataFrame) -> Any:
    """A table of rows spread over the ranks."""
    return gl.from_local(share(frame))


def on_a_rank(name: str, rows: int) -> tuple[pd.DataFrame, Any]:
    context = current()
    table = gl.from_local(share(whole(rows)))
    before = held(context)
    result = CASES[name][0](table)
    frame = result.to_pandas(None)
    result.release()
    del result
    return frame, more_held(context, before)


@pytest.mark.parametrize(("world", "name"), in_turn(THREADS, list(CASES)))
def test_tables_have_the_shape_that_pandas_gives_them(world: World, name: str) -> None:
    expected = CASES[name][1](whole())
    for frame, left in world.run(on_a_rank, name, ROWS):
        frame.columns = [str(label) for label in frame.columns]
        pd.testing.assert_frame_equal(frame, expected, check_dtype=False, check_column_type=False, check_names=False)
        assert not any(left)


@pytest.mark.parametrize("name", ["pivot", "melt", "asof by", "cut"])
def test_a_small_budget_changes_nothing(name: str) -> None:
    expected = CASES[name][1](whole(4000))
    for frame, _ in World("threads", 2).run(on_a_rank, name, 4000, config=SMALL):
        frame.columns = [str(label) for label in frame.columns]
        pd.testing.assert_frame_equal(frame, expected, check_dtype=False, check_column_type=False, check_names=False)


def numbers() -> Any:
    table = gl.from_local(share(whole()))
    return [
        table.corr(["x", "y", "b"]), table.cov(["x", "y", "b"]), table.corr("x", min_periods=10_000),
        table.histogram("y", 7), table.histogram("x", [1e6, 1e6 + 1, 1e6 + 9]), table.x.corr(table.y),
        table.describe(include="all"), table.a.describe(), table.a.mode(),
    ]  # fmt: skip


@pytest.mark.parametrize("world", THREADS)
def test_sums_of_pairs_and_counts_between_edges(world: World) -> None:
    frame = whole()
    for corr, cov, none, even, given, one, described, text, mode in world.run(numbers):
        pd.testing.assert_frame_equal(corr, frame[["x", "y", "b"]].corr(), rtol=1e-9)
        pd.testing.assert_frame_equal(cov, frame[["x", "y", "b"]].cov(), rtol=1e-9)
        assert none.isna().all(axis=None)
        for ours, theirs in zip(even, np.histogram(frame["y"], 7), strict=True):
            np.testing.assert_allclose(ours, theirs)
        assert given[0].tolist() == np.histogram(frame["x"].dropna(), [1e6, 1e6 + 1, 1e6 + 9])[0].tolist()
        assert one == pytest.approx(frame["x"].corr(frame["y"]))
        pd.testing.assert_frame_equal(described, frame.describe(include="all"), check_dtype=False, rtol=1e-9)
        pd.testing.assert_series_equal(text, frame["a"].describe(), check_dtype=False)
        assert mode.tolist() == frame["a"].mode().tolist()


def refusals() -> list[str]:
    table = gl.from_local(share(whole()))
    said = []
    for ask in (
        lambda: table.pivot_table("y", "a", "nope"),
        lambda: table.pivot_table("y", None, "b"),
        lambda: table.melt("a", "y", "a"),
        lambda: table.merge_asof(table, "t", direction="nearest"),
        lambda: table.merge_asof(whole(), "t"),
        lambda: gl.cut(col("y"), 3),
        lambda: gl.cut(table.y, [0, 0]),
        lambda: gl.cut(table.y, [0, 1], labels=["a", "b"]),
        lambda: table.corr(),
        lambda: table.histogram("a"),
        lambda: table.histogram("y", [2, 1]),
        lambda: table.rolling(2),
    ):
        try:
            ask()
        except (ArgumentError, ColumnMissing, UnsupportedDtype, AttributeError) as error:
            said.append(str(error))
        else:
            said.append("nothing was said")
    return said


def test_what_cannot_be_is_told_by_all_ranks() -> None:
    wanted = [
        "no column 'nope'", "no index",
        "two columns called 'a'", "direction='nearest' is invalid", "another table for merge_asof",
        "no column of a table", "are no edges", "does not fit 1 bins", "no corr of column 'a'",
        "no histogram of column 'a'", "are no edges", "gl.col('x').rolling(3).mean()",
    ]  # fmt: skip
    for said in World("threads", 2).run(refusals):
        for text, words in zip(said, wanted, strict=True):
            assert words in text, (text, words)


def of_no_rows() -> list[tuple[list[str], int]]:
    rows = gl.from_local(share(whole())).filter(gl.col("b") > 99)
    other = gl.from_local(share(marks()))
    made = [
        rows.pivot_table("y", "a", "b", "sum"), rows.pivot_table("y", "b"), rows.crosstab("a", "b"),
        rows.melt(id_vars="b", value_vars=["x", "y"]), rows.merge_asof(other, on="t"),
        other.merge_asof(rows.select(["t", "y"]), on="t"), rows.assign(c=gl.cut(gl.col("x"), [0, 1])),
    ]  # fmt: skip
    return [(list(table.columns), table.count_rows()) for table in made]


@pytest.mark.parametrize("world", [World("single", 1), World("threads", 4)], ids=str)
def test_tables_without_rows_have_a_shape_too(world: World) -> None:
    found = world.run(of_no_rows)
    assert [rows for _, rows in found[0]] == [0, 0, 0, 0, 0, 60, 0] and all(one == found[0] for one in found)
    assert [columns for columns, _ in found[0]][:4] == [["a"], ["b", "y"], ["a"], ["b", "variable", "value"]]


def pivots(frame: pd.DataFrame, value: str, how: str, fill_value: Any) -> list[str]:
    wide = gl.from_local(frame).pivot_table(value, "k", "c", how, fill_value).to_pandas(None)
    expected = frame.pivot_table(value, "k", "c", how, fill_value=fill_value).reset_index()
    pd.testing.assert_frame_equal(wide, expected, check_names=False, check_column_type=False)
    return [str(dtype) for dtype in wide.dtypes.iloc[1:]]


@pytest.mark.parametrize("how", ["count", "sum", "max", "nunique"])
def test_pivoted_ints_are_floats_where_a_pair_is_missing_alone(how: str) -> None:
    large = 2**53 + 1  # no float
    frame = pd.DataFrame({"k": [1, 1, 2, 2, 3], "c": [5, 6, 5, 6, 5], "v": [large, 2, large, 4, 7]})
    alone = World("single", 1)
    assert alone.run(pivots, frame, "v", how, None)[0] == ["float64"] * 2
    assert alone.run(pivots, frame, "v", how, 0)[0] == ["int64"] * 2
    assert alone.run(pivots, frame[frame.k < 3], "v", how, None)[0] == ["int64"] * 2
    small = frame.assign(v=frame.v.clip(0, 9))
    assert alone.run(pivots, small, "v", how, 8)[0] == ["int64"] * 2


def test_pivoted_bools_stay_bools_where_no_pair_is_missing() -> None:
    frame = pd.DataFrame({"k": [1, 1, 2, 2], "c": list("abab"), "v": [True, False, False, True]})
    assert World("single", 1).run(pivots, frame, "v", "max", None)[0] == ["bool", "bool"]
