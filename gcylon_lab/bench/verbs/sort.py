"""``gcylon-lab bench sort``: ours, dask and pandas take turns on the same rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..harness.interleaved_runs import Say, chosen_by, report_of, take_turns
from ..harness.ranks import mpi_contender
from ..harness.reports import tell
from ..harness.sort_cases import SortCase
from ..harness.worker_processes import Contender

PEERS = ("dask", "pandas")
_VARIANTS = {"ours": ("auto",), "dask": ("tasks", "p2p"), "pandas": ("quicksort", "stable")}


def run(case: SortCase, peers: Sequence[str] = PEERS, say: Say = tell) -> dict[str, Any]:
    """Measure ours and the peers named, turn by turn.

    Parameters
    ----------
    case : SortCase
    peers : sequence of {"dask", "pandas"}
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
    times, ours = take_turns(case, variants, lambda name: _start(name, case), say=say)
    return report_of("sort", case, times, chosen_by(ours))


def _start(name: str, case: SortCase) -> Contender:
    if name == "ours":
        return mpi_contender(name, "gcylon_lab.bench.verbs.sort_ours", case.ranks, str(case.rows))
    command = [sys.executable, "-P", "-m", f"gcylon_lab.bench.verbs.sort_{name}", str(case.ranks), str(case.rows)]
    return Contender(name, command, 1)
