"""The demo as a person runs it: on its own input, on files of theirs, and on wrong ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def demo(folder, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gcylon_lab", "demo", "--ranks", "2", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, stdin=subprocess.DEVNULL)


def test_on_its_own_input_and_what_it_leaves(tmp_path):
    done = demo(tmp_path, "--scale", "0.02", "--budget", "4MiB")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"^(shuffle|allgather) +(direct|chunked|staged) ", done.stdout, re.MULTILINE)
    assert lines == [("shuffle", "direct"), ("shuffle", "chunked"), ("shuffle", "staged"), ("allgather", "direct")]
    out = tmp_path / "gcylon-lab-demo"
    assert {path.name for path in out.iterdir()} == {"report.html", "trace.json", "snapshots.json"}
    assert len({event["pid"] for event in json.loads((out / "trace.json").read_text())["traceEvents"]}) == 2
    snapshots = json.loads((out / "snapshots.json").read_text())["snapshots"]
    operations = [op for snapshot in snapshots for op in snapshot["operations"] if op["verb"] == "shuffle"]
    staged = [op for op in operations if op["strategy"] == "staged"]
    assert len(staged) == 2
    assert all(0 < op["measured_peak_bytes"] <= op["budget_bytes"] == 4 * 2**20 for op in staged)
    assert all(op["staged_bytes"] > 0 for op in staged)
    command = [sys.executable, "-m", "gcylon_lab", "report", str(out / "snapshots.json")]
    command += ["--html", "again.html", "--trace", "t.json"]
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0 and "shuffle" in again.stdout
    assert (tmp_path / "again.html").exists() and (tmp_path / "t.json").exists()


def test_on_files_of_ones_own(tmp_path):
    frame = pd.DataFrame({"k": np.arange(20_000) % 77, "name": [f"n{i}" for i in range(20_000)]})
    frame.to_csv(tmp_path / "mine.csv", index=False)
    done = demo(tmp_path, "--files", "mine.csv", "--key", "k", "--budget", "1MiB", "--out", "here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20,000 rows of 2 columns" in done.stdout and (tmp_path / "here" / "report.html").exists()


def test_a_missing_key_and_a_missing_file_are_said(tmp_path):
    pd.DataFrame({"a": [1]}).to_csv(tmp_path / "a.csv", index=False)
    done = demo(tmp_path, "--files", "a.csv", "--key", "b")
    assert done.returncode == 1
    assert "There is no column 'b'. The columns are a." in done.stderr and "Traceback" not in done.stderr
    done = demo(tmp_path, "--files", "gone.parquet", "--key", "b")
    assert done.returncode == 1 and "gone.parquet" in done.stderr and "Traceback" not in done.stderr
