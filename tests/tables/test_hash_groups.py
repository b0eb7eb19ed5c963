"""Sums and counts by one whole-number key on GPUs, by our own hash table: as pandas, for every type and spread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from worlds import run_over

from gcylon_lab.backends.protocol.aggregation import Kernel
from gcylon_lab.backends.protocol.promotion import fixed_column
from gcylon_lab.config import GcylonConfig

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


def frame_of(dtype: str, spread: str) -> pd.DataFrame:
    random = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "k": keys_of(dtype, spread),
            "f": np.where(random.random(ROWS) < 0.1, np.nan, random.random(ROWS)),
            "f4": random.random(ROWS).astype("float32"),
            "i": random.integers(-(2**40), 2**40, ROWS),
            "b": random.random(ROWS) < 0.5,
        }
    )


def by_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    groups = frame.astype({"f4": "float64"}).groupby("k")
    return pd.DataFrame(
        {
            "rows": groups.size(), "there": groups["f"].count(), "sum": groups["f"].sum(), "rest": 0.0,
            "whole": groups["i"].sum(), "ones": groups["b"].sum(),
            "first": groups["f4"].sum(), "second": groups["i"].sum().astype("float64"),
        }
    ).reset_index()  # fmt: skip


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("dtype", KEYS)
def test_what_pandas_gives(cudf_backend: Any, dtype: str, spread: str) -> None:
    from gcylon_lab.backends.cudf.hash_groups import folding_table, hash_aggregated

    frame = frame_of(dtype, spread)
    data, theirs = cudf_backend.from_frame(frame), by_pandas(frame)
    made = hash_aggregated(data, ["k"], KERNELS, 1 << 10)
    assert made is not None
    pd.testing.assert_frame_equal(cudf_backend.to_frame(made), theirs, rtol=1e-9, check_exact=False)
    assert cudf_backend.count_distinct(data, ["k"]) == len(theirs)
    table = folding_table(data.schema, ["k"], KERNELS, ROWS, len(theirs))
    assert table is not None
    table.begin()
    for start, stop in ((0, 1), (1, 70_000), (70_000, 70_000), (70_000, 70_033), (70_033, ROWS)):
        table.add(cudf_backend.slice(data, start, stop))
    made = table.made(groups_in(table, len(theirs)))
    pd.testing.assert_frame_equal(cudf_backend.to_frame(made), theirs, rtol=1e-9, check_exact=False)
    table.begin()
    table.add(data)
    made = cudf_backend.to_frame(table.made(groups_in(table, len(theirs)), in_order=False))
    in_order = made.sort_values("k", ignore_index=True)
    pd.testing.assert_frame_equal(in_order, theirs, rtol=1e-9, check_exact=False)


def groups_in(table: Any, groups: int) -> int:
    """What a table says however often it is asked."""
    assert [table.groups() for _ in range(3)] == [groups] * 3
    return groups


def test_a_table_that_is_full_says_so(cudf_backend: Any) -> None:
    from gcylon_lab.backends.cudf.group_table import GroupTable
    from gcylon_lab.backends.cudf.hash_groups import folding_table

    data = cudf_backend.from_frame(pd.DataFrame({"k": np.arange(3_000)}))
    table = GroupTable(data.schema, "k", [KERNELS[0]], 1024)
    table.begin()
    table.add(cudf_backend.slice(data, 0, 500))
    assert table.groups() == 500
    table.add(cudf_backend.slice(data, 100, 3_000))
    assert table.groups() is None
    table.add(cudf_backend.slice(data, 0, 10))
    assert table.groups() is None
    assert folding_table(data.schema, ["k"], [KERNELS[0]], 10**9, 10**5) is not None
    assert folding_table(data.schema, ["k"], [KERNELS[0]], 10**9, 10**6) is None
    assert folding_table(data.schema, ["k"], [KERNELS[0]], 10**5, 10**5) is not None


@pytest.mark.parametrize(
    "dtype, value", [("int64", 2**61), ("int64", -(2**61)), ("uint64", 2**61), ("int64", -(2**63))]
)
def test_sums_that_may_pass_64_bits_over_several_pieces(cudf_backend: Any, dtype: str, value: int) -> None:
    from gcylon_lab.backends.cudf.hash_groups import folding_table

    frame = pd.DataFrame({"k": [1, 1, 1, 2], "i": np.array([value, 0, 0, 0], dtype)})
    data = cudf_backend.from_frame(frame)
    table = folding_table(data.schema, ["k"], [Kernel("sum", ("i",), (OUT["whole"],))], 4, 2)
    assert table is not None
    table.begin()
    for row in range(3):
        table.add(cudf_backend.slice(data, row, row + 1))
    assert table.groups() == (1 if abs(value) < 2**62 else None)
    table.add(cudf_backend.slice(data, 3, 4))
    assert table.groups() is None


def test_counts_of_keys_of_every_kind(cudf_backend: Any) -> None:
    frame = pd.DataFrame(
        {
            "f": [0.0, -0.0, np.nan, np.nan, 1.0, 2.0],
            "s": pd.Series(["a", None, "a", None, "b", ""], dtype="str"),
            "k": [1, 1, 2, 2, 1, 1],
            "t": pd.to_datetime(["2020-01-01", None, None, "2020-01-01", "2021-01-01", None]),
            "n": pd.array([1, None, None, 2, 1, 1], dtype="Int64"),
        }
    )
    data = cudf_backend.from_frame(frame)
    for keys in (["f"], ["s"], ["k"], ["t"], ["n"], ["f", "k"], ["s", "n"], ["k", "t"]):
        assert cudf_backend.count_distinct(data, keys) == len(frame.drop_duplicates(keys)), keys
        assert cudf_backend.count_distinct(data, keys) == cudf_backend.distinct(data, keys, keep="first").rows
    assert cudf_backend.count_distinct(cudf_backend.slice(data, 0, 0), ["s"]) == 0


def grouped(frames: list[pd.DataFrame], column: str) -> tuple[pd.DataFrame, float]:
    """A group-by of chunks, and its predicted peak over the measured one."""
    import gcylon_lab as gl
    from gcylon_lab.backends.host.backend import PandasBackend
    from gcylon_lab.runtime.context import current

    context = current()
    small = GcylonConfig(chunk_size_bytes=1 << 16, min_chunk_rows=1)
    result = gl.from_local(frames).groupby("k").agg(v=(column, "sum"), n=(column, "count"), config=small)
    record = context.recorder.operations[-1]
    frame = PandasBackend().to_frame(context.workspace.backend.to_host(result._whole()))
    return frame, record.predicted_peak_bytes / record.measured_peak_bytes


@pytest.mark.parametrize("case", ["in one table", "full", "sums may pass"])
def test_pieces_of_a_group_by(cudf_backend: Any, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pieces in one table, or from the beginning without it."""
    from gcylon_lab.backends.cudf import hash_groups
    from gcylon_lab.backends.cudf.group_table import GroupTable

    rows, pieces = 8_000, 8
    frames = [pd.DataFrame({"k": np.arange(rows) % 100, "f": 0.5, "i": np.arange(rows)}) for _ in range(pieces)]
    if case == "full":  # only the first chunk of so small a table is looked at
        monkeypatch.setattr(hash_groups, "_MOST_SLOTS", 1 << 10)
        frames[-1] = frames[-1].assign(k=np.arange(rows) % 5_000)
    if case == "sums may pass":
        frames[3].loc[7, "i"] = 2**50
    said: list[int | None] = []
    added: list[Any] = []
    ask, add = GroupTable.groups, GroupTable.add

    def groups_of(table: Any) -> int | None:
        found = ask(table)
        if table._kernels:  # without any it is a look at the keys, of which there are several
            said.append(found)
        return found

    def add_to(table: Any, data: Any) -> None:
        if table._kernels:
            added.append(table)
        add(table, data)

    monkeypatch.setattr(GroupTable, "groups", groups_of)
    monkeypatch.setattr(GroupTable, "add", add_to)
    for column in ("f", "i"):
        del said[:], added[:]
        made, ratio = run_over(1, lambda base: base, grouped, frames, column, backend=type(cudf_backend.device))[0]
        lost = case == "full" or (case == "sums may pass" and column == "i")
        assert said[0] == (None if lost else 100)
        assert len(set(map(id, added[:pieces]))) == 1
        assert lost or len(said) == 1
        groups = pd.concat(frames).groupby("k")[column]
        theirs = pd.DataFrame({"v": groups.sum(), "n": groups.count()}).reset_index()
        pd.testing.assert_frame_equal(made.sort_values("k", ignore_index=True), theirs)
        assert lost or 0.9 < ratio < 1.1


def test_not_for_this(cudf_backend: Any) -> None:
    from gcylon_lab.backends.cudf.hash_groups import hash_aggregated

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
