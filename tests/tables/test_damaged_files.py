"""Damaged files of every format are rows or an error of ours, never a dead process, foreign memory or much of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from damaged_files import FORMATS

import gcylon_lab as gl
from gcylon_lab.backends.arrow.tables import to_arrow
from gcylon_lab.errors import ReadError
from gcylon_lab.formats.ipc_reader import plan_ipc, read_ipc_chunks
from gcylon_lab.runtime.context import current, run_threads

PROGRAM = Path(__file__).with_name("damaged_files.py")
COUNT = 30


def _said(*arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_each_ends_as_it_should() -> None:
    lines = _said("all", "0", str(COUNT))
    counts = [json.loads(line) for line in lines if line.startswith("{")]
    assert [line for line in lines if not line.startswith("{")] == []
    assert len(counts) == len(FORMATS)
    assert all(sum(one.values()) == COUNT for one in counts)


def test_small_files_of_much_stay_within_the_budget() -> None:
    assert _said("bombs") == []


@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("kind", ["ipc", "ipc-stream"])
def test_a_buffer_that_cannot_unpack_to_what_it_says_is_refused(tmp_path: Path, kind: str, remote: bool) -> None:
    whole = list(FORMATS[kind][0]())[1]
    at = whole.index((64 * 8).to_bytes(8, "little") + b"\x04\x22\x4d\x18")  # before the magic of LZ4
    path = tmp_path / f"lies{FORMATS[kind][1]}"
    path.write_bytes(whole[:at] + (1 << 34).to_bytes(8, "little") + whole[at + 8 :])
    where = f"simplecache::file://{path}" if remote else str(path)
    with pytest.raises(ReadError, match=r"lies.arrows? cannot be read: \d+ compressed bytes cannot be the 17179869184"):
        run_threads(1, lambda: gl.read_ipc(where))


@pytest.mark.parametrize("kind, make", [("arrow", pa.ipc.new_file), ("arrows", pa.ipc.new_stream)])
@pytest.mark.parametrize("values", [pa.array(range(100_000)), pa.array([["x"], None] * 50_000)], ids=["flat", "nested"])
def test_a_file_that_is_cut_while_it_is_read_ends_in_an_error(
    tmp_path: Path, kind: str, make: Any, values: pa.Array
) -> None:
    path, table = tmp_path / f"cut.{kind}", pa.table({"v": values, "s": pa.array(map(str, range(100_000)))})
    with make(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=20_000)
    (plan,) = plan_ipc(str(path), 1)
    pieces = read_ipc_chunks(plan, max_bytes=1 << 18)
    assert next(pieces).rows
    os.truncate(path, 5000)  # where it is mapped, this process would end by SIGBUS
    with pytest.raises(ReadError, match=rf"cut.{kind} cannot be read: "):
        list(pieces)


def test_rows_are_read_as_arrow_reads_them(tmp_path: Path) -> None:
    numbers = np.arange(1000)
    some = [None if i % 7 == 3 else i for i in range(1000)]
    columns = {
        str(type_): pa.array(some, pa.int64()).cast(type_)
        for type_ in (pa.uint16(), pa.int64(), pa.float64(), pa.decimal128(21, 2), pa.string(), pa.timestamp("us"))
    }
    columns |= {
        "b": pa.array([None if i % 5 == 0 else i % 3 == 0 for i in range(1000)]),
        "large": pa.array(["é" * (i % 9) for i in range(1000)], pa.large_string()),
        "bytes": pa.array([b"x" * (i % 4) for i in range(1000)], pa.binary()),
        "fixed": pa.array([b"abc"] * 1000, pa.binary(3)),
        "day": pa.array(numbers, pa.int32()).cast(pa.date32()),
        "plain": pa.array(numbers),
    }
    table = pa.table(columns)
    for start, size in ((0, 1000), (0, 333), (5, 100)):  # batches that begin within a byte of bits
        path = tmp_path / f"{start}-{size}.arrow"
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table.slice(start), max_chunksize=size)
        for plan in (plans := plan_ipc(str(path), 3)):
            assert plan.beside_bytes == 0
        got = [one for plan in plans for one in read_ipc_chunks(plan, max_bytes=3000)]
        assert len(got) > 20
        assert [row for one in got for row in to_arrow(one).to_pylist()] == table.slice(start).to_pylist()


def test_what_a_record_batch_unpacks_to_is_claimed_while_it_is_read(tmp_path: Path) -> None:
    path, frame = tmp_path / "z.arrow", pd.DataFrame({"a": np.arange(1 << 20), "b": 1.5})
    frame.to_feather(path, compression="zstd", chunksize=1 << 20)

    def read(columns: list[str] | None) -> tuple[pd.DataFrame, int, int]:
        budget = current().budget
        budget.reset_peak()
        table = gl.read_ipc(str(path), columns, config=gl.GcylonConfig(gpu_memory_limit="24MiB"))
        peak = budget.peak_bytes
        return table.to_pandas(limit=None), table.num_rows, peak

    for rank, (got, rows, peak) in enumerate(run_threads(2, lambda: read(None))):
        pd.testing.assert_frame_equal(got, frame)
        assert rows == 1 << 19 and 16 * 2**20 <= peak <= 24 * 2**20, rank
    assert all(peak < 16 * 2**20 for _, _, peak in run_threads(2, lambda: read(["b"])))


@pytest.mark.parametrize("begin, end", [("[", "]"), ('{"a": ', "}"), ('[{"]": ', "}]"), ('{"\\"]}": [', "]}")])
@pytest.mark.parametrize("line", [1, 150])
def test_json_nested_without_end_is_refused_by_its_line(tmp_path: Path, begin: str, end: str, line: int) -> None:
    path = tmp_path / "deep.jsonl"
    deep = begin * 30_000 + "1" + end * 30_000
    path.write_text('{"a": null}\n' * (line - 1) + f'{{"a": {deep}}}\n' + '{"a": null}\n')
    with pytest.raises(ReadError, match=f"deep.jsonl cannot be read at line {line}: a value is nested .* levels deep"):
        run_threads(2, lambda: gl.read_json(str(path)))


def test_json_with_many_short_lists_in_a_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "wide.jsonl"
    pairs, text = [[i, i + 1] for i in range(500)], '[[[{\\"' * 200
    path.write_text("".join(json.dumps({"p": pairs, "t": text}) + "\n" for _ in range(20)))
    for frame in run_threads(2, lambda: gl.read_json(str(path)).to_pandas()):
        assert frame["t"].tolist() == [text] * 20 and list(frame["p"][19][499]) == [499, 500]


@pytest.mark.parametrize("labels", [["a", "b", "a"], ["a", None, "a"]])
def test_labels_that_pandas_does_not_allow_are_made_such(tmp_path: Path, labels: list[str | None]) -> None:
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0]), pa.array(labels))
    with pa.ipc.new_file(tmp_path / "d.arrow", pa.schema([("d", codes.type)])) as writer:
        writer.write_table(pa.table({"d": codes}))
    read = run_threads(1, lambda: gl.read_ipc(str(tmp_path / "d.arrow")).local())[0]
    assert read["d"].astype(object).where(read["d"].notna(), None).tolist() == codes.to_pylist()
