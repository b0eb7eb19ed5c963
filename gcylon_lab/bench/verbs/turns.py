"""``gcylon-lab bench shuffle | sort | groupby | join``: ours and its peers take turns on the same rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from ..harness.cases import ShuffleCase
from ..harness.interleaved_runs import Say, report_of, take_turns
from ..harness.reports import tell
from ..harness.sort_cases import SortCase
from ..harness.worker_processes import Contender, mpi_contender
from . import groupby, join

CASES: dict[str, Any] = {
    "shuffle": ShuffleCase, "sort": SortCase, "groupby": groupby.GroupbyCase, "join": join.JoinCase,
}  # fmt: skip
VARIANTS: dict[str, dict[str, tuple[Any, ...]]] = {
    "shuffle": {"ours": ("auto",), "bare": (1, 16, 32, 64), "dask": ("tasks", "p2p")},
    "sort": {"ours": ("auto",), "dask": ("tasks", "p2p"), "pandas": ("quicksort", "stable")},
    # dask brings all groups into one partition, or into as many as there are workers; the better one counts.
    "groupby": {"ours": ("auto",), "dask": ("one", "split"), "pandas": ("sum",)},
    "join": {"ours": ("auto",), "dask": ("merge",)},
}
PEERS = {verb: tuple(name for name in variants if name != "ours") for verb, variants in VARIANTS.items()}

_LOOKS = {"groupby": groupby.compare, "join": join.compare}


def run(verb: str, case: Any, peers: Sequence[str], say: Say = tell) -> dict[str, Any]:
    """Measure ours and the peers named, turn by turn, and compare what they give.

    Parameters
    ----------
    verb : {"shuffle", "sort", "groupby", "join"}
    case : ShuffleCase, SortCase, GroupbyCase or JoinCase
    peers : sequence of str
        Of `PEERS`.
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict
        Plain values, as of `gcylon_lab.bench.harness.interleaved_runs.report_of`.

    Raises
    ------
    ClusterError
        If a contender fails, its rows are wrong, or it gives other ones than the others.
    """
    variants = {name: VARIANTS[verb][name] for name in ("ours", *peers)}
    times, ours = take_turns(
        case, variants, lambda name: _start(verb, name, case), look=_LOOKS.get(verb),
        step=lambda repeat: {"check_keys": repeat == 0} if verb == "shuffle" else {}, say=say,
    )  # fmt: skip
    kind = f"{ours['kind']}, " if verb == "join" else ""
    report = report_of(verb, case, times, f"{ours['strategy']}, {kind}rounds: {ours['rounds']}")
    if verb == "groupby":
        report["case"]["keys"] = case.keys
    return report


def _start(verb: str, name: str, case: Any) -> Contender:
    ranks, rows, _, _, *more = map(str, astuple(case))
    folder = __name__.rpartition(".")[0]
    if name == "ours":
        return mpi_contender(name, f"{folder}.ours", case.ranks, verb, rows, *more)
    if name == "bare":
        return mpi_contender(name, f"{folder}.shuffle_bare", case.ranks, rows)
    return Contender(name, [sys.executable, "-P", "-m", f"{folder}.peers", name, verb, ranks, rows, *more], 1)


def case_of(verb: str, ranks: int, rows: int, keys: int | None = None) -> Any:
    """The case of a contender, from what it was started with."""
    return CASES[verb](ranks=ranks, rows=rows, **({} if keys is None else {"keys": keys}))
