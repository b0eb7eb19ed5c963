"""Names of columns in errors and cards: few of many, look-alike ones apart, none that changes what stands around it."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.backends.protocol.schema import instead_of
from gcylon_lab.cluster.handles.html_repr import table_card
from gcylon_lab.errors import GcylonError
from gcylon_lab.runtime.context import run_threads

MANY = [f"column {i}" for i in range(10_000)]


@pytest.mark.parametrize(("name", "like", "said"), [
    ("caf\xe9", "cafe\u0301", r"'cafe\u0301' looks like it, but differs from 'caf\xe9' in how an accent is written"),
    ("Price", "price", "'price' looks like it, but differs from 'Price' in upper and lower case"),
    ("x\u200b", "x", r"'x' looks like it, but differs from 'x\u200b' in spaces, or what is not seen"),
    ("x ", "x", "'x' looks like it, but differs from 'x ' in spaces"),
    ("p\u0430ge", "page", r"'page' looks like it, but differs from 'p\u0430ge' in letters that look alike"),
])  # fmt: skip
def test_names_that_look_alike_are_told_apart(name: str, like: str, said: str) -> None:
    assert said in instead_of(name, ["other", like])
    assert said in instead_of(name, [*MANY, like]) and f"columns are {like!r}, " in instead_of(name, [*MANY, like])
    assert instead_of("x", ["y"], "Its") == "Its columns are 'y'."


def test_of_many_columns_the_nearest_are_listed() -> None:
    frame = pd.DataFrame({name: [1] for name in MANY[:500]})
    calls: list[Callable[[gl.Table], object]] = [
        lambda t: t.select(["colum 77"]),
        lambda t: t.drop("colum 77"),
        lambda t: t.filter(gl.col("colum 77") > 0),
        lambda t: t.shuffle("colum 77"),
        lambda t: t.sort_values("colum 77"),
        lambda t: t.groupby("colum 77").agg({"column 1": "sum"}),
        lambda t: t.groupby("column 1").agg({"colum 77": "sum"}),
        lambda t: t.join(t, on="colum 77"),
        lambda t: t.sum("colum 77"),
        lambda t: t.drop_duplicates("colum 77"),
        lambda t: t.rename({"colum 77": "x"}),
        lambda t: t.astype({"colum 77": "int32"}),
        lambda t: t.fillna({"colum 77": 1}),
        lambda t: t.plan_shuffle("colum 77"),
    ]

    def work() -> list[str]:
        table, told = gl.from_local(frame), []
        for call in calls:
            with pytest.raises(GcylonError) as error:
                call(table)
            told.append(str(error.value))
        return told

    for text in run_threads(1, work)[0]:
        assert "columns are 'column 77', 'column " in text and "(the 20 nearest of 500)" in text, text
        assert len(text) < 600


def test_what_is_not_seen_in_names_is_escaped() -> None:
    odd = "a\u202eb\x1b[31m\n<i>"

    def work() -> tuple[str, str]:
        table = gl.from_local(pd.DataFrame({odd: [1]}))
        return repr(table), table_card("t1", [table.info() | {"partitioning": {"keys": [odd]}}])

    text, card = run_threads(1, work)[0]
    assert r"a\u202eb\x1b[31m\n<i>" in text and r"a\u202eb\x1b[31m\n&lt;i&gt;" in card
    assert not {"\u202e", "\x1b", "\n"} & set(text + card)
