"""Magics on a cluster that runs, in IPython outside of notebooks."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell

import gcylon_lab as gl
from gcylon_lab.cluster.channel.views import activate

pytestmark = pytest.mark.mpi


@pytest.fixture
def shell(lab: gl.Cluster, frame: pd.DataFrame) -> Iterator[InteractiveShell]:
    """A shell with the magics, a cluster and a table."""
    shell = InteractiveShell.instance(colors="nocolor")
    activate(lab.view)
    shell.run_line_magic("load_ext", "gcylon_lab")
    shell.user_ns |= {"lab": lab, "t": lab.from_pandas(frame), "u": lab.from_pandas(frame.head(50)), "gl": gl}
    config = lab.config
    yield shell
    lab.config = config
    shell.run_line_magic("unload_ext", "gcylon_lab")
    InteractiveShell.clear_instance()


def said(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], cell: str) -> str:
    """What a cell shows."""
    capsys.readouterr()
    shell.run_cell(cell)
    return "".join(capsys.readouterr())


def test_a_cluster_that_is_there_is_used(
    shell: InteractiveShell, lab: gl.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = said(shell, capsys, "%lab up 2 min_chunk_rows=99")
    assert "is used" in shown and "<Cluster 'used': 2 ranks" in shown
    assert shell.user_ns["lab"] is lab and lab.config.min_chunk_rows == 99
    assert "lab has 2 ranks, not 3" in said(shell, capsys, "%lab up 3")
    assert "idle" in said(shell, capsys, "%lab status") and "lab: 2 ranks" in said(shell, capsys, "%lab status")
    shell.user_ns["other"] = shell.user_ns.pop("lab")
    assert "other: 2 ranks" in said(shell, capsys, "%lab status"), "the only one there is"
    assert "nothing is not a cluster" in said(shell, capsys, "%lab status nothing")


def test_settings_are_shown_and_set(
    shell: InteractiveShell, lab: gl.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "min_chunk_rows" in said(shell, capsys, "%lab config")
    assert "chunk_size_bytes='2MiB'" in said(shell, capsys, "%lab config chunk_size_bytes = 2MiB")
    assert lab.run(lambda: gl.current().config.chunk_size_bytes) == [2 * 2**20] * 2
    refused = said(shell, capsys, "%lab config gpu_memory_limit=900TiB")
    assert "above the ceiling" in refused and "Traceback" not in refused
    assert lab.config.chunk_size_bytes == 2 * 2**20


def test_the_profiler_is_shown_and_set(
    shell: InteractiveShell, lab: gl.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is off" in said(shell, capsys, "%lab profile off") and lab.profile is False
    assert "takes 5 samples" in said(shell, capsys, "%lab profile 5")
    assert "takes 5 samples" in said(shell, capsys, "%lab profile")
    assert "profile fast is invalid. Expected on, off" in said(shell, capsys, "%lab profile fast")
    assert "takes 20 samples" in said(shell, capsys, "%lab profile on") and lab.profile == 20.0


def test_a_plan_runs_nothing(shell: InteractiveShell, lab: gl.Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    gc.collect()
    said(shell, capsys, "t.info()")  # what tables before this one left to be dropped is dropped
    sent = len(lab.client.history)
    assert "shuffle: staged" in said(shell, capsys, '%lab_plan t.shuffle("k", strategy="staged", keep_order=True)')
    assert "union: direct, nothing is exchanged" in said(shell, capsys, "%lab_plan t.union(t, all=True, timeout_s=9)")
    assert "join: " in said(shell, capsys, '%lab_plan t.join(u, on="k")')
    assert "join: chunked" in said(shell, capsys, '%lab_plan t.merge(u, "left", ["k"], strategy="chunked")')
    assert "instead, which are fewer" in said(shell, capsys, '%lab_plan t.groupby("k").agg({"v": "sum"}, timeout_s=9)')
    assert "median needs all" in said(shell, capsys, '%lab_plan t.groupby("k").agg(m=("v", "median"), strategy="auto")')
    sizes = said(shell, capsys, '%lab_plan t.groupby("k").size(strategy="staged")')
    assert "groupby: staged" in sizes and "columns only those needed are sent, which are 1" in sizes
    assert "drop_duplicates: " in said(shell, capsys, '%lab_plan t.drop_duplicates("k", keep=False)')
    assert "unique: staged" in said(shell, capsys, '%lab_plan t.unique(["k"], strategy="staged")')
    assert "shuffle: staged" in said(shell, capsys, '%lab_plan t.plan.shuffle("k", strategy="staged")')
    assert "shuffle: staged" in said(shell, capsys, '%lab_plan t.plan_shuffle("k", strategy="staged")')
    assert "groupby: " in said(shell, capsys, '%lab_plan t.plan.groupby("k").agg({"v": "sum"})')
    assert "groupby: " in said(shell, capsys, '%lab_plan t.groupby("k")')
    tight = '%lab_plan t.allgather(config=gl.GcylonConfig(gpu_memory_limit="40KiB"))'
    assert "allgather: staged" in said(shell, capsys, tight)
    assert len(lab.client.history) == sent
    plan = shell.run_line_magic("lab_plan", "t.sort_values('k', ascending=False)")
    assert plan.plan.verb == "sort_values" and "predicted peak" in plan._repr_html_()


@pytest.mark.parametrize(
    "call, answer",
    [
        ("t.filter(gl.col('v') > 1).shuffle('k')", "would have to run first"),
        ("t.join(u.select(['k']), on='k')", "u.select(['k']) would have to run first"),
        ("t.join(lab.from_pandas(1), on='k')", "would have to run first"),
        ("t.filter(gl.col('v') > 1)", "filter has no plan"),
        ("t.shufle('k')", "no verb 'shufle'. Did you mean shuffle?"),
        ("t.shuffle(key='k')", "missing a required argument: 'on'"),
        ("t.shuffle('zz')", "ColumnMissing: There is no column 'zz'"),
        ("t.shuffle(gl.nonsense)", "AttributeError"),
    ],
)
def test_what_has_no_plan_is_refused_in_a_line(
    shell: InteractiveShell, lab: gl.Cluster, capsys: pytest.CaptureFixture[str], call: str, answer: str
) -> None:
    shown = said(shell, capsys, f"%lab_plan {call}")
    assert answer in shown and "Traceback" not in shown


def test_a_profile_is_of_its_cell_alone(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said(shell, capsys, "t.bind('t'); earlier = t.allgather()")
    files = f"--report {tmp_path}/f.html --trace {tmp_path}/f.json"
    shown = said(shell, capsys, f"%%lab_profile {files}\n%%px\nx = t.shuffle('k', strategy='staged')\nx.num_rows")
    lines = [line for line in shown.splitlines() if " shuffle " in line]
    assert "Out[0:" in shown and "1 operation took" in shown
    assert "staged" in lines[0] and "allgather" not in shown
    assert {line.split()[2] for line in lines[1:3]} == {"0", "1"}
    trace = json.loads((tmp_path / "f.json").read_text())
    operations = [row["name"] for row in trace["traceEvents"] if row.get("cat") == "operation"]
    assert [name.split()[0] for name in operations] == ["shuffle", "shuffle"]
    report = (tmp_path / "f.html").read_text()
    assert "Profile of a cell" in report and "shuffle" in report and "allgather" not in report
    assert "2 operations took" in said(shell, capsys, "%%lab_profile\nt.shuffle('k').sort_values('v')")


def test_a_profile_of_a_cell_that_fails_shows_it_too(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = said(shell, capsys, "%%lab_profile\nt.shuffle('k')\nt.shuffle('zz')")
    assert "2 operations took" in shown and "ended in ColumnMissing" in shown and "operation" in shown


def test_magics_are_refused_where_cells_go_to_the_ranks(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    said(shell, capsys, "%autopx")
    try:
        said(shell, capsys, "import gcylon_lab as gl\nhere = gl.current().rank")
        assert "%lab belongs to the notebook" in said(shell, capsys, "%lab status")
        assert "%%lab_profile belongs to the notebook" in said(shell, capsys, "%%lab_profile\nx = 1")
    finally:
        assert "disabled" in said(shell, capsys, "%autopx")
    assert "here" not in shell.user_ns and shell.user_ns["lab"].view["here"] == [0, 1]
    assert "lab: 2 ranks" in said(shell, capsys, "%lab status")
    assert "%lab_plan belongs" in said(shell, capsys, "%%px\nx = 1\n%lab_plan t.shuffle('k')")


def test_an_error_shows_the_advice_on_top_and_no_insides(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = said(shell, capsys, "t.head(5)\nt.shuffle('zz')")
    lines = shown.splitlines()
    assert lines[0] == "ColumnMissing on ranks 0-1: There is no column 'zz'."
    assert lines[1] == "  What helps: The columns are 'k', 'v', 's'."
    assert "----> 2 t.shuffle('zz')" in shown and "forwarding.py" not in shown
    in_cell = said(shell, capsys, "t.bind('t')\n%px t.shuffle('zz')")
    assert in_cell.count("Traceback (most recent call last)") == 1
    assert "What helps: The columns are" in in_cell and "exchanging.py" not in in_cell
    assert "Ranks 0-1 raised the same ColumnMissing." in in_cell
