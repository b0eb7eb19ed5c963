"""``bench files`` runs, small, beside pyarrow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gcylon_lab.cli.main import main


@pytest.mark.mpi
@pytest.mark.slow
def test_files_beside_pyarrow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "files.json"
    sizes = ["--megabytes", "1", "--repeats", "1", "--warmup", "0", "--kinds", "narrow,nested"]
    assert main(["bench", "files", *sizes, "--json", str(file)]) == 0
    text, report = capsys.readouterr().out, json.loads(file.read_text())
    assert "pyarrow on one thread" in text and "write csv narrow" in text
    assert len(report["lines"]) == 2 * (4 + 3) and all(line["ratio"] > 0 for line in report["lines"])
    assert all(line["cpu_ratio"] > 0 for line in report["lines"])
    for line in report["lines"]:
        ours, library = (line["file_bytes"][name] for name in ("ours", "library"))
        # What is written is what is told: csv of theirs has times of more digits, json of theirs no blanks.
        assert ours == library if line["name"].startswith("read") else 0.5 * library < ours < 2 * library
    written = {line["name"]: line["file_bytes"]["ours"] for line in report["lines"]}
    assert written["write json narrow"] != written["read json narrow"]


def test_a_format_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "files", "--formats", "avro"]) == 1
    assert "avro" in capsys.readouterr().err
