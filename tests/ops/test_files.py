"""Tables go into files and come back on any number of ranks: every format, in the budget, whole or not at all."""

from __future__ import annotations

import gc
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from full_disk import fill_the_disk_for
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, ColumnMissing, ReadError, UnsupportedDtype, WriteError
from gcylon_lab.formats import io
from gcylon_lab.formats.parquet import writer
from gcylon_lab.formats.part_files import PartFiles
from gcylon_lab.runtime.context import current, run_threads

WORLDS = [*(World("threads", n) for n in (1, 3)), pytest.param(World("mpi", 2), marks=pytest.mark.mpi)]
FORMATS: dict[str, tuple[str, dict[str, Any], str]] = {
    "parquet": ("parquet", {}, ".parquet"),
    "folders": ("parquet", {"partition_on": ["g", "day"]}, ".parquet"),
    "csv": ("csv", {}, ".csv"),
    "csv gzip": ("csv", {"compression": "gzip", "delimiter": ";"}, ".csv.gz"),
    "json": ("json", {}, ".jsonl"),
    "json zstd": ("json", {"compression": "zstd"}, ".jsonl.zst"),
    "ipc": ("ipc", {}, ".arrow"),
    "ipc stream": ("ipc", {"stream": True, "compression": "lz4"}, ".arrows"),
}
ROWS = 600
FRAME = pd.DataFrame(
    {
        "i": np.arange(ROWS),
        "f": np.where(np.arange(ROWS) % 7, np.arange(ROWS) / 7, np.nan),
        "s": [f'wörd "{i}"; a, b' if i % 5 else None for i in range(ROWS)],
        "n": pd.array([i if i % 3 else None for i in range(ROWS)], dtype="Int64"),
        "b": [i % 2 == 0 for i in range(ROWS)],
        "g": pd.array([i % 2 if i % 11 else None for i in range(ROWS)], dtype="Int64"),
        "day": pd.to_datetime(["2024-01-01", "2024-01-02 10:00:00.5"] * (ROWS // 2), format="ISO8601"),
    }
)


def there_and_back(folder: str) -> dict[str, Any]:
    table = gl.from_pandas(FRAME)
    seen: dict[str, Any] = {}
    for name, (kind, how, _) in FORMATS.items():
        files = getattr(table, f"write_{kind}")(f"{folder}/{name}", **how)
        more: dict[str, Any] = {"parse_dates": "day"} if kind in ("csv", "json") else {}
        more |= {"delimiter": how["delimiter"]} if "delimiter" in how else {}
        again = getattr(gl, f"read_{kind}")(f"{folder}/{name}", **more)
        seen[name] = files, again.to_pandas()
        few = getattr(gl, f"read_{kind}")(f"{folder}/{name}", ["s", "g"], filters=[("i", ">=", 590)], **more)
        assert few.columns == ["s", "g"] and few.count_rows() == 10
        assert "only rows of which ((col('i') >= 590) & col('i').notna()) holds" in few.explain()
    return seen


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_what_was_written_is_read_again(tmp_path: Path, world: World) -> None:
    outcomes = world.run(there_and_back, str(tmp_path))
    for name, (_, _, ending) in FORMATS.items():
        files = [file for outcome in outcomes for file in outcome[name][0]]
        assert all(re.fullmatch(rf"part-\d{{5}}{ending}", os.path.basename(file)) for file in files)
        assert sorted(files) == sorted(str(path) for path in (tmp_path / name).rglob("*") if path.is_file())
        got = outcomes[0][name][1]
        got = got.sort_values("i", ignore_index=True)[FRAME.columns.tolist()] if name == "folders" else got
        pd.testing.assert_frame_equal(got, FRAME)


def test_other_libraries_read_it(tmp_path: Path) -> None:
    run_threads(2, there_and_back, str(tmp_path))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "parquet"), FRAME)
    got = pd.concat([pd.read_feather(file) for file in sorted((tmp_path / "ipc").iterdir())], ignore_index=True)
    pd.testing.assert_frame_equal(got, FRAME)
    for name, read in (("csv", pd.read_csv), ("json", lambda path: pd.read_json(path, lines=True))):
        got = pd.concat([read(file) for file in sorted((tmp_path / name).iterdir())], ignore_index=True)
        assert got["i"].tolist() == FRAME["i"].tolist() and got["s"].isna().tolist() == FRAME["s"].isna().tolist()
    folders = pq.read_table(tmp_path / "folders", filters=[("day", "==", "2024-01-01")])
    assert folders.num_rows == ROWS // 2


