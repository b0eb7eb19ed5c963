"""parquet: rows in order on any number of ranks, the dtypes that pandas gives, bounded pieces, clear refusals."""

import datetime as dt
import json
import os
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaged_files import FORMATS, footer_tree, with_footer
from every_dtype import EVERY_DTYPE
from full_disk import fill_the_disk_for
from reading import backend, read_all
from test_round_trip import mixed_frame, same

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.backends.protocol.data import empty_columns
from gcylon_lab.errors import ReadError, SchemaMismatch, UnsupportedDtype, WriteError
from gcylon_lab.formats.io import (
    PartFiles,
    Storage,
    parquet_format,
    plan_parquet,
    read_parquet_chunks,
)
from gcylon_lab.formats.parquet.footer import Footer, value_of
from gcylon_lab.formats.row_writers import file_schema
from gcylon_lab.runtime.context import run_threads


def read(path: object, size: int, **how: object) -> pd.DataFrame:
    return read_all(plan_parquet(path, size), read_parquet_chunks, **how)


def write(folder: Path, frame: pd.DataFrame, rank: int = 0, pieces: int = 1) -> str:
    data = backend.from_frame(frame)
    cuts = [data.rows * i // pieces for i in range(pieces + 1)]
    slices = (backend.slice(data, a, b) for a, b in zip(cuts, cuts[1:], strict=False))
    return write_slices(folder, data.schema, slices, rank)


def files_of(folder: Path, rank: int = 0, size: int = 9) -> PartFiles:
    return PartFiles(str(folder), rank, size, ".parquet", (".parquet",), Storage())


def write_slices(folder: Path, schema: object, slices: object, rank: int = 0) -> str:
    """As `ops.writing` does it on one rank."""
    files = files_of(folder, rank)
    files.look(overwrite=True)
    try:
        writer = parquet_format().open(files, schema, False)
        try:
            for piece in slices:
                writer.write(piece)
            writer.close()
        finally:
            writer.abandon()
        (written,) = files.finish()
    except BaseException:
        files.discard()
        raise
    return written


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("group_rows", [1000, 130, 7])
def test_rows_keep_their_order(tmp_path: Path, size: int, group_rows: int) -> None:
    frame = mixed_frame(1000).drop(columns="b")
    for number, half in enumerate((frame.iloc[:430], frame.iloc[430:])):
        half.to_parquet(tmp_path / f"{number}.parquet", row_group_size=group_rows, index=False)
    got = read(tmp_path, size, max_bytes=20_000)
    same(got.assign(c=got["c"].astype(str)), frame.assign(c=frame["c"].astype(str)))


# Arrow's own reader and writer change these, or do not know them.
OTHERWISE = {"complex128", "period"}


@pytest.mark.parametrize("name", [name for name in EVERY_DTYPE if name not in OTHERWISE])
def test_dtypes_are_those_of_pandas(tmp_path: Path, name: str) -> None:
    if name.startswith("arrow_fixed_size_list") and int(pa.__version__.split(".")[0]) < 26:
        pytest.skip("before version 26 pyarrow writes no such lists with nulls")
    frame = EVERY_DTYPE[name].to_frame("x")
    path = write(tmp_path, frame)
    got = read(path, 2)
    try:
        want = pd.read_parquet(path)
    except (TypeError, NotImplementedError):  # pandas cannot read back what it calls such an ArrowDtype
        assert got["x"].dtype == frame["x"].dtype or name.startswith("arrow_dictionary")  # which is a category in files
        want = frame
    if name.startswith(("object_list", "object_struct", "object_nested")):
        want = frame  # pandas gives arrays, and its structs lose ints; here lists stay lists
    exact_ints = name in ("object_int", "object_uint")  # above 2**53: pandas gives floats, which are not exact
    if not exact_ints and not name.startswith(("category", "arrow")):
        assert str(got["x"].dtype) == str(want["x"].dtype)
    if name in ("category_str", "category_ordered", "category_object", "category_wide"):
        assert isinstance(got["x"].dtype, pd.CategoricalDtype)
    assert got["x"].isna().tolist() == frame["x"].isna().tolist()
    if not exact_ints:
        assert list(map(str, got["x"].dropna())) == list(map(str, want["x"].dropna()))
    else:
        assert got["x"].dropna().tolist() == frame["x"].dropna().tolist()


def test_ints_with_nulls_anywhere_are_decided_alike(tmp_path: Path) -> None:
    pq.write_table(pa.table({"few": [1, 2], "large": [1, 2], "flag": [True, False]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"few": [3, None], "large": [2**60, None], "flag": [None, True]}), tmp_path / "1.parquet")
    for plan in plan_parquet(tmp_path, 2):
        (data,) = read_parquet_chunks(plan)
        assert [column.pandas for column in data.schema] == ["float64", "Int64", "object"]


def test_columns_in_the_order_asked_for(tmp_path: Path) -> None:
    mixed_frame(50).to_parquet(tmp_path / "x.parquet")
    assert read(tmp_path, 2, columns=["s", "k"]).columns.tolist() == ["s", "k"]
    with pytest.raises(ReadError, match="no column 'nope'"):
        read(tmp_path, 2, columns=["k", "nope"])


def test_the_index_is_not_a_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1, 2]}, index=[7, 8])
    frame.to_parquet(tmp_path / "x.parquet")
    assert read(tmp_path, 1).columns.tolist() == ["x"]
    frame.rename_axis("day").to_parquet(tmp_path / "x.parquet")
    assert read(tmp_path, 1).columns.tolist() == ["x", "day"]


