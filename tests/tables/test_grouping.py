"""Grouping on every backend: every function of every dtype as pandas has it, in one go or gone on from a state."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from equal_values import EQUAL
from every_dtype import EVERY_DTYPE
from hypothesis import given, settings
from hypothesis import strategies as st

from gcylon_lab.backends.arrow.tables import from_arrow
from gcylon_lab.backends.host import group_kernels
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.aggregation import (
    FUNCTIONS,
    Aggregation,
    Aggregations,
    plan_aggregations,
)
from gcylon_lab.backends.refusals import is_refused_on_gpus
from gcylon_lab.errors import UnsupportedDtype

_ARGUMENTS = {"quantile": 0.3, "var": 1.0, "std": 1.0}
_INEXACT = ("sum", "mean", "var", "std", "median", "quantile")

# What pandas has and this has not: refused by name.
_REFUSED = {
    "sum": ("str", "bytes", "list", "struct", "complex"),
    "mean": ("complex", "period", "date", "time", "str"),
    "min": ("complex", "list", "struct", "map", "category"),
    "max": ("complex", "list", "struct", "map", "category"),
    "var": ("complex", "datetime", "timedelta"),
    "std": ("complex", "datetime", "timedelta"),
    "median": ("complex", "period", "date", "time"),
    "quantile": ("period", "date", "time", "category"),
    "nunique": ("complex", "list", "struct", "map"),
    "any": ("category", "date", "time", "complex", "period", "list", "struct", "datetime", "map"),
    "all": ("category", "date", "time", "complex", "period", "list", "struct", "datetime", "map"),
    "list": ("complex", "period"),
}


def frame_of(series: pd.Series) -> pd.DataFrame:
    """Three groups of unlike lengths, whose rows stand apart."""
    values = pd.concat([series] * 3, ignore_index=True)
    keys = [1, 1, 1, 2, 1, 1, 1, 2, 3, 3, 3, 3] if len(values) == 12 else np.arange(len(values)) % 3
    return pd.DataFrame({"k": keys, "v": values})


def by_pandas(frame: pd.DataFrame, function: str) -> pd.Series:
    groups = frame.groupby("k", sort=False)["v"]
    if function == "list":
        return groups.agg(list)
    if function == "quantile":
        return groups.quantile(0.3)
    return getattr(groups, function)()


def steps_for(schema: Any, function: str) -> Aggregations:
    return plan_aggregations(schema, ["k"], [Aggregation("v", function, "v", _ARGUMENTS.get(function, 0.0))])


def computed(backend: Any, data: Any, steps: Aggregations, rows: int | None = None) -> pd.DataFrame:
    """Aggregate, in pieces of so many rows."""
    state = None
    for start in range(0, data.rows, rows or data.rows):
        piece = backend.slice(data, start, min(data.rows, start + (rows or data.rows)))
        state = backend.aggregate(piece, ["k"], steps.partial, dropna=True, state=state, merge=steps.merge or ())
    return backend.to_frame(backend.finish(state, ["k"], steps.finish))


def plain(value: Any) -> Any:
    """A value that compares: missing ones as None, times as ns, items of lists likewise."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return None
    if isinstance(value, (dt.datetime, np.datetime64)):
        stamp = pd.Timestamp(value)
        stamp = stamp if stamp.tz is None else stamp.tz_convert("UTC").tz_localize(None)
        return int(stamp.to_datetime64().astype("M8[us]").astype(np.int64)) * 1000 + stamp.nanosecond
    if isinstance(value, (dt.timedelta, np.timedelta64)):
        return int(pd.Timedelta(value).as_unit("us").value) * 1000 + pd.Timedelta(value).nanoseconds
    return value.item() if isinstance(value, np.generic) else value


