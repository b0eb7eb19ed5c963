"""Dates in expressions, on every backend: compared with dates, their fields, and values that stay dates."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gcylon_lab import col
from gcylon_lab.errors import ArgumentError

DAYS = [dt.date(1998, 9, 2), None, dt.date(1994, 1, 1), dt.date(1970, 1, 1), dt.date(1960, 2, 29), dt.date(1998, 9, 3)]
OTHERS = [dt.date(1998, 9, 3), dt.date(1994, 1, 1), None, dt.date(1970, 1, 1), dt.date(1960, 3, 1), dt.date(1998, 9, 2)]
FRAME = pd.DataFrame(
    {
        "d": DAYS,
        "e": OTHERS,
        "p": [Decimal("0.05"), Decimal("0.07"), None, Decimal("0.04"), Decimal("0.06"), Decimal("1.00")],
        "t": pd.to_datetime(["1998-09-02", None, "1994-01-01", "1970-01-02", "1960-02-29", "1998-09-02"]),
        "row": np.arange(6),
    }
)
ARROW = FRAME.assign(d=FRAME["d"].astype(pd.ArrowDtype(pa.date32())), e=FRAME["e"].astype(pd.ArrowDtype(pa.date32())))
EDGE = dt.date(1994, 1, 1)
CONDITIONS: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "less": (lambda: col("d") < EDGE, [3, 4]),
    "at most": (lambda: col("d") <= EDGE, [2, 3, 4]),
    "more": (lambda: col("d") > EDGE, [0, 5]),
    "equal": (lambda: col("d") == EDGE, [2]),
    "differs": (lambda: col("d") != EDGE, [0, 1, 3, 4, 5]),
    "turned": (lambda: EDGE <= col("d"), [0, 2, 5]),
    "text": (lambda: col("d") >= "1994-01-01", [0, 2, 5]),
    "between": (lambda: col("d").between(dt.date(1970, 1, 1), EDGE), [2, 3]),
    "among": (lambda: col("d").isin([EDGE, dt.date(1960, 2, 29)]), [2, 4]),
    "a column": (lambda: col("d") < col("e"), [0, 4]),
    "several": (lambda: (col("d") >= EDGE) & (col("d") < dt.date(1998, 9, 3)) & (col("row") < 5), [0, 2]),
    "not": (lambda: ~(col("d") > EDGE), [1, 2, 3, 4]),
    "year": (lambda: col("d").dt.year == 1998, [0, 5]),
    "month": (lambda: col("d").dt.month.isin([1, 2]), [2, 3, 4]),
    "there": (lambda: col("d").notna() & col("e").notna(), [0, 3, 4, 5]),
    "filled": (lambda: col("d").fillna(EDGE) == EDGE, [1, 2]),
    "with decimals": (
        lambda: (col("d") < dt.date(1999, 1, 1)) & col("p").between(Decimal("0.05"), Decimal("0.07")),
        [0, 4],
    ),
}


@pytest.mark.parametrize("frame", [FRAME, ARROW], ids=["objects", "arrow"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_dates_are_compared(backend: Any, name: str, frame: pd.DataFrame) -> None:
    condition, expected = CONDITIONS[name]
    if frame is ARROW and name in ("differs", "not"):
        expected = [row for row in expected if row != 1]  # an Arrow dtype has no answer where a value is missing
    made = backend.filter(backend.from_frame(frame), condition())
    assert backend.to_frame(made)["row"].tolist() == expected


@pytest.mark.parametrize("field", ["year", "month", "day", "weekday", "quarter", "dayofyear"])
def test_fields_of_dates(backend: Any, field: str) -> None:
    times = pd.to_datetime(FRAME["d"])
    expected = getattr(times.dt, "day_of_week" if field == "weekday" else field)
    for frame, theirs in ((FRAME, expected), (FRAME.dropna(subset="d").reset_index(drop=True), expected.dropna())):
        made = backend.evaluate(backend.from_frame(frame), [("y", getattr(col("d").dt, field))])
        series = backend.to_frame(made)["y"]
        assert series.dtype == ("float64" if series.isna().any() else "int32")
        assert series.dropna().tolist() == theirs.dropna().tolist() and series.isna().sum() == theirs.isna().sum()


def test_fields_of_times_with_missing_ones(backend: Any) -> None:
    made = backend.to_frame(backend.evaluate(backend.from_frame(FRAME), [("y", col("t").dt.year)]))["y"]
    pd.testing.assert_series_equal(made, FRAME["t"].dt.year, check_names=False)


def test_values_of_dates_stay_dates(backend: Any) -> None:
    data = backend.from_frame(FRAME)
    made = backend.evaluate(
        data, [("same", col("d")), ("filled", col("d").fillna(EDGE)), ("d", col("d").where(col("row") > 0, EDGE))]
    )
    frame = backend.to_frame(made)
    assert frame["same"].tolist() == DAYS
    assert frame["filled"].tolist() == [EDGE if day is None else day for day in DAYS]
    assert frame["d"].tolist() == [EDGE, *DAYS[1:]]


def test_a_date_is_no_time(backend: Any) -> None:
    data = backend.from_frame(FRAME)
    assert backend.to_frame(backend.filter(data, col("t") == EDGE))["row"].tolist() == []
    with pytest.raises((ArgumentError, TypeError)):
        backend.filter(data, col("t") < EDGE)
