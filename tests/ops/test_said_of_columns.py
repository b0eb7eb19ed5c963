"""What is said of columns that are used for what they are not, and what a table tells of itself."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError
from gcylon_lab.units import format_bytes


@pytest.fixture
def table() -> Iterator[gl.Table]:
    frame = pd.DataFrame({"k": [1, 2], "s": ["2024-01-01 05:00", "2024-01-02 06:00"], "d": [Decimal(1), Decimal(2)]})
    with gl.initialize(sample_hz=0):
        yield gl.from_local(frame)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            lambda t: t.assign(h=t.s.dt.hour),
            r"column 's' is text: .*parse_dates=\['s'\]\).*astype\('datetime64\[us\]'\)",
        ),
        (lambda t: t[t.s.dt.floor("MS") > "2024"], r"column 's' is text: "),
        (lambda t: t.assign(h=t.s.str.slice(0, 10).dt.week), r"col\('s'\).str.slice\(0, 10\) is text: "),
        (lambda t: t.assign(h=t.k.dt.hour), r"column 'k' is int64: .dt is of times. Give a column of times"),
        (lambda t: t.assign(h=t.d.dt.hour), r"column 'd' is (?!text)"),
    ],
)
def test_fields_of_times_of_what_is_no_time(table: gl.Table, asked: Callable[[gl.Table], gl.Table], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        asked(table).head()


def test_what_is_advised_for_text_gives_the_field(table: gl.Table) -> None:
    made = table.assign(h=gl.col("s").astype("datetime64[us]").dt.hour)
    assert made.head()["h"].tolist() == [5, 6]


def test_values_of_another_table_are_taken_where_few_and_a_join_is_named_where_many(table: gl.Table) -> None:
    few, many = (gl.from_local(pd.DataFrame({"id": range(rows)})) for rows in (2, 10_001))
    assert table[table.k.isin(few.id)].head()["k"].tolist() == [1]
    with pytest.raises(ArgumentError, match=r"column of 10,001 rows, .*t.join\(other, on='id', how='semi'\)"):
        table.k.isin(many.id)


def test_info_is_plain_values_shown_in_few_lines(table: gl.Table) -> None:
    info: Any = table.info()
    assert str(info).splitlines() == [
        "column  dtype", "k       int64", "s       str", f"d       {table.dtypes['d']}", f"2 rows, {info['nbytes']} B",
    ]  # fmt: skip
    assert json.loads(json.dumps(info)) == dict(info) == pickle.loads(pickle.dumps(info))
    staged: Any = gl.from_local(pd.DataFrame({"k": range(1000)}), config=gl.GcylonConfig(gpu_memory_limit=4096)).info()
    size = format_bytes(staged["nbytes"])
    assert str(staged).splitlines()[-1] == f"1,000 rows, {size}, of these {size} on disk"
