"""The GPU benches, as far as they run without one: TPC-H tables on CPU engines, sums of rows, recording or not."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import gcylon_lab as gl
from gcylon_lab.bench.gpu.ours import record_or_not
from gcylon_lab.bench.gpu.profiling import format_cost
from gcylon_lab.bench.gpu.tables import format_tables
from gcylon_lab.bench.gpu.tables_ours import find_wrong
from gcylon_lab.bench.gpu.tpch_tables import TABLES, arrow_pieces, count_rows
from gcylon_lab.bench.harness.row_sums import descents, rows_and_sum
from gcylon_lab.cli.main import main
from gcylon_lab.runtime.context import current, run_threads
from gcylon_lab.tutorials import make_tpch


@pytest.mark.mpi
@pytest.mark.slow
def test_tpch_tables_beside_a_plain_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GCYLON_ENGINE", "cpu")
    file = tmp_path / "tables.json"
    command = ["bench", "gpu", "--tables", "tpch", "--ranks", "2", "--scale", "0.02", "--no-peers", "--json", str(file)]
    assert main([*command, "--repeats", "1", "--warmup", "0"]) == 0
    lines = {line["variant"]: line for line in json.loads(file.read_text())["lines"]}
    shuffles = [
        f"{table} {how}" for table in ("plain", "lineitem", "orders") for how in ("direct", "chunked", "staged")
    ]
    assert list(lines) == shuffles
    for name, line in lines.items():
        assert line["within"] and line["peak"] > line["rank_bytes"] * 0.5, name
        assert bool(line["staged"]) == name.endswith("staged")
    assert "CPU engines, because GCYLON_ENGINE=cpu" in capsys.readouterr().out


@pytest.mark.mpi
@pytest.mark.slow
def test_relational_verbs(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GCYLON_ENGINE", "cpu")
    file = tmp_path / "relational.json"
    command = ["bench", "gpu", "--tables", "relational", "--ranks", "2", "--rows", "2e5", "--no-peers"]
    assert main([*command, "--repeats", "1", "--warmup", "0", "--json", str(file)]) == 0
    lines = {line["variant"]: line for line in json.loads(file.read_text())["lines"]}
    assert list(lines) == ["join", "sort", "groupby"]
    assert all(line["within"] and line["bytes_per_s"] > 0 for line in lines.values())
    assert lines["sort"]["rows"] == 400_000 and 98_000 < lines["groupby"]["rows"] <= 100_000
    assert "ours groupby" in capsys.readouterr().out


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("tpch")
    make_tpch(made, 0.02)
    return made


@pytest.mark.parametrize("name", ["lineitem", "orders"])
def test_ranks_share_a_tables_rows_and_every_seventh_is_null(folder, name):
    table = TABLES[name]
    pieces = [piece for rank in range(3) for piece in arrow_pieces(folder, table, rank, 3)]
    rows = pa.concat_tables(pieces)
    assert rows.num_rows == count_rows(folder, name)
    keys = rows[table.key].to_numpy()
    for column in rows.column_names:
        nulls = pc.is_null(rows[column]).to_numpy()
        assert (nulls == (keys % 7 == 0)).all() if column in table.nulled else not nulls.any(), column
    kinds = {str(kind).split("(")[0].split("[")[0] for kind in rows.schema.types}
    assert {"int64", "decimal128", "string", "date32"} <= kinds


FRAME = pd.DataFrame(
    {
        "k": [1, 2, 3, 4],
        "x": [0.5, 1.5, 2.5, 3.5],
        "s": pd.array(["a", None, "b", "c"], dtype="str"),
        "m": pd.array(
            [Decimal("1.25"), Decimal("2.25"), None, Decimal("1.25")], dtype=pd.ArrowDtype(pa.decimal128(9, 2))
        ),
    }
)


def test_sums_do_not_depend_on_the_order_and_notice_every_change():
    def sums(frames):
        return [rows_and_sum(gl.from_local(frame), current().workspace) for frame in frames]

    others = []
    for column, value in (("k", 9), ("x", -0.5), ("s", "z"), ("s", None), ("m", Decimal("1.26")), ("m", None)):
        frame = FRAME.copy()
        frame.loc[0, column] = value
        others.append(frame)
    swapped = FRAME.copy()
    swapped.loc[[0, 3], "s"] = ["c", "a"]  # the same values, in other rows
    first, turned, *changed = run_threads(1, sums, [FRAME, FRAME[::-1], swapped, *others, FRAME[:3]])[0]
    assert first == turned
    assert first not in changed and len(set(changed)) == len(changed)


def test_wrong_rows_are_told():
    def look():
        context = current()
        table = gl.from_local(FRAME.assign(k=range(4 * context.rank, 4 * context.rank + 4)))
        before = rows_and_sum(table, context.workspace)
        right = table.shuffle("k")
        fewer = gl.from_local(right.local()[: right.num_rows - (context.rank == 1)])
        return [find_wrong(context, before, result, "k") for result in (right, table, fewer)]

    for right, unmoved, fewer in run_threads(2, look):
        assert right == ""
        assert "rows are on a rank that is not their key's" in unmoved
        assert fewer.startswith("rows or checksums differ: 8 rows")


def test_recording_goes_off_and_on_again():
    def count():
        context, seen = current(), []
        table = gl.from_local(FRAME)
        for recording, sampling in ((True, True), (False, False), (False, True), (True, False)):
            record_or_not(context, recording=recording, sampling=sampling)
            before = context.recorder.recorded, len(context.recorder.operations)
            table.shuffle("k", strategy="chunked").release()
            seen.append((context.recorder.recorded > before[0], len(context.recorder.operations) > before[1]))
            assert context.sampler.running is sampling
        return seen

    assert run_threads(1, count, sample_hz=20.0) == [[(True, True), (False, False), (False, False), (True, True)]]


def test_reports_are_readable():
    series = {"median_s": 0.0102, "spread": 0.1}
    line = {"variant": "shuffle direct", "off": series | {"median_s": 0.01}, "spans": series, "all": series}
    line["cost"] = {"spans": 0.02001, "all": 0.02001}
    case = {"ranks": 2, "rows": 1000, "repeats": 3, "rank_bytes": 32_000}
    text = format_cost({"case": case, "lines": [line], "within": False})
    assert "+2.00%" in text and "ABOVE the 2%" in text
    refused = {"name": "ours", "variant": "orders staged", "refused": "too little"}
    text = format_tables({"case": case | {"scale": 1.0, "warmup": 0}, "lines": [refused]})
    assert "ours orders staged was refused: too little" in text


@pytest.mark.parametrize(
    ("parts", "expected"),
    [([[1, 2], [], [2, 9]], 0), ([[1, 5], [3, 9], [9]], 1), ([[2, 1], [3], [4]], 1), ([[], [], []], 0)],
)
def test_an_order_is_looked_at_within_ranks_and_between_them(parts, expected):
    def count():
        context = current()
        frame = pd.DataFrame({"k": pd.array(parts[context.rank], dtype="int64")})
        return descents(gl.from_local(frame.astype({"k": "int64"})), context.workspace, "k")

    assert run_threads(3, count) == [expected] * 3
