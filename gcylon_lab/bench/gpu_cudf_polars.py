"""cudf-polars' join, sort and group-by of tables in GPU memory as a contender: its SPMD engine, one process a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .gpu_cases import KEY_RANGE
from .gpu_rapidsmpf import Meeting
from .gpu_relational_ours import GROUPS
from .seats import Answer, serve

_IN_MEMORY = Path("/dev/shm")  # where there is room: it only reads Parquet, which is not timed


class Peer:
    """One rank of it.

    Parameters
    ----------
    rows : int
    meeting : Meeting
    folder : Path
        Where ranks write their inputs.
    rank, ranks : int
    """

    def __init__(self, rows: int, meeting: Meeting, folder: Path, rank: int, ranks: int) -> None:
        import ucxx._lib.libucxx as ucx
        from cudf_polars.engine.spmd import SPMDEngine
        from rapidsmpf.communicator.ucxx import barrier, get_root_ucxx_address, new_communicator
        from rapidsmpf.config import Options, get_environment_variables
        from rapidsmpf.progress_thread import ProgressThread
        from rapidsmpf.statistics import Statistics

        self.meeting, self.folder = meeting, folder
        options = Options(get_environment_variables())
        self._progress = ProgressThread(Statistics(enable=False))
        address = None
        if rank == 0:
            comm = new_communicator(ranks, None, None, options, self._progress)
            address = get_root_ucxx_address(comm)
        address = meeting.share(address)[0]
        if rank:
            root = ucx.UCXAddress.create_from_buffer(address)
            comm = new_communicator(ranks, None, root, options, self._progress)
        barrier(comm)
        _write(folder, rows, rank)
        meeting.share(0)
        self.engine: Any = SPMDEngine(comm=comm).__enter__()

    def run(self, variant: str) -> float:
        """Run a verb on inputs that are in GPU memory; seconds."""
        import cupy
        import polars as pl

        engine = self.engine
        left = engine.execute(pl.scan_parquet(str(self.folder / "left" / "*.parquet")))
        right = engine.execute(pl.scan_parquet(str(self.folder / "right" / "*.parquet"))) if variant == "join" else None
        lazy = left.lazy()
        if right is not None:
            query = lazy.join(right.lazy(), on="k")
        else:
            query = lazy.sort("k") if variant == "sort" else lazy.group_by("g").agg(pl.col("v0").sum())
        cupy.cuda.Device().synchronize()
        self.meeting.share(0)
        start = time.perf_counter()
        result = engine.execute(query)
        cupy.cuda.Device().synchronize()
        seconds = time.perf_counter() - start
        for held in (result, left, right):
            if held is not None:
                held.release()
        return seconds


def _write(folder: Path, rows: int, rank: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(rank)
    keys = random.integers(0, KEY_RANGE, rows)
    tables = {
        "left": {"k": keys, "g": keys % GROUPS, "v0": random.random(rows), "v1": random.random(rows)},
        "right": {"k": np.roll(keys, 7), "w": random.random(rows)},
    }
    for name, columns in tables.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        file = folder / name / f"{rank}.parquet"
        pq.write_table(pa.table(columns), file, compression="none", use_dictionary=False)


def main(ranks: int, rows: str) -> None:
    """Start one process a GPU, and wait for them; each serves the bench."""
    where = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory() as meeting, tempfile.TemporaryDirectory(dir=where) as folder:
        command = [sys.executable, "-m", "gcylon_lab.bench.gpu_cudf_polars", "rank", str(ranks), rows, meeting, folder]
        processes = [
            subprocess.Popen([*command, str(rank)], env=os.environ | {"CUDA_VISIBLE_DEVICES": str(rank)})
            for rank in range(ranks)
        ]
        try:
            raise SystemExit(max(process.wait() for process in processes))
        finally:
            for process in processes:
                process.kill()


def serve_rank(ranks: int, rows: int, meeting: str, folder: str, rank: int) -> None:
    """Serve the bench on one rank; the order's ``variant`` is join, sort or groupby."""
    peer = Peer(rows, Meeting(meeting, rank, ranks), Path(folder), rank, ranks)

    def step(variant: str, repeat: int, check: bool) -> Answer:
        return {"seconds": peer.run(variant), "wrong": ""}

    serve(step, rank)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        serve_rank(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6]))
    else:
        main(int(sys.argv[1]), sys.argv[2])
