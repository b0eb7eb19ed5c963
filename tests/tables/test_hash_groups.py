"""Sums and counts by one whole-number key on GPUs, by our own hash table: as pandas, for every type and spread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gcylon_lab.tables.aggregation import Kernel
from gcylon_lab.tables.promotion import fixed_column

pytestmark = pytest.mark.gpu

ROWS = 200_000
SPREADS = ("few", "many", "one has nearly all", "extremes")
KEYS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
OUT = {name: fixed_column(name, pa.float64()) for name in ("sum", "rest", "first", "second")} | {
    name: fixed_column(name, pa.int64()) for name in ("rows", "there", "whole", "ones")
}
KERNELS = [
    Kernel("size", (), (OUT["rows"],)),
    Kernel("count", ("f",), (OUT["there"],)),
    Kernel("total", ("f",), (OUT["sum"], OUT["rest"])),
    Kernel("sum", ("i",), (OUT["whole"],)),
    Kernel("sum", ("b",), (OUT["ones"],)),
    Kernel("merge_total", ("f4", "i"), (OUT["first"], OUT["second"])),
]


def keys_of(dtype: str, spread: str) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(3)
    if dtype == "bool":
        return random.random(ROWS) < (0.9 if spread == "one has nearly all" else 0.5)
    info = np.iinfo(dtype)
    low, high = (int(info.min), int(info.max)) if spread in ("many", "extremes") else (0, 99)
    keys = random.integers(low, high, ROWS, dtype=dtype, endpoint=True)
    if spread == "many" and np.dtype(dtype).itemsize > 2:
        keys = keys // (high // 2**14)  # some tens of thousands
    if spread == "one has nearly all":
        keys[random.random(ROWS) < 0.97] = 5
    if spread == "extremes":  # among them what stands for an empty place of the table
        odd = [info.min, info.max, 0, 1] + ([-(2**63) + 1] if dtype == "int64" else [])
        odd += [2**63 + 1, 2**63] if dtype == "uint64" else []
        keys = np.array(odd, dtype)[random.integers(0, len(odd), ROWS)]
    return keys


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("dtype", KEYS)
def test_what_pandas_gives(cudf_backend: Any, dtype: str, spread: str) -> None:
    from gcylon_lab.tables.cudf_hash_groups import hash_aggregated

    random = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "k": keys_of(dtype, spread),
            "f": np.where(random.random(ROWS) < 0.1, np.nan, random.random(ROWS)),
            "f4": random.random(ROWS).astype("float32"),
            "i": random.integers(-(2**40), 2**40, ROWS),
            "b": random.random(ROWS) < 0.5,
        }
    )
    made = hash_aggregated(cudf_backend.from_frame(frame), ["k"], KERNELS, 1 << 10)
    assert made is not None
    found = cudf_backend.to_frame(made)
    groups = frame.astype({"f4": "float64"}).groupby("k")
    theirs = pd.DataFrame(
        {
            "rows": groups.size(), "there": groups["f"].count(), "sum": groups["f"].sum(), "rest": 0.0,
            "whole": groups["i"].sum(), "ones": groups["b"].sum(),
            "first": groups["f4"].sum(), "second": groups["i"].sum().astype("float64"),
        }
    ).reset_index()  # fmt: skip
    pd.testing.assert_frame_equal(found, theirs, rtol=1e-9, check_exact=False)


def test_not_for_this(cudf_backend: Any) -> None:
    from gcylon_lab.tables.cudf_hash_groups import hash_aggregated

    frame = pd.DataFrame({"k": np.arange(3_000_000), "f": 1.0, "i": np.full(3_000_000, 2**62), "s": "a"})
    data = cudf_backend.from_frame(frame)
    size, total = KERNELS[0], KERNELS[2]
    assert hash_aggregated(data, ["k"], [size], 1 << 10) is None  # more groups than the table has places
    few = cudf_backend.slice(data, 0, 1000)
    assert hash_aggregated(few, ["k"], [size], 1 << 10) is not None
    assert hash_aggregated(few, ["s"], [size], 1 << 10) is None
    assert hash_aggregated(few, ["k", "i"], [size], 1 << 10) is None
    assert hash_aggregated(few, ["k"], [total, Kernel("first", ("f",), (OUT["first"],))], 1 << 10) is None
    assert hash_aggregated(few, ["k"], [Kernel("sum", ("i",), (OUT["whole"],))], 1 << 10) is None  # may overflow
    assert hash_aggregated(few, ["k"], [size], 0) is None  # no room
    aggregated = cudf_backend.aggregate(data, ["k"], [size, total], dropna=True)
    assert aggregated.rows == len(frame)
