"""What the machine can do: column slices put into peers' memory by copy engines; pinned copies of all ranks at once.

No partitioning, no budget, no agreements, nothing allocated inside the clock.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from mpi4py import MPI

from ...runtime.devices import bind_gpu
from ..harness.worker_processes import Answer, serve
from .cases import ROW_BYTES

_COLUMNS = 4
_DEFAULT_KIND = 4


class Bare:
    """One rank: its columns, and its peers' room, mapped."""

    def __init__(self, comm: Any, rows: int) -> None:
        import cupy

        self.runtime, self.comm = cupy.cuda.runtime, comm
        self.column_bytes = rows * 8
        self.source = self.runtime.malloc(_COLUMNS * self.column_bytes)
        self.room = self.runtime.malloc(_COLUMNS * self.column_bytes)
        handles = comm.allgather(bytes(self.runtime.ipcGetMemHandle(self.room)))
        self.rooms = [
            self.room if rank == comm.rank else self.runtime.ipcOpenMemHandle(handle)
            for rank, handle in enumerate(handles)
        ]
        self.streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(comm.size)]
        self.pinned = [self.runtime.hostAlloc(2**28, 1) for _ in range(2)]

    def exchange(self) -> None:
        """Put every rank's share of every column into its place."""
        size, rank = self.comm.size, self.comm.rank
        share = self.column_bytes // size // 8 * 8
        for step in range(size):
            to = (rank + step) % size
            for column in range(_COLUMNS):
                base = column * self.column_bytes
                source, target = self.source + base + to * share, self.rooms[to] + base + rank * share
                self.runtime.memcpyAsync(target, source, share, _DEFAULT_KIND, self.streams[to].ptr)
        for stream in self.streams:
            stream.synchronize()

    def pinned_copies(self) -> None:
        """Copy all columns down in pieces of 256 MiB."""
        left, at, turn = _COLUMNS * self.column_bytes, self.source, 0
        while left:
            n = min(left, 2**28)
            self.runtime.memcpyAsync(self.pinned[turn % 2], at, n, _DEFAULT_KIND, self.streams[0].ptr)
            left, at, turn = left - n, at + n, turn + 1
        self.streams[0].synchronize()


def main(rows: int) -> None:
    """Serve the bench on every rank; the order's ``variant`` is ``exchange`` or ``pinned``."""
    comm = MPI.COMM_WORLD
    hosts = comm.allgather(MPI.Get_processor_name())
    bind_gpu(hosts[: comm.rank].count(hosts[comm.rank]))
    bare = Bare(comm, rows)

    def step(variant: str, repeat: int, check: bool) -> Answer:
        run = bare.exchange if variant == "exchange" else bare.pinned_copies
        comm.Barrier()
        start = time.perf_counter()
        run()
        comm.Barrier()
        return {"seconds": time.perf_counter() - start, "wrong": "", "bytes": rows * ROW_BYTES}

    serve(step, comm.rank)


if __name__ == "__main__":
    main(int(float(sys.argv[1])))
