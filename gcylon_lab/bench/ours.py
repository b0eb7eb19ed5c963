"""Our shuffle as a contender: tables, budget, votes, spans and sampler are all on."""

from __future__ import annotations

import sys
import time

import pandas as pd
from mpi4py import MPI

import gcylon_lab as gl

from .cases import KEY, VALUES, ShuffleCase
from .checks import check_ranks
from .seats import Answer, serve


def main(rows: int) -> None:
    """Serve the bench on every rank; the order's ``variant`` is the strategy."""
    context = gl.initialize()
    comm = MPI.COMM_WORLD
    case = ShuffleCase(ranks=comm.size, rows=rows)

    def step(repeat: int, variant: str, check_keys: bool) -> Answer:
        columns = case.columns(comm.rank, repeat)
        table = gl.from_local(pd.DataFrame(columns))
        comm.Barrier()
        start = time.perf_counter()
        result = table.shuffle(KEY, strategy=variant)
        seconds = time.perf_counter() - start
        frame = result.local()
        after = {name: frame[name].to_numpy() for name in (KEY, *VALUES)}
        wrong = check_ranks(comm, columns, after, check_keys=check_keys)
        plan = result.last_plan
        result.release()
        table.release()
        return {"seconds": seconds, "wrong": wrong, "strategy": plan.strategy, "rounds": plan.rounds}

    serve(step, context.rank)


if __name__ == "__main__":
    main(int(sys.argv[1]))
