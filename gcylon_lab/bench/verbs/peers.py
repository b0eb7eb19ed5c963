"""dask and pandas as contenders: a client with one single-threaded worker process a rank, and one process for all."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from ..dask_cluster import dask_cluster
from ..harness.cases import KEY, Columns, add_checksums, checksum, distinct, shared_keys
from ..harness.sort_cases import check_sorted, look_at
from ..harness.worker_processes import Answer, serve
from . import groupby, join
from .turns import case_of

_DASK: dict[str, Callable[..., Any]] = {
    "shuffle": lambda frame, how: frame.shuffle(KEY, shuffle_method=how),
    "sort": lambda frame, how: frame.sort_values(KEY, shuffle_method=how),
    "groupby": lambda frame, how: frame.groupby(KEY, sort=False).sum(
        split_out=1 if how == "one" else frame.npartitions
    ),
    "join": lambda left, right, how: left.merge(right, on=KEY),
}
_PANDAS: dict[str, Callable[..., Any]] = {
    "sort": lambda frame, how: frame.sort_values(KEY, kind=how, ignore_index=True),
    "groupby": lambda frame, how: frame.groupby(KEY, sort=False).sum(),
}


def make_frame(rank: int, case: Any, repeat: int, side: int | None = None) -> pd.DataFrame:
    """One partition: the same rows that one rank holds in our tables, of a side where there are two."""
    columns = case.columns(rank, repeat)
    return pd.DataFrame(columns if side is None else columns[side])


def _arrays(frame: pd.DataFrame) -> Columns:
    """Its columns, and the index where that is the key."""
    frame = frame.reset_index() if frame.index.name == KEY else frame
    return {str(name): frame[name].to_numpy() for name in frame}


def seen_of(frame: pd.DataFrame, verb: str) -> Any:
    """What is told of a partition to compare it."""
    columns = _arrays(frame)
    if verb == "shuffle":
        return len(frame), checksum(columns)
    return {"sort": look_at, "groupby": groupby.summed, "join": join.summed}[verb](columns)


def _answer(verb: str, before: Sequence[Any], after: Sequence[Any]) -> Answer:
    """What is said of partitions: what is wrong, or what others are compared with."""
    if verb == "sort":
        return {"wrong": check_sorted(before, after)}
    if verb != "shuffle":
        return {"summed": [sum(column) for column in zip(*after, strict=True)]}
    (rows_in, sums_in), (rows_out, sums_out) = (zip(*seen, strict=True) for seen in (before, after))
    alike = sum(rows_in) == sum(rows_out) and add_checksums(sums_in) == add_checksums(sums_out)
    return {"wrong": "" if alike else "the rows before and after differ"}


def _distinct(frame: pd.DataFrame) -> Any:
    return distinct(frame[KEY].to_numpy())


def serve_dask(verb: str, case: Any) -> None:
    """Serve the bench; the order's ``variant`` is dask's ``shuffle_method``, or whether groups are in one partition."""
    import dask.dataframe as dd
    from distributed import Client, futures_of, wait

    # Each p2p shuffle warns when it starts and ends as it should.
    logging.getLogger("distributed").setLevel(logging.ERROR)
    cluster = dask_cluster(case.ranks)
    with cluster, Client(cluster) as client:
        sides = (0, 1) if verb == "join" else (None,)
        metas = {side: make_frame(0, type(case)(ranks=case.ranks, rows=0), 0, side) for side in sides}

        def seen(table: Any) -> list[Any]:
            found: list[Any] = client.gather(client.map(seen_of, futures_of(table), verb=verb))
            return found

        def step(repeat: int, variant: str, check_keys: bool = False) -> Answer:
            numbers = list(range(case.ranks))
            tables = [
                dd.from_map(make_frame, numbers, case=case, repeat=repeat, side=side, meta=metas[side]).persist()
                for side in sides
            ]
            wait(tables)
            start = time.perf_counter()
            result = _DASK[verb](*tables, variant).persist()
            wait(result)
            answer: Answer = {"seconds": time.perf_counter() - start}
            answer |= _answer(verb, seen(tables[0]) if verb in ("shuffle", "sort") else [], seen(result))
            if check_keys and not answer["wrong"]:
                stray = shared_keys(client.gather(client.map(_distinct, futures_of(result))))
                answer["wrong"] = f"{stray} keys ended in more than one partition" if stray else ""
            return answer

        serve(step)


def serve_pandas(verb: str, case: Any) -> None:
    """Serve the bench; the order's ``variant`` is pandas' ``kind`` of a sort."""

    def step(repeat: int, variant: str) -> Answer:
        frame = pd.concat([make_frame(rank, case, repeat) for rank in range(case.ranks)], ignore_index=True)
        start = time.perf_counter()
        result = _PANDAS[verb](frame, variant)
        seconds = time.perf_counter() - start
        return {"seconds": seconds} | _answer(verb, [seen_of(frame, verb)], [seen_of(result, verb)])

    serve(step)


if __name__ == "__main__":
    name, verb, *sizes = sys.argv[1:]
    {"dask": serve_dask, "pandas": serve_pandas}[name](verb, case_of(verb, *map(int, sizes)))
