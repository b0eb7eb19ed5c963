"""dask's sort as a contender: a client here, one single-threaded worker process a rank."""

from __future__ import annotations

import logging
import sys
import time

import pandas as pd

from ..dask_cluster import dask_cluster
from ..harness.cases import KEY, VALUES
from ..harness.sort_cases import Seen, SortCase, check_sorted, look_at
from ..harness.worker_processes import Answer, serve


def make_frame(rank: int, rows: int, repeat: int) -> pd.DataFrame:
    """One partition: the same rows that one rank holds in the other contender."""
    return pd.DataFrame(SortCase(rows=rows).columns(rank, repeat))


def _seen(frame: pd.DataFrame) -> Seen:
    return look_at({name: frame[name].to_numpy() for name in (KEY, *VALUES)})


def main(ranks: int, rows: int) -> None:
    """Serve the bench; the order's ``variant`` is dask's ``shuffle_method``."""
    import dask.dataframe as dd
    from distributed import Client, futures_of, wait

    # Each p2p shuffle warns when it starts and ends as it should.
    logging.getLogger("distributed").setLevel(logging.ERROR)
    cluster = dask_cluster(ranks)
    with cluster, Client(cluster) as client:
        meta = make_frame(0, 0, 0)

        def step(repeat: int, variant: str) -> Answer:
            frames = dd.from_map(make_frame, list(range(ranks)), rows=rows, repeat=repeat, meta=meta).persist()
            wait(frames)
            start = time.perf_counter()
            result = frames.sort_values(KEY, shuffle_method=variant).persist()
            wait(result)
            seconds = time.perf_counter() - start
            before, after = (client.gather(client.map(_seen, futures_of(table))) for table in (frames, result))
            return {"seconds": seconds, "wrong": check_sorted(before, after)}

        serve(step)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
