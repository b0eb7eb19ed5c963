"""Ranks that leave: what one says when it ends or closes its context, and what the others make of it."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Iterable

from mpi4py import MPI

_TAG = 9
# Its last messages may still be under way when a rank says that it leaves.
_GRACE_S = 2.0

_open: weakref.WeakSet[ShutdownNotice] = weakref.WeakSet()


class ShutdownNotice:
    """What the ranks of one communicator know of each other's end.

    A rank that has left answers no more, and under ``mpiexec`` nothing else tells those that wait for it.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
        Carries the messages of all transfers, so that what a rank sent before it left comes before.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._heard: dict[int, float] = {}
        self._told: list[MPI.Request] = []
        self._process = os.getpid()
        _open.add(self)

    def leave(self) -> None:
        """Tell all others that this rank takes part no more; waits for nobody. Idempotent."""
        if self not in _open:
            return
        _open.discard(self)
        if MPI.Is_finalized() or os.getpid() != self._process:
            return  # a fork of this process is no rank
        try:
            for rank in set(range(self._comm.Get_size())) - {self._comm.Get_rank()}:
                self._told.append(self._comm.Isend([b"", MPI.BYTE], rank, _TAG))
        except MPI.Exception:
            pass  # of a rank that is gone

    def heard(self) -> list[int]:
        """Which ranks have said that they leave."""
        status = MPI.Status()
        try:
            while self._comm.Iprobe(MPI.ANY_SOURCE, _TAG, status):
                self._comm.Recv([bytearray(), MPI.BYTE], status.Get_source(), _TAG)
                self._heard[status.Get_source()] = time.monotonic()
        except MPI.Exception:
            pass  # of a rank that is gone
        return sorted(self._heard)

    def gone(self, awaited: Iterable[int]) -> bool:
        """Whether one of the ranks that are waited for said some time ago that it leaves."""
        if not self.heard():
            return False
        until = time.monotonic() - _GRACE_S
        return any(self._heard.get(rank, until) < until for rank in awaited)


@atexit.register
def _leave_all() -> None:
    for leaving in list(_open):
        leaving.leave()