def test_pieces_are_bounded(tmp_path: Path) -> None:
    rows = 200_000
    frame = pd.DataFrame({"k": np.arange(rows), "s": [f"text {i % 100:06d}" for i in range(rows)]})
    frame.to_parquet(tmp_path / "x.parquet", index=False)
    (plan,) = plan_parquet(tmp_path, 1)
    sizes = [piece.nbytes for piece in read_parquet_chunks(plan, max_bytes=200_000)]
    assert max(sizes) <= 220_000 and len(sizes) > 20
    assert max(piece.rows for piece in read_parquet_chunks(plan, max_rows=777)) <= 777


@pytest.mark.parametrize("size", [1, 3])
def test_numbers_stay_where_they_were_decoded_and_keep_no_other_rows(tmp_path: Path, size: int) -> None:
    path = str(tmp_path / "t.parquet")
    table = pa.table({"i": np.arange(50_000), "f": np.arange(50_000.0), "t": np.arange(50_000).astype("M8[us]")})
    pq.write_table(table, path, row_group_size=20_000)
    views, rows = 0, 0
    for plan in plan_parquet(path, size):
        for piece in read_parquet_chunks(plan, max_bytes=1 << 20):
            rows += piece.rows
            for array in piece.arrays:
                held = array.base
                while isinstance(held, np.ndarray):
                    held = held.base
                if held is not None:
                    views += 1
                    assert held.get_total_buffer_size() <= array.nbytes + 64
    assert rows == 50_000
    assert views >= 3  # of each column


def test_what_files_say_of_dtypes_is_what_pandas_says() -> None:
    known = {}
    for name, values in EVERY_DTYPE.items():
        data = backend.from_frame(pd.DataFrame({name: values}))
        with suppress(UnsupportedDtype):
            file_schema(data.schema)
            known |= {(name, place): values for place in range(2)}
    frame = pd.DataFrame(known)
    frame.columns = pd.Index([f"{name} {place}" for name, place in known])
    schema = backend.from_frame(frame).schema
    empty = to_frame(empty_columns(schema))
    said = json.loads(pa.Schema.from_pandas(empty, preserve_index=False).metadata[b"pandas"])
    assert len(said["columns"]) > 80
    assert json.loads(file_schema(schema).metadata[b"pandas"]) == said


def test_small_groups_make_large_pieces(tmp_path: Path) -> None:
    pd.DataFrame({"k": np.arange(10_000)}).to_parquet(tmp_path / "x.parquet", row_group_size=10, index=False)
    (plan,) = plan_parquet(tmp_path, 1)
    assert len(list(read_parquet_chunks(plan))) == 1


def test_more_ranks_than_rows(tmp_path: Path) -> None:
    pd.DataFrame({"k": [1, 2], "s": ["a", "b"]}).to_parquet(tmp_path / "x.parquet", index=False)
    same(read(tmp_path, 5), pd.DataFrame({"k": [1, 2], "s": ["a", "b"]}))
    pd.DataFrame({"k": np.array([], "int64"), "s": pd.Series([], dtype="str")}).to_parquet(tmp_path / "x.parquet")
    got = read(tmp_path, 3)
    assert len(got) == 0 and got.dtypes.astype(str).tolist() == ["int64", "str"]


@pytest.mark.parametrize("content", [b"", b"not parquet at all", b"PAR1" + b"x" * 100 + b"PAR1"], ids=len)
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.parquet").write_bytes(content)
    with pytest.raises(ReadError, match=r"bad\.parquet cannot be read") as caught:
        plan_parquet(tmp_path, 2)
    assert caught.value.numbers["path"].endswith("bad.parquet")


