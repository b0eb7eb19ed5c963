"""The library alone, as a contender: pyarrow on one thread, or libcudf where it is asked for."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from ..harness.worker_processes import Answer, serve
from .case import READERS, write


def main(folder: str, kind_of_engine: str) -> None:
    """Serve the bench."""
    on_gpu = kind_of_engine == "gpu"
    if on_gpu:
        import rmm

        rmm.reinitialize(pool_allocator=True)

    def step(action: str, format: str, kind: str) -> Answer:
        path, target = f"{folder}/{kind}.{format}", Path(folder) / f"library-{kind}.{format}"
        if on_gpu and (action == "write" or format == "ipc"):
            return {"seconds": None, "cpu_s": None, "rows": 0, "bytes": 0}
        table = None if action == "read" else READERS["parquet"](f"{folder}/{kind}.parquet")
        start, cpu = time.perf_counter(), time.process_time()
        if table is not None:
            write(table, format, target)
        else:
            table = _read_by_libcudf(format, path) if on_gpu else READERS[format](path)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        rows = table.tbl.num_rows() if on_gpu else table.num_rows
        nbytes = (Path(path) if action == "read" else target).stat().st_size
        target.unlink(missing_ok=True)
        return {"seconds": seconds, "cpu_s": cpu, "rows": rows, "bytes": nbytes}

    serve(step)


def _read_by_libcudf(format_: str, path: str) -> Any:
    import cupy
    import pylibcudf as plc

    source = plc.io.types.SourceInfo([path])
    if format_ == "parquet":
        made = plc.io.parquet.read_parquet(plc.io.parquet.ParquetReaderOptions.builder(source).build())
    elif format_ == "csv":
        made = plc.io.csv.read_csv(plc.io.csv.CsvReaderOptions.builder(source).build())
    else:
        made = plc.io.json.read_json(plc.io.json.JsonReaderOptions.builder(source).lines(True).build())
    cupy.cuda.Device().synchronize()
    return made


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
