"""A program for ranks with GPUs: sort_values with every strategy on keys of many kinds, compared with pandas.

    mpiexec --with-ft ulfm -n 2 python tests/gpu/sorts_on_gpu.py

Prints, on rank 0, a line of JSON: the equipment, and what was wrong.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import pandas as pd

import gcylon_lab as gl
from gcylon_lab.runtime.context import current

sys.path[:0] = [str(Path(__file__).parents[1] / "ops"), str(Path(__file__).parents[1])]
from exchanges import make_frame  # noqa: E402
from sorts import KINDS, expected, frame_of, sort  # noqa: E402

ROWS = 40_000
HOWS: list[tuple[Any, dict[str, Any]]] = [
    ("k", {}),
    (["c", "x"], {"ascending": [False, True], "na_position": "first"}),
    (["s", "m"], {"ascending": [True, False]}),
    (["t", "n", "b"], {"ascending": [False, False, True]}),
]


def share(value: Any) -> list[Any]:
    return [pickle.loads(text) for text in current().transport.share(pickle.dumps(value))]


def wrong(frame: pd.DataFrame, by: Any, how: dict[str, Any], strategy: str, config: gl.GcylonConfig | None) -> str:
    """Sort; returns what was wrong on this rank, or nothing."""
    found = sort(frame, by, how, strategy, config)
    want = expected(share(frame), by, **how)
    parts = share(found["frame"])
    got = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    if list(got["g"]) != list(want["g"]):
        return f"{len(got)} rows in another order"
    if found["peak"] > found["limit"]:
        return f"peak {found['peak']} above {found['limit']}"
    if strategy not in ("auto", found["plan"].strategy):
        return f"ran {found['plan'].strategy}"
    before, after = found["left"]
    return f"{before} bytes in use before, {after} after" if after[0] > before[0] or after[1] > before[1] else ""


def main() -> None:
    context = gl.initialize(engine=os.environ.get("GCYLON_ENGINE", "gpu"), sample_hz=0)
    rank, size = context.rank, context.size
    cases: list[tuple[str, pd.DataFrame, Any, dict[str, Any]]] = [
        (kind, frame_of(kind, rank, ROWS), "k", {}) for kind in KINDS
    ]
    for layout in ("even", "one rank empty", "one row"):
        cases += [(layout, make_frame(layout, rank, size), by, how) for by, how in HOWS]
    failures: list[str] = []
    for name, frame, by, how in cases:
        for strategy in ("direct", "chunked", "staged"):
            for chunk in (0, 64 * 1024):
                config = context.config.with_values(chunk_size_bytes=chunk)
                try:
                    text = wrong(frame, by, how, strategy, config)
                except Exception as error:
                    trace = traceback.extract_tb(error.__traceback__)[-1]
                    text = f"{type(error).__name__}: {error} [{trace.filename.split('/')[-1]}:{trace.lineno}]"[:300]
                    if "Revoked" in text:
                        raise
                told = share(text)
                failures += [f"{name} {by} {strategy} chunk {chunk}: rank {r}: {t}" for r, t in enumerate(told) if t]
    equipment = context.equipment
    if rank == 0:
        found = {"kind": equipment.kind, "reason": equipment.reason, "route": equipment.route, "wrong": failures[:12]}
        print(json.dumps(found | {"count": len(failures)}))
    context.close()


if __name__ == "__main__":
    main()
