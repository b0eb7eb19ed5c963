"""What people do out of habit with a handle: answered with the verb that does it here."""

from __future__ import annotations

import copy
import pickle
import re
import traceback
import warnings
from pathlib import Path
from types import FunctionType
from typing import Any

import duckdb
import narwhals
import numpy as np
import pandas as pd
import plotly.express
import polars
import pyarrow as pa
import pytest
from habits import HABITS, Habit, trips, zones

import gcylon_lab as gl
from gcylon_lab.api.table import Table
from gcylon_lab.errors import RankError

pytestmark = pytest.mark.mpi


Names = dict[str, Any]


def surroundings(lab: gl.Cluster, folder: str) -> tuple[Names, Names]:
    """The names that code finds: tables on the ranks, and the same as frames of pandas."""
    marks = pd.DataFrame(
        {"pickup": pd.date_range("2024-02-01", periods=40, freq="17h").astype("datetime64[us]"), "mark": range(40)}
    ).assign(vendor=lambda frame: frame.mark % 3 + 1)
    frames = {"t": trips(), "z": zones(), "marks": marks}
    others = {
        "gl": gl, "np": np, "pd": pd, "pa": pa, "pl": polars, "duckdb": duckdb, "nw": narwhals, "px": plotly.express,
        "zones": zones(), "limit": 30, "folder": folder, "lab": lab, "copy": copy, "pickle": pickle,
    }  # fmt: skip
    tables = {name: lab.from_pandas(frame) for name, frame in frames.items()}
    return others | tables, others | frames


def outcome(habit: Habit, here: Names, there: Names) -> tuple[str, str]:
    """What became of a habit: it works, is refused with what to do instead, differs from pandas, or ends in a foreign
    error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = plain(eval(habit.code, dict(here)), habit)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if foreign(error) or not habit.refused and isinstance(error, NotImplementedError):
            return "foreign", text
        return ("refused" if habit.refused and re.search(habit.refused, text) else "lacks"), text
    if habit.refused:
        return "answered", repr(ours)
    try:
        same(ours, plain(eval(habit.pandas, dict(there)), habit))
    except Exception as error:
        return "differs", f"{type(error).__name__}: {error}"
    return "works", ""


def foreign(error: BaseException) -> bool:
    """Whether an error was raised elsewhere than in gcylon_lab, or is none of its own: then no alternative is in it."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    home = frame.f_globals.get("__name__", "").partition(".")[0]
    return not isinstance(error, gl.GcylonError) and home != "gcylon_lab"


def plain(value: Any, habit: Habit) -> Any:
    """An answer in pandas, without the order of rows where it has none, and with an index that means something as
    columns."""
    if hasattr(value, "to_pandas") and not isinstance(value, type):
        value = value.to_pandas(None)
    if isinstance(value, pd.Series) and habit.code.startswith(
        ("t.agg", "t.isn", "t.notna", "t.nunique", "t.count", "t.mean")
    ):
        return value
    if isinstance(value, pd.Series):
        value = value.to_frame(value.name if value.name is not None else "value")
    if isinstance(value, pd.DataFrame):
        levels = [name for name in value.index.names if name is not None and name not in value.columns]
        value = value.reset_index(level=levels) if levels else value
        value = value.reset_index(drop=True)
        value.columns = [str(name) for name in value.columns]
        for name in value.columns:
            value[name] = value[name].astype("str") if value[name].dtype == "category" else value[name]
        if habit.any_order:
            value = value.sort_values(list(value.columns), kind="stable").reset_index(drop=True)
    return value


def same(ours: Any, theirs: Any) -> None:
    """Hold an answer against pandas' one."""
    if isinstance(theirs, pd.DataFrame):
        ours = ours.rename(columns={ours.columns[0]: theirs.columns[0]}) if theirs.shape[1] == 1 else ours
        pd.testing.assert_frame_equal(
            ours, theirs, check_dtype=False, check_column_type=False, check_names=False, rtol=1e-9
        )
    elif isinstance(theirs, pd.Series):
        pd.testing.assert_series_equal(ours, theirs, check_dtype=False, check_names=False, rtol=1e-9)
    elif isinstance(theirs, (np.ndarray, list, tuple, float)) and not any(
        isinstance(one, str) for one in np.ravel(theirs)
    ):
        np.testing.assert_allclose(np.asarray(ours, dtype="float64"), np.asarray(theirs, dtype="float64"), rtol=1e-9)
    else:
        assert ours == theirs


