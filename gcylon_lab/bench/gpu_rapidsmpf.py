"""rapidsmpf's shuffle of a table in GPU memory as a contender: one process a GPU, which meet over files.

The harness is ours: rapidsmpf's wheels ship none that runs.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .gpu_cases import KEY_RANGE
from .seats import Answer, serve


class Meeting:
    """A folder in which ranks leave things for each other."""

    def __init__(self, folder: str, rank: int, ranks: int) -> None:
        self._folder, self._rank, self._ranks, self._number = Path(folder), rank, ranks, 0

    def share(self, thing: Any) -> list[Any]:
        """Collective: all ranks call it. Every rank's thing."""
        self._number += 1
        new = self._folder / f"{self._number}.{self._rank}.new"
        new.write_bytes(pickle.dumps(thing))
        new.rename(self._folder / f"{self._number}.{self._rank}")
        found = []
        for rank in range(self._ranks):
            file = self._folder / f"{self._number}.{rank}"
            while not file.exists():
                time.sleep(0.0002)
            found.append(pickle.loads(file.read_bytes()))
        return found


class Peer:
    """One rank of rapidsmpf."""

    def __init__(self, rows: int, meeting: Meeting, rank: int, ranks: int) -> None:
        import cupy
        import pylibcudf as plc
        import rmm.mr
        import ucxx._lib.libucxx as ucx
        from rapidsmpf.communicator.ucxx import barrier, get_root_ucxx_address, new_communicator
        from rapidsmpf.config import Options, get_environment_variables
        from rapidsmpf.memory.buffer_resource import BufferResource
        from rapidsmpf.progress_thread import ProgressThread
        from rapidsmpf.statistics import Statistics

        self.meeting, self.ranks, self.rows, self.turn = meeting, ranks, rows, 0
        options = Options(get_environment_variables())
        self.resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaAsyncMemoryResource())
        self.buffers = BufferResource(self.resource)
        self.adaptor = self.buffers.device_mr_adaptor()
        rmm.mr.set_current_device_resource(self.adaptor)
        progress = ProgressThread(Statistics(enable=False))
        address = None
        if rank == 0:
            self.comm = new_communicator(ranks, None, None, options, progress)
            address = get_root_ucxx_address(self.comm)
        address = meeting.share(address)[0]
        if rank:
            root = ucx.UCXAddress.create_from_buffer(address)
            self.comm = new_communicator(ranks, None, root, options, progress)
        barrier(self.comm)
        random = cupy.random.default_rng(rank)
        columns = [random.integers(0, KEY_RANGE, rows, dtype=cupy.int64)] + [random.random(rows) for _ in range(3)]
        self.table = plc.Table([plc.Column.from_cuda_array_interface(column) for column in columns])
        cupy.cuda.Device().synchronize()

    def shuffle(self, chunks: int) -> tuple[float, str]:
        """Shuffle in so many chunks; seconds, and what was wrong."""
        import cupy
        import pylibcudf as plc
        from cudf_streaming.partition_utils import partition_and_pack, unpack_and_concat
        from rapidsmpf.shuffler import Shuffler
        from rmm.pylibrmm.stream import DEFAULT_STREAM

        how = {"br": self.buffers, "stream": DEFAULT_STREAM}
        step = -(-self.rows // chunks)
        self.turn += 1
        self.meeting.share(0)
        start = time.perf_counter()
        shuffler = Shuffler(self.comm, op_id=self.turn % 200, total_num_partitions=self.ranks, br=self.buffers)
        for first in range(0, self.rows, step):
            part = plc.copying.slice(self.table, [first, min(first + step, self.rows)])[0]
            shuffler.insert_chunks(partition_and_pack(part, columns_to_hash=(0,), num_partitions=self.ranks, **how))
        shuffler.insert_finished()
        shuffler.wait()
        results = [unpack_and_concat(shuffler.extract(place), **how) for place in shuffler.local_partitions()]
        cupy.cuda.Device().synchronize()
        seconds = time.perf_counter() - start
        shuffler.shutdown()
        rows = sum(self.meeting.share(sum(result.num_rows() for result in results)))
        return seconds, "" if rows == self.rows * self.ranks else f"{rows} rows came out"


def main(ranks: int, rows: int) -> None:
    """Start one process a GPU, and wait for them; each serves the bench."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "gcylon_lab.bench.gpu_rapidsmpf", str(ranks), str(rows), folder]
        processes = [
            subprocess.Popen([*command, str(rank)], env=os.environ | {"CUDA_VISIBLE_DEVICES": str(rank)})
            for rank in range(ranks)
        ]
        try:
            raise SystemExit(max(process.wait() for process in processes))
        finally:
            for process in processes:
                process.kill()


def serve_rank(ranks: int, rows: int, folder: str, rank: int) -> None:
    """Serve the bench on one rank; the order's ``variant`` is "N chunks"."""
    peer = Peer(rows, Meeting(folder, rank, ranks), rank, ranks)

    def step(variant: str, repeat: int, check: bool) -> Answer:
        seconds, wrong = peer.shuffle(int(variant.split()[0]))
        return {"seconds": seconds, "wrong": wrong}

    serve(step, rank)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(int(sys.argv[1]), int(float(sys.argv[2])))
    else:
        serve_rank(int(sys.argv[1]), int(float(sys.argv[2])), sys.argv[3], int(sys.argv[4]))
