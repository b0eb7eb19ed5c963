"""Arrow data and arrays become tables and come out again: every dtype, in the budget, without copies where none is
needed, and nothing of what cannot be read."""

from __future__ import annotations

import array
import doctest
import io
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import worlds
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, GcylonError, ReadError, SchemaMismatch, UnsupportedDtype
from gcylon_lab.runtime.context import current, initialize, run_threads

WORLDS = [World("single", 1), World("threads", 3), pytest.param(World("mpi", 2), marks=pytest.mark.mpi)]
ROWS = 1000


def table_of(rows: int = ROWS) -> pa.Table:
    numbers = np.arange(rows)
    return pa.table(
        {
            "i": numbers,
            "f": numbers / 7,
            "t": pa.array(numbers, pa.timestamp("us", "Europe/Berlin")),
            "s": pa.array([f"wörd {i}" if i % 5 else None for i in range(rows)], pa.large_string()),
            "n": pa.array([i if i % 3 else None for i in range(rows)], pa.int32()),
            "b": numbers % 2 == 0,
            "d": pa.array([f"c{i % 7}" for i in range(rows)]).dictionary_encode(),
            "l": pa.array([[i] if i % 4 else None for i in range(rows)], pa.large_list(pa.int64())),
        }
    )


# ---- what goes in comes out

_TIMES = st.integers(-(2**35), 2**35)
_TEXT = st.text(max_size=5)
TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((getattr(pa, f"int{b}")(), st.integers(-(2 ** (b - 1)), 2 ** (b - 1) - 1)) for b in (8, 16, 32, 64)),
    *((getattr(pa, f"uint{b}")(), st.integers(0, 2**b - 1)) for b in (8, 16, 32, 64)),
    (pa.float32(), st.floats(width=32)), (pa.float64(), st.floats()), (pa.bool_(), st.booleans()),
    (pa.string(), _TEXT), (pa.large_string(), _TEXT), (pa.string_view(), _TEXT), (pa.binary(), st.binary(max_size=4)),
    (pa.binary(2), st.binary(min_size=2, max_size=2)),
    *((pa.timestamp(unit, zone), _TIMES) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")),
    *((pa.duration(unit), _TIMES) for unit in ("s", "ns")), (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()), (pa.decimal128(12, 2), st.decimals(-(10**6), 10**6, places=2)),
    (pa.list_(pa.int16()), st.lists(st.integers(-9, 9), max_size=3)), (pa.null(), st.none()),
    (pa.struct([("a", pa.int8()), ("b", pa.string())]), st.fixed_dictionaries({"a": st.integers(0, 9), "b": _TEXT})),
    (pa.map_(pa.string(), pa.int8()), st.lists(st.tuples(_TEXT, st.integers(0, 9)), max_size=2)),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", ""])),
]  # fmt: skip


VIEWS = pa.array(["", "", ""], pa.string_view())


@st.composite
def tables(draw: Any) -> pa.Table:
    """Some columns with and without nulls, of several chunks, perhaps sliced."""
    rows = draw(st.integers(0, 12))
    columns = {}
    for place, (type_, values) in enumerate(draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))):
        some = draw(st.lists(st.none() | values if draw(st.booleans()) else values, min_size=rows, max_size=rows))
        plain = type_.value_type if pa.types.is_dictionary(type_) else type_
        whole = pa.array(some, plain)
        whole = whole.dictionary_encode().cast(type_) if plain != type_ else whole
        cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=3)))
        edges = list(zip([0, *cuts], [*cuts, rows], strict=True))
        columns[f"c{place}"] = pa.chunked_array([whole.slice(a, b - a) for a, b in edges], whole.type)
    start = draw(st.integers(0, rows))
    return pa.table(columns).slice(start, draw(st.integers(0, rows - start)))


