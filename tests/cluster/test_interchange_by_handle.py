"""The notebook's Arrow data and arrays on the ranks, and the ranks' rows in libraries of the notebook."""

from __future__ import annotations

import io
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import gcylon_lab as gl
from gcylon_lab.cluster import row_stream
from gcylon_lab.errors import ArgumentError, BudgetExceeded, HandleReleased, ReadError, UnsupportedDtype

pytestmark = pytest.mark.mpi
ROWS = 30_000


def rows_of(start: int, stop: int) -> pa.RecordBatch:
    numbers = np.arange(start, stop)
    return pa.record_batch(
        {
            "i": numbers,
            "s": pa.array([f"wörd {i}" if i % 5 else None for i in numbers.tolist()]),
            "n": pa.array([i if i % 3 else None for i in numbers.tolist()], pa.int32()),
            "d": pa.array([f"c{i % 7}" for i in numbers.tolist()]).dictionary_encode(),
        }
    )


def used(lab: gl.Cluster) -> list[int]:
    tables = len(lab.memory())  # which tells what is in use now
    return [tables, *(rank["used_bytes"] for rank in lab._session.memory)]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return pa.Table.from_batches([rows_of(start, start + 7000) for start in range(0, ROWS, 7000)]).slice(0, ROWS)


@pytest.fixture(scope="module", params=["known", "stream"])
def handle(lab: gl.Cluster, table: pa.Table, request: pytest.FixtureRequest) -> Iterator[gl.DistTable]:
    """The table on the ranks: sent as what says how many rows it has, and as what does not; in many messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_stream, "MESSAGE_BYTES", 100_000)
        yield lab.from_arrow(table if request.param == "known" else table.to_reader(max_chunksize=2000))


def test_rows_are_shared_out_in_order(handle: gl.DistTable, table: pa.Table) -> None:
    assert [info["rows"] for info in handle.info()] == [ROWS // 2, ROWS // 2]
    assert list(handle.dtypes.values()) == ["int64", "str", "Int32", "category of str (7 labels)"]
    back = handle.to_arrow(limit=None)
    assert back.to_pydict() == table.to_pydict()
    batches = list(handle.to_batches(7_000))
    assert [batch.num_rows for batch in batches] == [7000] * 4 + [2000]
    assert pa.Table.from_batches(batches).to_pydict() == table.to_pydict() and batches[0].schema == back.schema
    assert back.schema.pandas_metadata["columns"][2]["numpy_type"] == "Int32"
    pd.testing.assert_frame_equal(back.to_pandas(), handle.to_pandas(limit=None))


def test_rows_come_as_bytes_and_go_back(lab: gl.Cluster, handle: gl.DistTable, table: pa.Table) -> None:
    with pytest.warns(UserWarning, match=r"the first 10,000 of 30,000 rows .*to_ipc\(limit=None\) gives all"):
        assert pa.ipc.open_stream(handle.to_ipc()).read_all()["i"].to_pylist() == list(range(10_000))
    written = handle.to_ipc(limit=None)
    again = lab.read_ipc(written)
    assert again.dtypes == handle.dtypes and again.equals(handle)
    few = lab.read_ipc(io.BytesIO(written), columns=["s", "n"], filters=gl.col("i") >= ROWS - 4)
    assert few.to_arrow().to_pydict() == table.select(["s", "n"]).slice(ROWS - 4).to_pydict()
    with pytest.raises(ReadError, match="^<100 bytes> cannot be read"):
        lab.read_ipc(written[:100])


def test_libraries_read_a_handle(lab: gl.Cluster, table: pa.Table) -> None:
    import arro3.core
    import duckdb
    import nanoarrow
    import polars

    few = lab.from_arrow(polars.DataFrame(table.slice(5, 1000)))
    want = table.slice(5, 1000).to_pydict()
    assert pa.table(few).to_pydict() == want == polars.DataFrame(few).to_dict(as_series=False)
    assert duckdb.sql("select * from few").to_arrow_table().to_pydict() == want
    assert pa.table(nanoarrow.ArrayStream(few)).to_pydict() == want == pa.table(arro3.core.Table(few)).to_pydict()
    pd.testing.assert_frame_equal(pd.DataFrame.from_arrow(few), pa.table(few).to_pandas())
    assert lab.from_arrow(duckdb.sql("select i from few where i > 1000")).to_arrow()["i"].to_pylist() == [
        *range(1001, 1005)
    ]
    assert lab.from_arrow(nanoarrow.c_array(rows_of(0, 3))).equals(lab.from_arrow(arro3.core.Table(rows_of(0, 3))))


def test_what_is_too_large_for_a_library_names_what_is_not(handle: gl.DistTable) -> None:
    for read in (pa.table, pd.DataFrame.from_arrow):
        with pytest.raises(ArgumentError, match=r"30,000 rows .*at most 10,000 .*to_arrow\(limit=None\).*to_batches"):
            read(handle)
    for read in (np.asarray, pd.DataFrame):
        with pytest.raises(TypeError, match=r"is no array: use to_pandas\(limit\).to_numpy\(\), .*from_arrow\(t\)"):
            read(handle)
    with pytest.raises(ArgumentError, match="rows=0 gives no batches"):
        handle.to_batches(rows=0)


def test_arrays_are_shared_out(lab: gl.Cluster) -> None:
    raw = np.arange(5, dtype="<i4").tobytes()
    made = lab.from_columns({"r": raw, "f": np.arange(5.0)}, schema={"r": "int32", "f": "float64"})
    assert made.to_pandas().to_dict("list") == {"r": [0, 1, 2, 3, 4], "f": [0, 1, 2, 3, 4]}
    assert [part.tolist() for part in made.tensor("r")] == [[0, 1, 2], [3, 4]]
    with pytest.raises(ArgumentError, match="column 'f' is float64, expected int32"):
        made.tensor()
    with pytest.raises(ArgumentError, match="^column 'b' has 2 rows, expected 3"):
        lab.from_columns({"a": np.arange(3), "b": np.arange(2)})
    of_complex = lab.from_columns({"c": np.arange(3) * 1j})
    assert of_complex.to_pandas()["c"].tolist() == [0, 1j, 2j]
    with pytest.raises(UnsupportedDtype, match=r"'c' \(complex128\) has no Arrow type"):
        of_complex.to_arrow()


def test_a_stream_is_never_whole_in_the_notebook(lab: gl.Cluster) -> None:
    alive: set[int] = set()
    most, grown = [0], [0]
    before = pa.total_allocated_bytes()

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(40):
            values = np.arange(number * 32_768, (number + 1) * 32_768)
            alive.add(number)
            weakref.finalize(values, alive.discard, number)
            most[0], grown[0] = max(most[0], len(alive)), max(grown[0], pa.total_allocated_bytes() - before)
            batch = pa.record_batch({"x": values})
            del values
            yield batch
            del batch

    schema = pa.schema({"x": pa.int64()})
    config = lab.config.with_values(gpu_memory_limit="8MiB")
    made = lab.from_arrow(pa.RecordBatchReader.from_batches(schema, batches()), config=config)
    assert made.sum("x") == sum(range(40 * 32_768)) and made.tiers["disk"] > 0
    assert most[0] <= 8 and grown[0] < 2**20, "half a piece is on its way, of 256 KiB a batch and 10 MiB"
    got = 0
    for batch in made.to_batches():
        got += batch.num_rows
        assert batch.nbytes <= 1.1 * 4 * 2**20
    assert got == 40 * 32_768


def test_what_fails_leaves_nothing(lab: gl.Cluster, table: pa.Table) -> None:
    before = used(lab)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        raise RuntimeError("the disk is on fire")

    tight = gl.GcylonConfig(gpu_memory_limit=256 * 1024).with_staging(allow_cpu_staging=False, allow_disk_spill=False)
    failing: list[tuple[Any, type[Exception], str]] = [
        (lambda: lab.from_arrow(pa.RecordBatchReader.from_batches(table.schema, broken())), ReadError,
         "^batch 5 of pyarrow RecordBatchReader, after 30,000 rows, cannot be read: the disk is on fire"),
        (lambda: lab.from_arrow(table, config=tight), BudgetExceeded, "gpu_memory_limit is 256 KiB now"),
        (lambda: lab.from_arrow(pa.table({"u": pa.array([None], pa.month_day_nano_interval())})), UnsupportedDtype,
         "column 'u' has Arrow type month_day_nano_interval"),
        (lambda: lab.from_arrow({"x": 1}), ArgumentError, "^Expected Arrow data for from_arrow, got a dict"),
        (lambda: lab.from_pandas(table), ArgumentError, "got a pyarrow.Table. Pass it to from_arrow"),
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_stream, "MESSAGE_BYTES", 100_000)
        for ask, kind, said in failing:
            with pytest.raises(kind, match=said):
                ask()
            assert all(now <= then for now, then in zip(used(lab), before, strict=True)), (used(lab), before)
    gone = lab.from_arrow(table)
    batches = gone.to_batches(100)
    gone.release()
    with pytest.raises(HandleReleased):
        next(batches)
