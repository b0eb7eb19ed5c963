"""Damaged files of every format are rows or an error of ours, never a dead process, foreign memory or much of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from damaged_files import FORMATS

import gcylon_lab as gl
from gcylon_lab.errors import ReadError
from gcylon_lab.runtime.context import run_threads

PROGRAM = Path(__file__).with_name("damaged_files.py")
COUNT = 60


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_each_ends_as_it_should(kind: str) -> None:
    done = subprocess.run([sys.executable, PROGRAM, kind, "0", str(COUNT)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]
    *wrong, counts = done.stdout.splitlines()
    assert wrong == []
    assert sum(json.loads(counts).values()) == COUNT


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
