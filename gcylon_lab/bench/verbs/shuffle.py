"""``gcylon-lab bench shuffle``: ours, a bare loop and dask take turns on the same rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..harness.cases import ShuffleCase
from ..harness.interleaved_runs import Say, chosen_by, report_of, take_turns
from ..harness.ranks import mpi_contender
from ..harness.reports import tell
from ..harness.worker_processes import Contender

PEERS = ("bare", "dask")
_VARIANTS: dict[str, tuple[Any, ...]] = {"ours": ("auto",), "bare": (1, 16, 32, 64), "dask": ("tasks", "p2p")}


def run(case: ShuffleCase, peers: Sequence[str] = PEERS, say: Say = tell) -> dict[str, Any]:
    """Measure ours and the peers named, turn by turn.

    Parameters
    ----------
    case : ShuffleCase
    peers : sequence of {"bare", "dask"}
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict
        Plain values, as of `gcylon_lab.bench.harness.interleaved_runs.report_of`.

    Raises
    ------
    ClusterError
        If a contender fails, or its rows are wrong.
    """
    variants = {name: _VARIANTS[name] for name in ("ours", *peers)}
    times, ours = take_turns(
        case, variants, lambda name: _start(name, case), step=lambda repeat: {"check_keys": repeat == 0}, say=say
    )
    return report_of("shuffle", case, times, chosen_by(ours))


def _start(name: str, case: ShuffleCase) -> Contender:
    if name == "dask":
        command = [sys.executable, "-P", "-m", "gcylon_lab.bench.verbs.shuffle_dask", str(case.ranks), str(case.rows)]
        return Contender(name, command, 1)
    return mpi_contender(name, f"gcylon_lab.bench.verbs.shuffle_{name}", case.ranks, str(case.rows))
