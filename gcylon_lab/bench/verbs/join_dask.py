"""dask's merge as a contender: a client here, one single-threaded worker process a rank."""

from __future__ import annotations

import logging
import sys
import time

import pandas as pd

from ..dask_cluster import dask_cluster
from ..harness.cases import VALUES
from ..harness.worker_processes import Answer, serve
from .join import OTHER, JoinCase, summed


def make_frame(rank: int, ranks: int, rows: int, repeat: int, side: int) -> pd.DataFrame:
    """One partition of a side: the same rows that one rank holds in our tables."""
    return pd.DataFrame(JoinCase(ranks=ranks, rows=rows).columns(rank, repeat)[side])


def _summed(frame: pd.DataFrame) -> list[int]:
    return summed({name: frame[name].to_numpy() for name in ("k", *VALUES, OTHER)})


def main(ranks: int, rows: int) -> None:
    """Serve the bench."""
    import dask.dataframe as dd
    from distributed import Client, futures_of, wait

    # Each p2p shuffle warns when it starts and ends as it should.
    logging.getLogger("distributed").setLevel(logging.ERROR)
    cluster = dask_cluster(ranks)
    with cluster, Client(cluster) as client:
        metas = [make_frame(0, ranks, 0, 0, side) for side in (0, 1)]

        def step(repeat: int, variant: str) -> Answer:
            sides = [
                dd.from_map(
                    make_frame, list(range(ranks)), ranks=ranks, rows=rows, repeat=repeat, side=side, meta=metas[side]
                ).persist()
                for side in (0, 1)
            ]
            wait(sides)
            start = time.perf_counter()
            result = sides[0].merge(sides[1], on="k").persist()
            wait(result)
            seconds = time.perf_counter() - start
            sums = client.gather(client.map(_summed, futures_of(result)))
            return {"seconds": seconds, "summed": [sum(s[0] for s in sums), sum(s[1] for s in sums) % 2**64]}

        serve(step)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