def test_damage_inside_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    pd.DataFrame({"k": np.random.default_rng(0).random(10_000)}).to_parquet(path, index=False)
    content = bytearray(path.read_bytes())
    content[4:2000] = b"\xff" * 1996
    path.write_bytes(content)
    (plan,) = plan_parquet(path, 1)
    with pytest.raises(ReadError, match=r"bad\.parquet cannot be read"):
        list(read_parquet_chunks(plan))


def test_files_with_other_columns_are_named(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1], "b": [1]}).to_parquet(tmp_path / "0.parquet")
    pd.DataFrame({"a": [1], "c": [1]}).to_parquet(tmp_path / "1.parquet")
    with pytest.raises(ReadError, match=r"1\.parquet has the columns.*differ in 'b', 'c'"):
        plan_parquet(tmp_path, 2)
    assert len(read_all(plan_parquet(tmp_path, 2, columns=["a"]), read_parquet_chunks, columns=["a"])) == 2


def test_column_types_may_differ_between_files(tmp_path: Path) -> None:
    pd.DataFrame({"a": np.array([1, 2], "int32")}).to_parquet(tmp_path / "0.parquet")
    pd.DataFrame({"a": np.array([2**40], "int64")}).to_parquet(tmp_path / "1.parquet")
    got = read(tmp_path, 2)
    assert got["a"].dtype == np.int64 and got["a"].tolist() == [1, 2, 2**40]


def test_types_with_nothing_in_common_are_named_with_their_files(tmp_path: Path) -> None:
    for name, values in (("0", [1, 2]), ("1", ["x"]), ("2", [0.5])):
        pd.DataFrame({"a": values, "b": 1}).to_parquet(tmp_path / f"{name}.parquet")
    for size in (1, 3):
        with pytest.raises(SchemaMismatch, match=r"'a' is int64 in .*0\.parquet and .*string in .*1\.parquet"):
            plan_parquet(tmp_path, size)
    assert len(read_all(plan_parquet(tmp_path, 2, columns=["b"]), read_parquet_chunks, columns=["b"])) == 4
    pd.DataFrame({"a": pd.Series([], dtype="str"), "b": 1}).to_parquet(tmp_path / "1.parquet")
    assert read(tmp_path, 2)["a"].tolist() == [1.0, 2.0, 0.5], "a file without rows gives way"


def test_rows_without_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="no columns"):
        write(tmp_path, pd.DataFrame(index=range(3)))
    assert os.listdir(tmp_path) == []
    write(tmp_path, pd.DataFrame())
    assert len(read(tmp_path, 2)) == 0


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    frames = [mixed_frame(90), mixed_frame(0), mixed_frame(31)]
    for rank, frame in enumerate(frames):
        path = write(tmp_path, frame, rank, pieces=4)
        assert os.path.basename(path) == f"part-{rank:05d}.parquet"
    want = pd.concat([frames[0], frames[2]], ignore_index=True)
    same(read(tmp_path, 2), want.astype({"c": frames[0]["c"].dtype}))
    assert len(pd.read_parquet(tmp_path)) == 121
    assert sorted(os.listdir(tmp_path)) == [f"part-{rank:05d}.parquet" for rank in range(3)]


def test_labels_become_text_and_stay_distinct(tmp_path: Path) -> None:
    write(tmp_path, pd.DataFrame({1: [1], "a": [2]}))
    assert read(tmp_path, 1).columns.tolist() == ["1", "a"]
    with pytest.raises(WriteError, match="not distinct as text"):
        write(tmp_path, pd.DataFrame({1: [1], "1": [2]}))


def test_what_stands_there_is_not_lost(tmp_path: Path) -> None:
    files_of(tmp_path / "new" / "deep").look(overwrite=False)
    for rank in range(4):
        write(tmp_path, pd.DataFrame({"k": [rank]}), rank)
    with pytest.raises(WriteError, match="already holds 4 parquet files.*overwrite=True"):
        files_of(tmp_path).look(overwrite=False)
    smaller = [files_of(tmp_path, rank, 2) for rank in range(2)]
    for files in smaller:
        files.look(overwrite=True)
    assert len(list(tmp_path.glob("*.parquet"))) == 4
    for files in smaller:
        files.create().close()
        files.finish()
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["part-00000.parquet", "part-00001.parquet"]
    (tmp_path / "mine.parquet").touch()
    with pytest.raises(WriteError, match=r"for example mine\.parquet"):
        files_of(tmp_path).look(overwrite=True)
    with pytest.raises(WriteError, match="cannot be a folder"):
        files_of(tmp_path / "mine.parquet").look(overwrite=True)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    data = backend.from_frame(pd.DataFrame({"k": [1]}))

    def pieces():
        yield data
        raise RuntimeError("from the pieces")

    with pytest.raises(RuntimeError, match="from the pieces"):
        write_slices(tmp_path, data.schema, pieces())
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_the_disk_for(monkeypatch, "part-00000")
    data = backend.from_frame(pd.DataFrame({"k": np.arange(100_000)}))
    with pytest.raises(WriteError, match="No space left"):
        write_slices(tmp_path, data.schema, [data])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", sorted(OTHERWISE))
