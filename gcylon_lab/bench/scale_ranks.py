"""The ranks of ``bench scale`` on MPI, which also count the messages that MPI was given."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from ..comm import mpi
from ..comm.two_levels import group
from .harness.worker_processes import Answer, serve
from .scale import Widths, count_on, hosts_of

_given = [0]


class _Counted(mpi._Transfer):
    """A transfer that counts what is sent."""

    def post(self, *where: Any) -> None:
        """Post all, and count the sends."""
        super().post(*where)
        _given[0] += len(self.requests) - len(self._arriving)


def main() -> None:
    """Serve the bench on every rank."""
    mpi._Transfer = _Counted  # type: ignore[misc]

    def step(verb: str, rows: int, per_host: int) -> Answer:
        base = mpi.MpiTransport()
        base._groups = group([host.encode() for host in hosts_of(base.size, per_host)])
        return count_on(base, verb, rows, per_host, Widths(), direct=False, given=lambda: _given[0])

    serve(step, MPI.COMM_WORLD.rank)


if __name__ == "__main__":
    main()
