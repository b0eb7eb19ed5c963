"""Pairs of keys whose dtypes differ: how many values are equal, and pairs that cannot be compared."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

BIG = 2**53


UNLIKE = {
    "int32-int64": (np.array([-3, 1, 7], "i4"), np.array([1, 7, 9], "i8"), 2),
    "int8-uint64": (np.array([-1, 1, 7], "i1"), np.array([1, 7, 2**64 - 1], "u8"), 2),
    "int64-uint64": (np.array([BIG, BIG + 1, -1, 5]), np.array([BIG + 2, BIG + 1, 2**64 - 1, 5], "u8"), 2),
    "int64-float64": (np.array([2, 3, BIG + 1, 2**62]), np.array([2.0, 3.5, float(BIG), np.nan]), 1),
    "uint64-float64": (np.array([2**63, 2**64 - 2048, 5], "u8"), np.array([2.0**63, 2.0**64 - 2048, -5.0]), 2),
    "float32-float64": (np.array([0.5, 0.1, -0.0], "f4"), np.array([0.5, 0.1, 0.0]), 2),
    "int64-Int64": (np.array([1, 2, 3]), pd.array([2, None, 3], "Int64"), 2),
    "float64-Int64": (np.array([1.0, np.nan, 2.5]), pd.array([1, None, 2], "Int64"), 2),
    "Int32-arrow": (pd.array([1, None], "Int32"), pd.array([1, None], pd.ArrowDtype(pa.int64())), 2),
    "bool-int": (np.array([True, False]), np.array([1, 2]), 1),
    "decimal-int": (pd.Series([Decimal(2), Decimal("2.5")], dtype=object), np.array([2, 3]), 1),
    "decimals": (
        pd.Series([Decimal("2.50"), Decimal(3), None], dtype=object),
        pd.Series([Decimal("2.5"), None], dtype=object),
        2,
    ),
    "ns-s": (pd.to_datetime(["2020", "2021"]).as_unit("ns"), pd.to_datetime(["2021", "2300"]).as_unit("s"), 1),
    "zones": (
        pd.to_datetime(["2020", "2021"]).tz_localize("UTC"),
        pd.to_datetime(["2021"]).tz_localize("UTC").tz_convert("Europe/Paris"),
        1,
    ),
    "durations": (pd.to_timedelta([1, 2], "s").as_unit("ns"), pd.to_timedelta([2, 3], "s").as_unit("s"), 1),
    "categories": (pd.Categorical(["a", "f", None]), pd.Categorical(["f", "b", None], categories=["b", "f"]), 2),
    "category-str": (pd.Categorical(["a", "f"]), pd.Series(["f", "g"], dtype="str"), 1),
    "category of ints-int": (pd.Categorical([1, 2]), np.array([2, 3], "i4"), 1),
    "str-string": (pd.Series(["a", None], dtype="str"), pd.Series(["a", None], dtype="string"), 2),
    "nulls-str": (pd.Series([None, None], dtype=object), pd.Series(["a", None], dtype="str"), 2),
}  # fmt: skip


def equal(a: Any, b: Any) -> bool:
    """Whether two key values are equal, exactly."""
    if pd.isna(a) or pd.isna(b):
        return bool(pd.isna(a) and pd.isna(b))
    if isinstance(a, (np.generic,)) and not isinstance(a, (np.datetime64, np.timedelta64)):
        a = a.item()
    if isinstance(b, (np.generic,)) and not isinstance(b, (np.datetime64, np.timedelta64)):
        b = b.item()
    return bool(a == b)


REFUSED = {
    "int-str": (np.array([1]), np.array(["1"], dtype=object)),
    "naive-aware": (pd.to_datetime(["2020"]), pd.to_datetime(["2020"]).tz_localize("UTC")),
    "decimal-float": (pd.Series([Decimal(2)], dtype=object), np.array([2.0])),
    "time-int": (pd.to_datetime(["2020"]), np.array([1])),
    "bytes-str": (pd.Series([b"a"], dtype=object), pd.Series(["a"], dtype="str")),
    "periods": (pd.PeriodIndex(["2020-01"], freq="M"), pd.PeriodIndex(["2020-01-01"], freq="D")),
    "category of ints-str": (pd.Categorical([1]), pd.Series(["1"], dtype="str")),
}
