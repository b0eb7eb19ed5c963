"""What people do out of habit with a handle: answered with the verb that does it here."""

from __future__ import annotations

from types import FunctionType

import numpy as np
import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.api.table import Table
from gcylon_lab.errors import ArgumentError, RankError

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        (lambda t: t.compute, AttributeError, r"use to_pandas\(\)"),
        (lambda t: t.shufle, AttributeError, r"did you mean 'shuffle'"),
        (lambda t: t["nope"], KeyError, r"There is no column 'nope'. The columns are"),
        (lambda t: t[1:3], TypeError, r"head\(n\), to_pandas\(limit\) or to_batches\(rows\) for rows"),
        (lambda t: list(t["k"]), TypeError, r"tolist\(limit\)"),
        (lambda t: t["k"].rolling(3), AttributeError, r"no verb here looks from row to row"),
        (lambda t: t[t.filter(gl.col("k") > 0).k > 1], ArgumentError, "column k is of another table"),
        (list, TypeError, r"to_pandas\(limit\) or to_batches\(rows\) for rows"),
        (lambda t: t.__setitem__("y", 1), TypeError, r"t = t.assign\(y="),
        (lambda t: t.isna, AttributeError, r"gl.col\('x'\).isna\(\) in filter"),
        (lambda t: t.sort, AttributeError, r"use sort_values\(by\)"),
        (lambda t: t.sort_values("k", na_positon="first"), TypeError, r"^sort_values\(\) got .* mean 'na_position'"),
        (lambda t: t.select_dtypes("number"), AttributeError, r"use select\(columns\)"),
        (lambda t: t.shuffle_asyn, AttributeError, r"did you mean 'shuffle_async'"),
        (lambda t: t.sort_values("k", inplace=True), TypeError, r"take the result, as in t = t.sort_values"),
        (lambda t: t.sample(2, random_state=1), TypeError, r"'random_state': give seed="),
        (lambda t: t.mean(axis=1), TypeError, r"'axis': verbs go down columns"),
        (lambda t: t.filter(items=["k"]), TypeError, r"select\(columns\) chooses columns"),
        (lambda t: t.__delitem__("k"), TypeError, r"t = t.drop\('x'\)"),
        (lambda t: t.groupby("k").agg("sum"), ArgumentError, r"'sum' does not say of which columns"),
        (lambda t: t.assign(y=lambda frame: frame.v), ArgumentError, "expressions, not of functions"),
        (lambda t: t.assign(y=pd.Series([1, 2])), ArgumentError, r"^a Series of 2 cannot .*lab.from_pandas\(frame\)"),
        (lambda t: t.assign(y=t), ArgumentError, "^a Table of .* cannot be fitted to the rows"),
        (lambda t: t.fillna(pd.Series([1, 2])), ArgumentError, "^a Series of 2 cannot be fitted to the rows"),
        (lambda t: t.filter(pd.Series([True] * 9)), ArgumentError, "^Expected a condition, got a Series of 9"),
        (lambda t: t.groupby("k").agg({"v": lambda v: v.max()}), ArgumentError, r"shuffle\(by\).map_parts\(f\)"),
        (lambda t: t.drop_duplicates("k", keep=None), ArgumentError, "^keep=None is invalid. Expected 'first', 'last'"),
        (lambda t: t.join(t.rename({"k": "a", "v": "b", "s": "c"})), ArgumentError, "No column stands on both sides"),
    ],
)  # fmt: skip
def test_habits_of_pandas_are_answered_with_the_verb(
    lab: gl.Cluster, frame: pd.DataFrame, asked: object, kind: type[Exception], said: str
) -> None:
    table = lab.from_pandas(frame)
    with pytest.raises(kind, match=said):
        asked(table)  # type: ignore[operator]
    assert not hasattr(table, "_repr_svg_") and not hasattr(table, "unheard_of")


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
