"""A program for ranks with GPUs: shuffles that send, stage and read back, and what the profile says of them.

    mpiexec --with-ft ulfm -n 2 python tests/gpu/figures_on_gpu.py [FOLDER]

Prints, on rank 0, a line of JSON: the equipment, each rank's operations, each GPU's figures, and what timing them
costs. With a folder it writes there what was recorded: snapshots.json (of which `html_report` makes a report),
trace.json and summary.txt.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import gcylon_lab as gl
from gcylon_lab.comm.transfer_times import TransferTimes
from gcylon_lab.profiling import chrome_trace, format_summary, gpus_of, operation, summary
from gcylon_lab.runtime.context import Context
from gcylon_lab.units import GIB, MIB

ROWS = int(os.environ.get("FIGURES_ROWS", "16_000_000"))
CHUNK_BYTES = int(os.environ.get("FIGURES_CHUNK_BYTES", str(64 * MIB)))
CONFIG = gl.GcylonConfig(gpu_memory_limit=6 * GIB, host_memory_limit=GIB, chunk_size_bytes=CHUNK_BYTES)


def frame_of(rank: int) -> Any:
    """Rows of one rank: a key and three columns of numbers, 32 bytes a row."""
    import cudf
    import cupy

    random = cupy.random.default_rng(rank)
    columns = {"k": random.integers(0, 2**40, ROWS, dtype=cupy.int64)}
    return cudf.DataFrame(columns | {name: random.random(ROWS) for name in ("a", "b", "c")})


def record(context: Context) -> None:
    """Run each strategy, keep two staged results, of which not all fits the pinned tier, and read one back."""
    table = gl.from_local(frame_of(context.rank))
    table.shuffle("k", strategy="direct").release()  # what is paid once
    for strategy in ("direct", "chunked"):
        table.shuffle("k", strategy=strategy).release()
        time.sleep(0.4)
    staged = [table.shuffle("k", strategy="staged") for _ in range(2)]
    time.sleep(0.4)
    table.release()
    staged[0].repartition(strategy="chunked").release()
    time.sleep(0.6)
    for each in staged:
        each.release()


def costs(context: Context) -> dict[str, float]:
    """What one exchange's timing, and one reading of the GPU, take of the host's time, in microseconds."""
    import cupy

    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(context.size)]
    times, count = TransferTimes(cupy.cuda, streams), 2000
    with operation("costs", 0, context.recorder):
        cupy.cuda.get_current_stream().synchronize()
        spent = 0
        for _ in range(count):
            began = time.perf_counter_ns()
            times.begin()
            times.end()
            spent += time.perf_counter_ns() - began
            cupy.cuda.Device().synchronize()
            began = time.perf_counter_ns()
            times.waited(0)
            spent += time.perf_counter_ns() - began
    found = {"timing_us": spent / count / 1e3}
    gpu = context.sampler.gpu
    if gpu is not None:
        began = time.perf_counter_ns()
        for _ in range(50):
            gpu.read()
        found["nvml_us"] = (time.perf_counter_ns() - began) / 50 / 1e3
    return found


def write(folder: Path, snapshots: list[dict[str, Any]]) -> None:
    """Write what a person would look at."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "snapshots.json").write_text(json.dumps(snapshots))
    (folder / "trace.json").write_text(json.dumps(chrome_trace(snapshots)))
    (folder / "summary.txt").write_text(format_summary(snapshots) + "\n")


def main() -> None:
    context = gl.initialize(CONFIG, engine="gpu")
    began, cpu_before = time.perf_counter_ns(), context.sampler.cpu_ns
    record(context)
    sampling = (context.sampler.cpu_ns - cpu_before) / (time.perf_counter_ns() - began)
    text = json.dumps(context.snapshot()).encode()
    snapshots = [json.loads(each) for each in context.transport.share(text)]
    cost = costs(context)
    if context.rank == 0:
        if len(sys.argv) > 1:
            write(Path(sys.argv[1]), snapshots)
        gpus = [
            {
                "uuid": gpu.uuid, "ranks": gpu.ranks, "held_bytes": gpu.held_bytes, "used_bytes": gpu.latest_used_bytes,
                "outside_bytes": gpu.latest_outside_bytes, "utilisation": gpu.utilisation,
            }
            for gpu in gpus_of(snapshots)
        ]  # fmt: skip
        equipment = context.equipment
        found = {"kind": equipment.kind, "reason": equipment.reason, "route": equipment.route, "gpus": gpus}
        found |= {"ranks": summary(snapshots)["ranks"], "costs": cost | {"sampler_share": sampling}}
        found["operations"] = [snapshot["operations"] for snapshot in snapshots]
        print(json.dumps(found))
    context.close()


if __name__ == "__main__":
    main()
