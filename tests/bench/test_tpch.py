"""TPC-H with the public verbs: DuckDB's answers, on ranks as they are and in a tenth of the input, and on a cluster."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.bench.tpch.queries import QUERIES, Tables
from gcylon_lab.bench.tpch.sql import SQL, TABLES, Duck, first_difference
from gcylon_lab.bench.tpch.tpch import TpchCase, is_right
from gcylon_lab.cli.main import main
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError
from gcylon_lab.runtime.context import current, run_threads
from gcylon_lab.tutorials import make_tpch

pytest.importorskip("duckdb", reason="duckdb is in the bench extra")
_RANKS = 2
# Of a budget, where a query keeps so few of the rows it reads that only the pieces in which it reads them take any.
_LEAST_PEAK = {6: 0.25}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tables at scale 0.05."""
    made = tmp_path_factory.mktemp("tpch")
    make_tpch(made, 0.05, TABLES)
    return made


@pytest.fixture(scope="module")
def duck(folder: Path) -> Iterator[Duck]:
    one = Duck(folder, _RANKS)
    yield one
    one.close()


def ask(folder: Path, number: int) -> tuple[pd.DataFrame, list[tuple[str, str]], int]:
    """On a rank: the answer, the tables and columns it read, and its budget's peak."""
    tables = Tables(gl, folder)
    answer = QUERIES[number](tables)
    return answer, tables.asked, current().budget.peak_bytes


def weigh(folder: Path, name: str, column: str) -> int:
    """On a rank: its bytes of a column, all rows."""
    return gl.read_parquet(str(folder / f"{name}.parquet"), columns=[column]).nbytes


@functools.cache
def weight(folder: Path, name: str, column: str) -> int:
    return sum(run_threads(_RANKS, weigh, folder, name, column))


@pytest.mark.parametrize("number", QUERIES)
def test_answers_are_those_of_duckdb_also_in_a_tenth_of_the_input(folder: Path, duck: Duck, number: int):
    expected = duck.ask(number)
    assert expected
    answers = run_threads(_RANKS, ask, folder, number)
    budget = sum(weight(folder, *one) for one in answers[0][1]) // 10 // _RANKS
    tight = run_threads(_RANKS, ask, folder, number, config=GcylonConfig(gpu_memory_limit=budget))
    for answer, _, peak in tight:
        assert first_difference(answer, expected) == ""
        assert _LEAST_PEAK.get(number, 0.5) * budget < peak <= budget
    assert [first_difference(answer, expected) for answer, _, _ in answers] == [""] * _RANKS


@pytest.mark.mpi
@pytest.mark.parametrize("way", [[], ["--px"]], ids=["handles", "px"])
def test_the_bench_on_a_cluster(way: list[str], tmp_path: Path, capsys: Any):
    file = tmp_path / "tpch.json"
    arguments = ["--scale", "0.05", "--queries", "3,6", "--repeats", "1", "--budget-share", "0.2", *way]
    assert main(["bench", "tpch", *arguments, "--json", str(file)]) == 0
    text, report = capsys.readouterr().out, json.loads(file.read_text())
    assert text.count("equal") == 4 and "geometric mean of 2: " in text and "with 0.2 of the columns read" in text
    assert "not comparable to published TPC-H results" in text
    assert [one["query"] for one in report["queries"]] == [3, 6]
    for one in report["queries"]:
        assert one["seconds"] > 0 and one["duckdb_s"] > 0 and one["rows"] == (10 if one["query"] == 3 else 1)
        assert 0 < one["tight"]["peak_bytes"] <= one["tight"]["budget_bytes"] < one["input_bytes"]


def test_differences_are_found():
    frame = pd.DataFrame({"d": [date(2000, 1, 1)], "m": [Decimal("1.10")], "n": [3], "x": [2.0]})
    right = (date(2000, 1, 1), Decimal("1.1"), 3, Decimal("2.0000"))
    assert first_difference(frame, [right]) == ""
    assert first_difference(frame, [(*right[:3], 2.0 + 1e-13)]) == ""
    assert first_difference(frame, [(*right[:3], 2.0 + 1e-11)]) == "row 0, x: 2.0, but 2.00000000001 expected"
    assert "m: Decimal('1.10')" in first_difference(frame, [(right[0], Decimal("1.11"), *right[2:])])
    assert "row 0, d" in first_difference(frame, [(date(2000, 1, 2), *right[1:])])
    assert "row 0, n: 3" in first_difference(frame, [(*right[:2], 4, right[3])])
    assert "row 0, x: 2.0, but None" in first_difference(frame, [(*right[:3], None)])
    assert first_difference(frame, []) == "1 rows, but 0 expected"
    assert first_difference(frame, [right[:3]]) == "4 columns, but 3 expected"


def test_what_is_wrong_shows_in_the_exit_status():
    one = {"difference": "", "tight": {"difference": "", "peak_bytes": 5, "budget_bytes": 5}}
    assert is_right({"queries": [one, {"difference": ""}]})
    assert not is_right({"queries": [one | {"difference": "1 rows, but 0 expected"}]})
    assert not is_right({"queries": [one | {"tight": one["tight"] | {"peak_bytes": 6}}]})
    assert not is_right({"queries": [one | {"tight": one["tight"] | {"difference": "x"}}]})


def test_queries_that_are_not_here_are_said():
    assert set(SQL) == set(QUERIES)
    with pytest.raises(ArgumentError, match="There is no query 0, 23. The queries are 1, 2, 3"):
        TpchCase(queries=(0, 1, 23))
    with pytest.raises(ArgumentError, match="scale is above 0"):
        TpchCase(scale=0)
