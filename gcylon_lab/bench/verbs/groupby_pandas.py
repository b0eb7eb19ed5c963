"""pandas' group-by in one process as a contender: all ranks' rows in one frame."""

from __future__ import annotations

import sys
import time

import pandas as pd

from ..harness.cases import KEY
from ..harness.worker_processes import Answer, serve
from .groupby import summed
from .groupby_dask import columns_of, make_frame


def main(ranks: int, rows: int, keys: int) -> None:
    """Serve the bench."""

    def step(repeat: int, variant: str) -> Answer:
        frame = pd.concat([make_frame(rank, rows, keys, repeat) for rank in range(ranks)], ignore_index=True)
        start = time.perf_counter()
        result = frame.groupby(KEY, sort=False).sum()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "summed": summed(columns_of(result))}

    serve(step)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
