"""Who the ranks are: gathered at start, checked, and shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .._version import __version__
from ..errors import ClusterDegraded, ClusterStartError
from .failures import name_ranks


@dataclass(frozen=True, slots=True)
class RankRecord:
    """One rank: where it runs, what it works with, and which engine it is to ipyparallel.

    Attributes
    ----------
    device : str
        ``cpu``, or its GPU.
    engines : str
        CPU or GPU engines, and why; as all ranks.
    route : str
        How rows travel between ranks, and why; as all ranks.
    """

    rank: int
    host: str
    pid: int
    device: str
    engine_id: int
    engines: str = ""
    route: str = ""

    def describe(self) -> str:
        """For messages: "rank 1 (host node1, pid 4711)"."""
        return f"rank {self.rank} (host {self.host}, pid {self.pid})"


def describe_lost_hosts(records: Sequence[RankRecord], why: str) -> str:
    """Say which ranks were lost with their hosts, for one reason."""
    if len(records) == 1:
        return f"{records[0].describe()} is lost with its host: {why}.".replace("rank", "Rank", 1)
    hosts = list(dict.fromkeys(record.host for record in records))
    several = "s" * (len(hosts) > 1)
    named = name_ranks([record.rank for record in records]).capitalize()
    return f"{named} (host{several} {', '.join(hosts)}) are lost with their host{several}: {why}."


def check_complete(answers: Sequence[dict[str, Any]], n: int, exit_of: Callable[[int], str]) -> None:
    """Refuse engines of one world of which some are gone.

    Parameters
    ----------
    answers : sequence of dict
        What `engine.probe("identity")` gave, one for each engine that is there.
    n : int
        How many ranks there were.
    exit_of : callable
        Says for a rank how its process ended, "" where that is not known.

    Raises
    ------
    ClusterDegraded
        Naming the ranks that are gone.
    """
    ranks = {int(answer["rank"]) for answer in answers}
    lost = sorted(set(range(n)) - ranks)
    if not lost or len(ranks) < len(answers) or any(int(answer["size"]) != n for answer in answers):
        return  # all are there, or they never were one world
    ends = "; ".join(f"rank {rank}: {exit_of(rank) or 'its launcher does not say how it ended'}" for rank in lost)
    raise ClusterDegraded(
        f"Of the {n} ranks, {name_ranks(lost)} {'is' if len(lost) == 1 else 'are'} gone ({ends}), with the rows there; "
        "the others cannot work without them.",
        advice=f"Start a new cluster with gl.Cluster({n}) and read the tables again; what is left of this one ends.",
        lost_ranks=lost,
    )


def check_identities(
    answers: Sequence[dict[str, Any]], engine_ids: Sequence[int], n: int, mpi: str
) -> list[RankRecord]:
    """Put what the engines say of themselves in rank order, if it fits together.

    Parameters
    ----------
    answers : sequence of dict
        What `engine.probe("identity")` gave, one for each engine.
    engine_ids : sequence of int
        ipyparallel's, in the same order.
    n : int
        How many ranks there should be.
    mpi : str
        Which mpiexec started them, for the error.

    Raises
    ------
    ClusterStartError
        If they are not the ranks 0 to n-1 of one world, or their versions differ.
    """
    ranks = sorted(int(answer["rank"]) for answer in answers)
    if ranks != list(range(n)):
        pairs = zip(engine_ids, answers, strict=True)
        said = "; ".join(f"engine {engine}: rank {a['rank']} of {a['size']}" for engine, a in pairs)
        raise ClusterStartError(
            f"The engines are not the ranks 0 to {n - 1} of one MPI world: {said}. mpi4py uses {answers[0]['mpi']}, "
            f"they were started with {mpi}.",
            advice="mpiexec and the library that mpi4py loads must be of one MPI; give the right mpiexec as mpi=.",
        )
    _check_versions(answers)
    records = [
        RankRecord(int(a["rank"]), a["host"], int(a["pid"]), a["device"], int(engine), a["engines"], a["route"])
        for engine, a in zip(engine_ids, answers, strict=True)
    ]
    return sorted(records, key=lambda record: record.rank)


def _check_versions(answers: Sequence[dict[str, Any]]) -> None:
    for package in answers[0]["versions"]:
        found = {int(answer["rank"]): answer["versions"][package] for answer in answers}
        if package == "gcylon_lab":
            found[-1] = __version__
        if len(set(found.values())) > 1:
            said = ", ".join(f"{'notebook' if r < 0 else f'rank {r}'}: {v}" for r, v in sorted(found.items()))
            raise ClusterStartError(
                f"{package} is not the same everywhere: {said}.", advice="Install one version on all hosts."
            )