def test_what_parquet_cannot_hold_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedDtype, match="'x'.*no Arrow type"):
        write(tmp_path, EVERY_DTYPE[name].to_frame("x"))
    assert os.listdir(tmp_path) == []


def test_arrow_types_of_other_writers(tmp_path: Path) -> None:
    table = pa.table(
        {
            "view": pa.array(["a", None], pa.string_view()),
            "dictionary": pa.array(["x", "y"]).dictionary_encode(),
            "fixed": pa.array([b"ab", None], pa.binary(2)),
            "day": pa.array([dt.date(2020, 1, 1), None], pa.date64()),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    got = read(tmp_path, 1)
    assert got.dtypes.astype(str).tolist() == ["str", "category", "object", "object"]
    assert got["day"].tolist() == [dt.date(2020, 1, 1), None] and got["fixed"].tolist() == [b"ab", None]


def test_footers_say_what_pyarrow_says_of_them(tmp_path: Path) -> None:
    """Of good files: those of the fuzz, and one with long texts in statistics, many pages and sorting columns."""
    rng = np.random.default_rng(3)
    long = pa.array([None if i % 9 == 0 else chr(97 + i % 26) * int(rng.integers(1, 300)) for i in range(3000)])
    more = pa.table({
        "long": long, "u": pa.array(rng.integers(0, 2**63, 3000).astype("uint64") * 2),
        "d": pa.array(range(3000), pa.date32()), "ns": pa.array(range(3000), pa.timestamp("ns")),
        "f32": pa.array(rng.random(3000).astype("float32")),
        "dec": pa.array([Decimal(f"-{i}.25") for i in range(3000)], pa.decimal128(38, 2)), "null": pa.nulls(3000),
    })  # fmt: skip
    sink = pa.BufferOutputStream()
    pq.write_table(more, sink, row_group_size=700, data_page_size=256, write_page_index=True, store_schema=False,
                   sorting_columns=[pq.SortingColumn(2)])  # fmt: skip
    path, seen = tmp_path / "x.parquet", 0
    for whole in [*FORMATS["parquet"][0](), sink.getvalue().to_pybytes()]:
        path.write_bytes(whole)
        footer, theirs = Footer(str(path), Storage()), pq.read_metadata(path)
        schema = theirs.schema.to_arrow_schema()
        assert footer.rows == theirs.num_rows and len(footer.groups) == theirs.num_row_groups
        for place, group in enumerate(footer.groups):
            known = theirs.row_group(place)
            assert (group.rows, group.nbytes) == (known.num_rows, known.total_byte_size)
            for leaf, column in enumerate(footer.leaves):
                chunk, says = group.chunk(leaf), known.column(leaf)
                begin = says.dictionary_page_offset or says.data_page_offset
                assert chunk == (says.num_values, says.total_uncompressed_size, says.total_compressed_size, begin)
                mine, statistics = group.statistics(leaf), says.statistics
                assert (mine is None) == (statistics is None)
                if mine and statistics:
                    assert mine.nulls == statistics.null_count and (mine.bounds is not None) == statistics.has_min_max
                if mine and mine.bounds and "." not in column.path:
                    low, high = (value_of(raw, column, schema.field(column.path).type) for raw in mine.bounds)
                    if low is not None:
                        said = (statistics.min, statistics.max)
                        said = tuple(v.replace(tzinfo=None) if isinstance(v, dt.datetime) else v for v in said)
                        assert (low, high) == said, column.path
                        seen += 1
    assert seen > 60


def test_statistics_of_older_files_are_believed_where_they_are_in_order(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"i": [3, -1], "s": ["é", "a"], "u": pa.array([1, 2**63], pa.uint64())}), sink)
    at, tree = footer_tree(sink.getvalue().to_pybytes())
    tree[1][:] = [field for field in tree[1] if field[0] != 7]  # the order of values
    path = tmp_path / "x.parquet"
    path.write_bytes(with_footer(sink.getvalue().to_pybytes()[:at], tree))
    (group,) = Footer(str(path), Storage()).groups
    known = [group.statistics(leaf) for leaf in range(3)]
    assert [one is not None and one.bounds is not None for one in known] == [True, False, False]
    assert run_threads(1, lambda: gl.read_parquet(str(path), filters=gl.col("s") == "é").num_rows) == [1]
