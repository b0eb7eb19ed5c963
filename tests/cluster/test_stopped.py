"""Processes that are stopped, by a signal or a debugger: an error says so in time, and what goes on is used again."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
from test_lifecycle import OWNER, WAIT, home_of, of_home, ranks_of, start_owner, wait_until

import gcylon_lab as gl
from gcylon_lab.cluster.channel import channel
from gcylon_lab.cluster.control import ask_nanny
from gcylon_lab.cluster.launch import guard
from gcylon_lab.cluster.launch.launcher import Launcher
from gcylon_lab.cluster.launch.lease import LEASE_FILE, Lease
from gcylon_lab.cluster.processes import HOME_VARIABLE, end, engines_of, is_running, is_stopped, nannies_of
from gcylon_lab.cluster.rank_info import RankRecord
from gcylon_lab.cluster.stop_detector import STOPPED_S, StopDetector
from gcylon_lab.errors import ClusterDegraded, DeadlineExceeded, GcylonError, RankStopped

# Five seconds are promised; a machine that runs twenty processes on two cores notices them some seconds late.
SOON_S = 9.0
AT_ONCE_S = 4.0
ROWS = 5_000


@contextmanager
def stopped(*pids: int, after_s: float = 0.0) -> Iterator[None]:
    """Processes are stopped inside the block, at once or a moment later."""

    def stop() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:  # one thread takes the signal, and the others go on until it has had its turn on a CPU
            assert wait_until(lambda pid=pid: is_stopped(psutil.Process(pid)), 10)

    timer = threading.Timer(after_s, stop)
    timer.start()
    if not after_s:
        timer.join()
    try:
        yield
    finally:
        timer.join()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def fails(kind: type[GcylonError], within_s: float, function: Callable[[], Any], match: str) -> GcylonError:
    began = time.monotonic()
    with pytest.raises(kind, match=match) as caught:
        function()
    assert time.monotonic() - began < within_s
    return caught.value


def frame(rows: int = ROWS) -> pd.DataFrame:
    return pd.DataFrame({"k": np.arange(rows) % 97, "v": np.arange(rows)[::-1]})


def sort_for(table: gl.Table, seconds: float) -> int:
    """Sort again and again; all ranks as often."""
    until = time.monotonic() + seconds
    count, more = 0, True
    while more:
        rows = table.sort_values("v")
        count, more = count + 1, time.monotonic() < until
        more = bool(gl.current().transport.agree(np.array([more], dtype=np.int64)).all())
        rows.release()
    return count


def controller_of(lab: gl.Cluster) -> int:
    return int(lab._session.launcher.state()["controller_pid"])


def like_an_engine(home: Path | str) -> subprocess.Popen[bytes]:
    """A process that is taken for an engine of a cluster's folder."""
    code = "import time; print(1, flush=True); time.sleep(100)"
    command = [sys.executable, "-c", code, "-m", "gcylon_lab.cluster.launch.engine_process"]
    process = subprocess.Popen(command, env={HOME_VARIABLE: str(home)}, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    return process


# --- without a cluster ---


def test_who_is_stopped_is_named_and_a_moment_is_no_stop(tmp_path: Path) -> None:
    process, other = like_an_engine(tmp_path), like_an_engine(tmp_path / "another")
    host = os.uname().nodename
    ranks = [RankRecord(3, host, process.pid, "cpu", 0), RankRecord(4, host, other.pid, "cpu", 1)]
    stops = StopDetector(ranks, None, str(tmp_path))
    with stopped(process.pid, other.pid):
        assert wait_until(lambda: is_stopped(psutil.Process(process.pid)), 5)
        assert stops.look() is None
        now = stops.now()
        assert now is not None and now.ranks == (3,)
        assert f"Rank 3 (host {host}, pid {process.pid}) is stopped" in str(now.error())
        assert f"kill -CONT {process.pid}" in now.advice
        assert wait_until(lambda: stops.look(1.0) is not None, 5)
    assert wait_until(lambda: stops.now() is None, 5)
    for each in (process, other):
        each.kill()
        each.wait()
    assert stops.now() is None


def test_a_stopped_process_is_ended_in_time(tmp_path: Path) -> None:
    process = like_an_engine(tmp_path)
    os.kill(process.pid, signal.SIGSTOP)
    began = time.monotonic()
    end(psutil.Process(process.pid), by_itself_s=0.1, asked_s=2.0)
    assert process.wait(5) == -signal.SIGTERM
    assert time.monotonic() - began < AT_ONCE_S


def test_the_guard_ends_what_is_stopped_once_nobody_owns_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    process, other = like_an_engine(home), like_an_engine(tmp_path / "another")
    Lease(home / LEASE_FILE).claim()
    threading.Timer(1.5, (home / LEASE_FILE).unlink).start()
    with stopped(other.pid):
        os.kill(process.pid, signal.SIGSTOP)
        began = time.monotonic()
        guard.watch(home, 0.5)
        assert time.monotonic() - began > 1.9, "the owner was there, and then it was the grace time"
        assert process.wait(5) == -signal.SIGKILL
        assert not home.exists()
        assert other.poll() is None
    other.kill()
    other.wait()


# --- with one ---


@pytest.mark.mpi
def test_a_rank_that_is_stopped_is_named_in_time_and_used_again(
    hurt: gl.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_BETWEEN_S", 0.0)  # the interrupt is meant for no request
    table, pid = hurt.from_pandas(frame()), hurt.ranks[1].pid
    said = rf"Rank 1 \(host .*, pid {pid}\) is stopped"
    with stopped(pid):
        error = fails(RankStopped, SOON_S, lambda: table.shuffle("k"), said)
        assert error.rank == 1 and error.numbers == {"stopped_ranks": [1]}
        assert [row["state"] for row in hurt.status()][1] == "stopped"
        for again in (table.to_pandas, hurt.memory, lambda: hurt.run(os.getpid), lambda: hurt.view.execute("1")):
            fails(RankStopped, AT_ONCE_S, again, said)
        hurt.interrupt()
    assert table.sort_values("v").to_pandas()["v"].tolist() == list(range(ROWS))
    with stopped(pid, after_s=0.5):
        fails(RankStopped, SOON_S, lambda: hurt.run(sort_for, table, 30), said)
    assert table.shuffle("k").num_rows == ROWS
    assert hurt.ranks[1].pid == pid, "without a restart"


@pytest.mark.mpi
def test_a_rank_of_another_host_is_looked_at_there(hurt: gl.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    table, pid, session = hurt.from_pandas(frame()), hurt.ranks[1].pid, hurt._session
    ranks = [replace(record, host="elsewhere") for record in hurt.ranks]
    stops = StopDetector(ranks, None, str(session.launcher.home), partial(ask_nanny, session.client))
    monkeypatch.setattr(session.channel, "stops", stops)
    with stopped(pid):
        fails(RankStopped, SOON_S, lambda: table.shuffle("k"), rf"Rank 1 \(host .*, pid {pid}\) is stopped")
    assert wait_until(lambda: stops.now() is None, AT_ONCE_S)
    assert table.shuffle("k").num_rows == ROWS
    # A rank whose interpreter a long call holds answers nothing, and is not stopped.
    assert hurt.run(holds_its_interpreter, 1, 5) == [0, 1]


@pytest.mark.mpi
@pytest.mark.parametrize("first", ["config", "cell", "memory", "to_pandas"])
def test_whatever_comes_first_to_a_stopped_rank(hurt: gl.Cluster, first: str) -> None:
    table, pid, config = hurt.from_pandas(frame(100)), hurt.ranks[0].pid, hurt.config
    with stopped(pid):
        if first == "config":
            fails(RankStopped, SOON_S, lambda: setattr(hurt, "config", config.with_values(min_chunk_rows=5)), "Rank 0")
        elif first == "cell":
            began = time.monotonic()
            with pytest.raises(Exception, match=r"RankStopped: .*Rank 0 .* is stopped"):
                hurt.view.execute("x = 1", block=True)
            assert time.monotonic() - began < SOON_S
        else:
            fails(RankStopped, SOON_S, getattr(hurt if first == "memory" else table, first), "Rank 0 .* is stopped")
    assert table.to_pandas()["v"].tolist() == frame(100)["v"].tolist()
    assert hurt.config == config
    assert hurt.view.execute("2", block=True).successful()


@pytest.mark.mpi
def test_a_stop_of_a_moment_does_no_harm(hurt: gl.Cluster) -> None:
    table = hurt.from_pandas(frame())
    threading.Timer(0.3 + STOPPED_S / 2, os.kill, (hurt.ranks[1].pid, signal.SIGCONT)).start()
    threading.Timer(0.3, os.kill, (hurt.ranks[1].pid, signal.SIGSTOP)).start()
    counts = hurt.run(sort_for, table, 2.5)
    assert counts[0] == counts[1] > 0


@pytest.mark.mpi
@pytest.mark.parametrize("what", ["verb", "function"])
def test_a_deadline_names_the_rank_that_is_stopped(hurt: gl.Cluster, what: str) -> None:
    table = hurt.from_pandas(frame())
    with stopped(hurt.ranks[1].pid):
        call: Callable[[], Any] = lambda: table.shuffle("k", timeout_s=2)  # noqa: E731
        if what == "function":
            call = lambda: hurt.run(sort_for, table, 60, timeout_s=2)  # noqa: E731
        error = fails(DeadlineExceeded, 2 + AT_ONCE_S, call, r"longer than 2 s.* rank 1 \(host .*\) is stopped")
        assert error.rank == 1
    assert table.shuffle("k").num_rows == ROWS


@pytest.mark.mpi
def test_a_deadline_names_whom_it_waited_for(hurt: gl.Cluster) -> None:
    with pytest.raises(DeadlineExceeded, match="longer than 1 s.* It waited for rank 1"):
        hurt.run(sleeps_on, 1, 60, timeout_s=1)
    assert hurt.run(sleeps_on, 1, 0.0) == [0, 1]


@pytest.mark.mpi
def test_a_stopped_controller_is_an_error_and_goes_on(hurt: gl.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_BETWEEN_S", 0.0)  # the interrupt is meant for no request
    table, controller = hurt.from_pandas(frame()), controller_of(hurt)
    said = rf"The controller \(host .*, pid {controller}\).* is stopped"
    with stopped(controller, after_s=0.5):
        fails(ClusterDegraded, SOON_S, lambda: hurt.run(sleeps_on, 1, 3.0), said)
        fails(ClusterDegraded, AT_ONCE_S, lambda: table.shuffle("k"), said)
        fails(ClusterDegraded, AT_ONCE_S, lambda: hurt.view.execute("1"), said)
        began = time.monotonic()
        hurt.status()
        hurt.interrupt()
        assert time.monotonic() - began < AT_ONCE_S
        fails(ClusterDegraded, SOON_S, lambda: setattr(hurt, "config", hurt.config), said)
    assert table.shuffle("k").num_rows == ROWS


@pytest.mark.mpi
def loaded() -> tuple[bool, bool, bool]:
    return "debugpy.server" in sys.modules, gc.isenabled(), gc.get_freeze_count() > 100_000


def test_a_nanny_is_a_fork_of_its_engine_which_collects_and_loads_no_debugger(lab: gl.Cluster) -> None:
    nannies = nannies_of(str(lab._session.launcher.home))
    assert sorted(nanny.ppid() for nanny in nannies) == sorted(record.pid for record in lab.ranks)
    assert all(nanny.cmdline() == psutil.Process(nanny.ppid()).cmdline() for nanny in nannies)
    assert lab.run(loaded) == [(False, True, True)] * 2


@pytest.mark.parametrize("what", ["ranks", "controller", "nannies", "all"])
def test_a_restart_ends_whatever_state_processes_are_in(
    hurt: gl.Cluster, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting = [0.0]
    for name in ("start", "start_engines"):  # what a busy machine takes longest for, and no stopped process prolongs
        monkeypatch.setattr(Launcher, name, timed(getattr(Launcher, name), starting))
    launcher = hurt._session.launcher
    pids = [record.pid for record in hurt.ranks] if what in ("ranks", "all") else []
    pids += [controller_of(hurt)] if what in ("controller", "all") else []
    pids += [nanny.pid for nanny in nannies_of(str(launcher.home))] if what in ("nannies", "all") else []
    pids += [launcher._processes.engine_set.pid] if what == "all" else []
    before = of_home(str(launcher.home))
    waits = threading.Thread(target=lambda: pytest.raises(GcylonError, hurt.run, sleeps_on, 1, 60.0))
    waits.start()
    time.sleep(0.5)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    hurt.restart()
    assert time.monotonic() - began - starting[0] < 10
    waits.join(SOON_S)
    assert not waits.is_alive(), "who waited for the engines before learns that they are gone"
    assert hurt.run(sleeps_on, 1, 0.0) == [0, 1]
    stay = {controller_of(hurt), *(child.pid for child in psutil.Process(controller_of(hurt)).children())}
    left = [process for process in before if process.pid not in stay]
    assert wait_until(lambda: not any(map(is_running, left)), 10), [p.cmdline() for p in left if is_running(p)]


@pytest.mark.mpi
def test_nothing_outlives_a_killed_owner_beside_a_stopped_rank(runtime_dir: str) -> None:
    owner = start_owner("halted", grace_s=1, code=OWNER + WAIT)
    pids = ranks_of(owner)
    home = home_of(runtime_dir, "halted")
    watches = guard.is_there(home)
    assert watches
    os.kill(pids[1], signal.SIGSTOP)
    assert len(engines_of(str(home))) == 2
    owner.kill()
    owner.wait()
    # One second of grace, some until each has noticed, and the controller goes five after the engines.
    assert wait_until(lambda: not of_home(str(home)) and not home.exists(), 40), of_home(str(home))
    assert wait_until(lambda: not guard.is_there(home), 5)


def sleeps_on(rank: int, seconds: float) -> int:
    if gl.current().rank == rank:
        time.sleep(seconds)
    return int(gl.current().rank)


def holds_its_interpreter(rank: int, seconds: int) -> int:
    if gl.current().rank == rank:
        ctypes.PyDLL(None).sleep(seconds)
    return int(gl.current().rank)


def timed(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        try:
            return function(*args, **kwargs)
        finally:
            spent[0] += time.monotonic() - began

    return wrapped
