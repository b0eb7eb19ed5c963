"""Ranks in jobs of a real Slurm: submitted and waited for, cancelled, run in, and ended when nobody is there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import Hosts
from notebook import Apart, Notebook
from slurm import Slurm, why_not
from test_hosts import bind_rows, close, hosts, lab, left, lose_after, own_processes, ranks_by_host, verbs

import gcylon_lab as gl
from gcylon_lab.cluster.channel.progress import ProgressLine, Where
from gcylon_lab.cluster.launch.hosts import Host
from gcylon_lab.cluster.launch.slurm import Asked, Job
from gcylon_lab.cluster.processes import wait_until
from gcylon_lab.errors import ArgumentError, ClusterError, ClusterStartError

__all__ = ["hosts"]

PROGRAM = """
import gcylon_lab as gl
import numpy as np
import pandas as pd
here = gl.initialize()
table = gl.from_local(pd.DataFrame({"k": np.arange(1000)})).shuffle("k")
print(f"rank {here.rank} of {here.size} on {here.host}: {table.num_rows}", flush=True)
"""

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


@pytest.fixture(scope="module")
def slurm(request: pytest.FixtureRequest) -> Iterator[Slurm]:
    request.getfixturevalue("all_hosts")
    if reason := why_not():
        pytest.skip(reason)
    made = Slurm(request.getfixturevalue("hosts"))
    yield made
    made.down()


@pytest.fixture(scope="module")
def notebooks(slurm: Slurm, runtime_dir: str) -> Iterator[Callable[[], Notebook]]:
    apart = Apart()
    yield lambda: Notebook({"JUPYTER_RUNTIME_DIR": runtime_dir}, apart.enter)
    apart.end()


@pytest.fixture(scope="module")
def notebook(notebooks: Callable[[], Notebook], slurm: Slurm) -> Iterator[Notebook]:
    slurm.ask("sbatch", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 4")
    with notebooks() as process:
        said = process(submit)
        first = slurm_jobs(slurm)
        assert any(f"Slurm job {first[0]} waits in the queue (" in text for text in said), said
        yield process
        process(close)


def slurm_jobs(slurm: Slurm) -> list[str]:
    return slurm.ask("squeue", "--noheader", "--format=%i").split()


def test_a_job_that_waited_in_the_queue_gives_the_right_rows(notebook: Notebook) -> None:
    assert notebook(ranks_by_host) == ["gnode1", "gnode1", "gnode2", "gnode2"]
    notebook(verbs, "auto")


def test_a_job_that_is_cancelled_is_told_and_restart_submits_another(
    notebook: Notebook, slurm: Slurm, hosts: Hosts
) -> None:
    job = slurm_jobs(slurm)[0]
    first, later = lose_after(notebook, lambda: slurm.ask("scancel", job), "shuffle")
    assert first.count(f"Slurm job {job} was cancelled") == 1, "said once, of all ranks"
    assert f"Slurm job {job} was cancelled" in first and f"Slurm job {job} was cancelled" in later
    assert wait_until(lambda: left_by_cluster(hosts) == "", 10, 0.5), left_by_cluster(hosts)
    assert notebook(restart_with_job) == ["gnode1", "gnode1", "gnode2", "gnode2"]
    assert slurm_jobs(slurm) not in ([], [job])


def test_a_node_that_fails_is_told_and_restart_runs_once_it_is_back(notebook: Notebook, slurm: Slurm) -> None:
    job = slurm_jobs(slurm)[0]
    first, later = lose_after(
        notebook, lambda: slurm.ask("scontrol", "update", "nodename=gnode2", "state=down", "reason=test")
    )
    assert f"Slurm job {job} has lost a node" in first + later, first
    slurm.ask("scontrol", "update", "nodename=gnode2", "state=resume")
    assert notebook(restart_with_job) == ["gnode1", "gnode1", "gnode2", "gnode2"]
    assert slurm_jobs(slurm) not in ([], [job])


def test_close_cancels_the_job_and_leaves_nothing(notebook: Notebook, slurm: Slurm, hosts: Hosts) -> None:
    notebook(close)
    assert wait_until(lambda: not slurm_jobs(slurm), 10, 0.2)
    assert left_by_cluster(hosts) == "" and notebook(own_processes) == []


def test_a_job_ends_when_nobody_is_there_for_the_grace_time(
    notebook: Notebook, notebooks: Callable[[], Notebook], slurm: Slurm, hosts: Hosts
) -> None:
    notebook(close)
    assert wait_until(lambda: not slurm_jobs(slurm), 10, 0.2)
    with notebooks() as first:
        first(submit, 2)
        first(bind_rows, "over_hosts")
        assert len(slurm_jobs(slurm)) == 1
        first.kill()
    assert wait_until(lambda: not slurm_jobs(slurm) and not left_by_cluster(hosts), 40, 1.0), left_by_cluster(hosts)


def test_ranks_run_in_the_job_that_the_notebook_runs_in(slurm: Slurm, hosts: Hosts) -> None:
    out = slurm.folder / "out"
    code = "import test_slurm; test_slurm.inside()"
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    program = f"env JUPYTER_RUNTIME_DIR={slurm.folder}/runtime PYTHONPATH={path} {sys.executable} -c '{code}'"
    slurm.ask("sbatch", "--nodes=2", "--ntasks-per-node=2", f"--output={out}", f"--wrap={program}")
    assert wait_until(lambda: not slurm_jobs(slurm), 60, 0.5)
    assert "gnode1 gnode1 gnode2 gnode2, and the job stays\n" in out.read_text(), out.read_text()
    assert left_by_cluster(hosts) == ""


def test_a_batch_program_has_its_ranks_on_all_nodes(slurm: Slurm) -> None:
    """As the tutorial submits one, without the variables that let ranks share cores."""
    out, program = slurm.folder / "batch.out", slurm.folder / "program.py"
    program.write_text(PROGRAM)
    mpiexec = Path(sys.executable).with_name("mpiexec")
    path = os.pathsep.join(sys.path)
    script = f"""#!/bin/bash
