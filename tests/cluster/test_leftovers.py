"""What MPI leaves where its mpiexec is killed goes with the cluster."""

from __future__ import annotations

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
from gcylon_lab.cluster.launch import runtime_dirs

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="where Open MPI looks for it there is no shared memory"),
]


def made(home: Path) -> set[str]:
    """Shared memory and folders of the engines that run; the pipe that each start makes anew has one name."""
    folder = runtime_dirs.shared_memory(home)
    assert folder.stat().st_mode & 0o077 == 0
    return set(os.listdir(folder)) - {runtime_dirs.announcements(home).name}


def test_nothing_is_left_of_a_killed_mpiexec(runtime_dir: str) -> None:
    lab = gl.Cluster(2, name="killed", progress=False)
    with lab:
        launcher = lab._session.launcher
        folder, before = runtime_dirs.shared_memory(launcher.home), made(launcher.home)
        if not before:
            pytest.skip("this MPI library leaves no files of a name")
        assert not Path(f"/tmp/ompi.{launcher._processes.engine_set.pid}").exists()
        os.kill(launcher._processes.engine_set.pid, signal.SIGKILL)
        lab.restart()
        assert lab.run(int, 1) == [1, 1]
        after = made(launcher.home)
        assert after and not after & before
        os.kill(launcher._processes.engine_set.pid, signal.SIGKILL)
    assert not folder.exists() and not launcher.home.exists()


ALONE = """
import os, time
import gcylon_lab as gl
lab = gl.Cluster(2, name="alone", grace_s=1, progress=False)
launcher = lab._session.launcher
print(launcher.home, launcher._processes.engine_set.pid, launcher._processes.controller.pid, flush=True)
time.sleep(600)
"""


def test_the_next_cluster_removes_what_is_left_of_one_of_which_all_was_killed(runtime_dir: str) -> None:
    owner = subprocess.Popen([sys.executable, "-c", ALONE], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    name, mpiexec, controller = owner.stdout.readline().split()
    home = Path(name)
    folder = runtime_dirs.shared_memory(home)
    assert made(home)
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
    assert not home.exists() and not folder.exists()


def _belongs(process: psutil.Process, home: str) -> bool:
    try:
        return process.environ().get("GCYLON_LAB_HOME") == home or home in process.cmdline()
    except psutil.Error:
        return False
