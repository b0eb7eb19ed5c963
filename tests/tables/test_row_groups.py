"""What GPU engines decode of parquet files themselves: which files, and which rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.arrow_types import decoded_by_host
from gcylon_lab.backends.protocol.backend import RowGroups, within
from gcylon_lab.backends.protocol.data import Columns
from gcylon_lab.formats import io
from gcylon_lab.formats.parquet.row_groups import file_shares
from gcylon_lab.operators.io.device_read import gathered


def test_rows_that_are_wanted_of_groups_are_ranges_of_all_their_rows() -> None:
    groups = RowGroups("x", ((4, 10, 6, 10), (5, 10, 0, 10), (9, 10, 0, 3), (11, 10, 2, 4)), {}, {})
    assert groups.wanted() == [(6, 23), (32, 34)]
    assert list(within(groups.wanted(), 0, 8)) == [(6, 8)]
    assert list(within(groups.wanted(), 8, 33)) == [(0, 15), (24, 25)]
    assert list(within(groups.wanted(), 24, 32)) == []


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_shares_of_ranks_are_their_rows_file_by_file(tmp_path: Path, size: int) -> None:
    for number in range(3):
        table = pa.table({"x": range(number * 1000, number * 1000 + 1000), "s": ["a"] * 1000})
        (tmp_path / f"k={number}").mkdir()
        pq.write_table(table, tmp_path / f"k={number}" / "part.parquet", row_group_size=170)
    seen = []
    for plan in io.plan_parquet(tmp_path, size):
        for share in file_shares(plan, None):
            assert share.by_host == "" and list(share.groups.types) == ["x", "s"] and share.columns == ("x", "s", "k")
            starts = [170 * group for group, *_ in share.groups.groups]
            number = int(share.groups.path.split("k=")[1][0])
            assert share.folder_row().schema.names == ("k",) and share.folder_row().rows == 1
            rows = [
                number * 1000 + at + row
                for at, (_, _, start, stop) in zip(starts, share.groups.groups, strict=True)
                for row in range(start, stop)
            ]
            seen += rows
            for done in (0, 1, 169, 170, 333, len(rows)):
                read = [x for piece in io.read_parquet_chunks(share.rest(done), columns=["x"]) for x in piece.arrays[0]]
                assert read == rows[done:]
    assert seen == list(range(3000))


def test_small_pieces_are_put_together_and_large_ones_left() -> None:
    backend = PandasBackend()

    def piece(first: int, rows: int, name: str = "x") -> Columns:
        return backend.from_frame(pd.DataFrame({name: np.arange(first, first + rows)}))

    given = [
        piece(0, 10),
        piece(10, 10),
        piece(20, 500),
        piece(520, 1),
        piece(521, 2),
        piece(523, 4, "y"),
        piece(0, 0, "y"),
    ]
    made = list(gathered(backend, iter(given), 800))
    assert [(one.rows, one.schema.names) for one in made] == [(20, ("x",)), (500, ("x",)), (3, ("x",)), (4, ("y",))]
    assert made[1] is given[2] and np.concatenate([one.arrays[0] for one in made[:3]]).tolist() == list(range(523))


def test_what_goes_by_way_of_host_memory_says_why(tmp_path: Path) -> None:
    assert decoded_by_host("x", pa.int32()) == "" and decoded_by_host("d", pa.decimal128(38, 2)) == ""
    for type_ in (pa.list_(pa.int32()), pa.float16(), pa.binary(), pa.decimal256(40, 2), pa.time64("us")):
        assert decoded_by_host("x", type_) == f"column 'x' is {type_}"
    assert "dot" in decoded_by_host("a.b", pa.int32())
    times = pa.table({"t": pa.array([1, 2], pa.timestamp("ns")), "x": [1, 2]})
    pq.write_table(times, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    (plan,) = io.plan_parquet(tmp_path / "old.parquet", 1)
    assert [share.by_host for share in file_shares(plan, None)] == ["column 't' holds times as INT96"]
    assert [share.by_host for share in file_shares(plan, ["x"])] == [""]
