"""``gcylon-lab bench cluster``: start, round trip, and rows there and back, beside ipyparallel's own."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import ipyparallel
import numpy as np
import pandas as pd
import psutil
from traitlets.config import Config

from ..cluster.client.cluster import Cluster
from ..cluster.launch.guarded_ranks import GuardedRanks
from ..cluster.launch.mpiexec import find_mpiexec
from ..cluster.row_stream import MESSAGE_BYTES
from ..errors import ArgumentError, ClusterError
from .harness.reports import tell
from .harness.statistics import Series

_CONTROLLER = ["--nodb", "--IPController.broadcast_scheduler_depth=0", "--IPController.use_threads=True"]
_MOVES = 7
Say = Callable[[str], None]


def run(ranks: int, starts: int, trips: int, megabytes: int, say: Say = tell) -> dict[str, Any]:
    """Start both kinds of cluster in turn, then let the last of each answer small requests and move rows in turn.

    Parameters
    ----------
    ranks : int
    starts, trips : int
        How often.
    megabytes : int
        Rows that go to the ranks and come back, seven times.
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict
        Plain values: a `Series` as a dict for each of ``start_own``, ``start_ours``, ``trip_own`` (``apply_sync`` of
        an empty function), ``trip_run`` (``lab.run`` of one), ``trip_verb`` (``repartition`` of one row a rank),
        ``push_own`` and ``pull_own`` (arrays of the same bytes, in the faster of one message a rank and messages of 4
        MB), ``scatter`` and ``collect``; and ``grown_bytes``, by how much the notebook's memory grew in these two.

    Raises
    ------
    ArgumentError
        If one of the counts is below 1.
    """
    if min(ranks, starts, trips, megabytes) < 1:
        raise ArgumentError("ranks, starts, trips and megabytes are at least 1.")
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
        say("round trips done")
        moved, grown = _moves(view, lab, ranks, megabytes)
        times |= moved
    finally:
        for cluster, _ in running:
            _close(cluster)
    return {
        "bench": "cluster",
        "case": {"ranks": ranks, "starts": starts, "trips": trips, "megabytes": megabytes},
        "grown_bytes": grown,
        "series": {name: Series(tuple(series)).as_dict() for name, series in times.items()},
    }


def start_own(ranks: int) -> tuple[Any, Any]:
    """Start ipyparallel's MPI engines with nothing of ours in them; return its cluster and a view."""
    mpi = find_mpiexec()
    with GuardedRanks(mpi) as guarded:  # Open MPI maps what lies in its folder, and needs it no more
        config = Config()
        engines = config.MPIEngineSetLauncher
        engines.mpi_cmd, engines.mpi_args, engines.environment = [mpi.path], guarded.mpi_arguments, guarded.environment
        engines.engine_cmd = [*guarded.before, sys.executable, "-P", "-m", "ipyparallel.engine"]
        name = f"bench_{time.time_ns()}"
        cluster = ipyparallel.Cluster(
            engines="mpi", n=ranks, config=config, log_level=40, controller_args=_CONTROLLER, cluster_id=name
        )
        cluster.start_cluster_sync()
        guarded.watch(cluster.engine_set.pid)
        client = cluster.connect_client_sync()
        client.wait_for_engines(ranks, timeout=cluster.engine_timeout)
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


def _moves(view: Any, lab: Cluster, ranks: int, megabytes: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Rows to the ranks and back, in turn; and how much this process grew while they went."""
    rows = megabytes * 10**6 // 32
    values = np.random.default_rng(0).random((4, rows))
    frame = pd.DataFrame(dict(zip("abcd", values, strict=True)))
    shares = [np.ascontiguousarray(share) for share in np.array_split(values, ranks, axis=1)]
    pieces = max(1, shares[0].nbytes // MESSAGE_BYTES)
    engines = [view.client[number] for number in view.client.ids]

    def push(count: int) -> None:
        sent = [
            engine.push({f"part{number}": part}, block=False)
            for number, parts in enumerate(zip(*(np.array_split(s.ravel(), count) for s in shares), strict=True))
            for engine, part in zip(engines, parts, strict=True)
        ]
        for one in sent:
            one.get()

    def pull(count: int) -> None:
        asked = [engine.pull(f"part{number}", block=False) for number in range(count) for engine in engines]
        for one in asked:
            one.get()

    tables: list[Any] = []

    def scatter() -> None:
        while tables:
            tables.pop().release()
        tables.append(lab.scatter(frame))

    def collect() -> None:
        if sum(len(batch) for batch in tables[0].collect()) != rows:
            raise ClusterError("collect gave other rows than were scattered.")

    requests = {
        "push_whole": lambda: push(1), "push_pieces": lambda: push(pieces), "scatter": scatter,
        "pull_pieces": lambda: pull(pieces), "collect": collect,
    }  # fmt: skip
    grown = {name: _growth(requests[name]) for name in ("scatter", "collect")}
    times = _take_turns(requests, _MOVES)
    push(1)
    times |= _take_turns({"pull_whole": lambda: pull(1)}, _MOVES)
    for name in ("push", "pull"):
        both = times.pop(f"{name}_whole"), times.pop(f"{name}_pieces")
        times[f"{name}_own"] = min(both, key=statistics.median)
    return times, grown


def _growth(work: Callable[[], None]) -> int:
    """By how many bytes this process grew while it worked, at the most."""
    process, stop = psutil.Process(), threading.Event()
    before = most = process.memory_info().rss

    def watch() -> None:
        nonlocal most
        while not stop.wait(0.002):
            most = max(most, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        stop.set()
        watcher.join()
    return int(most - before)


def _take_turns(requests: dict[str, Callable[[], Any]], trips: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in requests}
    for number in range(trips + 3):
        for name, request in requests.items():
            begin = time.perf_counter()
            request()
            if number >= 3:
                times[name].append(time.perf_counter() - begin)
    return times
