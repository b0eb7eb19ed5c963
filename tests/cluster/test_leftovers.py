"""What MPI leaves where its mpiexec is killed goes with the cluster, and nothing else does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from test_lifecycle import wait_until

import gcylon_lab as gl
from gcylon_lab.cluster.launch import leftovers, runtime_dirs
from gcylon_lab.cluster.launch.lease import Owner


def noted(home: Path, process: Owner, *paths: Path) -> Path:
    """What an engine has written down."""
    file = home / f"mpi-{process.pid}.json"
    known = [[str(path), *leftovers._identity(str(path))] for path in paths]
    text = {"host": process.host, "processes": [[process.pid, process.started]], "paths": known}
    file.write_text(json.dumps(text))
    return file


def test_what_a_job_made_is_removed_once_it_has_ended(tmp_path: Path) -> None:
    home, segment, folder = tmp_path / "home", tmp_path / "sm_segment.1", tmp_path / "ompi.1"
    home.mkdir()
    segment.touch()
    (folder / "0").mkdir(parents=True)
    other = tmp_path / "sm_segment.2"
    other.touch()
    job = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = psutil.Process(job.pid).create_time()
    this = Owner.this_process()
    file = noted(home, Owner(this.host, job.pid, started), segment, folder)
    leftovers.remove(home)
    assert segment.exists() and folder.exists() and file.exists(), "it still runs"
    job.kill()
    job.wait()
    leftovers.remove(home)
    assert not segment.exists() and not folder.exists() and not file.exists()
    assert other.exists()


def test_what_has_the_name_but_is_another_stays(tmp_path: Path) -> None:
    segment = tmp_path / "sm_segment.1"
    segment.touch()
    this = Owner.this_process()
    dead = Owner(this.host, this.pid, this.started - 1000)
    noted(tmp_path, dead, segment)
    new = tmp_path / "new"
    new.touch()
    os.replace(new, segment)  # another job's, of the same name
    leftovers.remove(tmp_path)
    assert segment.exists()
    elsewhere = noted(tmp_path, Owner("elsewhere", 1, 0.0), segment)
    leftovers.remove(tmp_path)
    assert segment.exists() and elsewhere.exists(), "a host looks after its own"
    (tmp_path / "mpi-2.json").write_text("no json")
    leftovers.remove(tmp_path)


def made(home: Path) -> set[str]:
    """Shared memory and folders of the engines that run."""
    return {path for file in home.glob("mpi-*.json") for path, *_ in json.loads(file.read_text())["paths"]}


@pytest.mark.mpi
def test_nothing_is_left_of_a_killed_mpiexec(runtime_dir: str) -> None:
    lab = gl.Cluster(2, name="killed", progress=False)
    with lab:
        launcher = lab._session.launcher
        before = made(launcher.home)
        if not before:
            pytest.skip("this MPI library leaves no files of a name")
        os.kill(launcher._processes.engine_set.pid, signal.SIGKILL)
        lab.restart()
        assert not [path for path in before if os.path.exists(path)]
        assert lab.run(int, 1) == [1, 1]
        after = made(launcher.home)
        assert after and not after & before
        os.kill(launcher._processes.engine_set.pid, signal.SIGKILL)
    assert not [path for path in after if os.path.exists(path)]
    assert not launcher.home.exists()


ALONE = """
import os, time
import gcylon_lab as gl
lab = gl.Cluster(2, name="alone", grace_s=1, progress=False)
launcher = lab._session.launcher
print(launcher.home, launcher._processes.engine_set.pid, launcher._processes.controller.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.mpi
def test_the_next_cluster_removes_what_is_left_of_one_of_which_all_was_killed(runtime_dir: str) -> None:
    owner = subprocess.Popen([sys.executable, "-c", ALONE], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    name, mpiexec, controller = owner.stdout.readline().split()
    home = Path(name)
    left = made(home)
    of_it = [process for process in psutil.process_iter() if _belongs(process, name)]
    for pid in (owner.pid, int(mpiexec), int(controller), *(process.pid for process in of_it)):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    owner.wait()
    assert wait_until(lambda: not any(psutil.pid_exists(process.pid) for process in of_it), 20)
    time.sleep(0.1)
    runtime_dirs.sweep()
    assert not home.exists() and not [path for path in left if os.path.exists(path)]


def _belongs(process: psutil.Process, home: str) -> bool:
    try:
        return process.environ().get("GCYLON_LAB_HOME") == home or home in process.cmdline()
    except psutil.Error:
        return False
