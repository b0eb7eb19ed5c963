"""The bare numpy and MPI loop that our shuffle is held against: no tables, no budget, no agreements, no spans.

It knows all that it may know beforehand: the columns are plain numpy arrays of
eight bytes, nothing fails, nobody interrupts.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from ..harness.cases import KEY, Columns, ShuffleCase
from ..harness.checks import check_ranks, count_and_sum
from ..harness.worker_processes import Answer, serve

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def destinations(keys: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    """Hash keys by multiplication to ranks in [0, size), size at most 256."""
    mixed = (keys.view(np.uint64) * _MULTIPLIER) >> np.uint64(32)
    return ((mixed * np.uint64(size)) >> np.uint64(32)).astype(np.uint8)


def shuffle(comm: MPI.Intracomm, columns: Columns, rounds: int) -> Columns:
    """Send every row to its key's rank in a number of rounds; each column lands in place.

    Parameters
    ----------
    comm : MPI.Intracomm
        All its ranks call this.
    columns : dict of str to ndarray
        This rank's rows; one array of shape (rows,) a column, all of 8-byte items.
    rounds : int
        Exchanges; each takes the same share of every rank's rows.

    Returns
    -------
    dict of str to ndarray
        The rows whose keys belong to this rank, by source rank.
    """
    size, rows = comm.size, len(columns[KEY])
    where = destinations(columns[KEY], size)
    edges = np.linspace(0, rows, rounds + 1).astype(np.int64)
    sends = np.array([np.bincount(where[a:b], minlength=size) for a, b in zip(edges, edges[1:], strict=False)])
    receives = np.empty_like(sends.reshape(rounds, size).T.copy())
    comm.Alltoall(np.ascontiguousarray(sends.reshape(rounds, size).T), receives)
    needs = receives.sum(axis=1)
    base = np.concatenate(([0], np.cumsum(needs)[:-1]))
    result = {name: np.empty(int(needs.sum()), values.dtype) for name, values in columns.items()}
    for number in range(rounds):
        start, stop = edges[number], edges[number + 1]
        ends = base + receives[:, number]
        _exchange(comm, {n: v[start:stop] for n, v in columns.items()}, where[start:stop], result, base, ends)
        base = ends
    return result


def _exchange(
    comm: MPI.Intracomm,
    columns: Columns,
    where: NDArray[np.uint8],
    result: Columns,
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    requests: list[MPI.Request] = []
    kept: list[NDArray[Any]] = []
    for source in range(comm.size):
        if source != comm.rank:
            for tag, values in enumerate(result.values()):
                requests.append(comm.Irecv(values[starts[source] : ends[source]], source, tag))
    for step in range(1, comm.size):
        peer = (comm.rank + step) % comm.size
        rows = np.flatnonzero(where == peer)
        for tag, values in enumerate(columns.values()):
            kept.append(values.take(rows))
            requests.append(comm.Isend(kept[-1], peer, tag))
    own = np.flatnonzero(where == comm.rank)
    for name, values in columns.items():
        # mode="clip" lets take write into `out` without a buffer of its own.
        values.take(own, out=result[name][starts[comm.rank] : ends[comm.rank]], mode="clip")
    MPI.Request.Waitall(requests)


def main(rows: int) -> None:
    """Serve the bench on every rank; the order's ``variant`` is the number of rounds."""
    comm = MPI.COMM_WORLD
    case = ShuffleCase(ranks=comm.size, rows=rows)

    def step(repeat: int, variant: int, check_keys: bool) -> Answer:
        columns = case.columns(comm.rank, repeat)
        comm.Barrier()
        start = time.perf_counter()
        result = shuffle(comm, columns, variant)
        seconds = time.perf_counter() - start
        wrong = check_ranks(comm, count_and_sum(columns), result, check_keys=check_keys)
        return {"seconds": seconds, "wrong": wrong}

    serve(step, comm.rank)


if __name__ == "__main__":
    main(int(sys.argv[1]))
