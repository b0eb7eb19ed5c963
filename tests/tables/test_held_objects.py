"""Dates and decimals in expressions, without Python objects: as pandas has them for datetimes, and exact."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from gcylon_lab import col
from gcylon_lab.backends.expressions.object_columns import needs_no_objects, objects_made
from gcylon_lab.backends.host.backend import PandasBackend

BACKEND = PandasBackend()
DAYS = [date(1994, 1, 1), None, date(1995, 6, 30), date(1678, 2, 1), date(9999, 12, 31)]
OTHERS = [date(1994, 1, 2), date(1995, 6, 30), date(1995, 6, 30), None, date(1, 1, 1)]
MONEY = [Decimal("0.05"), None, Decimal("0.07"), Decimal("-123456789012.34"), Decimal("24.00")]
FRAME = pd.DataFrame({"d": DAYS, "e": OTHERS, "m": MONEY, "i": range(5)}, dtype=object).astype({"i": "int64"})
DATA = BACKEND.from_frame(FRAME)
TIMES, OTHER_TIMES = (pd.Series(np.array(values, "datetime64[s]")) for values in (DAYS, OTHERS))
HALF = pd.Timestamp(1995, 6, 30)

SAID = {
    "less": (col("d") < date(1995, 6, 30), TIMES < HALF),
    "another column": (col("d") < col("e"), TIMES < OTHER_TIMES),
    "equal": (col("d") == col("e"), TIMES == OTHER_TIMES),
    "not equal, or missing": (col("d") != date(1995, 6, 30), TIMES != HALF),
    "turned round": (~(col("d") >= HALF), ~(TIMES >= HALF)),
    "between": (col("d").between(date(1994, 1, 1), datetime(1995, 6, 30)), TIMES.between("1994-01-01", HALF)),
    "among": (col("d").isin([date(1678, 2, 1), date(1995, 6, 30)]), TIMES.isin([pd.Timestamp(1678, 2, 1), HALF])),
    "missing": (col("d").isna(), TIMES.isna()),
    "in a part": ((col("d").dt.month == 6) | (col("i") == 0), (TIMES.dt.month == 6) | (FRAME["i"] == 0)),
    "money": (col("m") <= Decimal("0.05"), pd.Series([True, False, False, True, False])),
    "money, between": (
        col("m").between(Decimal("0.05"), Decimal("0.07")), pd.Series([True, False, True, False, False]),
    ),
    "money, and an int": (col("m") < 24, pd.Series([True, False, True, True, False])),
    "money, not equal": (col("m") != 24, pd.Series([True, True, True, True, False])),
    "money, there": (col("m").notna(), FRAME["m"].notna()),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_conditions(name: str):
    condition, expected = SAID[name]
    made = BACKEND.to_frame(BACKEND.evaluate(DATA, [("y", condition)]))["y"]
    assert made.dtype == np.bool_
    assert made.tolist() == expected.tolist()
    assert BACKEND.to_frame(BACKEND.filter(DATA, condition))["i"].tolist() == FRAME["i"][expected].tolist()
    assert not list(objects_made(condition, DATA.schema))


def test_fields_and_floats():
    made = BACKEND.to_frame(
        BACKEND.evaluate(DATA, [("year", col("d").dt.year), ("x", 2 * col("m").astype("float64")), ("d", col("d"))])
    )
    pd.testing.assert_series_equal(made["year"], TIMES.dt.year, check_names=False)
    expected = pd.Series([np.nan if value is None else float(value) * 2 for value in MONEY])
    pd.testing.assert_series_equal(made["x"], expected, check_names=False, check_exact=True)
    assert made["d"].tolist() == DAYS


def test_all_else_is_computed_with_objects():
    schema = DATA.schema
    for expression, made in [
        (col("m") / 2, ["m"]), (col("m") < 0.5, ["m"]), (col("m") % col("i"), ["m"]), (col("d") < col("i"), ["d"]),
        (col("d").where(col("d") < HALF, date(2000, 1, 1)), ["d"]), (col("m").astype("str"), ["m"]),
        (col("d").isin([1, 2]), ["d"]),
    ]:  # fmt: skip
        assert not needs_no_objects(expression, schema)
        assert list(objects_made(expression, schema)) == made
    assert not needs_no_objects(col("i") < 3, schema)
    made = BACKEND.to_frame(BACKEND.evaluate(DATA, [("y", col("m").fillna(Decimal(0)) * 2)]))["y"]
    assert made.tolist() == [0 if value is None else 2 * value for value in MONEY]


def test_what_is_reserved_for_objects_is_not_without_them():
    cheap, dear = ([condition] for condition in (col("d") < HALF, col("m") / 2))
    assert BACKEND.evaluating_row_bytes(DATA.schema, cheap) * 4 < BACKEND.evaluating_row_bytes(DATA.schema, dear)
