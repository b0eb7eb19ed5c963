"""Conditions where values are missing: on every backend what pandas answers, also inside ``~ & |``."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gcylon_lab import col
from gcylon_lab.backends.expressions.computing import compute
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.expressions import lit
from gcylon_lab.errors import ArgumentError

FRAME = pd.DataFrame(
    {
        "s": pd.array(["a", None, "b", "ab", None, "", "a", "b"], dtype="str"),
        "q": pd.array(["a", "a", None, "c", None, "b", "", "a"], dtype="string"),
        "n": pd.array([1, None, 3, 4, None, 6, 7, 8], dtype="Int64"),
        "f": [0.5, np.nan, 1.5, np.nan, 2.5, 3.5, -1.0, 0.0],
        "b": [True, False, True, False, True, False, True, False],
        "m": pd.array([True, None, False, None, True, False, None, True], dtype="boolean"),
        "o": pd.array([None, None, True, False, None, True, False, True], dtype="boolean"),
        "t": pd.to_datetime(["2020-01-01", None, "2020-01-03", "2020-01-04", None, "2020-01-06", "2020-01-07", None]),
        "c": pd.Categorical(["x", None, "y", "x", "y", None, "x", "y"]),
    }
)
DAY = pd.Timestamp("2020-01-03")
CONDITIONS: dict[str, Callable[[Any], Any]] = {
    "text is not": lambda c: ~(c("s") == "a"),
    "text differs": lambda c: c("s") != "a",
    "nullable text differs": lambda c: c("q") != "a",
    "nullable text is not": lambda c: ~(c("q") == "a"),
    "text less, or a flag": lambda c: (c("s") < "b") | ~c("b"),
    "text begins not so": lambda c: ~c("s").str.startswith("a"),
    "text is not among": lambda c: ~c("s").isin(["a", ""]),
    "number or flag": lambda c: (c("n") % 2 == 0) | ~c("b"),
    "number and flag": lambda c: (c("n") > 3) & c("b"),
    "not number and flag": lambda c: ~((c("n") > 3) & c("b")),
    "number, there, or flag": lambda c: (c("n") % 2 == 0) & c("s").notna() | ~c("b"),
    "two that are open, and": lambda c: c("m") & c("o"),
    "two that are open, or": lambda c: c("m") | c("o"),
    "two that are open, xor": lambda c: c("m") ^ c("o"),
    "open, turned round": lambda c: ~(c("m") & c("o")) | ~c("m"),
    "time is not": lambda c: ~(c("t") > DAY),
    "time differs": lambda c: c("t") != DAY,
    "time between": lambda c: ~c("t").between(DAY, pd.Timestamp("2020-01-06")),
    "label is not": lambda c: ~(c("c") == "x"),
    "label differs": lambda c: c("c") != "x",
    "float is not": lambda c: ~(c("f") > 1) & c("f").notna(),
    "float differs, open": lambda c: (c("f") != 0.5) & c("m"),
    "text has, whatever its case": lambda c: c("s").str.contains("A", case=False, regex=False),
    "text matches, whatever its case": lambda c: c("s").str.contains("^A|B$", case=False, regex=True),
    "text has, or is missing": lambda c: c("s").str.contains("a", regex=False, na=True),
    "text has not, and is there": lambda c: ~c("s").str.contains("a", regex=False, na=True),
    "nullable text has not": lambda c: ~c("q").str.contains("A", case=False, regex=False),
    "nullable text has, or is missing": lambda c: c("q").str.contains("A", case=False, regex=False, na=True),
    "nullable text matches not": lambda c: ~c("q").str.contains("A|C", case=False, regex=True, na=False),
    "label has, or is missing": lambda c: c("c").astype("str").str.contains("X", case=False, regex=False, na=True),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_what_is_missing_is_answered_as_by_pandas(backend: Any, name: str) -> None:
    condition, expected = CONDITIONS[name](col), CONDITIONS[name](FRAME.__getitem__)
    data = backend.from_frame(FRAME.assign(row=np.arange(len(FRAME))))
    made = backend.to_frame(backend.evaluate(data, [("y", condition)]))["y"]
    assert made.dtype == expected.dtype
    assert made.astype(object).where(made.notna(), None).tolist() == (
        expected.astype(object).where(expected.notna(), None).tolist()
    )
    rows = backend.to_frame(backend.filter(data, condition))["row"].tolist()
    assert rows == np.flatnonzero(expected.fillna(False).to_numpy(dtype=bool)).tolist()


FLAGS = pd.Series([True, None, False, None, True, False, None, True], dtype=object)
ON_OBJECTS = {
    "alone": (col("l"), [0, 4, 7]),
    "not": (~col("l"), [2, 5]),
    "not, filled": (~col("l").fillna(False), [1, 2, 3, 5, 6]),
    "and": (col("l") & col("b"), [0, 4]),
    "or": (~(col("l") | (col("f") > 0)), [2, 5]),
    "none is there": (~col("e") | col("l"), [0, 4, 7]),
}


@pytest.mark.parametrize("name", ON_OBJECTS)
def test_bools_held_as_objects_are_conditions(name: str) -> None:
    condition, rows = ON_OBJECTS[name]
    backend: Any = PandasBackend()
    frame = FRAME[["b"]].assign(f=np.arange(8) // 6, l=FLAGS, e=[None] * 8, row=np.arange(8))
    data = backend.from_frame(frame)
    assert backend.to_frame(backend.filter(data, condition))["row"].tolist() == rows
    made = backend.to_frame(backend.evaluate(data, [("y", condition)]))["y"]
    held = made.astype("boolean").fillna(False)  # numbers, as ~ makes of objects, would be an error here
    assert np.flatnonzero(held.to_numpy(dtype=bool)).tolist() == rows


def test_times_are_floored_by_their_own_clock(backend: Any) -> None:
    times = pd.Series(pd.to_datetime(["2024-03-10 23:59:01", None, "2024-11-03 05:30:00"]))
    data = backend.from_frame(pd.DataFrame({"t": times}))
    for unit in ("D", "h", "min"):
        made = backend.to_frame(backend.evaluate(data, [("y", col("t").dt.floor(unit))]))["y"]
        pd.testing.assert_series_equal(made, times.dt.floor(unit), check_names=False)


def test_a_day_of_a_zone_begins_at_its_midnight() -> None:
    backend: Any = PandasBackend()
    times = pd.Series(pd.to_datetime(["2024-03-10 03:59", "2024-03-11 03:59", "2024-11-03 23:59"]))
    zoned = times.dt.tz_localize("UTC").dt.tz_convert("America/New_York")
    data = backend.from_frame(pd.DataFrame({"t": zoned}))
    made = backend.to_frame(backend.evaluate(data, [("y", col("t").dt.floor("D"))]))["y"]
    assert made.dt.strftime("%m-%d %H:%M %z").tolist() == [
        "03-09 00:00 -0500",
        "03-10 00:00 -0500",
        "11-03 00:00 -0400",
    ]
    assert repr(col("t").dt.floor("D")) == "col('t').dt.floor('D')"
    days = backend.to_frame(backend.evaluate(data, [("y", col("t").dt.date)]))["y"]
    assert days.tolist() == zoned.dt.date.tolist()


def test_what_may_be_a_regular_expression_must_be_said(backend: Any) -> None:
    data = backend.from_frame(FRAME.assign(row=np.arange(len(FRAME))))
    with pytest.raises(ArgumentError, match="regex=True, which is what pandas takes"):
        col("s").str.contains("^a|b$")
    for regex, rows in ((True, [0, 2, 3, 6, 7]), (False, [])):
        condition = col("s").str.contains("^a|b$", regex=regex)
        assert backend.to_frame(backend.filter(data, condition))["row"].tolist() == rows
    assert backend.to_frame(backend.filter(data, col("s").str.contains("b")))["row"].tolist() == [2, 3, 7]


@pytest.mark.parametrize("dtype", ["str", "string", "object", "category", "string[pyarrow]", "large_string[pyarrow]"])
@pytest.mark.parametrize(
    "options", [{"na": True}, {"na": False}, {"case": False}, {"case": False, "na": True}], ids=str
)
def test_text_of_every_dtype_is_found_as_by_pandas(dtype: str, options: dict[str, bool]) -> None:
    backend: Any = PandasBackend()
    texts = pd.Series(["Straße", None, "äB.c", "", "ÄB", None, "b.C"], dtype=dtype)
    data = backend.from_frame(pd.DataFrame({"s": texts}))
    for pattern, regex in (("äb", False), ("B.C", False), ("B.C", True), ("^Ä|S$", True)):
        condition = col("s").str.contains(pattern, regex=regex, **options)
        made = backend.to_frame(backend.evaluate(data, [("y", condition)]))["y"]
        held = backend.to_frame(data)["s"].str.contains(pattern, regex=regex, **options)
        assert made.isna().tolist() == held.isna().tolist()
        assert made.fillna(False).tolist() == held.fillna(False).tolist()
        if "na" in options:
            assert made[1] == options["na"] and made.dtype == held.dtype


def test_what_cannot_say_how_text_is_found() -> None:
    with pytest.raises(ArgumentError, match="na=0 is invalid. Expected True, False or None"):
        col("s").str.contains("a", na=0)
    with pytest.raises(ArgumentError, match="case='no' is invalid. Expected True or False"):
        col("s").str.contains("a", case="no")
    assert repr(col("s").str.contains("a", case=False, na=False)) == "col('s').str.contains('a', case=False, na=False)"
    assert repr(col("s").str.contains("a.b", regex=True)) == "col('s').str.contains('a.b', regex=True)"


def test_what_is_of_whole_columns_says_where_it_is() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'sum': of a whole column it is a verb .* t.sum\('x'\)"):
        col("x").sum()
    with pytest.raises(
        AttributeError, match=r"t.groupby\(k\).agg\(y=\('fare', 'mean'\)\), or .*\['fare'\].transform\('mean'\)"
    ):
        col("fare").mean()
    with pytest.raises(AttributeError, match="has no attribute 'appply'$"):
        getattr(col("x"), "appply")  # noqa: B009
    assert repr(pickle.loads(pickle.dumps(copy.deepcopy(col("x") > 3)))) == "(col('x') > 3)"


@pytest.mark.parametrize(
    "made",
    [
        lambda: col("f") > FRAME["f"],
        lambda: FRAME["f"].to_list() * col("f"),
        lambda: col("f") + FRAME["f"].to_numpy(),
        lambda: col("f").fillna(FRAME["f"]),
        lambda: col("f").clip(FRAME["f"]),
        lambda: col("f").where(col("b"), FRAME["f"].array),
        lambda: col("f").between(0, FRAME.index),
        lambda: col("b") & (FRAME["f"] > 0),
        lambda: lit({"a": 1}),
    ],
)
def test_several_values_do_not_stand_for_one(made: Callable[[], Any]) -> None:
    with pytest.raises(ArgumentError, match=r"^a \w+ of \d cannot be fitted to the rows .* Give one value"):
        made()


def test_an_array_of_one_value_without_an_axis_is_one_value() -> None:
    assert compute(col("f") == np.array(1.5), FRAME.__getitem__).sum() == 1


S, F = col("s"), col("f")
UNLIKE = [S == 6, ~(S != 6), S.isin([1, "a"]), F == "0.5", F < "1", S == F]


@pytest.mark.parametrize("condition", UNLIKE, ids=str)
def test_text_and_numbers_are_not_compared(backend: Any, condition: Any) -> None:
    data = backend.from_frame(FRAME[["s", "f"]])
    for made in (lambda: backend.filter(data, condition), lambda: backend.evaluate(data, [("y", condition)])):
        with pytest.raises(ArgumentError, match="compares column"):
            made()
