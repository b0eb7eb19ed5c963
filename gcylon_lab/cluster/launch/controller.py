"""The controller's process: ipyparallel's own, which ends itself when nobody owns the cluster any more.

Run as ``python -m gcylon_lab.cluster.launch.controller``; ``GCYLON_LAB_HOME`` names the
cluster's folder and ``GCYLON_LAB_GRACE_S`` the grace time.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ..processes import HOME_VARIABLE
from . import runtime_dirs, tcp
from .lease import LEASE_FILE, Lease, LeaseMonitor

GRACE_VARIABLE = "GCYLON_LAB_GRACE_S"
ADDRESS_VARIABLE = "GCYLON_LAB_ADDRESS"
"""Where ranks on other hosts reach the controller, which listens there alone; without it, on Unix sockets."""

# Engines get this long to end after the owner is gone, before the launcher and the folder go.
_AFTER_ENGINES_S = 5.0
_PR_SET_PDEATHSIG = 1  # of prctl(2)


def watch(home: Path, grace_s: float) -> None:
    """End this process once the owner is gone, and take the cluster's folder with it."""
    vigil = LeaseMonitor(Lease(home / LEASE_FILE), grace_s)
    while not vigil.is_over():
        time.sleep(1.0)
    time.sleep(_AFTER_ENGINES_S)
    runtime_dirs.remove(home)
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


def listen_on_sockets() -> None:
    """Let ipyparallel's controller number Unix sockets, where that has ports, and name them as who connects does."""
    from ipyparallel import util
    from ipyparallel.controller.app import IPController

    numbers = itertools.count()
    util.select_random_ports = lambda n: [next(numbers) for _ in range(n)]
    made = IPController.construct_url

    def url(self: Any, *what: Any, **which: Any) -> str:
        # Engines and clients put ":" before the number, also where the controller would put "-".
        return str(made(self, *what, **which)).replace(f"{self.ip}-", f"{self.ip}:")

    IPController.construct_url = url


def main() -> None:
    """Start the watching thread, then ipyparallel's controller."""
    from ipyparallel.controller.app import IPController
    from traitlets.config import Config

    end_children_with_this_process()
    home, grace_s = Path(os.environ[HOME_VARIABLE]), float(os.environ[GRACE_VARIABLE])
    threading.Thread(target=watch, args=(home, grace_s), name="gcylon-vigil", daemon=True).start()
    config = Config()
    config.IPController.log_level = logging.WARNING  # each request would have several lines
    if ADDRESS_VARIABLE in os.environ:
        tcp.hold_ports()
        tcp.relay_whole_messages()
        config.IPController.ip = os.environ[ADDRESS_VARIABLE]
    else:
        listen_on_sockets()
        config.IPController.transport = "ipc"
        config.IPController.ip = str(runtime_dirs.sockets(home) / "controller")
    # Where it encrypts, ipyparallel would not sign as well, and each process would warn that it does not.
    config.Session.key = secrets.token_hex(32).encode()
    IPController.launch_instance(config=config)


if __name__ == "__main__":
    main()
