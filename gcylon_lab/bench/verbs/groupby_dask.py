"""dask's group-by as a contender: a client here, one single-threaded worker process a rank."""

from __future__ import annotations

import sys
import time

import pandas as pd

from ..dask_cluster import dask_cluster
from ..harness.cases import KEY, VALUES, Columns
from ..harness.worker_processes import Answer, serve
from .groupby import GroupbyCase, summed


def make_frame(rank: int, rows: int, keys: int, repeat: int) -> pd.DataFrame:
    """One partition: the same rows that one rank holds in our table."""
    return pd.DataFrame(GroupbyCase(rows=rows, keys=keys).columns(rank, repeat))


def columns_of(groups: pd.DataFrame) -> Columns:
    """The keys, which are the index, and the sums."""
    return {KEY: groups.index.to_numpy()} | {name: groups[name].to_numpy() for name in VALUES}


def _summed(groups: pd.DataFrame) -> list[float]:
    return summed(columns_of(groups))


def main(ranks: int, rows: int, keys: int) -> None:
    """Serve the bench; the order's ``variant`` says whether the result is one partition."""
    import dask.dataframe as dd
    from distributed import Client, futures_of, wait

    cluster = dask_cluster(ranks)
    with cluster, Client(cluster) as client:
        meta = make_frame(0, 0, keys, 0)

        def step(repeat: int, variant: str) -> Answer:
            numbers = list(range(ranks))
            frames = dd.from_map(make_frame, numbers, rows=rows, keys=keys, repeat=repeat, meta=meta).persist()
            wait(frames)
            start = time.perf_counter()
            parts = 1 if variant == "one" else ranks
            result = frames.groupby(KEY, sort=False).sum(split_out=parts).persist()
            wait(result)
            seconds = time.perf_counter() - start
            sums = client.gather(client.map(_summed, futures_of(result)))
            return {"seconds": seconds, "summed": [sum(column) for column in zip(*sums, strict=True)]}

        serve(step)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
