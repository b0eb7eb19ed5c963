"""The limit that an error advises is enough at the next try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.context import current, run_threads
from gcylon_lab.errors import BudgetExceeded

FRAMES = {
    # Staged in slices of two rows, each buffer of which is padded to four times its size.
    "wide": lambda: pd.DataFrame({f"c{i}": np.arange(50) for i in range(200)}),
    "narrow": lambda: pd.DataFrame({"c0": np.arange(3000), "v": 0.5}),
    "few": lambda: pd.DataFrame({"c0": [1]}),
    "text": lambda: pd.DataFrame({"c0": np.arange(3000), "s": [f"abc{i}" for i in range(3000)]}),
    "one_long_row": lambda: pd.DataFrame({"c0": [1, 2], "s": ["x" * 300_000, ""]}),
}


def follow_the_advice(kind: str, verb: str, strategy: str, disk: bool) -> tuple[int, int]:
    table = gl.from_local(FRAMES[kind]())
    how: dict[str, Any] = {"on": "c0"} if verb == "shuffle" else {}
    config = gl.GcylonConfig(gpu_memory_limit=1, allow_disk_spill=disk, min_chunk_rows=1)
    with pytest.raises(BudgetExceeded) as caught:
        getattr(table, verb)(**how, strategy=strategy, config=config)
    limit = caught.value.numbers["would_do"]
    caught.value.__traceback__ = None  # it holds tables
    getattr(table, verb)(**how, strategy=strategy, config=config.with_values(gpu_memory_limit=limit))
    peak = list(current().recorder.operations)[-1].measured_peak_bytes
    return peak, limit


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("strategy", ["auto", "direct", "chunked", "staged"])
@pytest.mark.parametrize("verb", ["shuffle", "allgather", "repartition"])
@pytest.mark.parametrize("kind", FRAMES)
def test_the_advised_limit_does(kind: str, verb: str, strategy: str, size: int) -> None:
    for disk in (True, False) if strategy != "staged" else (True,):
        for peak, limit in run_threads(size, follow_the_advice, kind, verb, strategy, disk):
            assert peak <= limit
