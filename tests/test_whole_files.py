"""Files that appear whole: links planted by others are not followed, and nobody else reads them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.bench.harness.reports import write_json
from gcylon_lab.errors import WriteError
from gcylon_lab.profiling.trace import write_chrome_trace
from gcylon_lab.runtime.context import run_threads
from gcylon_lab.ui.report import html_report
from gcylon_lab.whole_files import create_exclusively, write_whole


@pytest.mark.parametrize("write", [
    lambda path: write_whole(path, "new"),
    lambda path: write_chrome_trace(path, []),
    lambda path: html_report(path, []),
], ids=["text", "trace", "report"])  # fmt: skip
@pytest.mark.parametrize("victim", ["mine", None])
def test_a_planted_link_is_replaced_and_not_followed(tmp_path: Path, write, victim) -> None:
    target, path = tmp_path / "victim", tmp_path / "file"
    if victim:
        target.write_text(victim)
    path.symlink_to(target)
    write(path)
    assert (target.read_text() if victim else target.exists()) == (victim or False)
    assert path.is_file() and not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {found.name for found in tmp_path.iterdir()} <= {"file", "victim"}


def test_a_report_of_a_bench_replaces_a_link(tmp_path: Path) -> None:
    (tmp_path / "bench.json").symlink_to(tmp_path / "victim")
    write_json(str(tmp_path / "bench.json"), {"seconds": 1})
    assert not (tmp_path / "victim").exists() and '"seconds": 1' in (tmp_path / "bench.json").read_text()


def test_folders_of_values_that_are_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "k=1").symlink_to(tmp_path / "elsewhere")

    def write() -> None:
        with pytest.raises(WriteError, match="k=1 is a symbolic link, which is not followed"):
            gl.from_pandas(pd.DataFrame({"k": [1, 2], "v": [3, 4]})).write_parquet(tmp_path / "out", partition_on=["k"])

    run_threads(1, write)
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a link to another user")
def test_a_link_of_another_user_in_a_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/part-00000.csv").write_text("kept")
    (tmp_path / "out").symlink_to(tmp_path / "mine")
    os.chown(tmp_path / "out", 54321, -1, follow_symlinks=False)

    def written() -> None:
        gl.from_local(pd.DataFrame({"k": [1]})).write_csv(f"{tmp_path}/out/", overwrite=True)

    with pytest.raises(WriteError, match="out is a symbolic link of user 54321, which is not followed"):
        run_threads(1, written)
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["kept"]
    os.chown(tmp_path / "out", 0, -1, follow_symlinks=False)
    run_threads(1, written)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "folder", "text")
    assert [found.name for found in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("there", ["file", "link", "dangling link"])
def test_what_stands_there_is_not_opened(tmp_path: Path, there: str) -> None:
    target, path = tmp_path / "victim", tmp_path / "file"
    if there != "dangling link":
        target.write_text("mine")
    path.symlink_to(target) if "link" in there else path.write_text("mine")
    with pytest.raises(FileExistsError):
        create_exclusively(path, 0o600)


def test_nobody_can_foretell_the_names_of_parts_that_are_not_finished(tmp_path: Path, monkeypatch) -> None:
    names = []
    create = os.open

    def spy(path, flags, *args, **kwargs):
        if ".unfinished" in str(path):
            names.append(Path(path).name)
            assert flags & os.O_EXCL and flags & os.O_NOFOLLOW
        return create(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", spy)
    for _ in range(2):
        run_threads(2, lambda: gl.from_pandas(pd.DataFrame({"a": [1, 2]})).write_csv(str(tmp_path), overwrite=True))
    assert len(set(names)) == 4
