"""The command line: what it answers to right and wrong words."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from ports import free_port

from gcylon_lab import __version__, tutorials
from gcylon_lab.cli.main import main


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"gcylon-lab {__version__}\n"


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["bench"], ["report"], ["demo", "--ranks", "two"]])
def test_wrong_usage_is_two(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage: gcylon-lab" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["report", "/nowhere/snapshots.json"], "/nowhere/snapshots.json cannot be read: No such file or directory."),
        (["demo", "--ranks", "0"], "ranks=0"),
        (["demo", "--budget", "little"], "'little' is not a size"),
        (["demo", "--files", "a.parquet"], "Name it with --key."),
        (["demo", "--out", "/proc/no/such"], "/proc/no/such cannot be made"),
        (["bench", "shuffle", "--peers", "spark"], "--peers spark is invalid. Expected bare or dask."),
        (["bench", "shuffle", "--rows", "0"], "ranks, rows and repeats are at least 1"),
    ],
)
def test_an_error_is_said_in_one_line_and_is_one(argv, said, capsys):
    assert main(argv) == 1
    error = capsys.readouterr().err
    assert said in error and error.startswith("gcylon-lab: ") and "Traceback" not in error


def test_a_file_that_is_no_recording(tmp_path, capsys):
    for text in ("not json", "[]", "{}", '{"snapshots": 3}', '{"version": 99, "snapshots": []}'):
        (tmp_path / "x.json").write_text(text)
        assert main(["report", str(tmp_path / "x.json")]) == 1
        assert "x.json" in capsys.readouterr().err


def test_tutorials_are_copied_and_what_stands_there_is_kept(tmp_path):
    first = tutorials.copy_tutorials(tmp_path / "work")
    assert [path.name for path in first] == [path.name for path in sorted(tutorials.tutorials_folder().glob("*.ipynb"))]
    assert "01_start_here.ipynb" in {path.name for path in first}
    first[0].write_text("mine")
    assert tutorials.copy_tutorials(tmp_path / "work") == first
    assert first[0].read_text() == "mine"


def test_lab_serves_the_tutorials(tmp_path):
    port = free_port()
    options, token = ["--no-browser", "--ip=127.0.0.1", f"--port={port}"], secrets.token_urlsafe(24)
    environment = os.environ | {"JUPYTER_TOKEN": token}
    command = [sys.executable, "-m", "gcylon_lab", "lab", "--dir", str(tmp_path / "work"), "--", *options]
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, env=environment, stdin=null, stdout=null, stderr=null)
    try:
        listed = _ask(f"http://127.0.0.1:{port}/api/contents?token={token}", process)
        names = {entry["name"] for entry in listed["content"]}
    finally:
        process.terminate()
        process.wait(60)
    assert "01_start_here.ipynb" in names
    assert Path(tmp_path / "work" / "01_start_here.ipynb").exists()


def _ask(url: str, process: subprocess.Popen[bytes]) -> dict:
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"JupyterLab does not answer (exit status {process.poll()})")