def test_every_habit_is_answered_as_pandas_does_or_refused_with_what_to_call(lab: gl.Cluster, tmp_path: Path) -> None:
    names = surroundings(lab, str(tmp_path))
    found = {habit.code: outcome(habit, *names) for habit in HABITS}
    expected = {habit.code: "refused" if habit.refused else "works" for habit in HABITS}
    assert {code: one for code, one in found.items() if one[0] != expected[code]} == {}
    assert list(expected.values()).count("works") >= 150


def test_brackets_and_names_are_columns(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    assert table["v"].mean() == table.v.mean() == pytest.approx(frame["v"].mean())
    assert (table.v * 2).sum() == pytest.approx((frame["v"] * 2).sum())
    some = table[(table.k > 1) & (table["v"] < frame["v"].max())][["k", "v"]]
    expected = frame[(frame.k > 1) & (frame["v"] < frame["v"].max())][["k", "v"]]
    assert some.to_pandas(None).equals(expected.reset_index(drop=True))
    assert table.v.head(3).tolist() == frame["v"].head(3).tolist()
    limit = 2
    assert table.query("k > @limit").num_rows == (frame["k"] > limit).sum()
    assert table.query_async("k > @limit", limit=limit).result().num_rows == (frame["k"] > limit).sum()
    means = table.groupby("k")["v"].mean().sort_values("k").to_pandas(None)
    assert means["v"].tolist() == pytest.approx(frame.groupby("k")["v"].mean().tolist())
    assert table.groupby("k").max_async(numeric_only=True).result().num_rows == frame["k"].nunique()
    assert "v" in dir(table) and "Column 'v' of <DistTable" in repr(table.v)


def test_none_is_a_value_that_handles_send_too(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    made = lab.from_pandas(frame).assign(y=None)
    assert made.columns[-1] == "y" and made.count("y") == 0


def in_the_notebook(function: FunctionType) -> FunctionType:
    """The function as a cell would have made it, with a module, a value and itself among the names around it."""
    made = FunctionType(function.__code__, {"maths": np, "limit": 3, "own": function}, function.__name__)
    made.__module__ = "__main__"
    return made


def test_a_function_of_the_notebook_takes_its_modules_along(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    squares = in_the_notebook(lambda part: part.assign(v=[maths.square(v) for v in part["v"]]))  # type: ignore[name-defined] # noqa: F821
    assert table.map_parts(squares).sum("v") == pytest.approx((frame["v"] ** 2).sum())
    few = in_the_notebook(lambda part: part.head(limit))  # type: ignore[name-defined] # noqa: F821
    with pytest.raises(RankError, match=r"'limit' is not defined\. A function runs on the ranks with the names"):
        table.map_parts(few)
    with pytest.raises(RankError, match=r"'own' is not defined\. A function runs"):
        lab.run(in_the_notebook(lambda: own))  # type: ignore[name-defined] # noqa: F821


def test_a_function_with_a_span_takes_its_modules_along(lab: gl.Cluster) -> None:
    roots = gl.span("roots")(in_the_notebook(lambda: float(maths.sqrt(9.0))))  # type: ignore[name-defined] # noqa: F821
    assert lab.run(roots) == [3.0, 3.0]
    assert lab.by_span().loc["roots", "count"].tolist() == [1, 1]


def test_a_rank_names_the_verb_too(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    def ask(table: Table) -> list[str]:
        said = []
        for name in ("compute", "_hidden"):
            try:
                getattr(table, name)
            except AttributeError as error:
                said.append(str(error))
        return said

    for habit, hidden in lab.run(ask, lab.from_pandas(frame)):
        assert "to_pandas()" in habit and hidden.endswith("no attribute '_hidden'")


def test_a_cluster_names_what_it_has(lab: gl.Cluster) -> None:
    for name, said in (
        ("tables", r"use memory\(\), which lists tables by name, and table\(name\)"),
        ("shutdown", r"use close\(\)"),
        ("read_parket", "did you mean 'read_parquet'"),
        ("_hidden", "no attribute '_hidden'$"),
    ):
        with pytest.raises(AttributeError, match=said):
            getattr(lab, name)


def test_a_column_is_in_its_handle(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    table = lab.from_pandas(frame)
    assert "k" in table and "nope" not in table
