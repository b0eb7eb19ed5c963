"""The same values in every dtype that can hold them: each entry lists (values, how to make a series of them)."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa

_STAMPS = np.array(["2020-01-01T00:00:01", "1960-05-05"], "M8[s]")
_TEXTS = ["", "a", "exactly8", "é" * 40, "x" * 1000]
_NUMBER_DTYPES = (
    "int8", "uint8", "int16", "int32", "int64", "uint64", "float32", "float64", "Int64", "UInt8", "Float64",
)  # fmt: skip
_FAR = Decimal("12345678901234567890.5")

EQUAL = {
    "ints": [
        *[([1, 0, 100], {"dtype": dtype}) for dtype in (*_NUMBER_DTYPES, object, pd.ArrowDtype(pa.int16()))],
        ([Decimal("1.00"), Decimal(0), Decimal("100.0")], {}),
        (pd.Categorical([1, 0, 100]), {}),
        (pd.Categorical([1.0, 0.0, 100.0]), {}),
    ],
    "bools": [
        *[([True, False], {"dtype": dtype}) for dtype in ("bool", "boolean", object)],
        ([1, 0], {}),
        (pd.Categorical([True, False]), {}),
    ],
    "above_int64": [
        ([2**63, 2**64 - 2048], {"dtype": "uint64"}),
        ([2.0**63, 2.0**64 - 2048], {}),
        ([Decimal(2**63), Decimal(2**64 - 2048)], {}),
    ],
    "fractions": [([1.5, -0.25], {"dtype": dtype}) for dtype in ("float32", "float64", "Float64", object)],
    "zero": [([0.0], {}), ([-0.0], {}), ([0], {}), ([Decimal("0.000")], {})],
    "null": [
        *[(pd.array([None], dtype), {}) for dtype in ("Int64", "boolean", "Float64", "str", "string[python]")],
        ([np.nan], {}),
        ([None], {"dtype": object}),
        (pd.Categorical([None], categories=["a"]), {}),
        (pd.to_datetime([None]), {}),
        (pd.to_timedelta([None]), {}),
        (pd.PeriodIndex([None], freq="M"), {}),
        ([None, "a"], {}),
        ([None, Decimal("1.1")], {}),
        ([None, dt.date(2020, 1, 1)], {}),
    ],
    "times": [
        *[(_STAMPS.astype(f"M8[{unit}]"), {}) for unit in ("s", "ms", "us", "ns")],
        ([dt.datetime(2020, 1, 1, 0, 0, 1), dt.datetime(1960, 5, 5)], {"dtype": object}),
        (_STAMPS, {"dtype": pd.ArrowDtype(pa.timestamp("ms"))}),
    ],
    "times_outside_ns": [(np.array(["9999-01-01", "0001-01-01"], f"M8[{unit}]"), {}) for unit in ("s", "ms", "us")],
    "instants": [
        (pd.to_datetime(["2020-01-01"]).tz_localize("UTC"), {}),
        (pd.to_datetime(["2020-01-01"]).tz_localize("UTC").tz_convert("US/Central"), {}),
    ],
    "texts": [
        (_TEXTS, {"dtype": dtype})
        for dtype in ("str", "string[python]", object, pd.ArrowDtype(pa.string()), "category")
    ],
    "decimals": [
        ([Decimal("1.1"), Decimal("-5")], {}),
        ([Decimal("1.1000"), Decimal("-5.0")], {}),
        ([Decimal("1.10"), Decimal("-5"), Decimal(10) ** 60], {}),
    ],
    "large_decimals": [
        ([Decimal(10) ** 25, _FAR], {}),
        ([Decimal("10000000000000000000000000.00"), Decimal("12345678901234567890.500")], {}),
        ([Decimal(10) ** 25, _FAR, Decimal(10) ** 60], {}),
    ],
    "dates": [([dt.date(2020, 1, 1)], {}), ([dt.date(2020, 1, 1)], {"dtype": pd.ArrowDtype(pa.date64())})],
}
