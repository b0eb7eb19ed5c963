"""Revoke in the middle of long messages, recover, go on; run under mpiexec.

    mpiexec --with-ft ulfm -n 2 python tests/faults/revokes.py 100 300000

Prints "survived 100" on rank 0 if no process ended and every exchange after a recovery was right.
"""

from __future__ import annotations

import random
import sys
import threading

import numpy as np

from gcylon_lab.comm.mpi import MpiTransport
from gcylon_lab.comm.transport import Receive, Send
from gcylon_lab.errors import Revoked

MESSAGES = 4  # to every other rank


def exchange(transport: MpiTransport, sent: np.ndarray, rooms: list[np.ndarray]) -> None:
    """Several messages to and from every other rank, and an agreement."""
    others = [rank for rank in range(transport.size) if rank != transport.rank] * MESSAGES
    sends = [Send(rank, sent.data) for rank in others]
    transport.exchange(None, sends, [Receive(rank, rooms[rank].data) for rank in others])
    transport.finish(np.zeros(4, dtype=np.int64))


def main(rounds: int, nbytes: int) -> None:
    """Let a rank, a different one each time, revoke at some time of a row of exchanges."""
    transport = MpiTransport()
    sent = np.full(nbytes, transport.rank, dtype=np.uint8)
    rooms = [np.zeros(nbytes, dtype=np.uint8) for _ in range(transport.size)]
    agreed = random.Random(5)
    for _ in range(rounds):
        who, after_s = agreed.randrange(transport.size), agreed.uniform(0, 0.02)
        timer = threading.Timer(after_s, transport.revoke)
        if transport.rank == who:
            timer.start()
        try:
            while True:
                exchange(transport, sent, rooms)
        except Revoked:
            pass
        timer.join() if transport.rank == who else None
        transport.recover()
        exchange(transport, sent, rooms)
        assert all((rooms[rank] == rank).all() for rank in range(transport.size) if rank != transport.rank)
    if transport.rank == 0:
        print(f"survived {rounds}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
