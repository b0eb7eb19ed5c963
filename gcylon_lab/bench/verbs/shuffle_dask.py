"""dask's shuffle as a contender: a client here, one single-threaded worker process a rank."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import pandas as pd

from ..dask_cluster import dask_cluster
from ..harness.cases import KEY, VALUES, ShuffleCase, add_checksums, checksum, distinct, shared_keys
from ..harness.worker_processes import Answer, serve


def make_frame(rank: int, rows: int, repeat: int) -> pd.DataFrame:
    """One partition: the same rows that one rank holds in the other contenders."""
    return pd.DataFrame(ShuffleCase(rows=rows).columns(rank, repeat))


def _sum_rows(frame: pd.DataFrame) -> tuple[int, int]:
    return len(frame), checksum({name: frame[name].to_numpy() for name in (KEY, *VALUES)})


def _distinct(frame: pd.DataFrame) -> Any:
    return distinct(frame[KEY].to_numpy())


def _check(client: Any, before: Any, after: Any, check_keys: bool) -> str:
    from distributed import futures_of

    rows_in, sums_in = zip(*client.gather(client.map(_sum_rows, futures_of(before))), strict=True)
    rows_out, sums_out = zip(*client.gather(client.map(_sum_rows, futures_of(after))), strict=True)
    if sum(rows_in) != sum(rows_out) or add_checksums(sums_in) != add_checksums(sums_out):
        return "the rows before and after differ"
    stray = shared_keys(client.gather(client.map(_distinct, futures_of(after)))) if check_keys else 0
    return f"{stray} keys ended in more than one partition" if stray else ""


def main(ranks: int, rows: int) -> None:
    """Serve the bench; the order's ``variant`` is dask's ``shuffle_method``."""
    import dask.dataframe as dd
    from distributed import Client, wait

    # Each p2p shuffle warns when it starts and ends as it should.
    logging.getLogger("distributed").setLevel(logging.ERROR)
    cluster = dask_cluster(ranks)
    with cluster, Client(cluster) as client:
        meta = make_frame(0, 0, 0)

        def step(repeat: int, variant: str, check_keys: bool) -> Answer:
            frames = dd.from_map(make_frame, list(range(ranks)), rows=rows, repeat=repeat, meta=meta).persist()
            wait(frames)
            start = time.perf_counter()
            result = frames.shuffle(KEY, shuffle_method=variant).persist()
            wait(result)
            seconds = time.perf_counter() - start
            return {"seconds": seconds, "wrong": _check(client, frames, result, check_keys)}

        serve(step)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