TIGHT = gl.GcylonConfig(gpu_memory_limit=128 * 1024)


def in_a_small_budget(folder: str) -> dict[str, Any]:
    context = current()
    rows = 40_000
    table = gl.from_local(pd.DataFrame({"a": np.arange(rows), "s": ["some text"] * rows}), config=TIGHT)
    assert table.tiers["disk"] > 0
    seen: dict[str, Any] = {}
    for kind in ("parquet", "csv", "json", "ipc"):
        getattr(table, f"write_{kind}")(f"{folder}/{kind}", config=TIGHT)
        peaks = [list(context.recorder.operations)[-1].measured_peak_bytes]
        again = getattr(gl, f"read_{kind}")(f"{folder}/{kind}", filters=gl.col("a") >= 0, config=TIGHT)
        record = list(context.recorder.operations)[-1]
        assert record.rounds == record.rounds_done == 0 and record.phase_bytes["read"] > 0
        assert again.sum("a") == current().transport.size * rows * (rows - 1) // 2
        seen[kind] = max(*peaks, record.measured_peak_bytes)
        again.release()
    return seen


def test_writing_and_reading_stay_in_the_budget(tmp_path: Path) -> None:
    for seen in run_threads(2, in_a_small_budget, str(tmp_path)):
        assert all(0 < peak <= TIGHT.gpu_memory_limit for peak in seen.values()), seen


@pytest.mark.cpu_alone("GPU engines encode with libcudf")
def test_dictionaries_of_parquet_are_small_under_a_small_limit(tmp_path: Path) -> None:
    """To find values again takes Arrow some sixty times their page, by the side of the budget."""

    def body(folder: str) -> None:
        table = gl.from_local(pd.DataFrame({"f": np.random.default_rng(0).random(200_000), "k": [1, 2] * 100_000}))
        table.write_parquet(folder)
        table.write_parquet(f"{folder}/by", partition_on="k")

    for name, limit, least, most in (("small", 16 << 20, 100 << 10, 200 << 10), ("large", 1 << 30, 900 << 10, 2 << 20)):
        World("threads", 1).run(body, str(tmp_path / name), config=gl.GcylonConfig(gpu_memory_limit=limit))
        files = [*(tmp_path / name).rglob("*.parquet")]
        assert len(files) == 3
        for path in files:
            column = pq.read_metadata(path).row_group(0).column(0)
            if path.parent.name == name:
                assert least < column.data_page_offset - column.dictionary_page_offset < most
            else:  # each open file would keep what the last column was encoded with
                assert not column.has_dictionary_page


@pytest.mark.cpu_alone("GPU engines hold labels otherwise")
def test_names_of_folders_are_spelled_out_once(tmp_path: Path) -> None:
    rows = 200_000
    labels = [f"{'long ' * 40}{i}" for i in range(4)]
    frame = pd.DataFrame({"c": pd.Categorical(labels * (rows // 4)), "i": np.arange(rows)})
    frame.loc[::7, "c"] = None
    before, own = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())

    def body() -> pd.DataFrame:
        table = gl.from_local(frame)
        pa.set_memory_pool(own)
        try:
            table.write_parquet(str(tmp_path / "t"), partition_on="c")
        finally:
            pa.set_memory_pool(before)
        return gl.read_parquet(str(tmp_path / "t")).sort_values("i").to_pandas(limit=None)

    (got,) = World("threads", 1).run(body)
    assert 0 < own.max_memory() < rows * 100
    assert got["i"].tolist() == frame["i"].tolist() and got["c"].isna().sum() == frame["c"].isna().sum()
    assert got["c"].fillna("").tolist() == frame["c"].astype("str").fillna("").tolist()


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "ipc"])
def test_what_stands_there_is_replaced_only_where_asked_for(tmp_path: Path, kind: str) -> None:
    def write(rows: int, **how: Any) -> list[str]:
        return getattr(gl.from_pandas(FRAME.head(rows)), f"write_{kind}")(str(tmp_path), **how)

    run_threads(3, write, 9)
    with pytest.raises(WriteError, match="already holds 3 .*overwrite=True"):
        run_threads(2, write, 5)
    run_threads(2, lambda: write(5, overwrite=True))
    assert len(list(tmp_path.iterdir())) == 2
    read = getattr(gl, f"read_{kind}")
    assert run_threads(1, lambda: read(str(tmp_path)).num_rows) == [5]
    (tmp_path / f"mine.{kind}").touch() if kind != "ipc" else (tmp_path / "mine.arrow").touch()
    with pytest.raises(WriteError, match="for example mine"):
        run_threads(2, lambda: write(5, overwrite=True))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "ipc"])
