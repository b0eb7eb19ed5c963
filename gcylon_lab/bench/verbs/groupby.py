"""``gcylon-lab bench groupby``: ours, dask and pandas take turns on the same rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ClusterError
from ..harness.cases import KEY, VALUES, Columns, ShuffleCase
from ..harness.interleaved_runs import Say, chosen_by, report_of, take_turns
from ..harness.ranks import mpi_contender
from ..harness.reports import format_turns, tell
from ..harness.worker_processes import Contender

PEERS = ("dask", "pandas")
# dask brings all groups into one partition, or into as many as there are workers; the better one counts.
_VARIANTS = {"ours": ("auto",), "dask": ("one", "split"), "pandas": ("sum",)}
_NEAR = 1e-12  # sums of floats depend on the order in which they are added


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupbyCase(ShuffleCase):
    """One int64 key of a number of values, and three float64 columns to be summed, on every rank.

    Parameters
    ----------
    keys : int
        Different keys, each on all ranks.
    """

    keys: int = 100_000

    def columns(self, rank: int, repeat: int) -> Columns:
        """Make one rank's fresh input."""
        random = np.random.default_rng((repeat, rank))
        columns: Columns = {KEY: random.integers(0, self.keys, self.rows)}
        return columns | {name: random.random(self.rows) for name in VALUES}


def summed(columns: Columns) -> list[float]:
    """Groups, the sum of their keys, and of each column a sum in which every group counts differently."""
    keys = columns[KEY]
    weights = 1.0 + (keys % 1013)
    return [len(keys), int(keys.sum()), *(float((columns[name] * weights).sum()) for name in VALUES)]


def run(case: GroupbyCase, peers: Sequence[str] = PEERS, say: Say = tell) -> dict[str, Any]:
    """Measure ours and the peers named, turn by turn, and compare what they give.

    Parameters
    ----------
    case : GroupbyCase
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
        If a contender fails, or gives other groups than the others.
    """
    variants = {name: _VARIANTS[name] for name in ("ours", *peers)}
    times, ours = take_turns(case, variants, lambda name: _start(name, case), look=compare, say=say)
    report = report_of("groupby", case, times, chosen_by(ours))
    report["case"]["keys"] = case.keys
    return report


def compare(seen: Sequence[tuple[str, Any, Sequence[dict[str, Any]]]]) -> None:
    """Refuse sums that differ.

    Raises
    ------
    ClusterError
        With the sums of all.
    """
    sums = [np.sum([answer["summed"] for answer in answers], axis=0) for _, _, answers in seen]
    if not all(np.allclose(one, sums[0], rtol=_NEAR, atol=0.0) for one in sums):
        given = "; ".join(f"{name} {one.tolist()}" for (name, _, _), one in zip(seen, sums, strict=True))
        raise ClusterError(f"In the bench the groups differ: {given}.")


def _start(name: str, case: GroupbyCase) -> Contender:
    sizes = [str(case.rows), str(case.keys)]
    if name == "ours":
        return mpi_contender(name, "gcylon_lab.bench.verbs.groupby_ours", case.ranks, *sizes)
    return Contender(
        name, [sys.executable, "-P", "-m", f"gcylon_lab.bench.verbs.groupby_{name}", str(case.ranks), *sizes], 1
    )


def format_groupby(report: dict[str, Any]) -> str:
    """The group-by bench as text: every contender, and ours over each peer's best."""
    columns = f"of one int64 key with {report['case']['keys']:,} values and three float64 columns"
    return format_turns(report, "groupby sum", columns)
