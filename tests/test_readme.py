"""The README and the pages beside the tutorials say what is so: commands, options, code, links; and the layers."""

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
PAGES = {path.name: path.read_text() for path in (ROOT / "notebooks").glob("*.md")}


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_it_opens_with_two_commands_and_ci_runs_the_second():
    first, second = (block.strip() for block in blocks("bash")[:2])
    assert README.index(second) < README.index("## What it is")
    assert first.endswith("gcylon-lab demo") and second.endswith("-m pytest")
    assert second in (ROOT / ".ci" / "run").read_text().splitlines()


def test_the_table_of_options_is_the_config():
    page = PAGES["reference_settings.md"]
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \| (.+) \|$", page, re.MULTILINE)
    assert [(name, default) for name, default, _ in rows if not name.startswith("GCYLON_")] == [
        (field.name, repr(field.default)) for field in fields(gl.GcylonConfig)
    ]
    assert tuple(name for name, _, _ in rows if name.startswith("GCYLON_")) == VARIABLES


def test_the_layer_map_names_what_there_is():
    text = (ROOT / "gcylon_lab" / "ARCHITECTURE.md").read_text()
    drawing = text[text.index("## Layers") : text.index("## Who may know whom")]
    named = set(re.findall(r"(\w+)(?:/|\.py)", drawing))
    package = ROOT / "gcylon_lab"
    there = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    assert named == there - {"__init__", "__main__"}


def test_it_is_short_and_begins_with_a_picture():
    assert len(README.splitlines()) <= 150
    first = next(line for line in README.splitlines()[1:] if line)
    picture = ROOT / re.fullmatch(r"!\[.+\]\((.+\.png)\)", first)[1]
    assert 10_000 < picture.stat().st_size < 400_000
    assert "DuckDB" in README and "polars" in README, "what to use where this is not what one needs"


@pytest.mark.parametrize("page", ["README.md", *(f"notebooks/{name}" for name in sorted(PAGES))])
def test_links_lead_to_what_is_there(page):
    text = (ROOT / page).read_text()
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_every_page_and_tutorial_can_be_reached_from_the_index():
    linked = set(re.findall(r"\]\(([^)]+)\)", PAGES["index.md"]))
    there = {path.name for kind in ("*.md", "*.ipynb") for path in (ROOT / "notebooks").glob(kind)}
    assert linked == there - {"index.md"}


def runs(code, folder):
    assert len([line for line in code.splitlines() if line]) <= 10
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.mpi
@pytest.mark.slow
def test_the_ten_lines_run_on_a_file_of_ones_own(tmp_path):
    cities = ["Oslo", "Lima", "Pune"]
    rows = [f"{cities[n * n % 3]},{n / 7},2024-01-{n % 28 + 1:02}" for n in range(3000)]
    (tmp_path / "yours.csv").write_text("\n".join(["city,paid,day", *rows]) + "\n")
    said = runs(blocks("python")[0], tmp_path)
    assert "sort_values: direct" in said and "Lima  2000" in said
    assert len(list((tmp_path / "counts").glob("*.parquet"))) == 2


@pytest.mark.mpi
@pytest.mark.slow
def test_the_ten_lines_of_the_guide_run(tmp_path):
    from gcylon_lab.tutorials import make_tpch

    make_tpch(tmp_path, 0.02)
    said = runs(blocks("python", PAGES["guide_start.md"])[0], tmp_path)
    assert "shuffle: staged" in said and "l_orderkey" in said
