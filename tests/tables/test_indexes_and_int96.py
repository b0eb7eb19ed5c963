"""What pandas and Spark leave to a reader: indexes that stand in metadata alone, and times in INT96."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import read_all

import gcylon_lab as gl
from gcylon_lab.errors import ReadError
from gcylon_lab.formats.io import plan_ipc, plan_parquet, read_ipc_chunks, read_parquet_chunks
from gcylon_lab.runtime.context import run_threads

SIZES = pytest.mark.parametrize("size", [1, 2, 3, 4])
FRAME = pd.DataFrame({"b": np.arange(100) % 7}, index=pd.RangeIndex(10, 310, 3, name="a"))


def write_ipc(frame: pd.DataFrame, path: Path) -> None:
    table = pa.Table.from_pandas(frame)
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=15)


@SIZES
def test_a_range_with_a_name_is_a_column(tmp_path: Path, size: int) -> None:
    FRAME.to_parquet(tmp_path / "x.parquet", row_group_size=15)
    write_ipc(FRAME, tmp_path / "x.arrow")
    want = FRAME.reset_index()[["b", "a"]]  # the last one, as an index that stands in the file
    for max_bytes in (100, 32_000):
        got = read_all(plan_parquet(tmp_path / "x.parquet", size), read_parquet_chunks, max_bytes=max_bytes)
        pd.testing.assert_frame_equal(got, want)
        got = read_all(plan_ipc(tmp_path / "x.arrow", size), read_ipc_chunks, max_bytes=max_bytes)
        pd.testing.assert_frame_equal(got, want)
    for columns in (["a"], ["a", "b"]):
        plans: list[Any] = plan_parquet(tmp_path / "x.parquet", size, columns=columns)
        pd.testing.assert_frame_equal(read_all(plans, read_parquet_chunks, columns=columns), want[columns])
    got = run_threads(size, lambda: gl.read_parquet(str(tmp_path / "x.parquet"), filters=[("a", ">", 200)]).to_pandas())
    pd.testing.assert_frame_equal(got[0], want[want["a"] > 200].reset_index(drop=True))
    for reader, name in (("read_parquet", "x.parquet"), ("read_ipc", "x.arrow")):
        got = run_threads(size, lambda reader=reader, name=name: getattr(gl, reader)(str(tmp_path / name)).to_pandas())
        pd.testing.assert_frame_equal(got[0], want)


@SIZES
def test_beside_files_that_hold_it(tmp_path: Path, size: int) -> None:
    other = FRAME.sample(frac=1, random_state=1)
    for folder, first, second in (("p", FRAME, other), ("q", other, FRAME)):
        (tmp_path / folder).mkdir()
        first.to_parquet(tmp_path / folder / "0.parquet")
        second.to_parquet(tmp_path / folder / "1.parquet")
        got = read_all(plan_parquet(tmp_path / folder, size), read_parquet_chunks)
        want = pd.concat([first, second]).reset_index()[["b", "a"]]
        pd.testing.assert_frame_equal(got, want)


def test_ranges_that_are_no_columns(tmp_path: Path) -> None:
    FRAME.rename_axis(None).to_parquet(tmp_path / "0.parquet")  # without a name
    pq.write_table(pa.Table.from_pandas(FRAME).slice(0, 50), tmp_path / "1.parquet")  # of rows that are not all there
    for name in ("0", "1"):
        got = read_all(plan_parquet(tmp_path / f"{name}.parquet", 2), read_parquet_chunks)
        assert got.columns.tolist() == ["b"]
    FRAME.to_parquet(tmp_path / "2.parquet")  # which the others lack
    assert read_all(plan_parquet(tmp_path, 2), read_parquet_chunks).columns.tolist() == ["b"]
    FRAME.iloc[:0].to_parquet(tmp_path / "2.parquet")
    assert read_all(plan_parquet(tmp_path / "2.parquet", 2), read_parquet_chunks).columns.tolist() == ["b", "a"]


def write_int96(path: Path, times: list[Any], unit: str = "us", **more: Any) -> None:
    table = pa.table({"i": range(len(times)), "t": pa.array(times, pa.timestamp(unit)), **more})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=7)


USUAL = [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2020, 1, 1, 1, 2, 3, 4567), None] * 10
FAR = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), *USUAL]


@SIZES
def test_times_in_int96(tmp_path: Path, size: int) -> None:
    def read() -> pd.DataFrame:
        return gl.read_parquet(str(tmp_path)).to_pandas()

    write_int96(tmp_path / "0.parquet", USUAL)
    got = run_threads(size, read)[0]["t"]
    assert got.dtype == "datetime64[ns]" and got.astype("datetime64[us]").tolist() == pd.Series(USUAL).tolist()
    write_int96(tmp_path / "1.parquet", FAR)
    got = run_threads(size, read)[0]["t"]
    assert got.dtype == "datetime64[us]"
    pd.testing.assert_series_equal(got, pd.Series([*USUAL, *FAR], dtype="datetime64[us]", name="t"))
    found = run_threads(size, lambda: gl.read_parquet(str(tmp_path), filters=[("i", "<", 2)]).to_pandas())[0]
    assert found["t"].tolist() == pd.Series([*USUAL[:2], *FAR[:2]], dtype="datetime64[us]").tolist()


def test_int96_in_lists_and_structs(tmp_path: Path) -> None:
    values = [[time] if time else None for time in FAR]
    listed = pa.array(values, pa.list_(pa.timestamp("us")))
    structs = pa.array([{"x": time, "y": 1} for time in FAR], pa.struct({"x": pa.timestamp("us"), "y": pa.int8()}))
    write_int96(tmp_path / "0.parquet", USUAL + [None, None], l=listed, s=structs)

    got = run_threads(2, lambda: gl.read_parquet(str(tmp_path)).to_pandas())[0]
    assert [None if v is None else [pd.Timestamp(v[0])] for v in got["l"]] == [
        v and [pd.Timestamp(v[0])] for v in values
    ]
    assert [v["x"] and pd.Timestamp(v["x"]) for v in got["s"]] == [time and pd.Timestamp(time) for time in FAR]
    plain = run_threads(2, lambda: gl.read_parquet(str(tmp_path), ["t"]).to_pandas())[0]
    assert plain["t"].dtype == "datetime64[ns]"  # of the columns that are read alone


def test_nanoseconds_beside_far_times_are_an_error(tmp_path: Path) -> None:
    write_int96(tmp_path / "0.parquet", [1, 2, 3], "ns")
    assert read_all(plan_parquet(tmp_path, 1), read_parquet_chunks)["t"].astype("int64").tolist() == [1, 2, 3]
    write_int96(tmp_path / "1.parquet", FAR)
    with pytest.raises(ReadError, match=r"'t' holds times \(INT96\).*nanoseconds"):
        run_threads(2, lambda: gl.read_parquet(str(tmp_path)))
    run_threads(2, lambda: gl.read_parquet(str(tmp_path), ["i"]))
