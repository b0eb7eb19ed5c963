"""Our group-by as a contender: tables, budget, agreements, spans and sampler are all on."""

from __future__ import annotations

import sys
import time

import pandas as pd
from mpi4py import MPI

import gcylon_lab as gl

from ..harness.cases import KEY, VALUES
from ..harness.worker_processes import Answer, serve
from .groupby import GroupbyCase, summed
from .shuffle_ours import local_columns


def main(rows: int, keys: int) -> None:
    """Serve the bench on every rank; the order's ``variant`` is the strategy."""
    context = gl.initialize()
    comm = MPI.COMM_WORLD
    case = GroupbyCase(ranks=comm.size, rows=rows, keys=keys)

    def step(repeat: int, variant: str) -> Answer:
        table = gl.from_local(pd.DataFrame(case.columns(comm.rank, repeat)))
        comm.Barrier()
        start = time.perf_counter()
        result = table.groupby(KEY).agg(dict.fromkeys(VALUES, "sum"), strategy=variant)
        seconds = time.perf_counter() - start
        sums, plan = summed(local_columns(result)), result.last_plan
        result.release()
        table.release()
        assert plan is not None
        return {"seconds": seconds, "summed": sums, "strategy": plan.strategy, "rounds": plan.rounds}

    serve(step, context.rank)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
