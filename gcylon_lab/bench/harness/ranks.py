"""Starts a contender's MPI processes, the same way for ours and for the bare loop."""

from __future__ import annotations

import sys

from ...cluster.launch.guarded_ranks import GuardedRanks
from ...cluster.launch.mpiexec import find_mpiexec
from .worker_processes import Contender


def mpi_contender(name: str, module: str, ranks: int, *arguments: str, step_s: float = 300.0) -> Contender:
    """Start ``python -m module`` on a number of ranks, as the cluster starts its engines.

    Parameters
    ----------
    name : str
        For messages.
    module : str
        Must call `serve` on every rank.
    ranks : int
    *arguments : str
        After the module's name.
    step_s : float
        How long to wait for one step.

    Raises
    ------
    ClusterStartError
        If there is no usable mpiexec.
    ClusterError
        If the ranks do not come up.
    """
    guarded = GuardedRanks(find_mpiexec())
    command = guarded.command(ranks, [sys.executable, "-P", "-m", module, *arguments])
    return Contender(name, command, ranks, guarded=guarded, step_s=step_s)
