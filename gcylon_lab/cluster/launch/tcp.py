"""What the controller needs where it listens on ports: its ranks are on several hosts."""

from __future__ import annotations

import socket
import sys
from typing import Any

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
