"""A program for ranks with GPUs: every verb with every strategy on tables of many dtypes, compared with pandas.

    mpiexec --with-ft ulfm -n 2 python tests/gpu/exchanges_on_gpu.py

Prints, on rank 0, a line of JSON: the equipment, and what was wrong.
"""

from __future__ import annotations

import json
import os
import traceback
from typing import Any

import numpy as np
import pandas as pd

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import to_frame
from gcylon_lab.runtime.context import current

ROWS = 20_000
STRATEGIES = ("direct", "chunked", "staged")


def frame_of(rank: int, rows: int) -> pd.DataFrame:
    """Rows of one rank; the position tells where each came from."""
    random = np.random.default_rng(rank)
    numbers = np.arange(rows)
    return pd.DataFrame(
        {
            "k": random.integers(-500, 500, rows),
            "f": random.random(rows),
            "position": numbers + 10**6 * rank,
            "small": (numbers % 100).astype("int8"),
            "yes": numbers % 3 == 0,
            "when": pd.date_range("2020-01-01", periods=rows, freq="min"),
            "s": pd.array([None if i % 11 == 0 else f"text {i % 1000}é" * (i % 4) for i in range(rows)], dtype="str"),
            "n": pd.array([None if i % 7 == 0 else i for i in range(rows)], dtype="Int64"),
            "c": pd.Categorical([f"label {i % 5}" for i in range(rows)]),
        }
    )


def sorted_rows(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True).sort_values("position", ignore_index=True)


def check(verb: str, strategy: str, table: Any, frames: list[pd.DataFrame], share: Any) -> str:
    """Run one verb; returns what was wrong, or nothing."""
    rank, size = current().rank, current().size
    whole = pd.concat(frames, ignore_index=True)
    arguments: dict[str, Any] = {"shuffle": {"on": "k"}, "gather": {"root": size - 1}, "broadcast": {"root": 0}}
    result = getattr(table, verb)(**arguments.get(verb, {}), strategy=strategy)
    assert result.last_plan.strategy == strategy
    backend = current().workspace.backend
    mine = to_frame(backend.to_host(result._whole()))[list(whole.columns)]
    everyone = share(mine)
    result.release()
    if verb == "shuffle":
        same(sorted_rows(everyone), sorted_rows(frames))
        keys = [set(frame["k"]) for frame in everyone]
        assert sum(map(len, keys)) == len(set().union(*keys)), "a key is on two ranks"
        return ""
    want = {"allgather": whole, "broadcast": frames[0], "gather": whole if rank == size - 1 else whole[:0]}
    if verb == "repartition":
        same(pd.concat(everyone, ignore_index=True), whole)
        return ""
    same(mine, want[verb].reset_index(drop=True))
    return ""


def same(got: pd.DataFrame, want: pd.DataFrame) -> None:
    assert len(got) == len(want), f"{len(got)} rows, not {len(want)}"
    for name in want.columns:
        a, b = got[name].reset_index(drop=True), want[name].reset_index(drop=True)
        missing = b.isna()
        assert (a.isna() == missing).all(), f"nulls of {name!r} differ"
        if name == "c":
            a, b = a.astype("str"), b.astype("str")
        kept = ~missing
        assert (a[kept].to_numpy() == b[kept].to_numpy()).all(), f"values of {name!r} differ"


def check_turns(skewed: bool, share: Any) -> str:
    """Stage a shuffle of texts in a budget that holds little beside the input; returns what was wrong, or nothing."""
    context = current()
    frame = frame_of(context.rank, 10 * ROWS)
    frame["k"] = 7 if skewed else frame["position"] * 7919 % 100_003
    frames, table = share(frame), gl.from_local(frame)
    most = max(share(table.nbytes))
    config = gl.GcylonConfig(gpu_memory_limit=int(1.7 * most), min_chunk_rows=64, chunk_size_bytes=most // 40)
    result = table.shuffle("k", strategy="staged", config=config)
    record, rounds = context.recorder.operations[-1], result.last_plan.rounds
    everyone = share(to_frame(context.workspace.backend.to_host(result._whole()))[list(frame.columns)])
    same(sorted_rows(everyone), sorted_rows(frames))
    peak, predicted = record.measured_peak_bytes, record.predicted_peak_bytes
    result.release()
    table.release()
    if peak > config.gpu_memory_limit:
        return f"a peak of {peak} bytes, above {config.gpu_memory_limit}"
    if context.workspace.scatters and context.size > 1:
        if not 5 <= rounds <= 20:
            return f"{rounds} turns"
        if not 0.9 <= predicted / peak <= 1.1:
            return f"a peak of {peak} bytes, where {predicted} were predicted, in {rounds} turns"
    return ""


def main() -> None:
    context = gl.initialize(engine=os.environ.get("GCYLON_ENGINE", "gpu"), sample_hz=0)
    rank, size = context.rank, context.size

    def share(value: Any) -> list[Any]:
        import pickle

        return [pickle.loads(text) for text in context.transport.share(pickle.dumps(value))]

    wrong: list[str] = []
    for shape in ("full", "plain", "one empty", "one row"):
        rows = {"full": ROWS, "plain": ROWS, "one empty": ROWS if rank else 0, "one row": int(rank == size - 1)}[shape]
        frame = frame_of(rank, rows)
        if shape == "plain":
            frame = frame[["k", "f", "position", "small", "yes", "when"]]
        frames = share(frame)
        table = gl.from_local(frame)
        table.shuffle(table.columns).release()  # labels stay on the device, hashed
        context.budget.start_window()
        before = context.budget.used_bytes
        for verb in ("shuffle", "allgather", "gather", "broadcast", "repartition"):
            for strategy in STRATEGIES:
                for chunk in (0, 64 * 1024):
                    what = f"{verb} {strategy} {shape} chunk {chunk}"
                    context.workspace.config = gl.GcylonConfig(chunk_size_bytes=chunk)
                    text = ""
                    try:
                        text = check(verb, strategy, table, frames, share)
                    except Exception as error:
                        trace = traceback.extract_tb(error.__traceback__)[-1]
                        text = f"{type(error).__name__}: {error} [{trace.filename.split('/')[-1]}:{trace.lineno}]"[:300]
                        if "Revoked" in text:
                            raise
                    for other, told in enumerate(share(text)):
                        if told:
                            wrong.append(f"{what}: rank {other}: {told}")
        context.budget.start_window()
        if context.budget.used_bytes > before:
            wrong.append(f"{shape}: {context.budget.used_bytes - before} bytes are left in use on rank {rank}")
        table.release()
    context.workspace.config = gl.GcylonConfig()
    for skewed in (False, True):
        try:
            text = check_turns(skewed, share)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:300]
            if "Revoked" in text:
                raise
        wrong += [f"turns, skewed {skewed}: rank {other}: {told}" for other, told in enumerate(share(text)) if told]
    equipment = context.equipment
    if rank == 0:
        found = {"kind": equipment.kind, "reason": equipment.reason, "route": equipment.route, "wrong": wrong[:12]}
        print(json.dumps(found | {"count": len(wrong)}))
    context.close()


if __name__ == "__main__":
    main()
