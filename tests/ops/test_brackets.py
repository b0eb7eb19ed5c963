"""Columns by brackets and names, conditions as text, functions of groups: pandas' answers on the whole table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.runtime.context import current

FRAME = pd.DataFrame(
    {
        "k": [3, 1, 2, 1, 3, 3, 2, 1],
        "x": [1.5, None, 3.0, -2.0, 8.0, 0.0, 4.5, 1.0],
        "s": ["a", "b", "A", "c", "b", "", "dd", "a"],
        "count": range(8),
        "two words": [True, False, True, True, False, True, False, True],
    }
)

# What gives one value, or a pandas object, of a table and of a frame alike.
VALUES: list[Callable[[Any], Any]] = [
    lambda t: t["x"].mean(),
    lambda t: t["count"] @ t.k,
    lambda t: t.k.dot(t["count"]),
    lambda t: t.x.sum(),
    lambda t: (t.x * 2 + t.k).max(),
    lambda t: (t["x"] > 1).sum(),
    lambda t: t.x.isna().sum(),
    lambda t: t["count"].median(),
    lambda t: t.x.std(),
    lambda t: t.x.var(ddof=0),
    lambda t: t.x.quantile(0.3),
    lambda t: t.s.nunique(),
    lambda t: t["two words"].any(),
    lambda t: t["two words"].all(),
    lambda t: t.x.fillna(0).min(),
    lambda t: t.x.count(),
    lambda t: (1 - t.x).mean(),
    lambda t: t.s.str.upper().nunique(),
]

TABLES: list[Callable[[Any], Any]] = [
    lambda t: t[["s", "k"]],
    lambda t: t[t.x > 1],
    lambda t: t[(t["x"] > 0) & (t.s != "a") | t["two words"]],
    lambda t: t[~t.k.isin([1, 2])][["x"]],
    lambda t: t.assign(y=t.x * t["count"]),
    lambda t: t[t["two words"]],
    lambda t: t.query("x > 1 and s == 'b'"),
    lambda t: t.query("k in [1, 3] and not x < 0"),
    lambda t: t.query("0 < x <= 4.5 or `two words`"),
    lambda t: t.query("s not in ['a', 'b']"),
    lambda t: t.query("x.isna()"),
    lambda t: t.query("s.str.upper() == 'A'"),
    lambda t: t.query("s == 'it`s' or count == 3"),
    lambda t: t.query("(x + k * 2 > 5) | (count == 1)"),
]

# Tables of groups, with keys as columns.
GROUPS: list[Callable[[Any], Any]] = [
    lambda g: g["x"].mean(),
    lambda g: g[["x", "count"]].sum(),
    lambda g: g["x"].agg(["min", "max"]),
    lambda g: g.s.nunique(),
    lambda g: g["x"].quantile(0.25),
    lambda g: g["x"].std(ddof=0),
    lambda g: g.sum(numeric_only=True),
    lambda g: g.mean(numeric_only=True),
    lambda g: g.count(),
    lambda g: g.max(),
    lambda g: g["x"].agg(low="min", high="max"),
]


def values(number: int) -> tuple[Any, Any]:
    table = gl.from_local(FRAME.iloc[current().rank :: current().size])
    return VALUES[number](table), VALUES[number](FRAME)


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_one_value_is_that_of_pandas(number: int) -> None:
    for ours, theirs in World("threads", 2).run(values, number):
        assert ours == pytest.approx(theirs) and not isinstance(ours, pd.Series)


def values_where_one_rank_has_all() -> list[tuple[Any, Any]]:
    table = gl.from_local(FRAME if current().rank == 1 else FRAME.iloc[:0])
    return [(ask(table), ask(FRAME)) for ask in VALUES]


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_without_rows_have_the_same_values(size: int) -> None:
    for found in World("threads", size).run(values_where_one_rank_has_all):
        for ours, theirs in found:
            assert ours == pytest.approx(theirs)


def rows(made: Any) -> pd.DataFrame:
    return to_frame(current().workspace.backend.to_host(made._whole()))


def tables(number: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    mine = FRAME.iloc[current().rank :: current().size]
    return rows(TABLES[number](gl.from_local(mine))), TABLES[number](mine).reset_index(drop=True)


@pytest.mark.parametrize("number", range(len(TABLES)))
def test_rows_are_those_of_pandas(number: int) -> None:
    for ours, theirs in World("threads", 3).run(tables, number):
        pd.testing.assert_frame_equal(ours, theirs, check_dtype=False)


def groups(number: int) -> pd.DataFrame:
    table = gl.from_local(FRAME.iloc[current().rank :: current().size])
    return rows(GROUPS[number](table.groupby("k", sort=True)))


@pytest.mark.parametrize("number", range(len(GROUPS)))
def test_groups_are_those_of_pandas(number: int) -> None:
    ours = pd.concat(World("threads", 2).run(groups, number), ignore_index=True)
    theirs = GROUPS[number](FRAME.groupby("k")).reset_index()
    assert ours.shape == theirs.shape
    for place in range(ours.shape[1]):
        mine, other = ours.iloc[:, place], theirs.iloc[:, place]
        assert mine.tolist() == (
            pytest.approx(other.tolist(), nan_ok=True) if other.dtype.kind == "f" else other.tolist()
        )


def by_name() -> dict[str, Any]:
    table = gl.from_local(FRAME.iloc[current().rank :: current().size])
    least = 2
    return {
        "query": table.query("k > @least").count_rows(),
        "given": table.query("k > @most", most=1).count_rows(),
        "largest": table.nlargest(2, "x")["x"].tolist(),
        "smallest": table.nsmallest(2, table.x)["x"].tolist(),
        "keys": table.groupby(table.k).size().count_rows() + least - 2,
        "sorted": table.sort_values(table.x).head(1)["x"].tolist(),
        "counts": table.s.value_counts().to_pandas()["count"].max(),
        "list": sorted(table["count"].tolist()),
        "unique": sorted(table.k.unique().to_pandas()["k"]),
        "dtypes": (table.x.dtype, (table.x > 1).dtype, table.x.name, (table.x + table.k).name),
    }


@pytest.mark.parametrize("world", [World("single", 1), World("threads", 3)], ids=str)
def test_names_of_columns_and_variables(world: World) -> None:
    for found in world.run(by_name):
        assert (found["query"], found["given"]) == (3, 5)
        assert found["largest"] == [8.0, 4.5] and found["smallest"] == [-2.0, 0.0] and found["sorted"] == [-2.0]
        assert found["keys"] == 3 and found["counts"] == 2 and found["list"] == list(range(8))
        assert found["unique"] == [1, 2, 3] and found["dtypes"] == ("float64", "bool", "x", "value")


def leading(config: gl.GcylonConfig | None) -> list[Any]:
    rank, size = current().rank, current().size
    rng = np.random.default_rng(3)
    whole = pd.DataFrame(
        {"x": rng.integers(0, 40, 3000) / 4, "s": rng.choice(["a", "b", None], 3000), "n": range(3000)}
    )
    whole.loc[rng.random(3000) < 0.1, "x"] = np.nan
    mine = whole.iloc[3000 * rank // size : 3000 * (rank + 1) // size]
    table = gl.from_local([mine.iloc[i : i + 100] for i in range(0, len(mine), 100)], config=config)
    if config is not None:
        current().set_config(config)
    found = []
    for n in (0, 1, 70, 5000 if config is None else 200):
        for by, up in ((["x"], False), (["x"], True), (["s", "x"], True)):
            ours = table.nsmallest(n, by) if up else table.nlargest(n, by)
            theirs = whole.sort_values(by, ascending=up, kind="stable").head(n)
            found.append((n, by, ours["n"].tolist() == theirs["n"].tolist()))
    few = gl.from_local(whole.head(int(rank == 0)))  # the other ranks have none
    none = gl.from_local(whole.head(0))
    return [*found, (few.nlargest(3, "n")["n"].tolist() == [0],), (len(none.nsmallest(3, ["s", "n"])) == 0,)]


@pytest.mark.parametrize("limit", ["", "64KiB"], ids=["in memory", "in little memory"])
def test_the_first_rows_are_those_of_a_sort(limit: str) -> None:
    config = gl.GcylonConfig(gpu_memory_limit=limit) if limit else None
    for world in (World("single", 1), World("threads", 3)):
        for found in world.run(leading, config):
            assert all(same for *_, same in found), found


def refusals() -> list[str]:
    table = gl.from_local(FRAME.iloc[current().rank :: current().size])
    other = gl.from_local(FRAME.iloc[:2])
    said = []
    for ask in (
        lambda: table[other.x > 1],
        lambda: table.x + other.x,
        lambda: table.assign(y=[1] and other.x),
        lambda: table["nope"],
        lambda: table[np.array([True] * 3)],
        lambda: table.query("nope > 1"),
        lambda: table.query("x >"),
        lambda: table.query("__import__('os')"),
        lambda: table.query("x.__class__ == 1"),
        lambda: table.query("s.str.__class__() == 1"),
        lambda: table.query("x > @unheard_of"),
        lambda: table.query("1 > 0"),
        lambda: table.query("`x > 1"),
        lambda: bool(table.x > 1),
        lambda: np.asarray(table.x),
    ):
        try:
            ask()
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
        else:
            said.append("")
    return said


def test_what_cannot_be_is_said_with_what_to_write() -> None:
    wanted = [
        "ArgumentError: .*of another table.*t.join",
        "ArgumentError: .*of another table",
        "ArgumentError: .*of another table",
        "ColumnMissing: .*'nope'.*The columns are 'k', 'x'",
        r"TypeError: .*t\[t.x > 0\]",
        "ColumnMissing: .*'nope'",
        "ArgumentError: .*cannot be read",
        "ArgumentError: .*cannot be part of a condition",
        "ArgumentError: .*cannot be part of a condition",
        "ArgumentError: .*cannot be part of a condition",
        "ArgumentError: .*no variable 'unheard_of'",
        "ArgumentError: .*no condition on columns",
        "ArgumentError: .*a backtick too many",
        "TypeError: .*combine conditions with & | ~",
        "",  # few values come by themselves
    ]
    for said in World("threads", 2).run(refusals):
        for text, pattern in zip(said, wanted, strict=True):
            assert re.match(pattern, text), (text, pattern)