def without_nan(values: list[Any]) -> list[Any]:
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def there_and_back(table: pa.Table) -> tuple[pa.Table, list[str]]:
    context = current()
    share = -(-table.num_rows // context.size)
    made = gl.from_arrow(table.slice(context.rank * share, share))
    return pa.table(made), list(made.dtypes.values())


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(tables())
@example(pa.table({"c": pa.chunked_array([VIEWS[:1], VIEWS[1:1], VIEWS[1:]])}))  # its empty chunk does not validate
def test_any_table_comes_back_as_it_went_in(table: pa.Table) -> None:
    outcomes = run_threads(2, there_and_back, table)
    assert outcomes[0][1] == outcomes[1][1] and outcomes[0][0].schema == outcomes[1][0].schema
    for name in table.column_names:
        got = [value for back, _ in outcomes for value in back[name].to_pylist()]
        assert got == without_nan(table[name].to_pylist()), table.schema


def in_and_out(foreign: bool) -> dict[str, Any]:
    table = table_of()
    sources: dict[str, Any] = {"pyarrow": table, "batch": table.combine_chunks().to_batches()[0]}
    if foreign:
        import arro3.core as arro3
        import duckdb
        import nanoarrow
        import polars

        sources |= {
            "polars": polars.DataFrame(table),
            "duckdb": duckdb.from_arrow(table),
            "nanoarrow": nanoarrow.ArrayStream(table),
            "nanoarrow array": nanoarrow.c_array(table.combine_chunks().to_batches()[0]),
            "arro3": arro3.Table(table),
            "pandas": table.to_pandas(),
        }
    seen = {}
    for name, source in sources.items():
        made = gl.from_arrow(source)
        taken = {"pyarrow": pa.table(made)}
        if foreign:
            taken |= {
                "polars": polars.DataFrame(made).to_arrow(),
                "duckdb": duckdb.sql("from made").to_arrow_table(),
                "nanoarrow": pa.table(nanoarrow.ArrayStream(made)),
                "arro3": pa.table(arro3.Table(made)),
                "pandas": pa.table(pd.DataFrame.from_arrow(made)),
            }
        for reader, back in taken.items():
            for column in table.column_names:
                assert back[column].to_pylist() == table[column].to_pylist(), (name, reader, column)
        seen[name] = made.num_rows, made.count_rows()
    assert made.to_arrow(1500)["i"].to_pylist() == [*range(ROWS), *range(500)][: ROWS * current().size]
    assert pa.ipc.open_stream(made.to_ipc(limit=None)).read_all()["i"].to_pylist() == list(range(ROWS)) * current().size
    assert [batch.num_rows for batch in made.to_batches(400)] == [400, 400, 200]
    return seen


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_other_libraries_give_and_take(world: World) -> None:
    for name in ("duckdb", "polars", "nanoarrow", "arro3.core") if world.kind == "single" else ():
        pytest.importorskip(name)  # a machine with a GPU need not have them: CI's has
    for seen in world.run(in_and_out, world.kind == "single"):
        assert set(seen.values()) == {(ROWS, ROWS * world.size)} and len(seen) == (8 if world.kind == "single" else 2)


def verbs_on_foreign_memory() -> None:
    table = table_of().drop_columns("l").append_column("k", pa.array(np.arange(ROWS) * 7 % 50))
    foreign, own = gl.from_arrow(table), gl.from_local(gl.from_arrow(table).local())
    assert not foreign._part.chunks[0].data.array("k").flags.writeable
    for work in (
        lambda t: t.shuffle(["k", "s"], keep_order=True),
        lambda t: t.shuffle("k", keep_order=True, strategy="staged"),
        lambda t: t.sort_values(["d", "k", "f", "i"], ascending=[True, False, True, True]),
        lambda t: t.groupby(["k", "d"], sort=True).agg({"f": "sum", "i": ["min", "max"], "n": "mean", "t": "first"}),
        lambda t: t.filter(gl.col("b")).join(t.unique("k").assign(z=gl.col("k") * 2), on="k").sort_values(["i", "f"]),
        lambda t: t.assign(x=gl.col("i") + gl.col("f"), y=gl.col("t").dt.year).fillna({"n": 0}).astype({"b": "int8"}),
        lambda t: t.drop_duplicates("k").sort_values("i"),
        lambda t: t.allgather(),
    ):
        got, want = work(foreign), work(own)
        assert got.equals(want), got.why_not_equal(want)
    assert foreign.describe().equals(own.describe()) and foreign.equals(own)


@pytest.mark.cpu_alone("GPU ranks copy to the device")
@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_verbs_work_on_memory_that_cannot_be_written(world: World) -> None:
    world.run(verbs_on_foreign_memory)


def device_memory() -> None:
    import cupy
    import pylibcudf

    numbers = cupy.arange(1000)
    made = gl.from_columns({"x": numbers, "y": np.arange(1000) / 7, "b": numbers % 2 == 0}, schema=None)
    (chunk,) = made._part.chunks
    assert chunk.data.array("x").data.ptr == numbers.data.ptr == made.tensor("x").data.ptr
    assert made.tensor("x").__cuda_array_interface__["shape"] == (1000,)
    assert made.tensor(["x"]).shape == (1000, 1) and made.tensor(["x"]).strides[0] == 8
    assert cupy.from_dlpack(made.tensor("y")).get().tolist() == (np.arange(1000) / 7).tolist()
    with pytest.raises(ArgumentError, match="column 'y' is float64, expected int64"):
        made.tensor(["x", "y"])
    taken = pylibcudf.Table.from_arrow(made)
    assert taken.num_columns() == 3 and taken.num_rows() == 1000
    frame = made.local()
    made.release()  # the memory stays with who reads it
    again = gl.from_arrow(taken)
    assert len(again.columns) == 3
    assert pa.table(again).to_pandas().to_numpy().tolist() == frame.to_numpy().tolist()
    with pytest.raises(UnsupportedDtype, match="column 'd' is a category"):
        pylibcudf.Table.from_arrow(gl.from_arrow(table_of().select(["d"])))


@pytest.mark.gpu
def test_device_memory_goes_in_and_out_without_the_host() -> None:
    World("single", 1).run(device_memory)


# ---- memory


def address(values: Any) -> int:
    """Where an array's items begin."""
    if isinstance(values, np.ndarray):
        return values.ctypes.data
    chunk = values.chunk(0) if isinstance(values, pa.ChunkedArray) else values
    return chunk.buffers()[-1].address + chunk.offset * 8 * (not pa.types.is_large_string(chunk.type))


def shared() -> None:
    budget, table = current().budget, table_of(100_000)
    before, allocated = budget.used_bytes, pa.total_allocated_bytes()
    plain = table.select(["i", "f", "t", "s", "l"])
    made = gl.from_arrow(plain.slice(10))
    (chunk,) = made._part.chunks
    assert abs(budget.used_bytes - before - chunk.nbytes) <= 64 and chunk.nbytes == made.nbytes
    assert pa.total_allocated_bytes() - allocated < 200_000, "the rows take 6 MB"
    back = pa.table(made)
    for name in ("i", "f", "t", "s"):
        given = address(plain[name]) + (80 if name != "s" else 0)
        assert address(chunk.data.array(name)) == given == address(back[name]), name
    assert not chunk.data.array("i").flags.writeable
    held, unread = budget.used_bytes, pa.RecordBatchReader.from_stream(made)
    made.release()
    del made, chunk
    assert unread.read_all().equals(back), "also where reading begins after the release"
    del unread
    assert budget.used_bytes == held, "who reads it holds it"
    del back
    assert budget.used_bytes == before
    assert plain["i"].to_pylist()[-1] == 99_999


def arrays_shared() -> None:
    budget, numbers = current().budget, np.arange(1000.0)
    before = budget.used_bytes
    raw = np.arange(1000, dtype="<i4").tobytes()
    items = array.array("q", range(1000))
    given = {"a": numbers, "b": raw, "c": items, "d": memoryview(items), "e": numbers[::-1], "f": numbers.astype(">f8")}
    schema = dict(zip(given, ("f8", "i4", "i8", "i8", "f8", "f8"), strict=True))
    made = gl.from_columns(given, schema=schema)
    (chunk,) = made._part.chunks
    assert chunk.data.array("a").ctypes.data == numbers.ctypes.data
    assert chunk.data.array("b").ctypes.data == np.frombuffer(raw, "i4").ctypes.data
    assert chunk.data.array("c").ctypes.data == items.buffer_info()[0] == chunk.data.array("d").ctypes.data
    assert budget.used_bytes - before == 44_000 == made.nbytes
    assert made.local()["e"].tolist() == numbers[::-1].tolist() and made.local()["f"].tolist() == numbers.tolist()

    tensor = made.tensor("a")
    assert tensor.ctypes.data == numbers.ctypes.data and not tensor.flags.writeable
    assert np.from_dlpack(tensor).ctypes.data == numbers.ctypes.data
    with pytest.raises(ValueError, match="read-only"):
        tensor[0] = 1
    again = gl.from_columns({"x": tensor, "y": _ByDlpack(numbers)})
    assert {address(again._part.chunks[0].data.array(name)) for name in "xy"} == {numbers.ctypes.data}
    again.release()
    made.release()
    assert budget.used_bytes - before == 44_000, "the tensor holds its chunk"
    del tensor, chunk, made, again
    assert budget.used_bytes == before


class _ByDlpack:
    """What has DLPack and nothing else, as tensors of other libraries."""

    def __init__(self, values: np.ndarray) -> None:
        self.__dlpack__, self.__dlpack_device__ = values.__dlpack__, values.__dlpack_device__


def tensors() -> None:
    budget = current().budget
    parts = [pd.DataFrame({"x": np.arange(4.0) + i, "y": np.float64(i), "b": [True, False] * 2}) for i in range(3)]
    parts[1]["n"] = pd.array([1, 2, 3, 4], dtype="Int32")
    table = gl.from_local(part.assign(n=pd.array([1, 2, 3, 4], dtype="Int32"), s="a", k=1) for part in parts)
    whole = pd.concat(parts)
    before = budget.used_bytes
    several = table.tensor(["x", "y"])
    assert several.tolist() == whole[["x", "y"]].to_numpy().tolist()
    assert several.strides == (8, 96) and budget.used_bytes - before == 192, "columns are contiguous, and counted"
    assert table.tensor("b").tolist() == [True, False] * 6 and table.tensor(["x"]).shape == (12, 1)
    counts = table.tensor("n")
    assert counts.dtype == np.int32 and counts.tolist() == [1, 2, 3, 4] * 3
    del several, counts
    assert budget.used_bytes == before
    none = table.filter(gl.col("x") < 0)
    assert none.tensor("x").shape == (0,) and none.tensor(["x", "y"]).shape == (0, 2)
    some = gl.from_local(pd.DataFrame({"n": pd.array([1, None], dtype="Int64")}))
    for ask, kind, said in (
        (lambda: table.tensor("s"), UnsupportedDtype, "^column 's' is str, of which no tensor is made"),
        (lambda: table.tensor(["x", "k"]), ArgumentError, "^column 'k' is int64, expected float64 as column 'x' is"),
        (lambda: some.tensor("n"), UnsupportedDtype, r"^column 'n' \(Int64\) has 1 missing .*t.fillna\({'n': 0}\)"),
        (lambda: some.tensor([]), ArgumentError, "at least one column"),
        (lambda: np.asarray(some), TypeError, r"is no array: use .* tensor\(columns\) for"),
    ):
        with pytest.raises(kind, match=said):
            ask()
    assert some.fillna({"n": 0}).tensor("n").tolist() == [1, 0] and some.dropna(["n"]).tensor("n").tolist() == [1]
    assert budget.used_bytes - before < 200


@pytest.mark.cpu_alone("GPU ranks copy to the device")
@pytest.mark.parametrize("body", [shared, arrays_shared, tensors], ids=lambda body: body.__name__)
def test_memory_is_shared_and_counted(body: Callable[[], None]) -> None:
    World("single", 1).run(body)


LIMIT = 4 * 2**20


def larger_than_the_budget() -> tuple[int, int, int, int]:
    context = current()
    alive: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for i in range(32):
            alive.append(pa.total_allocated_bytes())
            yield pa.record_batch({"x": pa.array(range(i * 65536, (i + 1) * 65536)), "s": pa.array(["ab"] * 65536)})

    table = gl.from_arrow(pa.RecordBatchReader.from_batches(next(batches()).schema, batches()))
    record = list(context.recorder.operations)[-1]
    assert table.sum("x") == sum(range(32 * 65536)) * context.size
    rows = sum(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table))
    return record.measured_peak_bytes, table.tiers["disk"], rows, max(alive) - min(alive)


