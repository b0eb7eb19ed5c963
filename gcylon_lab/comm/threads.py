"""N ranks as threads of one process: the same collectives without processes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from ..errors import CommError, DeadlineExceeded, Revoked
from .transport import (
    INTERRUPTED,
    Int64s,
    PlainTransport,
    Receive,
    Send,
    Window,
    copy_to_self,
    share_by_exchange,
    split_view,
)

T = TypeVar("T", Send, Receive)


class ThreadsWorld:
    """What the ranks of one threads world share.

    Parameters
    ----------
    size : int
        Number of ranks.
    max_message_bytes : int, optional
        Longest single copy, so that tests can exercise splitting.
    """

    def __init__(self, size: int, max_message_bytes: int = 2**30) -> None:
        self.size = size
        self.max_message_bytes = max_message_bytes
        self.barrier = threading.Barrier(size)
        self.recovery = threading.Barrier(size, action=self._renew)
        # Two generations: a rank may already post the next one while a slow rank still reads this one.
        self.numbers: list[list[Int64s]] = [[np.empty(0, np.int64)] * size for _ in range(2)]
        self.stacked: list[Int64s | None] = [None, None]
        self.stacking = threading.Lock()
        # By sender, then by receiver.
        self.mail: list[list[dict[int, list[Send]]]] = [[{} for _ in range(size)] for _ in range(2)]

    def transports(self) -> list[ThreadsTransport]:
        """Return one transport a rank, in rank order."""
        return [ThreadsTransport(self, rank) for rank in range(self.size)]

    def _renew(self) -> None:
        self.barrier = threading.Barrier(self.size)


class ThreadsTransport(PlainTransport):
    """One rank of a `ThreadsWorld`."""

    name = "threads"

    def __init__(self, world: ThreadsWorld, rank: int) -> None:
        self._world = world
        self.rank = rank
        self.size = world.size
        self.host = socket.gethostname()
        self._turn = 0
        self._deadline: float | None = None
        self._closed = False

    def agree(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. Every rank's numbers, shape (size, n), shared by all: nobody writes there."""
        world, turn = self._world, self._turn
        self._turn ^= 1
        world.numbers[turn][self.rank] = values.copy()
        world.stacked[turn] = None
        self._meet()
        with world.stacking:
            stacked = world.stacked[turn]
            if stacked is None:
                stacked = world.stacked[turn] = np.stack(world.numbers[turn])
                stacked.flags.writeable = False
        return stacked

    def share(self, payload: bytes) -> list[bytes]:
        """Collective: all ranks call it. Every rank's bytes."""
        return share_by_exchange(self, payload)

    def exchange(self, window: Window | None, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        """Collective: all ranks call it. Receivers copy from the senders' views."""
        limit = self._world.max_message_bytes
        mail = self._world.mail[self._turn]
        self._turn ^= 1
        mail[self.rank], room = _by_rank(sends), _by_rank(receives)
        self._meet()
        for source in range(self.size):
            copy_to_self(  # of views that nobody names: each would keep the sender's memory
                [p for s in mail[source].get(self.rank, ()) for p in split_view(s.view, limit)],
                [p for r in room.get(source, ()) for p in split_view(r.view, limit)],
            )
        self._meet()  # senders may change their views only after every receiver has copied
        mail[self.rank] = {}

    def check(self) -> None:
        """Raise after a revoke."""
        if self._world.barrier.broken:
            self._meet()

    def set_deadline(self, timeout_s: float | None) -> None:
        """Let collectives raise `DeadlineExceeded` once this much time has passed; None lifts it."""
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def revoke(self) -> None:
        """Break every rank out of its collective."""
        self._world.barrier.abort()

    def recover(self) -> None:
        """Collective: all ranks call it. Meet on a barrier that is never broken, then renew the other."""
        self._turn = 0
        self._deadline = None
        self._world.recovery.wait()

    def close(self) -> None:
        """Refuse calls of this rank from now on; the world goes with its last rank."""
        self._closed = True

    def _meet(self) -> None:
        if self._closed:
            raise CommError("The transport is closed.", advice="Start a new context.", rank=self.rank)
        left = None if self._deadline is None else self._deadline - time.monotonic()
        try:
            if left is not None and left <= 0:
                self._world.barrier.abort()
            self._world.barrier.wait(left)
        except threading.BrokenBarrierError:
            if self._deadline is not None and time.monotonic() >= self._deadline - 0.05:
                message = f"Rank {self.rank} waited for the other ranks past the operation's deadline."
                raise DeadlineExceeded(message, advice="Give a larger timeout_s.", rank=self.rank) from None
            raise Revoked(INTERRUPTED, rank=self.rank) from None


def _by_rank(transfers: Sequence[T]) -> dict[int, list[T]]:
    found: dict[int, list[T]] = {}
    for one in transfers:
        found.setdefault(one.rank, []).append(one)
    return found