unset ${{!PRTE_@}} ${{!OMPI_@}}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONPATH={path}
{mpiexec} -n $SLURM_NTASKS -x PYTHONPATH {sys.executable} {program}
"""
    (slurm.folder / "batch.sh").write_text(script)
    slurm.ask("sbatch", "--nodes=2", "--ntasks-per-node=2", f"--output={out}", str(slurm.folder / "batch.sh"))
    assert wait_until(lambda: not slurm_jobs(slurm), 100, 0.5)
    told = sorted(line for line in out.read_text().splitlines() if line.startswith("rank"))
    hosts = ("gnode1", "gnode1", "gnode2", "gnode2")
    assert [line.partition(":")[0] for line in told] == [f"rank {n} of 4 on {host}" for n, host in enumerate(hosts)]
    assert sum(int(line.rpartition(" ")[2]) for line in told) == 4000, out.read_text()


def test_what_slurm_refuses_is_told_in_its_words(notebook: Notebook) -> None:
    assert "Slurm refused: sbatch: error: invalid partition specified: nope" in notebook(refused)


def test_the_allocation_of_this_process_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch, slurm: Slurm) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "a[1-3]")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "2(x2),1")
    assert Job(Asked()).expected() == (Host("a1", 2), Host("a2", 2), Host("a3", 1))
    assert Job(Asked(2, 1)).expected() == (Host("a1", 1), Host("a2", 1))
    with pytest.raises(ClusterError, match="job 7, which has a1:2, a2:2, a3:1: less than nodes=3 with"):
        Job(Asked(3, 2)).expected()


def test_arguments_are_checked() -> None:
    with pytest.raises(ArgumentError, match="Expected a number for tasks_per_node, got 0"):
        gl.Cluster.slurm(2, 0)
    with pytest.raises(ArgumentError, match="runs in no Slurm job, and nodes= is not given"):
        gl.Cluster.slurm()


def left_by_cluster(hosts: Hosts) -> str:
    """As `left`, without what Slurm itself listens at."""
    lines = left(hosts).splitlines()
    return "\n".join(line for line in lines if not line.startswith("LISTEN"))


# --- in the notebook ---


def submit(grace_s: float = 20) -> list[str]:
    """What was said while the job waited."""
    said: list[str] = []
    show = ProgressLine.show

    def noted(self: ProgressLine, where: Where) -> None:
        said.append(where.text)
        show(self, where)

    ProgressLine.show = noted  # type: ignore[method-assign]
    env: dict[str, Any] = {"PYTHONPATH": os.pathsep.join(sys.path)}
    gl.Cluster.slurm(2, 2, name="over_hosts", grace_s=grace_s, env=env, options=["--comment=tests"])
    return said


def restart_with_job() -> list[str]:
    lab().restart()
    verbs("auto")
    return ranks_by_host()


def refused() -> str:
    with pytest.raises(ClusterStartError) as raised:
        gl.Cluster.slurm(2, partition="nope", name="refused", progress=False)
    return str(raised.value)


def inside() -> None:
    """A program of a job."""
    with gl.Cluster.slurm(name="over_hosts", progress=False, env={"PYTHONPATH": os.pathsep.join(sys.path)}):
        verbs("auto")
        where = " ".join(ranks_by_host())
    time.sleep(1)
    print(f"{where}, and the job stays", flush=True)
