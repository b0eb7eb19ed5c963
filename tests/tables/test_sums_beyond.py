"""Sums that their type does not hold, on every backend: exact, or an error that names column and value."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from test_variances import aggregated

from gcylon_lab import col
from gcylon_lab.errors import UnsupportedDtype

MOST = Decimal(10**38 - 1)
HOUR = pd.Timedelta("1h")


def decimals(values: list[Any], precision: int = 38, scale: int = 0) -> pd.Series:
    type_ = pa.decimal128(precision, scale)
    return pd.Series(pa.array(values, type_), dtype=pd.ArrowDtype(type_))


BEYOND = {
    "decimals": decimals([MOST, Decimal(1)]),
    "decimals that wrap": decimals([MOST] * 4),
    "decimals below zero": decimals([Decimal(1 - 10**38)] * 3),
    "decimals with places": decimals([Decimal(10**19)] * 20, 38, 18),
    "decimals as objects": pd.Series([MOST, MOST]),
    "timedeltas": pd.Series([pd.Timedelta.max] * 4),
    "timedeltas, some missing": pd.Series([pd.Timedelta.max, None, pd.Timedelta.max]),
    "arrow timedeltas": pd.Series([pd.Timedelta.max] * 3).astype(pd.ArrowDtype(pa.duration("ns"))),
    "int64": pd.Series([2**62] * 4),
    "nullable int64": pd.Series([2**62, None, 2**62, 2**62], dtype="Int64"),
    "uint64": pd.Series([2**63, 2**63 + 5], dtype="uint64"),
}
HELD = {
    "decimals": (decimals([Decimal(10**38 - 6), Decimal(5)]), MOST),
    "decimals of both signs": (decimals([MOST, Decimal(1 - 10**38), Decimal(7)]), Decimal(7)),
    "narrow decimals": (decimals([Decimal("9999999.99")] * 1000, 9, 2), Decimal("9999999990.00")),
    "decimals, some missing": (decimals([MOST, None, None]), MOST),
    "timedeltas": (pd.Series([pd.Timedelta.max - HOUR, None, HOUR]), pd.Timedelta.max),
    "uint64": (pd.Series([2**63 + 2**61, 5], dtype="uint64"), 2**63 + 2**61 + 5),
    "uint64 at the end": (pd.Series([2**64 - 4, 3], dtype="uint64"), 2**64 - 1),
    "int64": (pd.Series([2**62, 2**62 - 1]), 2**63 - 1),
    "int64 below zero": (pd.Series([-(2**62), -(2**62)]), -(2**63)),
}


def frame_of(series: pd.Series) -> pd.DataFrame:
    """One group."""
    return pd.DataFrame({"k": [1] * len(series), "v": series})


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("name", HELD)
def test_what_is_held_is_exact(backend: Any, name: str, rows: int) -> None:
    series, expected = HELD[name]
    for keys in (("k",), ()):
        (made,) = aggregated(backend, frame_of(series), {"sum": 0.0}, rows, keys)["sum"]
        assert made == expected


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("name", BEYOND)
def test_what_is_not_held_is_an_error_whose_advice_does(backend: Any, name: str, rows: int) -> None:
    frame = frame_of(BEYOND[name])
    for keys in (("k",), ()):
        with pytest.raises(
            UnsupportedDtype, match=r"a sum of column 'v' \(.*\) is about .*e\+.* does not hold"
        ) as told:
            aggregated(backend, frame, {"sum": 0.0}, rows, keys)
        assert "astype({'v': 'float64'})" in told.value.advice and told.value.numbers["column"] == "v"
    floats = backend.evaluate(backend.from_frame(frame), [("v", col("v").astype("float64"))])
    (made,) = aggregated(backend, backend.to_frame(floats), {"sum": 0.0}, rows)["sum"]
    values = frame["v"].dropna()
    if "timedeltas" in name:
        values = values.astype("timedelta64[ns]").astype("int64")
    assert made == pytest.approx(float(sum(Fraction(str(value)) for value in values)), rel=1e-12)


def test_timedeltas_as_floats_are_ticks(backend: Any) -> None:
    times = pd.Series(pd.to_timedelta(["2s", None, "-1us"])).astype("timedelta64[us]")
    frame = pd.DataFrame({"v": times, "a": times.astype(pd.ArrowDtype(pa.duration("us")))})
    for name in frame:
        made = backend.evaluate(backend.from_frame(frame), [("x", col(name).astype("float64"))])
        series = backend.to_frame(made)["x"]
        assert series.isna().tolist() == [False, True, False]
        assert series[0] == 2_000_000.0 and series[2] == -1.0


def test_decimals_of_every_size_add_up_exactly(backend: Any) -> None:
    rng = np.random.default_rng(4)
    for precision, scale in ((38, 0), (38, 18), (15, 2), (9, 2)):
        wide = [int(a) * int(b) * int(c) for a, b, c in rng.integers(-(10**9), 10**9, (999, 3))]
        units = wide if precision == 38 else rng.integers(-(10**precision) + 1, 10**precision, 999).tolist()
        values = [None if i % 10 == 3 else Decimal(n).scaleb(-scale) for i, n in enumerate(units)]
        keys = rng.integers(0, 7, 999)
        frame = pd.DataFrame({"k": keys, "v": decimals(values, precision, scale)})
        expected = [
            sum(Fraction(value) for key, value in zip(keys, values, strict=True) if key == k and value is not None)
            for k in range(7)
        ]
        for rows in (0, 10):
            made = aggregated(backend, frame, {"sum": 0.0}, rows)["sum"]
            assert [Fraction(str(value)) for value in made] == expected


def test_decimals_of_76_digits_add_up_exactly_where_there_are_such() -> None:
    from gcylon_lab.backends.host.backend import PandasBackend

    type_ = pa.decimal256(76, 3)
    large = Decimal("7e71")
    for values, fits in (([large, -large, Decimal("0.001")], True), ([large] * 14, True), ([large] * 15, False)):
        frame = pd.DataFrame({"k": 1, "v": pd.Series(pa.array(values, type_), dtype=pd.ArrowDtype(type_))})
        if not fits:
            with pytest.raises(UnsupportedDtype, match="a decimal of 76 digits does not hold"):
                aggregated(PandasBackend(), frame, {"sum": 0.0}, 0)
            continue
        (made,) = aggregated(PandasBackend(), frame, {"sum": 0.0}, 2)["sum"]
        assert Fraction(made) == sum(map(Fraction, values))
