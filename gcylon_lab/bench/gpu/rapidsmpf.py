"""rapidsmpf's shuffle of a table in GPU memory as a contender: one process a GPU, which meet over files.

The harness is ours: rapidsmpf's wheels ship none that runs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ..harness.worker_processes import Answer, serve
from .cases import KEY_RANGE
from .processes import Meeting, run_one_a_gpu
from .tpch_tables import TABLES, arrow_pieces


class Peer:
    """One rank of rapidsmpf.

    Parameters
    ----------
    rows : int
        Of the plain table.
    meeting : Meeting
    rank, ranks : int
    tables : str
        Folder of the tables of `gpu_tpch`.
    table : str
        Which of them; its key is the first column.
    """

    def __init__(
        self, rows: int, meeting: Meeting, rank: int, ranks: int, tables: str = "", table: str = "plain"
    ) -> None:
        import cupy
        import rmm.mr
        from rapidsmpf.memory.buffer_resource import BufferResource

        self.meeting, self.ranks, self.turn = meeting, ranks, 0
        self.resource = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaAsyncMemoryResource())
        self.buffers = BufferResource(self.resource)
        self.adaptor = self.buffers.device_mr_adaptor()
        rmm.mr.set_current_device_resource(self.adaptor)
        self.comm = meeting.connect()
        self.table = _plain_table(rank, rows) if table == "plain" else _read_table(tables, table, rank, ranks)
        cupy.cuda.Device().synchronize()
        self.all_rows = sum(meeting.share(self.table.num_rows()))
        self.sum = sum(meeting.share(_sum_of(self.table))) % 2**64

    def shuffle(self, chunks: int, *, check: bool = False) -> tuple[float, str]:
        """Shuffle in so many chunks; seconds, and what was wrong: rows are counted, with ``check`` summed up too."""
        import cupy
        import pylibcudf as plc
        from cudf_streaming.partition_utils import partition_and_pack, unpack_and_concat
        from rapidsmpf.shuffler import Shuffler
        from rmm.pylibrmm.stream import DEFAULT_STREAM

        how = {"br": self.buffers, "stream": DEFAULT_STREAM}
        rows = self.table.num_rows()
        step = -(-rows // chunks)
        self.turn += 1
        self.meeting.share(0)
        start = time.perf_counter()
        shuffler = Shuffler(self.comm, op_id=self.turn % 200, total_num_partitions=self.ranks, br=self.buffers)
        for first in range(0, rows, step):
            part = plc.copying.slice(self.table, [first, min(first + step, rows)])[0]
            shuffler.insert_chunks(partition_and_pack(part, columns_to_hash=(0,), num_partitions=self.ranks, **how))
        shuffler.insert_finished()
        shuffler.wait()
        results = [unpack_and_concat(shuffler.extract(place), **how) for place in shuffler.local_partitions()]
        cupy.cuda.Device().synchronize()
        seconds = time.perf_counter() - start
        shuffler.shutdown()
        came = sum(self.meeting.share(sum(result.num_rows() for result in results)))
        if came != self.all_rows:
            return seconds, f"{came} of {self.all_rows} rows came out"
        total = sum(self.meeting.share(sum(map(_sum_of, results)))) % 2**64 if check else self.sum
        return seconds, "" if total == self.sum else "the checksums of the rows before and after differ"


def _plain_table(rank: int, rows: int) -> Any:
    import cupy
    import pylibcudf as plc

    random = cupy.random.default_rng(rank)
    columns = [random.integers(0, KEY_RANGE, rows, dtype=cupy.int64)] + [random.random(rows) for _ in range(3)]
    return plc.Table([plc.Column.from_cuda_array_interface(column) for column in columns])


def _read_table(folder: str, name: str, rank: int, ranks: int) -> Any:
    import pyarrow as pa
    import pylibcudf as plc

    pieces = list(arrow_pieces(Path(folder), TABLES[name], rank, ranks))
    return plc.Table.from_arrow(pa.concat_tables(pieces).combine_chunks())


def _sum_of(table: Any) -> int:
    """The rows' hashes summed up, which no order of them changes."""
    import cupy
    import pylibcudf as plc

    if not table.num_rows():
        return 0
    hashes = plc.hashing.xxhash_64(table)
    cupy.cuda.Device().synchronize()
    data = hashes.data()
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(data.ptr, data.size, hashes), 0)
    return int(cupy.sum(cupy.ndarray((hashes.size(),), cupy.uint64, memory), dtype=cupy.uint64))


def main(ranks: int, rows: str, *table: str) -> None:
    """Start one process a GPU, and wait for them; each serves the bench."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "gcylon_lab.bench.gpu.rapidsmpf", "rank", str(ranks), rows, folder]
        raise SystemExit(run_one_a_gpu(ranks, command, *table))


def serve_rank(ranks: int, rows: int, folder: str, rank: int, *table: str) -> None:
    """Serve the bench on one rank; the order's ``variant`` is "N chunks"."""
    peer = Peer(rows, Meeting(folder, rank, ranks), rank, ranks, *table)

    def step(variant: str, repeat: int, check: bool) -> Answer:
        seconds, wrong = peer.shuffle(int(variant.split()[0]), check=check)
        return {"seconds": seconds, "wrong": wrong}

    serve(step, rank)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        serve_rank(int(sys.argv[2]), int(float(sys.argv[3])), sys.argv[4], int(sys.argv[5]), *sys.argv[6:])
    else:
        main(int(sys.argv[1]), *sys.argv[2:])