@pytest.mark.parametrize("rows", [9, 100_000])
def test_a_disk_that_is_full_on_one_rank_changes_nothing(
    tmp_path: Path, kind: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(rows: int) -> str:
        table = gl.from_pandas(pd.DataFrame({"a": np.random.default_rng(0).random(rows)}))
        try:
            getattr(table, f"write_{kind}")(str(tmp_path), overwrite=True)
        except WriteError as error:
            return str(error)
        return ""

    assert run_threads(2, write, 4) == ["", ""]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    fill_the_disk_for(monkeypatch, "part-00001")
    said = run_threads(2, write, rows)
    assert said[0] == said[1] and said[0].startswith("[rank 1]") and "No space left" in said[0]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_failed_write_leaves_no_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    monkeypatch.setattr(writer, "_MOST_FOLDERS", 20)
    (tmp_path / "old").mkdir()

    def write(folder: Path) -> str:
        with pytest.raises(WriteError, match="more than 20 different values") as refused:
            gl.from_local(FRAME).write_parquet(str(folder), partition_on="i")
        return str(refused.value)

    run_threads(ranks, write, tmp_path / "old" / "new" / "newer")
    assert list((tmp_path / "old").iterdir()) == []
    run_threads(ranks, write, tmp_path / "old")
    assert (tmp_path / "old").is_dir(), "it was there before"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    run_threads(ranks, write, tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["kept"]


def test_no_rank_removes_a_folder_that_another_one_still_writes_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, discard = PartFiles.create, PartFiles.discard
    done: list[str] = []

    def slow(self: PartFiles, inside: str = "") -> Any:
        if self._rank == 0:
            raise WriteError("rank 0 cannot write")
        time.sleep(0.3)
        file = create(self, inside)
        done.append("written")
        return file

    def told(self: PartFiles) -> None:
        done.append("discarded")
        discard(self)

    monkeypatch.setattr(PartFiles, "create", slow)
    monkeypatch.setattr(PartFiles, "discard", told)

    def write() -> None:
        with pytest.raises(WriteError, match="rank 0 cannot write"):
            gl.from_local(FRAME[:4]).write_parquet(str(tmp_path / "new" / "newer"), partition_on="i")

    run_threads(3, write)
    assert "written" in done and done.index("discarded") > max(i for i, what in enumerate(done) if what == "written")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("before", [0, 1, 4])
def test_a_file_that_cannot_get_its_name_takes_the_others_back(tmp_path: Path, before: int) -> None:
    def write() -> str:
        try:
            gl.from_pandas(FRAME).write_parquet(str(tmp_path), overwrite=True)
        except WriteError as error:
            return str(error)
        return ""

    if before:
        run_threads(before, write)
    first, second = tmp_path / "part-00000.parquet", tmp_path / "part-00001.parquet"
    second.unlink(missing_ok=True)
    second.mkdir()  # no file takes its place
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert first.exists() == bool(before)
    said = run_threads(3, write)
    assert len(set(said)) == 1 and "rank 1" in said[0] and f"{second.name} cannot be written" in said[0]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == kept
    second.rmdir()
    assert run_threads(3, write) == [""] * 3
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"part-0000{rank}.parquet" for rank in range(3)]  # nothing hidden is left


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"partition_on": "nope"}, ColumnMissing, "nope"),
        ({"partition_on": ["f"]}, UnsupportedDtype, "'f' is float64, which the name of a folder"),
        ({"partition_on": FRAME.columns.drop("f").tolist() + ["f"]}, UnsupportedDtype, "'f' is float64"),
        ({"partition_on": "i"}, WriteError, "more than 500 different values"),
        ({"compression": "zip"}, ArgumentError, "compression='zip'"),
        ({"overwrite": 1}, ArgumentError, "overwrite=1 is invalid. Expected True or False"),
        ({"storage_options": {"a": 1}}, ArgumentError, "storage_options= is for URLs"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, how: dict[str, Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        run_threads(1, lambda: gl.from_local(FRAME).write_parquet(str(tmp_path / "x"), **how))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_values_that_text_does_not_hold(tmp_path: Path) -> None:
    def write(frame: pd.DataFrame, kind: str) -> Any:
        return run_threads(1, lambda: getattr(gl.from_local(frame), f"write_{kind}")(str(tmp_path / kind)))

    for kind, values in (("csv", [[1]]), ("csv", [b"x"]), ("json", [b"x"])):
        with pytest.raises(UnsupportedDtype, match="'a' is object of"):
            write(pd.DataFrame({"a": values}), kind)
    with pytest.raises(WriteError, match="'a' holds an infinity"):
        write(pd.DataFrame({"a": [1.0, np.inf]}), "json")
    with pytest.raises(WriteError, match="line end"):
        write(pd.DataFrame({"a\nb": [1.0]}), "csv")
    floats = pd.DataFrame({"f": [1.0, 2.0, None], 'a "b"': ["x", 'y "z"', None]})
    for frame in (floats, pd.DataFrame({"only": [1.5, None, 2]}), pd.DataFrame({"only": ["a", None, "b\nc"]})):
        (folder,) = {os.path.dirname(file) for file in write(frame, "csv")[0]}
        (got,) = run_threads(1, lambda folder=folder: gl.read_csv(folder).to_pandas())
        pd.testing.assert_frame_equal(got, frame)
        os.remove(tmp_path / "csv" / "part-00000.csv")


def test_a_table_without_rows_keeps_its_columns(tmp_path: Path) -> None:
    def there() -> list[list[str]]:
        table = gl.from_pandas(FRAME.head(0))
        table.write_parquet(str(tmp_path / "p"))
        table.write_parquet(str(tmp_path / "f"), partition_on="g")
        table.write_ipc(str(tmp_path / "i"))
        again = [*(gl.read_parquet(str(tmp_path / name)) for name in "pf"), gl.read_ipc(str(tmp_path / "i"))]
        assert [table.num_rows for table in again] == [0, 0, 0]
        return [sorted(f"{name} {text}" for name, text in table.dtypes.items()) for table in [table, *again]]

    for seen in run_threads(2, there):
        assert seen[0] == seen[1] == seen[2] == seen[3]


def other_memory() -> str:
    import fsspec

    fsspec.filesystem("memory").pipe("/x/a.csv", b"a\n" + b"1\n" * (3 + current().rank))
    try:
        gl.read_csv("memory://x/a.csv")
    except ReadError as error:
        return str(error)
    return "read"


@pytest.mark.mpi
def test_ranks_with_memories_of_their_own_are_told() -> None:
    assert all("do not see the same files" in text for text in World("mpi", 2).run(other_memory))


def test_row_groups_are_skipped_and_said(tmp_path: Path) -> None:
    for place in range(2):
        FRAME.iloc[place * 300 : place * 300 + 300].to_parquet(tmp_path / f"{place}.parquet", row_group_size=50)
    condition = (gl.col("i") < 120) & ~(gl.col("s") == "x")

    def read() -> tuple[str, pd.DataFrame]:
        table = gl.read_parquet(str(tmp_path), filters=condition)
        return table.explain(), table.to_pandas()

    for size in (1, 4):
        text, got = run_threads(size, read)[0]
        assert "9 of 12 row groups skipped by statistics and folders, 1 of 2 files whole" in text
        pd.testing.assert_frame_equal(got, FRAME.head(120))
    condition = gl.col("i") < 0
    text, got = run_threads(4, read)[0]
    assert "12 of 12 row groups" in text and "4 of 4 ranks read nothing" in text
    pd.testing.assert_frame_equal(got, FRAME.head(0))
    whole = run_threads(1, lambda: gl.read_parquet(str(tmp_path)).explain())[0]
    assert "12 row groups in 2 files" in whole and pq.ParquetFile(tmp_path / "0.parquet").num_row_groups == 6


@pytest.mark.parametrize("name", [".k", "_k", "a=b", "k/../..", "%41", " k"])
def test_names_and_texts_that_folders_mean_otherwise_come_back(tmp_path: Path, name: str) -> None:
    texts = ["__HIVE_DEFAULT_PARTITION__", ".", "..", "", "_", "a/b", "%2E", "x=y", None]
    frame = pd.DataFrame({"i": range(len(texts)), name: pd.Series(texts, dtype="str")})
    folder = str(tmp_path / "in" / "t")

    def there_and_back() -> pd.DataFrame:
        gl.from_pandas(frame).write_parquet(folder, partition_on=name)
        return gl.read_parquet(folder).to_pandas()

    for back in run_threads(2, there_and_back):
        same = back.sort_values("i", ignore_index=True)
        pd.testing.assert_frame_equal(same[["i", name]], frame, check_dtype=False)
    assert [path.name for path in tmp_path.iterdir()] == ["in"] and os.listdir(tmp_path / "in") == ["t"]


def test_a_column_without_a_name_cannot_be_a_folder(tmp_path: Path) -> None:
    frame = pd.DataFrame({"i": [1, 2], "": ["a", "b"]})
    with pytest.raises(ArgumentError, match="a column without a name"):
        run_threads(1, lambda: gl.from_local(frame).write_parquet(str(tmp_path), partition_on=[""]))


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_long_texts_are_read_from_what_was_written(tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame({"k": range(3), "s": ["x\n" * 2_500_000, '"y" ' * 1_500_000, "z"]})

    def there_and_back() -> pd.DataFrame:
        getattr(gl.from_pandas(frame), f"write_{kind}")(str(tmp_path))
        return getattr(gl, f"read_{kind}")(str(tmp_path)).to_pandas()

    pd.testing.assert_frame_equal(run_threads(2, there_and_back)[0], frame)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_times_with_a_zone_come_back_in_utc(tmp_path: Path, kind: str) -> None:
    texts = ["2017-10-29 00:30:00.25", "2017-10-29 01:30", None]
    times = pd.Series(pd.to_datetime(texts, utc=True, format="ISO8601").as_unit("us"), name="t")

    def there_and_back() -> pd.Series[Any]:
        table = gl.from_pandas(times.dt.tz_convert("Europe/Madrid").to_frame())
        getattr(table, f"write_{kind}")(str(tmp_path))
        return getattr(gl, f"read_{kind}")(str(tmp_path), parse_dates="t").to_pandas()["t"]

    for rank in run_threads(2, there_and_back)[:1]:
        pd.testing.assert_series_equal(rank, times)


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("column", ["number", "text", "listed"])
def test_a_column_of_an_arrow_file_keeps_no_memory_of_the_others(
    tmp_path: Path, compression: str | None, column: str
) -> None:
    rows, path = 50_000, tmp_path / "x.arrow"
    given = {"listed": pa.array([[1]] * rows), "text": pa.array([f"text {n}" for n in range(rows)])}
    table = pa.table({f"more {n}": np.arange(rows) / 7 for n in range(20)} | given | {"number": np.arange(rows)})
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    del table, given
    gc.collect()
    before = pa.total_allocated_bytes()
    (plan,) = io.plan_ipc(path, 1, columns=[column])
    kept = list(io.read_ipc_chunks(plan, columns=[column]))
    gc.collect()
    assert sum(piece.rows for piece in kept) == rows
    assert pa.total_allocated_bytes() - before <= 1.1 * sum(piece.nbytes for piece in kept) + 65_536


@pytest.mark.cpu_alone("what a GPU cannot cast does not say so")
@pytest.mark.parametrize("world", WORLDS)
def test_large_ints_of_parquet_without_statistics_are_nullable_where_some_are_missing(
    tmp_path: Path, world: World
) -> None:
    """Which dtype ints have is known from values alone: a part with missing ones would be floats, another one ints."""
    ints = {"x": [1, None] * 5 + [2**60 + 1, 2**60 + 3] * 5, "y": [2**63, 2**64 - 1] * 5 + [None, 1] * 5, "z": [1] * 20}
    types = {"x": pa.int64(), "y": pa.uint64(), "z": pa.int64()}
    table = pa.table({name: pa.array(values, types[name]) for name, values in ints.items()})
    path = str(tmp_path / "x.parquet")
    pq.write_table(table, path, row_group_size=10, write_statistics=False)
    for dtypes, rows in world.run(read_whole, path):
        assert dtypes == {"x": "Int64", "y": "UInt64", "z": "int64"} and rows == table.to_pylist()


def read_whole(path: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    table = gl.read_parquet(path)
    frame = table.to_pandas(limit=None)
    return table.dtypes, [
        {name: None if pd.isna(one) else int(one) for name, one in row.items()} for row in frame.to_dict("records")
    ]