def alike(a: Any, b: Any, tolerance: float) -> bool:
    """Whether two plain values are equal, numbers up to a part of them."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(alike(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if a is None or b is None or isinstance(a, str) or a == b:
        return bool(a == b)
    if isinstance(a, Decimal) and isinstance(b, Fraction):
        return Fraction(a) == b
    if isinstance(a, (int, float)) and isinstance(b, (int, float, Decimal)):
        return abs(a - float(b)) <= tolerance * max(abs(a), abs(float(b)), 1e-9)
    return False


def exactly(frame: pd.DataFrame, function: str) -> pd.Series:
    """Sums and means of ints and decimals of any size, which pandas cuts to its floats or to 28 digits."""
    groups = frame["v"].dropna().map(lambda value: Fraction(str(value))).groupby(frame["k"])
    sums = {key: sum(group) for key, group in groups}
    if function == "mean":
        return pd.Series({key: float(total / groups.size()[key]) for key, total in sums.items()})
    return pd.Series(sums, dtype=object)


def dtype_matters(series: pd.Series, column: Any, function: str) -> bool:
    """Whether the dtype is that of pandas: not of objects, lists, and what is said to differ."""
    if series.dtype == object or function == "list":
        return False
    if column.kind == "null" or "float16" in str(series.dtype) or "duration" in str(series.dtype):
        return False  # where pandas itself is of several minds
    if isinstance(series.dtype, pd.ArrowDtype) and function in ("quantile", "sum"):
        return False  # where its releases differ
    wide = function == "sum" and column.kind in ("int", "bool")
    return not wide and not (column.kind == "decimal" and function in ("mean", "var", "std", "median"))


@pytest.mark.parametrize("name", EVERY_DTYPE)
def test_functions_give_what_pandas_gives(backend: Any, name: str) -> None:
    frame = frame_of(EVERY_DTYPE[name])
    data = backend.from_frame(frame)
    for function in FUNCTIONS:
        check_function(backend, name, function, frame, data)


def check_function(backend: Any, name: str, function: str, frame: pd.DataFrame, data: Any) -> None:
    column = data.schema["v"]
    try:
        steps = steps_for(data.schema, function)
        ours = computed(backend, data, steps)
    except UnsupportedDtype as error:
        assert "'v'" in str(error)
        if "does not hold" in str(error):
            assert function == "sum" and max(exactly(frame, function)) >= 2**63
            return
        on_gpu = is_refused_on_gpus(error)
        try:
            by_pandas(frame, function)
        except Exception:
            return
        assert on_gpu or column.kind in _REFUSED[function]
        return
    if steps.merge is not None and "extremes" not in name:  # where parts of a sum pass what int64 holds
        pd.testing.assert_frame_equal(computed(backend, data, steps, 5), ours)
    try:
        theirs = by_pandas(frame, function)
    except Exception:
        return  # more than pandas
    assert ours["k"].tolist() == theirs.index.tolist()
    if column.kind == "null" and function in ("min", "max", "sum"):
        return  # pandas takes objects for anything here
    if function == "list" and "arrow_time" in name:
        return  # pandas makes zeros of times
    if function == "quantile" and name in ("float32", "float64"):
        return  # and NaN of infinities
    if function in ("min", "max", "first", "last"):
        assert ours["v"].dtype == backend.to_frame(data)["v"].dtype
    elif dtype_matters(EVERY_DTYPE[name], column, function):
        assert ours["v"].dtype == theirs.dtype
    if function == "sum" and column.kind in ("int", "bool"):
        assert "64" in str(ours["v"].dtype)
    if backend.name == "cudf" and function == "mean" and "extremes" in name:
        return  # sums of floats there are plain ones
    if function in ("sum", "mean") and (column.kind == "decimal" or "extremes" in name):
        theirs = exactly(frame, function)
    narrow = "float16" in name or "halffloat" in name
    tolerance = 1e-3 if narrow else 1e-6 if "32" in name or name == "arrow_float" else 1e-12
    a, b = plain(ours["v"].to_numpy(object)), plain(theirs.to_numpy(object))
    assert alike(a, b, tolerance if function in _INEXACT else 0), (a, b)


@pytest.mark.parametrize("name", [n for n in EQUAL if n not in ("decimals", "large_decimals")])
def test_equal_keys_are_one_group(backend: Any, name: str) -> None:
    for values, how in EQUAL[name]:
        keys = pd.Series(values, **how)
        frame = pd.DataFrame({"k": pd.concat([keys, keys], ignore_index=True)})
        data = backend.from_frame(frame)
        steps = plan_aggregations(data.schema, ["k"], [Aggregation("n", "size")])
        made = backend.finish(backend.aggregate(data, ["k"], steps.partial, dropna=False), ["k"], steps.finish)
        sizes = backend.to_frame(made)["n"].tolist()
        assert sizes == [2] * len(keys.drop_duplicates()), how


def test_zeros_and_missing_values_of_floats_are_one_key_each(backend: Any) -> None:
    frame = pd.DataFrame({"k": [0.0, np.nan, -0.0, np.nan, 1.0], "v": [1, 2, 4, 8, 16]})
    data = backend.from_frame(frame)
    steps = steps_for(data.schema, "sum")
    for dropna, expected in ((False, [5, 10, 16]), (True, [5, 16])):
        made = backend.aggregate(data, ["k"], steps.partial, dropna=dropna)
        assert backend.to_frame(backend.finish(made, ["k"], steps.finish))["v"].tolist() == expected


def test_several_keys_with_a_missing_part(backend: Any) -> None:
    frame = pd.DataFrame(
        {
            "a": pd.array([1, None, 1, None, 2, 1], dtype="Int64"),
            "b": pd.Series(["x", "x", None, "x", "y", None], dtype="str"),
            "v": [1, 2, 4, 8, 16, 32],
        }
    )
    data = backend.from_frame(frame)
    steps = plan_aggregations(data.schema, ["a", "b"], [Aggregation("v", "sum", "v")])
    for dropna, expected in ((False, [1, 10, 36, 16]), (True, [1, 16])):
        made = backend.aggregate(data, ["a", "b"], steps.partial, dropna=dropna)
        assert backend.to_frame(backend.finish(made, ["a", "b"], steps.finish))["v"].tolist() == expected


@pytest.mark.parametrize("keep", ["first", "last"])
def test_distinct_rows_keep_their_order(backend: Any, keep: str) -> None:
    frame = pd.DataFrame({"k": [3.0, 1.0, np.nan, 3.0, 1.0, np.nan, 2.0], "v": range(7), "s": list("abcdefg")})
    made = backend.distinct(backend.from_frame(frame), ["k"], keep=keep)
    expected = frame.drop_duplicates("k", keep=keep).reset_index(drop=True)
    pd.testing.assert_frame_equal(backend.to_frame(made), expected)


def test_sums_of_floats_do_not_depend_on_pieces() -> None:
    from gcylon_lab.backends.host.backend import PandasBackend

    backend, rng = PandasBackend(), np.random.default_rng(3)
    frame = pd.DataFrame(
        {"k": rng.integers(0, 7, 5000), "v": rng.normal(size=5000) * 10.0 ** rng.integers(-8, 8, 5000)}
    )
    data = backend.from_frame(frame)
    steps = steps_for(data.schema, "sum")
    whole = computed(backend, data, steps)
    for rows in (1, 13, 999, 4096):
        pd.testing.assert_frame_equal(computed(backend, data, steps, rows), whole, check_exact=True)
    pd.testing.assert_series_equal(whole["v"], by_pandas(frame, "sum").reset_index(drop=True), rtol=1e-12)


def test_a_sum_keeps_what_floats_have_no_digits_for(backend: Any) -> None:
    if backend.name == "cudf":
        pytest.skip("sums there are plain ones")
    data = backend.from_frame(pd.DataFrame({"k": 1, "v": [1e16, 1.0, -1e16, 1.0]}))
    assert computed(backend, data, steps_for(data.schema, "sum"), 1)["v"].tolist() == [2.0]


def test_sums_of_small_ints_are_wide(backend: Any) -> None:
    data = backend.from_frame(pd.DataFrame({"k": 1, "v": np.full(300, 100, "int8")}))
    assert computed(backend, data, steps_for(data.schema, "sum"), 100)["v"].tolist() == [30_000]


def test_a_key_that_cannot_be_hashed_is_named(backend: Any) -> None:
    data = backend.from_frame(pd.DataFrame({"k": pd.Series([[1], [2]], dtype=object), "v": [1, 2]}))
    with pytest.raises(UnsupportedDtype, match="'k'"):
        computed(backend, data, steps_for(data.schema, "sum"))


@pytest.mark.parametrize("texts", ["a b a B b", "AB é AB CD é", "abcdefgh xbcdefgh abcdefgh", "abc abd abc", "a bb a"])
def test_texts_of_one_length_are_grouped_as_others_are(texts: str) -> None:
    keys = texts.split()
    backend = PandasBackend()
    data = backend.from_frame(pd.DataFrame({"k": pd.Series(keys, dtype="str"), "v": range(len(keys))}))
    for some, own in ((data, keys), (backend.slice(data, 1, len(keys)), keys[1:])):
        found = computed(backend, some, steps_for(data.schema, "size"))
        assert dict(zip(found["k"], found["v"], strict=True)) == Counter(own)
        assert found["k"].tolist() == list(dict.fromkeys(own))


WIDE = st.integers(-(10**18) + 1, 10**18 - 1) | st.integers(-200, 200) | st.sampled_from([2**53, -(2**53), 2**53 + 1])


@settings(max_examples=150)
@given(data=st.data())
def test_means_of_whole_numbers_do_not_depend_on_pieces_or_on_how_they_are_added_up(data: st.DataObject) -> None:
    backend, rows = PandasBackend(), data.draw(st.integers(1, 12))
    numbers = data.draw(st.lists(WIDE | st.none(), min_size=rows, max_size=rows))
    scale = data.draw(st.sampled_from([None, 0, 2, 18]))
    if scale is None:
        values: Any = pa.array(numbers, pa.int64())
    else:
        units = [None if number is None else Decimal(number).scaleb(-scale) for number in numbers]
        values = pa.array(units, pa.decimal128(18, scale))
    keys = data.draw(st.lists(st.sampled_from([1, 2, None]), min_size=rows, max_size=rows))
    frame = from_arrow(pa.table({"k": pa.array(keys, pa.float64()), "v": values}), nullable=True)
    if data.draw(st.booleans()):
        start = data.draw(st.integers(0, rows - 1))
        frame, keys, numbers = backend.slice(frame, start, rows), keys[start:], numbers[start:]
    steps = steps_for(frame.schema, "mean")
    found = computed(backend, frame, steps).set_index("k")["v"]
    assert computed(backend, frame, steps, rows=data.draw(st.integers(1, rows))).set_index("k")["v"].equals(found)
    with mock.patch.object(group_kernels, "_add_up_exactly", lambda totals, ints: False):
        assert computed(backend, frame, steps).set_index("k")["v"].equals(found)
    for key, mean in found.items():
        of = [Fraction(n) for n, k in zip(numbers, keys, strict=True) if k == key and n is not None]
        want = None if not of else float(sum(of) / len(of) / 10 ** (scale or 0))
        assert (mean is pd.NA or mean != mean) if want is None else np.isclose(float(mean), want, rtol=1e-15, atol=0)
