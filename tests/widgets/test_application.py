"""The application: files by names that tables can have, one row of controls, and a cluster of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from replay import eventually

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError
from gcylon_lab.ui.application import App, named_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frame = pd.DataFrame({"k": range(1000), "x": [n % 7 for n in range(1000)]})
    frame.to_parquet(tmp_path / "orders.parquet")
    frame[["k"]].to_csv(tmp_path / "2024 visits.csv", index=False)
    frame[["k"]].to_csv(tmp_path / "result.csv.gz", index=False)
    (tmp_path / "notes.txt").write_text("no table")
    (tmp_path / "part" / "month=1").mkdir(parents=True)
    frame.to_parquet(tmp_path / "part" / "month=1" / "a.parquet")
    return tmp_path


def test_files_get_names_that_tables_can_have(folder: Path) -> None:
    named = named_files(folder)
    assert {name: path.name for name, path in named.items()} == {
        "t_2024_visits": "2024 visits.csv", "orders": "orders.parquet", "t_result": "result.csv.gz",
    }  # fmt: skip
    assert list(named_files(folder / "*.parquet")) == ["orders"]
    assert list(named_files([folder / "orders.parquet", str(folder / "part")])) == ["orders", "part"]


@pytest.mark.parametrize("files", ["nowhere/*.csv", []])
def test_without_a_file_it_says_which_endings_it_reads(files: str | list[str]) -> None:
    with pytest.raises(ArgumentError, match=r"no file to choose from.*\.parquet"):
        gl.app(files)


def test_a_number_of_ranks_out_of_range_is_refused(folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"ranks=0 is out of range \[1, 8\]"):
        gl.app(folder, ranks=0)


@pytest.fixture
def app(folder: Path) -> Iterator[App]:
    made = gl.app(folder)
    yield made
    made.close()


@pytest.mark.mpi
@pytest.mark.slow
def test_files_are_read_verbs_run_and_results_taken_further(app: App) -> None:
    app.start.click()
    assert eventually(lambda: app.dashboard is not None and not app.run.disabled, 60), app.said.value
    planner = app.dashboard.tuner.planner
    named = next(row for row in planner._choices.children if planner.verb in row.children)
    assert named.children[0].value == "verb"  # which is run here, and not only planned
    app.run.click()
    assert eventually(lambda: "Choose a file first" in app.told.value, 20)
    app.file.value = "orders"
    assert eventually(lambda: "1,000 rows of orders.parquet" in app.told.value and planner.table.value == "orders", 60)
    planner.verb.value, planner.keys.value = "groupby", "x"
    app.run.click()
    assert eventually(lambda: "orders.groupby(&#x27;x&#x27;).size()</code>: 7 rows in" in app.told.value, 60)
    assert eventually(lambda: "result" in planner.table.options and not app.run.disabled, 20)
    planner.table.value, planner.verb.value = "result", "sort_values"
    planner.keys.value = "x"
    app.run.click()
    assert eventually(lambda: "result.sort_values(by=&#x27;x&#x27;)</code>: 7 rows in" in app.told.value, 60)
    planner.keys.value = "nowhere"
    app.run.click()
    assert eventually(lambda: "nowhere" in app.told.value and "gcylon-error" in app.told.value, 20), "an error is said"
    assert eventually(lambda: not app.end.disabled, 20)
    app.end.click()
    assert eventually(lambda: app.dashboard is None and "have ended" in app.said.value, 60)
