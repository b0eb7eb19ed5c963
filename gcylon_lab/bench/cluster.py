"""``gcylon-lab bench cluster``: start and round trip beside ipyparallel's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ipyparallel
import pandas as pd
from traitlets.config import Config

from ..cluster.client.cluster import Cluster
from ..cluster.launch.mpiexec import find_mpiexec
from ..errors import ArgumentError
from .harness.reports import tell
from .harness.statistics import Series

_CONTROLLER = ["--nodb", "--IPController.broadcast_scheduler_depth=0", "--IPController.use_threads=True"]
Say = Callable[[str], None]


def run(ranks: int, starts: int, trips: int, say: Say = tell) -> dict[str, Any]:
    """Start both kinds of cluster in turn, then let the last of each answer small requests in turn.

    Parameters
    ----------
    ranks : int
    starts, trips : int
        How often.
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict
        Plain values: a `Series` as a dict for each of ``start_own``, ``start_ours``, ``trip_own`` (``apply_sync`` of
        an empty function), ``trip_run`` (``lab.run`` of one) and ``trip_verb`` (``repartition`` of one row a rank).

    Raises
    ------
    ArgumentError
        If one of the counts is below 1.
    """
    if min(ranks, starts, trips) < 1:
        raise ArgumentError("ranks, starts and trips are at least 1.")
    times: dict[str, list[float]] = {"start_own": [], "start_ours": []}
    running: list[tuple[Any, Any]] = []
    try:
        for number in range(starts):
            for name, start in (("start_own", start_own), ("start_ours", _start_ours)):
                begin = time.perf_counter()
                running.append(start(ranks))
                times[name].append(time.perf_counter() - begin)
                if number < starts - 1:
                    _close(running.pop()[0])
            say(f"start {number + 1} of {starts} done")
        (_, view), (lab, _) = running
        times |= _trips(view, lab, ranks, trips)
    finally:
        for cluster, _ in running:
            _close(cluster)
    return {
        "bench": "cluster",
        "case": {"ranks": ranks, "starts": starts, "trips": trips},
        "series": {name: Series(tuple(series)).as_dict() for name, series in times.items()},
    }


def start_own(ranks: int) -> tuple[Any, Any]:
    """Start ipyparallel's MPI engines with nothing of ours in them; return its cluster and a view."""
    mpi = find_mpiexec()
    config = Config()
    config.MPIEngineSetLauncher.mpi_cmd = [mpi.path]
    config.MPIEngineSetLauncher.mpi_args = list(mpi.arguments)
    config.MPIEngineSetLauncher.environment = mpi.environment
    name = f"bench_{time.time_ns()}"
    cluster = ipyparallel.Cluster(
        engines="mpi", n=ranks, config=config, log_level=40, controller_args=_CONTROLLER, cluster_id=name
    )
    client = cluster.start_and_connect_sync(activate=False)
    return cluster, client[:]


def _start_ours(ranks: int) -> tuple[Any, Any]:
    lab = Cluster(ranks, name="bench", progress=False)
    return lab, lab.view


def _close(cluster: Any) -> None:
    if isinstance(cluster, Cluster):
        cluster.close()
    else:
        cluster.stop_cluster_sync()


def _nothing() -> None:
    return None


def _trips(view: Any, lab: Cluster, ranks: int, trips: int) -> dict[str, list[float]]:
    table = lab.from_pandas(pd.DataFrame({"k": range(ranks)}))
    requests: dict[str, Callable[[], Any]] = {
        "trip_own": lambda: view.apply_sync(_nothing),
        "trip_run": lambda: lab.run(_nothing),
        "trip_verb": lambda: table.repartition().release(),
    }
    return _take_turns(requests, trips)


def _take_turns(requests: dict[str, Callable[[], Any]], trips: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in requests}
    for number in range(trips + 3):
        for name, request in requests.items():
            begin = time.perf_counter()
            request()
            if number >= 3:
                times[name].append(time.perf_counter() - begin)
    return times
