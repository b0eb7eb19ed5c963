"""``gcylon-lab bench sort``: ours and dask take turns on the same rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from .ranks import mpi_contender
from .reports import tell
from .seats import Contender
from .shuffle import refuse_wrong, report_of
from .sort_cases import SortCase
from .statistics import Series, slowest

PEERS = ("dask",)
_VARIANTS = {"ours": ("auto",), "dask": ("tasks", "p2p")}
Say = Callable[[str], None]


def run(case: SortCase, peers: Sequence[str] = PEERS, say: Say = tell) -> dict[str, Any]:
    """Measure ours and the peers named, turn by turn.

    Parameters
    ----------
    case : SortCase
    peers : sequence of {"dask"}
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict
        Plain values, as of the shuffle bench.

    Raises
    ------
    ClusterError
        If a contender fails, or its rows are wrong.
    """
    names = ("ours", *peers)
    times: dict[tuple[str, Any], list[float]] = {(name, v): [] for name in names for v in _VARIANTS[name]}
    chosen: dict[str, Any] = {}
    with ExitStack() as stack:
        contenders = {name: stack.enter_context(_start(name, case)) for name in names}
        for repeat in range(case.warmup + case.repeats):
            for (name, variant), series in times.items():
                answers = contenders[name].step(repeat=repeat, variant=variant)
                refuse_wrong(name, variant, answers)
                if repeat >= case.warmup:
                    series.append(slowest(answers))
                if name == "ours":
                    chosen = {key: answers[0][key] for key in ("strategy", "rounds")}
            say(f"turn {repeat + 1} of {case.warmup + case.repeats} done")
    return report_of("sort", case, {key: Series(tuple(series)) for key, series in times.items()}, chosen)


def _start(name: str, case: SortCase) -> Contender:
    if name == "dask":
        command = [sys.executable, "-m", "gcylon_lab.bench.sort_dask", str(case.ranks), str(case.rows)]
        return Contender(name, command, 1)
    return mpi_contender(name, "gcylon_lab.bench.sort_ours", case.ranks, str(case.rows))
