"""Our sort as a contender: tables, budget, agreements, spans and sampler are all on."""

from __future__ import annotations

import sys
import time

import pandas as pd
from mpi4py import MPI

import gcylon_lab as gl

from ..harness.cases import KEY
from ..harness.sort_cases import SortCase, check_sorted, look_at
from ..harness.worker_processes import Answer, serve
from .shuffle_ours import local_columns


def main(rows: int) -> None:
    """Serve the bench on every rank; the order's ``variant`` is the strategy."""
    context = gl.initialize()
    comm = MPI.COMM_WORLD
    case = SortCase(ranks=comm.size, rows=rows)

    def step(repeat: int, variant: str) -> Answer:
        columns = case.columns(comm.rank, repeat)
        table = gl.from_local(pd.DataFrame(columns))
        comm.Barrier()
        start = time.perf_counter()
        result = table.sort_values(KEY, strategy=variant)
        seconds = time.perf_counter() - start
        wrong = check_sorted(comm.allgather(look_at(columns)), comm.allgather(look_at(local_columns(result))))
        plan = result.last_plan
        result.release()
        table.release()
        assert plan is not None
        return {"seconds": seconds, "wrong": wrong, "strategy": plan.strategy, "rounds": plan.rounds}

    serve(step, context.rank)


if __name__ == "__main__":
    main(int(sys.argv[1]))
