"""The README says what is so: its commands, options, code and layers."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import gcylon_lab as gl
from gcylon_lab.config import VARIABLES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_it_opens_with_two_commands_and_ci_runs_the_second():
    first, second = (block.strip() for block in blocks("bash")[:2])
    assert README.index(second) < README.index("## What it is")
    assert first.endswith("gcylon-lab demo") and second.endswith("-m pytest")
    assert second in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_table_of_options_is_the_config():
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \| (.+) \|$", README, re.MULTILINE)
    assert [(name, default) for name, default, _ in rows if not name.startswith("GCYLON_")] == [
        (field.name, repr(field.default)) for field in fields(gl.GcylonConfig)
    ]
    assert tuple(name for name, _, _ in rows if name.startswith("GCYLON_")) == VARIABLES


def test_the_layer_map_names_what_there_is():
    drawing = README[README.index("## Layers") : README.index("## Words")]
    named = set(re.findall(r"(\w+)(?:/|\.py)", drawing))
    package = ROOT / "gcylon_lab"
    there = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    assert named == there - {"__init__", "__main__"}


@pytest.mark.mpi
@pytest.mark.slow
def test_the_ten_lines_run(tmp_path):
    from gcylon_lab.tutorials import make_tpch

    make_tpch(tmp_path, 0.02)
    code = blocks("python")[0]
    assert len([line for line in code.splitlines() if line]) <= 10
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert "shuffle: staged" in done.stdout and "l_orderkey" in done.stdout
