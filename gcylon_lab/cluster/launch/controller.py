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
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ..processes import HOME_VARIABLE
from . import runtime_dirs
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


_DELIMITER = b"<IDS|MSG>"  # stands in each of Jupyter's messages, between the addresses and the signature


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


def relay_whole_messages() -> None:
    """Let ipyparallel's queues pass on whole messages alone.

    pyzmq's own, in C, reads a message part by part and trusts that each has two addresses: where a stranger sends one
    part, it takes those of the next message for the rest, and whoever waits for that waits for ever. ipyparallel's
    client hears nothing more of what ranks print once it got something that is no message. Wrong signatures are seen by
    whoever reads it.
    """
    from zmq.devices import monitoredqueuedevice

    monitoredqueuedevice.monitored_queue = _relay  # type: ignore[attr-defined]


def _relay(ins: Any, outs: Any, monitor: Any, in_prefix: bytes = b"in", out_prefix: bytes = b"out") -> None:
    import zmq

    addressed = ins.type == outs.type == zmq.ROUTER
    poller = zmq.Poller()
    ways = {ins: (outs, in_prefix), outs: (ins, out_prefix)}
    for source in ways:
        poller.register(source, zmq.POLLIN)
    while True:
        for source, _ in poller.poll():
            target, prefix = ways[source]
            parts = source.recv_multipart(copy=False)
            if not any(len(part) == len(_DELIMITER) and part.bytes == _DELIMITER for part in parts[2 * addressed :]):
                continue
            if addressed:
                parts[:2] = parts[1::-1]
            target.send_multipart(parts, copy=False)
            monitor.send_multipart([prefix, *parts], copy=False)


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
        hold_ports()
        relay_whole_messages()
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
