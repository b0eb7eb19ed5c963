"""One short series of every dtype that a table carries, each with nulls where the dtype has them."""

import datetime as dt
import zoneinfo
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
PLUS_TWO = dt.timezone(dt.timedelta(hours=2))
_TIMES = pd.to_datetime(["2020-01-01 12:00", None, "1969-01-01 00:00", "2021-11-07 06:30"])
_DELTAS = pd.to_timedelta([1, None, -3, 86400], unit="s")


def _numbers() -> dict[str, pd.Series]:
    ints = {f"{s}int{b}": pd.Series([1, 0, 3, 100], dtype=f"{s}int{b}") for s in ("", "u") for b in (8, 16, 32, 64)}
    floats = {f"float{b}": pd.Series([1.5, np.nan, -0.0, np.inf], dtype=f"float{b}") for b in (16, 32, 64)}
    return (
        ints
        | floats
        | {
            "bool": pd.Series([True, False, True, True]),
            "int64_extremes": pd.Series([-(2**63), 2**63 - 1, 0, -1]),
            "uint64_extremes": pd.Series([2**64 - 1, 0, 2**63, 1], dtype="uint64"),
            "complex128": pd.Series([1j, np.nan, 2, 0]),
        }
    )


def _times() -> dict[str, pd.Series]:
    naive = {f"datetime_{u}": pd.Series(_TIMES).astype(f"datetime64[{u}]") for u in ("s", "ms", "us", "ns")}
    deltas = {f"timedelta_{u}": pd.Series(_DELTAS).astype(f"timedelta64[{u}]") for u in ("s", "ms", "us", "ns")}
    return (
        naive
        | deltas
        | {
            "aware_central": pd.Series(_TIMES).dt.tz_localize("UTC").dt.tz_convert("US/Central"),
            "aware_utc_s": pd.Series(_TIMES).dt.tz_localize("UTC").astype("datetime64[s, UTC]"),
            "aware_offset": pd.Series(_TIMES).dt.tz_localize(PLUS_TWO),
            "period": pd.Series(pd.PeriodIndex(["2020-01", None, "1960-03", "2021-12"], freq="M")),
        }
    )


def _categories() -> dict[str, pd.Series]:
    def category(values, **how):
        return pd.Series(pd.Categorical(values, **how))

    days = pd.to_datetime(["2020-01-01", "2021-01-01"])
    return {
        "category_str": category(["a", None, "b", "b"], categories=["b", "unused", "a"]),
        "category_ordered": category(["low", None, "high", "low"], categories=["low", "mid", "high"], ordered=True),
        "category_int": category([3, None, 1, 3]),
        "category_float": category([3.5, None, 1.0, 1.0]),
        "category_bool": category([True, None, False, True]),
        "category_object": category(["x", None, "y", "x"], categories=pd.Index(["x", "y"], dtype=object)),
        "category_nullable": category(pd.array([1, None, 2, 2], dtype="Int64")),
        "category_datetime": category([days[0], None, days[1], days[1]]),
        "category_aware": category(days.tz_localize("US/Central")[[0, 1, 1, 0]]),
        "category_date": category([dt.date(2020, 1, 1), None, dt.date(2021, 1, 1), None]),
        "category_no_labels": category([None, None, None, None]),
        "category_wide": category([f"v{i:05d}" for i in range(300)]),
    }


def _objects() -> dict[str, pd.Series]:
    values = {
        "str": ["a", None, "", "é" * 5],
        "bytes": [b"a", None, b"", b"\0\xff"],
        "decimal": [Decimal("1.10"), None, Decimal("-123456789012345678901234567890.5"), Decimal(0)],
        "decimal_wide": [Decimal(10) ** 60, None, Decimal("0.001"), Decimal(-1)],
        "int": [1, None, 2**62, -5],
        "uint": [1, None, 2**63, 7],
        "bool": [True, None, False, True],
        "float": [1.5, None, 2.0, -0.25],
        "date": [dt.date(2020, 1, 1), None, dt.date(1960, 1, 1), dt.date(1, 1, 1)],
        "time": [dt.time(1, 2, 3, 4), None, dt.time(0), dt.time(23, 59)],
        "datetime": [dt.datetime(2020, 1, 1), None, dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)],
        "timestamp_ns": [pd.Timestamp("2020-01-01 00:00:00.000000001"), None, pd.Timestamp(0), None],
        "datetime_aware": [dt.datetime(2020, 1, 1, tzinfo=BERLIN), None, dt.datetime(2020, 7, 1, tzinfo=BERLIN), None],
        "timedelta": [dt.timedelta(1), None, dt.timedelta(0), dt.timedelta(-1, 1, 1)],
        "list": [[1, 2], None, [], [3]],
        "list_nan": [[1.5, None], None, [], [2.5]],
        "list_same_length": [["a", "b"], ["c", "d"], ["e", None], ["", "x"]],
        "struct": [{"a": 1, "b": "x"}, None, {"a": 2, "b": None}, {"a": None, "b": ""}],
        "nested": [[{"a": [1]}], [], None, [{"a": []}, {"a": None}]],
        "null": [None, None, None, None],
    }
    return {f"object_{name}": pd.Series(v, dtype=object) for name, v in values.items()}


def _extensions() -> dict[str, pd.Series]:
    strings = ["a", None, "", "é" * 5]
    masked = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64")
    return {name: pd.Series([1, None, 3, 7], dtype=name) for name in masked} | {
        "boolean": pd.Series([True, None, False, True], dtype="boolean"),
        "str": pd.Series(strings),
        "str_python": pd.Series(strings, dtype=pd.StringDtype("python", na_value=np.nan)),
        "string_python": pd.Series(strings, dtype="string[python]"),
        "string_pyarrow": pd.Series(strings, dtype="string[pyarrow]"),
    }


def _arrow() -> dict[str, pd.Series]:
    numbers = [
        pa.int16(), pa.uint64(), pa.float32(), pa.decimal128(10, 2), pa.date32(), pa.timestamp("ms"),
        pa.timestamp("ns", "US/Central"), pa.duration("us"), pa.time32("s"), pa.time64("ns"),
    ]  # fmt: skip
    values = {
        pa.string(): ["a", None, "", "bc"],
        pa.large_string(): ["a", None, "", "bc"],
        pa.binary(): [b"a", None, b"", b"bc"],
        pa.binary(2): [b"ab", None, b"cd", b"ef"],
        pa.bool_(): [True, None, False, True],
        pa.date64(): [0, None, 86_400_000, 0],
        pa.list_(pa.int8()): [[1], None, [], [2, None]],
        pa.list_(pa.int8(), 2): [[1, 2], None, [3, 4], [5, 6]],
        pa.list_(pa.string()): [["a"], None, [], ["b", None]],
        pa.struct([("a", pa.int8()), ("s", pa.string())]): [{"a": 1, "s": "x"}, None, {"a": None, "s": ""}, None],
        pa.map_(pa.string(), pa.int8()): [[("a", 1)], None, [], [("b", None)]],
        pa.dictionary(pa.int32(), pa.string()): ["a", None, "b", "a"],
        pa.null(): [None, None, None, None],
    }
    values = {type_: [1, None, 3, 7] for type_ in numbers} | values
    return {f"arrow_{type_}": pd.Series(v, dtype=pd.ArrowDtype(type_)) for type_, v in values.items()}


EVERY_DTYPE = _numbers() | _times() | _categories() | _objects() | _extensions() | _arrow()
