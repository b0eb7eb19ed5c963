"""Our readers and writers, as a contender."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import gcylon_lab as gl

from ..harness.worker_processes import Answer, serve


def main(folder: str) -> None:
    """Serve the bench on every rank."""
    context = gl.initialize(sample_hz=0)
    readers = {"parquet": gl.read_parquet, "csv": gl.read_csv, "json": gl.read_json, "ipc": gl.read_ipc}

    def settle() -> None:
        """Let all ranks, and what their GPUs still do, come to an end."""
        if context.workspace.backend.on_gpu:
            import cupy

            cupy.cuda.Device().synchronize()
        context.transport.share(b"")

    def step(action: str, format: str, kind: str) -> Answer:
        path = f"{folder}/{kind}.{format}"
        target = Path(folder) / f"ours-{kind}.{format}"
        table = None
        if action == "write":
            table = readers["parquet"](f"{folder}/{kind}.parquet")
        settle()
        start, cpu = time.perf_counter(), time.process_time()
        if table is None:
            table = readers[format](path)
        else:
            getattr(table, f"write_{format}")(str(target))
        cpu = time.process_time() - cpu  # less that of waiting for others
        settle()
        seconds = time.perf_counter() - start
        rows = sum(int(text) for text in context.transport.share(str(table.num_rows).encode()))
        table.release()
        files = target.iterdir() if action == "write" else [Path(path)]
        nbytes = sum(file.stat().st_size for file in files) if context.rank == 0 else 0
        if action == "write" and context.rank == 0:
            shutil.rmtree(target, ignore_errors=True)
        context.transport.share(b"")
        return {
            "seconds": seconds,
            "cpu_s": cpu,
            "rows": rows,
            "bytes": nbytes,
            "kind": "gpu" if context.workspace.backend.on_gpu else "cpu",
        }

    serve(step, context.rank)


if __name__ == "__main__":
    main(sys.argv[1])