@pytest.mark.cpu_alone("its limit is too small for GPU ranks")
def test_a_stream_may_give_more_than_the_budget() -> None:
    config = gl.GcylonConfig(gpu_memory_limit=LIMIT)
    (outcome,) = World("single", 1).run(larger_than_the_budget, config=config)
    peak, disk, rows, grown = outcome
    assert peak <= LIMIT and disk > 20 * 2**20 and rows == 32 * 65536
    assert grown <= 3 * LIMIT, "a batch and what is staged of it, of 50 MB"


# ---- what cannot be read


def refused(make: str) -> tuple[str, str, int]:
    context = current()
    before = context.budget.used_bytes
    last = context.rank == context.size - 1
    with pytest.raises(GcylonError) as caught:
        MALFORMED[make][0](last)
    return type(caught.value).__name__, str(caught.value), context.budget.used_bytes - before


def broken_stream(last: bool) -> None:
    table = table_of()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        if last:
            raise RuntimeError("the disk is on fire")

    gl.from_arrow(pa.RecordBatchReader.from_batches(table.schema, batches()))


class _Released:
    """A stream that was given away before."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise RuntimeError("array stream is released")


def columns(last: bool, wrong: dict[str, Any], schema: Any = None) -> None:
    right = {name: np.arange(3) for name in wrong} if schema is None else wrong
    gl.from_columns(wrong if last else right, schema=schema)


X = np.arange(3)
MALFORMED: dict[str, tuple[Callable[[bool], Any], type[GcylonError], str]] = {
    "broken": (broken_stream, ReadError, "^batch 1 of pyarrow RecordBatchReader, after 1,000 rows, .*: the disk is on"),
    "released": (lambda last: gl.from_arrow(_Released() if last else table_of()), ArgumentError, "is released. A str"),
    "no arrow": (lambda last: gl.from_arrow({"x": 1} if last else table_of()), ArgumentError, "got a dict. Give what"),
    "no names": (lambda last: gl.from_arrow(pa.array([1]) if last else table_of()), ArgumentError, "has no columns"),
    "no type": (
        lambda last: gl.from_arrow(pa.table({"u": pa.array([None], pa.month_day_nano_interval())})),
        UnsupportedDtype, "^column 'u' has Arrow type month_day_nano_interval, .*cast it before",
    ),
    "other columns": (lambda last: gl.from_arrow(table_of().drop_columns(["i"] * last)), GcylonError, "no column 'i'"),
    "lengths": (lambda last: columns(last, {"a": X, "b": X[1:]}), ArgumentError, "^column 'b' has 2 rows, expected 3"),
    "left over": (
        lambda last: columns(last, {"a": b"12345"}, {"a": "int32"}),
        ArgumentError, r"^column 'a' has 5 bytes, expected a whole number of int32 \(4 bytes each\): 1 are left",
    ),
    "no schema": (lambda last: columns(last, {"a": b"1234"}), ArgumentError, "^column 'a' is 4 bytes, of which"),
    "dimensions": (lambda last: columns(last, {"a": X[None]}), ArgumentError, r"^column 'a' has shape \(1, 3\)"),
    "list": (lambda last: columns(last, {"a": [1]}), ArgumentError, "^column 'a' is a list, expected an array"),
    "text": (lambda last: columns(last, {"a": X.astype(str)}), UnsupportedDtype, "^column 'a' has dtype <U21"),
    "type": (lambda last: columns(last, {"a": X}, {"a": "int32"}), SchemaMismatch, "^column 'a' is int64, .*says int"),
    "arrow type": (
        lambda last: columns(last, {"a": pa.array([1])}, pa.schema({"a": pa.int8()})),
        SchemaMismatch, "^column 'a' is int64, and the schema says int8",
    ),
    "names": (lambda last: columns(last, {"a": X}, {"b": "int64"}), ArgumentError, "has no array for column 'b'"),
    "no dtype": (lambda last: columns(last, {"a": X}, {"a": "nix"}), ArgumentError, "^schema says 'nix' of column 'a'"),
    "no bools": (lambda last: columns(last, {"a": b"\2"}, {"a": bool}), ArgumentError, "^column 'a' has the byte 2"),
    "damaged": (lambda last: gl.read_ipc(b"abc" * 50), ReadError, "^<150 bytes> cannot be read"),
    "open file": (lambda last: gl.read_ipc(open(__file__)), ArgumentError, "got an open TextIOWrapper"),  # noqa: SIM115
}  # fmt: skip


@pytest.mark.parametrize("make", MALFORMED)
def test_what_cannot_be_read_is_told_to_all_and_nothing_is_kept(make: str) -> None:
    _, kind, said = MALFORMED[make]
    outcomes = World("threads", 2).run(refused, make)
    assert outcomes[0] == outcomes[1] or make == "open file"
    for name, text, kept in outcomes:
        assert issubclass(getattr(gl.errors, name), kind) and kept == 0
        message = text.partition("] ")[2] if text.startswith("[") else text
        assert re.search(said, message), text


def read_bytes() -> tuple[int, list[str], pd.DataFrame]:
    frame = pd.DataFrame({"x": range(100), "n": pd.array([1, None] * 50, dtype="Int8")}, pd.RangeIndex(100, name="i"))
    table = pa.Table.from_pandas(frame)
    with pa.ipc.new_file(sink := io.BytesIO(), table.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    whole = gl.read_ipc(sink.getvalue())
    few = gl.read_ipc(sink, ["n", "i"], filters=gl.col("x") >= 95)
    return whole.count_rows(), list(whole.dtypes.values()), few.to_pandas()


@pytest.mark.filterwarnings("ignore:gl.read_ipc makes a table in this process alone")  # as where a cluster runs
@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_bytes_are_read_as_files_are(world: World) -> None:
    for rows, dtypes, few in world.run(read_bytes):
        assert rows == 100 and dtypes == ["int64", "Int8", "int64"]
        assert few["i"].tolist() == [95, 96, 97, 98, 99] and few["n"].isna().sum() == 3


def test_ranks_with_different_bytes_are_told() -> None:
    def read() -> None:
        with pa.ipc.new_stream(sink := io.BytesIO(), pa.schema({"x": pa.int64()})) as writer:
            writer.write_table(pa.table({"x": [current().rank]}))
        with pytest.raises(ReadError, match="do not see the same files"):
            gl.read_ipc(sink)

    run_threads(2, read)


def test_the_examples_are_right() -> None:
    from gcylon_lab.api.interchange import sources

    with initialize(engine="cpu", sample_hz=0):
        assert doctest.testmod(sources).failed == 0 < doctest.testmod(sources).attempted


def held_of_others() -> dict[str, Any]:
    given = pa.table({"k": np.arange(1000), "x": pa.array([1, None] * 500), "s": pa.array(["text"] * 1000)})
    nbytes = given.select(["k"]).nbytes
    before = gl.budget.by_use()
    if worlds.ENGINE == "gpu":  # Arrow's is in host memory, and copied
        import cupy

        table = gl.from_columns({"k": cupy.arange(1000), "s": given["s"].combine_chunks()})
    else:
        table = gl.from_arrow(given.select(["k", "s"]))
    copied = gl.from_local(pd.DataFrame({"k": np.arange(10)}))
    seen = {"use": gl.budget.by_use(), "used": gl.budget.used_bytes, "info": table.info(), "nbytes": nbytes}
    current().budget.recount()
    seen["recounted"] = gl.budget.by_use()
    table.release()
    copied.release()
    return seen | {"before": before, "after": gl.budget.by_use()}


def test_memory_of_others_is_counted_apart() -> None:
    for seen in World("threads", 2).run(held_of_others):
        external, tables = seen["use"]["external"], seen["use"]["tables"]
        beside = seen["use"].get("not claimed", 0)
        assert external + tables + beside == seen["used"] and (beside or seen["recounted"] == seen["use"])
        assert not beside or worlds.ENGINE == "gpu"
        assert seen["nbytes"] <= external < seen["info"]["nbytes"]  # offsets of 32 bits became ones of 64
        assert seen["info"]["external_bytes"] == external and tables == seen["info"]["nbytes"] - external + 80
        known = [{use: n for use, n in seen[when].items() if use != "not claimed"} for when in ("before", "after")]
        assert known == [{}, {}] and (worlds.ENGINE == "gpu" or seen["before"] == seen["after"])
