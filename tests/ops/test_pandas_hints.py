"""What pandas calls otherwise: what is said instead names what there is."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.api.verbs.brackets import Column
from gcylon_lab.api.verbs.group import GroupBy
from gcylon_lab.api.verbs.pandas_hints import _HERE, _OF_GROUPS, OF_COLUMNS
from gcylon_lab.backends.protocol.expressions import Expression, Then, When
from gcylon_lab.backends.protocol.methods.accessors import TextMethods, TimeFields
from gcylon_lab.cluster.client.client_hints import _HERE as OF_CLUSTERS
from gcylon_lab.cluster.client.cluster import Cluster
from gcylon_lab.cluster.handles.handle import DistTable
from gcylon_lab.errors import ArgumentError


@pytest.fixture
def table() -> Iterator[gl.Table]:
    with gl.initialize(sample_hz=0):
        yield gl.from_local(pd.DataFrame({"k": [1, 2, 1], "x": [1.5, None, 3], "s": list("abc")}))


def names_of(*owners: Any) -> set[str]:
    return {name for owner in owners for name in dir(owner)}


@pytest.mark.parametrize(
    ("owner", "instead"),
    [(gl.Table, _HERE), (DistTable, _HERE), (GroupBy, _OF_GROUPS), (Column, OF_COLUMNS), (Cluster, OF_CLUSTERS)],
    ids=["Table", "DistTable", "GroupBy", "Column", "Cluster"],
)
def test_what_is_named_is_there_and_what_it_stands_for_is_not(owner: type, instead: dict[str, str]) -> None:
    there = names_of(
        owner,
        gl.Table,
        Column,
        GroupBy,
        Expression,
        TextMethods,
        TimeFields,
        Then,
        When,
        pd.DataFrame,
        pd,
        gl,
        np,
        builtins,
    )
    assert not set(instead) & set(dir(owner))
    for name, text in instead.items():
        named = set(re.findall(r"([a-zA-Z_]\w*)\(", text)) - {"f", "replace", "floor"}
        assert named <= there, name


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        (lambda t: t.memory_usage(), AttributeError, r"use nbytes, tiers, or info\(\)$"),
        (lambda t: t.rolling(3), AttributeError, r"gl.col\('x'\).rolling\(3\).mean\(\)"),
        (lambda t: t.resample("D"), TypeError, r"^resample\(\) missing a required argument: 'on'"),
        (lambda t: t.resample("fortnight", on="x"), ArgumentError, r"one of W, MS, QS, YS, ME, QE, YE, D, h"),
        (lambda t: t.where(t), ArgumentError, r"a Table of 3 cannot be fitted to the rows"),
        (lambda t: t.select_dtypes("numbers"), ArgumentError, r"'numbers' is no kind of columns"),
        (lambda t: t + t, TypeError, r"objects have no \+: compute with columns"),
        (lambda t: t == 1, TypeError, r"t.equals\(other\) says whether they are equal"),
        (lambda t: pd.concat([t, t]), TypeError, r"^pd.concat takes data of this process, .*use gl.concat\(\[t, u\]\)"),
        (lambda t: pd.merge(t, t, on="k"), TypeError, r"use t.merge\(other, on='key'\)"),
        (lambda t: t.describ, AttributeError, r"did you mean 'describe'\?"),
        (lambda t: gl.read_csv("x", parse_date=["t"]), TypeError, r"read_csv\(\) .*: did you mean 'parse_dates'\?"),
        (lambda t: t.describe([0.1, 0.9]), ArgumentError, r"Give percentiles=\[0.1, 0.9\]"),
        (lambda t: t.rename("K"), ArgumentError, r"as \{'x': 'y'\}"),
        (lambda t: t.__delitem__("x"), TypeError, r"or t = t.drop\('x'\)"),
        (lambda t: t.x.plot(), AttributeError, r"use to_pandas\(limit\).plot\(\)"),
        (lambda t: t.x.meen(), AttributeError, r"did you mean 'mean'\?"),
        (lambda t: t.groupby("k")["nope"], KeyError, r"no column 'nope'"),
        (lambda t: t.groupby("k").transform(len), ArgumentError, r"takes the name of a function, got a function"),
        (lambda t: t.groupby("k").cumsum(), ArgumentError, r"col\('s'\).cumsum\(\).over\(.* cannot be computed"),
        (lambda t: t.groupby("k")[["x"]].meen(), AttributeError, r"no attribute 'meen': did you mean 'mean'\?"),
        (lambda t: list(t.groupby("k")), TypeError, r"not iterable: use agg"),
        (lambda t: list(t.x.unique()), TypeError, r"one goes over the values of t\['x'\]; or"),
        (lambda t: t.groupby("k").agg({"x": max}), ArgumentError, r"Give its name, 'max'"),
        (lambda t: t.groupby("k").agg({"x": len}), ArgumentError, r"There are sum, mean"),
    ],
)
def test_habits_of_pandas_are_answered(
    table: gl.Table, asked: Callable[[Any], Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        asked(table)


def test_a_column_is_in_its_table(table: gl.Table) -> None:
    assert "x" in table and "y" not in table and 0 not in table
