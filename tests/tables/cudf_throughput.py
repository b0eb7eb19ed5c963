"""How fast the cuDF backend partitions: GB/s of input bytes, from CUDA events, the median of seven.

Run it as a script on a GPU: 50 million rows of one int64 and three float64 columns; then nullable and string keys.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import pandas as pd
import pyarrow as pa
import pylibcudf as plc
import rmm

from gcylon_lab.backends.cudf.backend import CudfBackend, use_rmm_for_cupy
from gcylon_lab.backends.cudf.columns.data import DeviceColumns, as_column
from gcylon_lab.backends.host.backend import PandasBackend

ROWS = 50_000_000
backend = CudfBackend()


def median_ms(work: Callable[[], Any]) -> float:
    times = []
    for step in range(9):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        result = work()
        stop.record()
        stop.synchronize()
        del result
        if step > 1:
            times.append(cupy.cuda.get_elapsed_time(start, stop))
    return statistics.median(times)


def show(what: str, n: int, nbytes: int, work: Callable[[], Any]) -> None:
    ms = median_ms(work)
    print(f"{what:<34} n={n:<4} {ms:8.3f} ms {nbytes / ms / 1e6:8.0f} GB/s of input", flush=True)


def numbers() -> DeviceColumns:
    schema = PandasBackend().from_frame(pd.DataFrame({"k": [1], "a": [1.0], "b": [1.0], "c": [1.0]})).schema
    keys = cupy.random.randint(0, 2**62, ROWS, dtype=np.int64)
    return DeviceColumns(schema, ROWS, (keys, *(cupy.random.random(ROWS) for _ in range(3))))


def main() -> None:
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=24 << 30)
    rmm.mr.set_current_device_resource(pool)
    use_rmm_for_cupy()
    print(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), f"{ROWS:,} rows of int64 and 3 float64")
    data = numbers()
    for n in (2, 4, 8, 16, 64, 256, 300):
        ids = backend.partition_ids(data, ["k"], n)
        _, offsets = backend.partition(data, ids, n)
        show("partition_ids of one int64 key", n, 8 * ROWS, lambda n=n: backend.partition_ids(data, ["k"], n))
        show("count_ids", n, ids.nbytes, lambda n=n, ids=ids: backend.count_ids(ids, n))
        show("partition", n, data.nbytes, lambda n=n, ids=ids: backend.partition(data, ids, n))
        show("partition, offsets known", n, data.nbytes,
             lambda n=n, ids=ids, offsets=offsets: backend.partition(data, ids, n, offsets))  # fmt: skip
        if n <= 16:
            show("both", n, data.nbytes,
                 lambda n=n: backend.partition(data, backend.partition_ids(data, ["k"], n), n))  # fmt: skip
            table = plc.Table([as_column(c, a) for c, a in zip(data.schema, data.arrays, strict=True)])
            show("libcudf's hash_partition", n, data.nbytes,
                 lambda n=n, table=table: plc.partitioning.hash_partition(table, [0], n))  # fmt: skip
    show("copy of the four columns", 0, data.nbytes, lambda: [array.copy() for array in data.arrays])
    show("two keys, int64 and float64", 8, 16 * ROWS, lambda: backend.partition_ids(data, ["k", "a"], 8))
    del data
    texts = pa.array(np.arange(ROWS // 5)).cast(pa.large_string())
    frame = pd.DataFrame({"s": pd.array(texts, dtype=pd.ArrowDtype(pa.large_string()))})
    data = backend.from_frame(frame)
    ids = backend.partition_ids(data, ["s"], 8)
    show("partition_ids of one string key", 8, data.nbytes, lambda: backend.partition_ids(data, ["s"], 8))
    show("partition of strings", 8, data.nbytes, lambda: backend.partition(data, ids, 8))
    show("variable_bytes of strings", 8, data.nbytes, lambda: backend.variable_bytes(data, ids, 8))
    show("pack_variable of strings", 8, data.nbytes, lambda: backend.pack_variable(data, 0, data.rows))


if __name__ == "__main__":
    main()
