"""A program for ranks with GPUs: every kind of join with every strategy, compared with pandas.

    PYTHONPATH=.:tests/ops:tests mpiexec --with-ft ulfm -n 2 python tests/gpu/joins_on_gpu.py

Prints, on rank 0, a line of JSON: the equipment, and what was wrong. With a number of rows as its argument it measures
instead: a join of so many rows a rank, an int64 key over 2**40 and three columns, with as many of the key and one.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
import traceback
from typing import Any

import numpy as np
import pandas as pd
from joins import HOWS, answer, frames, rows, whole

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.runtime.context import current

KEYS: tuple[Any, ...] = ("k", ["s", "k"], ["f"])


def local(table: Any) -> pd.DataFrame:
    return to_frame(current().workspace.backend.to_host(table._whole()))


def check(
    lefts: list[pd.DataFrame], rights: list[pd.DataFrame], arguments: dict[str, Any], strategy: str, share: Any
) -> str:
    """Join one way; returns what was wrong, or nothing."""
    context = current()
    left, right = gl.from_local(lefts[context.rank]), gl.from_local(rights[context.rank])
    result = left.join(right, **arguments, strategy=strategy)
    everyone = share(local(result))
    peak, limit = context.recorder.operations[-1].measured_peak_bytes, context.workspace.limit_for(context.config)
    expected = answer(lefts, rights, **arguments)
    if peak > limit:
        return f"a peak of {peak} bytes, above {limit}"
    if list(map(str, everyone[0].dtypes)) != list(map(str, expected.dtypes)):
        return f"dtypes {dict(everyone[0].dtypes)}, not {dict(expected.dtypes)}"
    if rows(whole(everyone)) != rows(expected):
        return f"{sum(map(len, everyone))} rows, not the {len(expected)} expected"
    return ""


def check_passes(how: str, count: int, share: Any) -> str:
    """Join numbers that do not fit at once beside their tables; returns what was wrong, or nothing."""
    context = current()
    sides: list[list[pd.DataFrame]] = [[], []]
    for rank in range(context.size):
        g = np.arange(count) * context.size + rank
        sides[0].append(pd.DataFrame({"k": g * 7919 % 10**9, "a": g / 2, "b": g % 7, "c": -g}))
        sides[1].append(pd.DataFrame({"k": np.roll(g, 9) * 7919 % 10**9 + (g % 10 == 0), "z": g / 4}))
    left, right = (gl.from_local(side[context.rank]) for side in sides)
    arguments = {"how": how, "on": "k"} | ({"indicator": True} if how not in ("semi", "anti") else {})
    # An index takes 16 bytes a row there: with more than this, one rank joins all at once.
    config = gl.GcylonConfig(gpu_memory_limit=int(2.3 * 48 * count), min_chunk_rows=64)
    result = left.join(right, **arguments, config=config)
    record = context.recorder.operations[-1]
    everyone, plan = share(local(result)), result.last_plan
    if plan.passes < 2 or record.staged_bytes:
        return f"{plan.passes} passes, and {record.staged_bytes} bytes staged: {plan}"
    if record.measured_peak_bytes > config.gpu_memory_limit:
        return f"a peak of {record.measured_peak_bytes} bytes, above {config.gpu_memory_limit}"
    wrong = rows(whole(everyone)) != rows(answer(*sides, **arguments))
    return f"{sum(map(len, everyone))} rows that are not those expected" if wrong else ""


def main() -> None:
    context = gl.initialize(engine=os.environ.get("GCYLON_ENGINE", "gpu"), sample_hz=0)

    def share(value: Any) -> list[Any]:
        return [pickle.loads(text) for text in context.transport.share(pickle.dumps(value))]

    wrong: list[str] = []
    for layout in ("even", "one rank empty", "one key"):
        sides = frames(layout, context.size, rows=60 if layout == "one key" else 150)
        for how in (*HOWS, "cross"):
            for strategy in ("auto", "direct", "staged"):
                for on in KEYS if how != "cross" else (None,) * (layout == "one key"):
                    arguments = {"how": how} | ({} if on is None else {"on": on})
                    try:
                        text = check(*sides, arguments, strategy, share)
                    except Exception as error:
                        trace = traceback.extract_tb(error.__traceback__)[-1]
                        text = f"{type(error).__name__}: {error} [{trace.filename.split('/')[-1]}:{trace.lineno}]"[:400]
                        if "Revoked" in text:
                            raise
                    if text:
                        wrong.append(f"{layout}, {how} on {on}, {strategy}: {text}")
    for how, count in [(how, 60_000) for how in HOWS] + [(how, 600_000) for how in ("inner", "outer")]:
        try:
            text = check_passes(how, count, share)  # from about 500,000 rows on kernels write them to the other ranks
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:400]
            if "Revoked" in text:
                raise
        if text:
            wrong.append(f"passes, {how}, {count} rows: {text}")
    told = share(wrong)
    equipment = context.equipment
    if context.rank == 0:
        found = {"kind": equipment.kind, "reason": equipment.reason, "route": equipment.route}
        print(json.dumps(found | {"wrong": [text for one in told for text in one][:12], "count": sum(map(len, told))}))
    context.close()


def measure(count: int) -> None:
    """Time joins of rows that are made on the device."""
    import cudf
    import cupy

    context = gl.initialize(engine="gpu", sample_hz=0)
    random = cupy.random.default_rng(context.rank)
    keys = random.integers(0, 1 << 40, count)
    left = gl.from_local(
        cudf.DataFrame({"k": keys, "g": keys % 100_000, "x": random.random(count), "y": random.random(count)})
    )
    right = gl.from_local(cudf.DataFrame({"k": cupy.roll(keys, 7), "w": random.random(count)}))
    del keys
    cupy.get_default_memory_pool().free_all_blocks()
    times: list[float] = []
    record = None
    for _ in range(7):
        context.transport.share(b"")
        start = time.perf_counter()
        result = left.join(right, on="k")
        cupy.cuda.get_current_stream().synchronize()
        times.append(time.perf_counter() - start)
        record, held, plan = context.recorder.operations[-1], len(result), result.last_plan
        result.release()
        del result
    shared = [pickle.loads(text) for text in context.transport.share(pickle.dumps(times))]
    slowest = np.max(shared, axis=0)
    if context.rank == 0:
        print(plan)
        print(
            {name: round(ns / 1e6, 1) for name, ns in record.phases.items()}, "peak", record.measured_peak_bytes / 2**30
        )
        each = [round(1e3 * t, 1) for t in slowest]
        print(
            f"{context.size} ranks, {count} rows, {held} joined: {each} ms, {32 * count / slowest.min() / 1e9:.1f} GB/s"
        )
    context.close()


if __name__ == "__main__":
    measure(int(float(sys.argv[1]))) if len(sys.argv) > 1 else main()
