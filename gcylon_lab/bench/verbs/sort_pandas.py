"""pandas' sort in one process as a contender: all ranks' rows in one frame."""

from __future__ import annotations

import sys
import time
from typing import Literal

import pandas as pd

from ..harness.cases import KEY, VALUES
from ..harness.sort_cases import check_sorted, look_at
from ..harness.worker_processes import Answer, serve
from .sort_dask import make_frame


def main(ranks: int, rows: int) -> None:
    """Serve the bench; the order's ``variant`` is pandas' ``kind``."""

    def step(repeat: int, variant: Literal["quicksort", "stable"]) -> Answer:
        frame = pd.concat([make_frame(rank, rows, repeat) for rank in range(ranks)], ignore_index=True)
        start = time.perf_counter()
        result = frame.sort_values(KEY, kind=variant, ignore_index=True)
        seconds = time.perf_counter() - start
        before, after = (
            look_at({name: table[name].to_numpy() for name in (KEY, *VALUES)}) for table in (frame, result)
        )
        return {"seconds": seconds, "wrong": check_sorted([before], [after])}

    serve(step)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
