"""A process that takes no part in a cluster, and ends what is left of it on this host once nobody owns it any more.

Engines and controller end themselves then, but for one that is stopped, or hangs where no Python code runs.
Run as ``python -m gcylon_lab.cluster.launch.guard HOME GRACE_S``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from ..processes import HOME_VARIABLE, end, engines_of, is_running, kill, of_home, wait_until
from . import runtime_dirs, slurm
from .lease import LEASE_FILE, Lease, LeaseMonitor, write_private

GUARD_FILE = "guard.json"

_EVERY_S = 0.5
_OWN_END_S = 2.0  # engines end themselves by then
_CONTROLLER_END_S = 6.0  # it goes after the engines


def start(home: Path, grace_s: float) -> subprocess.Popen[bytes]:
    """Start a guard, which outlives this process."""
    environment = {name: value for name, value in os.environ.items() if name != HOME_VARIABLE}
    # Where it finds this very package, also when that is not installed.
    paths = [str(Path(__file__).resolve().parents[3]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    null = subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, str(home), repr(grace_s)],
        stdin=null, stdout=null, stderr=null, env=environment, cwd="/", start_new_session=True,
    )  # fmt: skip
    write_private(home / GUARD_FILE, {"pid": process.pid})
    return process


def is_there(home: Path) -> bool:
    """Whether a guard watches over a cluster's folder."""
    return bool(_of(home))


def stop(home: Path) -> None:
    """End the guard of a cluster that is being closed, whichever process started it."""
    found = _of(home)
    kill(found)
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.wait(1.0)  # where this process has started it, nothing of it is left either


def _of(home: Path) -> list[psutil.Process]:
    try:
        process = psutil.Process(json.loads((home / GUARD_FILE).read_text())["pid"])
        return [process] if is_running(process) and str(home) in process.cmdline() else []
    except (psutil.Error, OSError, ValueError, KeyError):
        return []


def watch(home: Path, grace_s: float) -> None:
    """Return once the owner is gone for the grace time, or has closed the cluster; then nothing of it is left."""
    vigil = LeaseMonitor(Lease(home / LEASE_FILE), grace_s)
    while not vigil.is_over():
        time.sleep(_EVERY_S)
    job = slurm.job_of(home)  # before the controller removes the folder
    if not wait_until(lambda: not engines_of(str(home)), _OWN_END_S, _EVERY_S):
        kill(engines_of(str(home)))
    # Launchers take away what they made where all of their ranks have ended, and the controller the folder.
    if not wait_until(lambda: not of_home(str(home)), _CONTROLLER_END_S, _EVERY_S):
        for process in of_home(str(home)):
            end(process, by_itself_s=0.0, asked_s=1.0)
    runtime_dirs.remove(home)
    slurm.cancel(job)


def main() -> None:
    """Watch over the cluster of the folder that is given."""
    for number in (signal.SIGINT, signal.SIGHUP):
        with contextlib.suppress(AttributeError):
            signal.signal(number, signal.SIG_IGN)
    watch(Path(sys.argv[1]), float(sys.argv[2]))


if __name__ == "__main__":
    main()
