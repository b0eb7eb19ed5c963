"""Clusters start, are left, are taken over, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

import gcylon_lab as gl
from gcylon_lab import config as settings
from gcylon_lab.errors import ArgumentError, ClusterError, ClusterStartError

pytestmark = pytest.mark.mpi

OWNER = """
import sys, time
import pandas as pd
import gcylon_lab as gl
lab = gl.Cluster(2, name={name!r}, grace_s={grace_s}, progress=False, prelude="prelude_ran = True")
lab.from_pandas(pd.DataFrame({{"k": range(100)}})).bind("kept")
lost = lab.from_pandas(pd.DataFrame({{"k": range(10)}}))
print([r.pid for r in lab.ranks], flush=True)
"""
WAIT = "time.sleep(600)"
STUCK = """
code = "import numpy, time; gl.current().rank and time.sleep(600); gl.current().transport.agree(numpy.zeros(1, int))"
lab.view.execute(code)
"""


def test_variables_for_the_engines_are_read_as_the_process_own(monkeypatch):
    monkeypatch.setattr(settings, "_told", set())
    variables = {"GCYLON_MIN_CHUNK_ROWS": "7", "GCYLON_GPU_MEMORY_LIMT": "1GiB"}
    with pytest.warns(UserWarning, match="Did you mean GCYLON_GPU_MEMORY_LIMIT?") as warned:
        lab = gl.Cluster(1, name="variables", env=variables, progress=False)
    with lab:
        assert lab.config == gl.GcylonConfig(min_chunk_rows=7)
        lab.view.execute("rows = gl.current().config.min_chunk_rows", block=True)
        assert lab.view["rows"] == [7]
    assert len(warned) == 1 and warned[0].filename == __file__


def start_owner(name: str, grace_s: float, code: str = OWNER + WAIT) -> subprocess.Popen[str]:
    """A process that starts a cluster of two ranks."""
    command = [sys.executable, "-c", code.format(name=name, grace_s=grace_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ranks_of(owner: subprocess.Popen[str]) -> list[int]:
    """The ranks' processes, once they are there."""
    assert owner.stdout is not None
    return [int(pid) for pid in owner.stdout.readline().strip(" []\n").split(",")]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def of_home(home: str) -> list[psutil.Process]:
    """Every process whose command or environment names a cluster's folder: controller, launcher, engines, nannies."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("GCYLON_LAB_HOME") == home and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_until(condition: object, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def home_of(runtime_dir: str, name: str) -> Path:
    return next(Path(runtime_dir, "gcylon_lab").glob(f"{name}-*"))


def test_a_cluster_leaves_nothing_behind(runtime_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    with gl.Cluster(2, name="tidy", progress=False, prelude="x = 5") as lab:
        home = home_of(runtime_dir, "tidy")
        pids = [record.pid for record in lab.ranks]
        assert lab.view["x"] == [5, 5]
        for file in [home / "cluster.json", home / "lease.json", *home.glob("security/ipcontroller-*.json")]:
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert len(of_home(str(home))) >= 4  # controller, launcher, engines
        lab.from_pandas(pd.DataFrame({"a": [1]})).bind("kept")
        table = lab.table("kept")
        # A cell that runs twice takes the one that runs; another one under the same name takes its place.
        again = gl.Cluster(2, name="tidy", progress=False, prelude="x = 5")
        with pytest.raises(TypeError, match="nme"):
            gl.Cluster(2, name="tidy", nme="tidy")
        assert again is lab and table.num_rows == 1 and "'tidy' that runs is taken, with" in capsys.readouterr().out
        with pytest.warns(UserWarning, match=r"'tidy' that ran was closed, with its tables #\d"):
            second = gl.Cluster(1, name="tidy", progress=False)
        with second:
            assert "the cluster 'tidy' was closed" in repr(table)
            with pytest.raises(ClusterError, match="'tidy' was closed"):
                table.head()
            assert alive(pids) == []
            with pytest.raises(ClusterError, match="closed"):
                lab.run(os.getpid)
            assert second.run(os.getpid) == [second.ranks[0].pid]
            last = home_of(runtime_dir, "tidy")
    assert wait_until(lambda: not of_home(str(home)) and not of_home(str(last)), 30)
    assert not home.exists()
    assert not last.exists()
    second.close()


def test_a_new_process_takes_over(runtime_dir: str) -> None:
    owner = start_owner("left", grace_s=30)
    pids = ranks_of(owner)
    with pytest.raises(ClusterError, match=f"belongs to process {owner.pid}"):
        gl.Cluster.attach("left")
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with gl.Cluster.attach("left", progress=False) as lab:
        assert [record.pid for record in lab.ranks] == pids
        assert lab.table("kept").num_rows == 100
        assert lab.view["prelude_ran"] == [True, True]
        names = set(lab.memory()["table"])
        assert "#2" in names
        assert lab.table("#2").num_rows == 10
        with pytest.raises(ArgumentError) as caught:
            lab.table("t2")  # a variable of the notebook before, and not the second table
        assert "nothing). Bind it before (t.bind('t2')), or take it by its id" in str(caught.value)
        lab.table("#2").bind("t2")
        assert lab.table("t2").num_rows == 10
        assert lab.table("kept").shuffle("k").num_rows == 100
        assert gl.Cluster.attach("left") is lab
        lab.profile = 5
        lab.restart()
        lab.view.execute("import gcylon_lab; hz = gcylon_lab.current().profile_hz", block=True)
        assert lab.view["hz"] == [5.0] * len(pids)
        assert [record.pid for record in lab.ranks] != pids
        assert lab.view["prelude_ran"] == [True, True]
    with pytest.raises(ClusterError, match="no running cluster"):
        gl.Cluster.attach("left")


def test_nothing_outlives_a_killed_owner_for_long(runtime_dir: str, left_alone: list[Path]) -> None:
    # Two at a time, since it takes a while: one whose ranks are idle, and one whose ranks are stuck.
    idle, stuck = start_owner("orphaned", grace_s=2), start_owner("stuck", grace_s=1, code=OWNER + STUCK)
    idle_pids, stuck_pids = ranks_of(idle), ranks_of(stuck)
    left_alone += [home_of(runtime_dir, "orphaned"), home_of(runtime_dir, "stuck")]
    time.sleep(3)
    for pids in (idle_pids, stuck_pids):
        assert alive(pids) == pids, "engines ended although their owner lives"
    killed = time.monotonic()
    for owner in (idle, stuck):
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert wait_until(lambda: alive(idle_pids) != idle_pids, 30)
    assert time.monotonic() - killed > 1.5, "engines ended before the grace time was over"
    assert wait_until(lambda: not alive(idle_pids) and not alive(stuck_pids), 30)


def test_a_start_that_fails_shows_the_launchers_own_words(tmp_path: Path, runtime_dir: str) -> None:
    broken = tmp_path / "mpiexec"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "mpiexec (Open MPI) 5.0.0" && exit 0\n'
        'echo "There are not enough slots available in the system" >&2; exit 1\n'
    )
    broken.chmod(0o755)
    with pytest.raises(ClusterStartError, match="not enough slots") as caught:
        gl.Cluster(2, name="broken", mpi=str(broken), progress=False)
    assert str(broken) in caught.value.advice
    assert not list(Path(runtime_dir, "gcylon_lab").glob("broken-*"))


def test_engines_that_cannot_import_say_so(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text("raise ImportError('a broken pandas')")
    with pytest.raises(ClusterStartError, match="a broken pandas"):
        gl.Cluster(1, name="broken", env={"PYTHONPATH": str(tmp_path)}, progress=False)


def test_arguments_are_checked_before_anything_starts() -> None:
    with pytest.raises(ArgumentError, match="number of ranks for n, got 0"):
        gl.Cluster(0)
    with pytest.raises(ArgumentError, match="grace_s"):
        gl.Cluster(1, grace_s=-1)
