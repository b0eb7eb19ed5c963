"""Files that a cluster reads, and that handles write."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.api import readers

pytestmark = pytest.mark.mpi


@pytest.fixture
def by_itself() -> Iterator[None]:
    """For tests that make tables in this process, which is a rank of its own then: it is none again afterwards."""
    yield
    gl.current().close()


def test_a_reader_of_this_process_says_once_that_the_clusters_own_reads_on_its_engines(
    lab: gl.Cluster, frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_itself: None
) -> None:
    monkeypatch.setattr(readers, "_told", set())
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.warns(
        UserWarning, match=r"gl.read_parquet makes a table in this process .* in lab.read_parquet"
    ) as said:
        gl.read_parquet(tmp_path / "a.parquet").release()
    assert said[0].filename == __file__, "it is said of the line that reads"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gl.from_pandas(frame).release()
        lab.run(lambda path: gl.read_parquet(path).release(), str(tmp_path / "a.parquet"))
    monkeypatch.setattr(readers, "_told", set())
    with pytest.warns(UserWarning, match="gl.from_pandas makes a table in this process") as said:
        gl.from_pandas(frame).release()
    assert said[0].filename == __file__


def test_files_are_read_and_written(lab: gl.Cluster, frame: pd.DataFrame, tmp_path: Path) -> None:
    table = lab.from_pandas(frame)
    files = table.write_parquet(str(tmp_path / "out"))
    assert len(files) == 2
    again = lab.read_parquet(str(tmp_path / "out" / "*.parquet"), columns=["v"])
    assert again.columns == ["v"]
    assert sorted(again.to_pandas(limit=None)["v"]) == sorted(frame["v"])
    frame[["k", "v"]].to_csv(tmp_path / "a.csv", index=False)
    assert lab.read_csv(str(tmp_path / "a.csv")).num_rows == 1000
    frame[["k", "v"]].to_json(tmp_path / "a.json", orient="records", lines=True)
    assert lab.read_json(str(tmp_path / "a.json")).num_rows == 1000
    narrow = lab.read_csv(str(tmp_path / "a.csv"), ["v"], dtype={"v": "float32"})
    assert (narrow.columns, str(narrow.dtypes["v"])) == (["v"], "float32")
    assert str(lab.read_json(str(tmp_path / "a.json"), dtype={"k": "int16"}).dtypes["k"]) == "int16"


def test_every_format_goes_out_and_in(lab: gl.Cluster, frame: pd.DataFrame, tmp_path: Path) -> None:
    table = lab.from_pandas(frame)
    folder = f"file://{tmp_path}"
    for kind, ending in (("parquet", ".parquet"), ("csv", ".csv"), ("json", ".jsonl"), ("ipc", ".arrow")):
        files = getattr(table, f"write_{kind}")(f"{folder}/{kind}")
        assert files == [f"{tmp_path}/{kind}/part-0000{rank}{ending}" for rank in range(2)]
        again = getattr(lab, f"read_{kind}")(f"{folder}/{kind}", "v", filters=gl.col("k") < 20)
        assert sorted(again.to_pandas(limit=None)["v"]) == sorted(frame.loc[frame["k"] < 20, "v"])
        assert "only rows of which (col('k') < 20) holds" in again.explain()
    with pytest.raises(gl.errors.WriteError, match="already holds 2 csv files.*overwrite=True"):
        table.write_csv(str(tmp_path / "csv"))
    table.write_parquet(str(tmp_path / "by"), partition_on="k", compression="zstd")
    some = lab.read_parquet(str(tmp_path / "by"), filters=[("k", "in", [3, 4])])
    assert some.columns == ["v", "s", "k"] and some.num_rows == frame["k"].isin([3, 4]).sum()
    assert len(set(tmp_path.rglob("by/*/part*"))) == int(re.search(r"of (\d+) files whole", some.explain())[1])
