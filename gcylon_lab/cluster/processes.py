"""The processes of a cluster on this host: which they are, whether they are stopped, and how all of them are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

import psutil

HOME_VARIABLE = "GCYLON_LAB_HOME"
NANNY = "gcylon-nanny"  # what the process beside an engine calls itself: its command is the engine's

_GONE_S = 1.0  # after SIGKILL; longer only where the system itself is stuck

# What a command is made of; what a person started from an engine has the same variable, and is none of these.
_ENGINE, _CONTROLLER = "gcylon_lab.cluster.launch.engine_process", "gcylon_lab.cluster.launch.controller"
_FAR_HOST = "gcylon_lab.cluster.launch.far_host"
_LAUNCHER = "launcher"
_LAUNCHERS = ("mpiexec", "mpirun", "prterun", "prted", "orted", "hydra_pmi_proxy", "mpiexec.hydra")


def is_running(process: psutil.Process) -> bool:
    """Whether it is there, and not only waits to be reaped."""
    try:
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def is_stopped(process: psutil.Process) -> bool:
    """Whether it is there but does not run, by SIGSTOP or a debugger."""
    try:
        return bool(process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP))
    except psutil.Error:
        return False


def belongs_to(pid: int, home: str) -> bool:
    """Whether a process of this host belongs to the cluster of a folder."""
    try:
        return bool(psutil.Process(pid).environ().get(HOME_VARIABLE) == home)
    except psutil.Error:
        return False


def of_home(home: str) -> list[psutil.Process]:
    """Every process of a cluster on this host: controller, mpiexec, engines and what ipyparallel starts for them."""
    mine = os.getuid() if hasattr(os, "getuid") else None
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if mine is not None and process.uids().real != mine:
                continue
            if process.pid != os.getpid() and _is_of(process, home) and is_running(process):
                found.append(process)
    return found


def engines_of(home: str) -> list[psutil.Process]:
    """The engines of a cluster on this host."""
    return [process for process in of_home(home) if _role(process) == _ENGINE]


def nannies_of(home: str) -> list[psutil.Process]:
    """The processes beside a cluster's engines on this host, which end by themselves once their engines have."""
    return [process for process in of_home(home) if _role(process) == NANNY]


def far_hosts_of(home: str) -> list[psutil.Process]:
    """The processes, but this one, that keep this host for a cluster of a notebook elsewhere."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mine = process.pid != os.getpid() and process.uids().real == os.getuid()
            if mine and process.cmdline()[-2:] == [_FAR_HOST, home]:
                found.append(process)
    return found


def kill(processes: Iterable[psutil.Process]) -> None:
    """End processes at once, stopped ones too, and wait a moment until they are gone: what they hold is then free."""
    killed = list(processes)
    for process in killed:
        with contextlib.suppress(psutil.Error):
            process.kill()
    wait_until(lambda: not any(map(is_running, killed)), _GONE_S)


def end(process: psutil.Process, *, by_itself_s: float, asked_s: float) -> None:
    """End a process: it may do so by itself for a time, then it is asked, then killed.

    A stopped one is let go on, so that it can take away what it made.
    """
    with contextlib.suppress(psutil.Error):
        if is_stopped(process):
            process.send_signal(signal.SIGCONT)
        if wait_until(lambda: not is_running(process), by_itself_s):
            return
        process.terminate()
        process.send_signal(signal.SIGCONT)
        if not wait_until(lambda: not is_running(process), asked_s):
            process.kill()
            wait_until(lambda: not is_running(process), 1.0)


def wait_until(condition: Callable[[], bool], seconds: float, every_s: float = 0.02) -> bool:
    """Wait for a condition, at most so long; whether it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


def _is_of(process: psutil.Process, home: str) -> bool:
    role = _role(process)
    if role == _LAUNCHER and any(word.endswith(f"-{os.path.basename(home)}") for word in process.cmdline()):
        return True  # one that was started over ssh has none of the variables, and is told where its files go
    return bool(role) and belongs_to(process.pid, home)


def _role(process: psutil.Process) -> str:
    """Which part of a cluster a process is, by its command; "" for none."""
    try:
        words, name = process.cmdline(), process.name()
    except psutil.Error:  # it has just ended
        return ""
    modules = {after for word, after in zip(words, words[1:], strict=False) if word == "-m"}
    if words and os.path.basename(words[0]) in _LAUNCHERS:
        return _LAUNCHER  # its command holds that of the engines
    if _ENGINE in modules:
        return NANNY if name == NANNY else _ENGINE
    return _CONTROLLER if _CONTROLLER in modules else ""
