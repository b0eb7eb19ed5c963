"""cudf-polars' join, sort and group-by of tables in GPU memory as a contender: its SPMD engine, one process a GPU."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ..harness.worker_processes import Answer, serve
from .cases import KEY_RANGE
from .processes import Meeting, run_one_a_gpu
from .relational_ours import GROUPS

_IN_MEMORY = Path("/dev/shm")  # where there is room: it only reads Parquet, which is not timed


class Peer:
    """One rank of it.

    Parameters
    ----------
    rows : int
    meeting : Meeting
    folder : Path
        Where ranks write their inputs.
    """

    def __init__(self, rows: int, meeting: Meeting, folder: Path) -> None:
        from cudf_polars.engine.spmd import SPMDEngine

        self.meeting, self.folder = meeting, folder
        comm = meeting.connect()
        _write(folder, rows, meeting.rank)
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
        command = [
            sys.executable,
            "-P",
            "-m",
            "gcylon_lab.bench.gpu.cudf_polars",
            "rank",
            str(ranks),
            rows,
            meeting,
            folder,
        ]
        raise SystemExit(run_one_a_gpu(ranks, command))


def serve_rank(ranks: int, rows: int, meeting: str, folder: str, rank: int) -> None:
    """Serve the bench on one rank; the order's ``variant`` is join, sort or groupby."""
    peer = Peer(rows, Meeting(meeting, rank, ranks), Path(folder))

    def step(variant: str, repeat: int, check: bool) -> Answer:
        return {"seconds": peer.run(variant), "wrong": ""}

    serve(step, rank)


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        serve_rank(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5], int(sys.argv[6]))
    else:
        main(int(sys.argv[1]), sys.argv[2])
