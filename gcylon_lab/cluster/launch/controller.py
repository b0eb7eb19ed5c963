"""The controller's process: ipyparallel's own, which ends itself when nobody owns the cluster any more.

Run as ``python -m gcylon_lab.cluster.launch.controller``; ``GCYLON_LAB_HOME`` names the
cluster's folder and ``GCYLON_LAB_GRACE_S`` the grace time.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from ..processes import HOME_VARIABLE
from . import leftovers
from .lease import LEASE_FILE, Lease, LeaseMonitor

GRACE_VARIABLE = "GCYLON_LAB_GRACE_S"

# Engines get this long to end after the owner is gone, before the launcher and the folder go.
_AFTER_ENGINES_S = 5.0
_PR_SET_PDEATHSIG = 1  # of prctl(2)


def watch(home: Path, grace_s: float) -> None:
    """End this process once the owner is gone, and take the cluster's folder with it."""
    vigil = LeaseMonitor(Lease(home / LEASE_FILE), grace_s)
    while not vigil.is_over():
        time.sleep(1.0)
    time.sleep(_AFTER_ENGINES_S)
    leftovers.remove(home)
    shutil.rmtree(home, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(3.0)
    os._exit(0)


def end_children_with_this_process() -> None:
    """Let ipyparallel's heart monitor, which is forked, end also where this process is killed (on Linux)."""
    if sys.platform != "linux":
        return
    libc, parent = ctypes.CDLL(None), os.getpid()

    def in_child() -> None:
        nonlocal parent
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before this could be asked for
            os._exit(1)
        parent = os.getpid()

    os.register_at_fork(after_in_child=in_child)


def hold_ports() -> None:
    """Hold each port that ipyparallel picks: before it is bound, another process could take it (on Linux).

    ipyparallel closes the socket with which it found a free port, and binds the port a
    moment later; of 40 controllers that started five at a time 2 met "Address already
    in use", and their clients waited for nothing. Two sockets may be bound to one port
    if both ask for it and none listens, and nobody else is given it meanwhile.
    """
    if sys.platform != "linux":
        return
    from ipyparallel import util

    held: list[socket.socket] = []

    def pick(n: int) -> list[int]:
        picked = []
        for _ in range(n):
            holder = socket.socket()
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("", 0))
            held.append(holder)
            picked.append(holder.getsockname()[1])
        return picked

    util.select_random_ports = pick


def main() -> None:
    """Start the watching thread, then ipyparallel's controller."""
    from ipyparallel.controller.app import main as run_controller

    end_children_with_this_process()
    hold_ports()
    home, grace_s = Path(os.environ[HOME_VARIABLE]), float(os.environ[GRACE_VARIABLE])
    threading.Thread(target=watch, args=(home, grace_s), name="gcylon-vigil", daemon=True).start()
    run_controller()


if __name__ == "__main__":
    main()
