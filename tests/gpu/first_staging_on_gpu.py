"""A program for a rank with a GPU: what the first staged operation takes, soon after start and later.

    GCYLON_PINNED_AHEAD=0 python tests/gpu/first_staging_on_gpu.py --wait 10
    python tests/gpu/first_staging_on_gpu.py --wait 0

Prints a line of JSON. The operation is a shuffle of 4 GB to pinned memory; its input is made before the clock
starts, which takes time too: ``ready_s`` after start, ``ahead_bytes`` had been page-locked when the clock started.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from typing import Any

import gcylon_lab as gl

ROWS, FRAMES = 125_000_000, 8


def frames() -> Any:
    import cudf
    import cupy

    random = cupy.random.default_rng(0)
    for _ in range(FRAMES):
        n = ROWS // FRAMES
        keys = random.integers(0, 2**40, n, dtype=cupy.int64)
        yield cudf.DataFrame({"k": keys} | {f"v{i}": random.random(n) for i in range(3)})


def timed(table: Any) -> float:
    import cupy

    cupy.cuda.Device().synchronize()
    began = time.perf_counter()
    result = table.shuffle("k", strategy="staged")
    took = time.perf_counter() - began
    assert result.tiers.get("pinned", 0) > 3.9e9, result.tiers
    result.release()
    return took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--wait", type=float, default=0.0, help="seconds between start and operation")
    wait = parser.parse_args().wait
    began = time.perf_counter()
    context = gl.initialize(gl.GcylonConfig(gpu_memory_limit="16GB"), engine="gpu")
    started = time.perf_counter()
    table = gl.from_local(frames())
    time.sleep(max(0.0, wait - (time.perf_counter() - started)))
    equipment = context.equipment
    found: dict[str, Any] = {
        "asked": os.environ.get("GCYLON_PINNED_AHEAD", "auto"),
        "share_bytes": equipment.around.share_bytes,
        "cap_bytes": equipment.pool.cap_bytes,
        "target_bytes": equipment.ahead.target_bytes,
        "start_s": started - began,
        "ready_s": time.perf_counter() - started,
        "ahead_bytes": equipment.pool.held_bytes,
        "ahead_runs": equipment.ahead.running,
    }
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found["staged_s"] = [timed(table) for _ in range(3)]
    found["warnings"] = [str(each.message) for each in told]
    spans = context.recorder.events()
    for name in ("lock memory ahead", "grow pinned pool"):
        steps = [event for event in spans if event.name == name]
        found[name] = [sum(e.bytes for e in steps), sum(e.end_ns - e.start_ns for e in steps) / 1e9, len(steps)]
    table.release()
    began = time.perf_counter()
    context.close()
    found["close_s"] = time.perf_counter() - began
    print(json.dumps(found))


if __name__ == "__main__":
    main()
