"""The command line: what it answers to right and wrong words."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from ports import free_port

from gcylon_lab import __version__, tutorials
from gcylon_lab.cli.main import main
from gcylon_lab.errors import WriteError


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
    names = {str(path.relative_to(tmp_path / "work")) for path in first}
    assert {"01_start_here.ipynb", "index.md", "guide_start.md", "pictures/dashboard.png"} <= names
    first[0].write_text("mine")
    assert tutorials.copy_tutorials(tmp_path / "work") == first
    assert first[0].read_text() == "mine"
    first[0].unlink()
    first[0].symlink_to(tmp_path / "elsewhere.ipynb")
    tutorials.copy_tutorials(tmp_path / "work")
    assert not (tmp_path / "elsewhere.ipynb").exists(), "a planted link is not followed"
    if os.geteuid() == 0:
        (tmp_path / "work").chmod(0o1777)  # where others can add
        for theirs in (first[0], tmp_path / "work"):
            os.chown(theirs, 54321, -1, follow_symlinks=False)
            with pytest.raises(WriteError, match=rf"{theirs}, for the tutorials, belongs to user 54321"):
                tutorials.copy_tutorials(tmp_path / "work")


def test_lab_serves_the_tutorials_by_the_template_for_slurm(tmp_path):
    """That of the tutorial, as it stands there, but for what the host has."""
    port = free_port()
    cells = json.loads((tutorials.tutorials_folder() / "08_on_a_cluster.ipynb").read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    blocks = [block for text in texts for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL)]
    for block in blocks:
        assert not subprocess.run(["bash", "-n", "-c", block], capture_output=True, text=True).stderr
    script = next(block for block in blocks if "gcylon-lab lab" in block)
    for stands, here in (
        ("source ~/gcylon/.venv/bin/activate", ""),
        ("port=$((20000 + RANDOM % 20000))", f"port={port}"),
        ("gcylon-lab lab", f"exec {sys.executable} -m gcylon_lab lab --dir {tmp_path / 'work'}"),
    ):
        assert stands in script
        script = script.replace(stands, here)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    host = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "USER": "me", "SLURM_JOB_ID": "7", "PATH": path}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", script], env=os.environ | host, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            secret = tmp_path / ".gcylon-runtime/7/token"
            while not secret.exists() or not secret.read_text():
                assert process.poll() is None
                time.sleep(0.1)
            token = secret.read_text().strip()
            listed = _ask(f"http://127.0.0.1:{port}/api/contents?token={token}", process)
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/contents", timeout=5)
            ports = [one.laddr for one in psutil.Process(process.pid).net_connections() if one.status == "LISTEN"]
        finally:
            process.terminate()
            process.wait(60)
    assert "01_start_here.ipynb" in {entry["name"] for entry in listed["content"]}
    assert Path(tmp_path / "work" / "01_start_here.ipynb").exists()
    assert (secret.stat().st_mode & 0o077, {address.ip for address in ports}) == (0, {"127.0.0.1"})
    said = (tmp_path / "log").read_text()
    assert len(token) == 32 and token not in said and f"-L {port}:127.0.0.1:{port}" in said
    assert ("JupyterLab gets --allow-root" in said) == (os.geteuid() == 0)


def _ask(url: str, process: subprocess.Popen[bytes]) -> dict:
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"JupyterLab does not answer (exit status {process.poll()})")
