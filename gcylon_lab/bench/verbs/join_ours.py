"""Our join as a contender: tables, budget, agreements, spans and sampler are all on."""

from __future__ import annotations

import sys
import time

import pandas as pd
from mpi4py import MPI

import gcylon_lab as gl

from ..harness.cases import VALUES
from ..harness.worker_processes import Answer, serve
from .join import OTHER, JoinCase, summed


def main(rows: int) -> None:
    """Serve the bench on every rank."""
    context = gl.initialize()
    comm = MPI.COMM_WORLD
    case = JoinCase(ranks=comm.size, rows=rows)

    def step(repeat: int, variant: str) -> Answer:
        left, right = (gl.from_local(pd.DataFrame(columns)) for columns in case.columns(comm.rank, repeat))
        comm.Barrier()
        start = time.perf_counter()
        result = left.join(right, on="k")
        seconds = time.perf_counter() - start
        frame, plan = result.local(), result.last_plan
        sums = summed({name: frame[name].to_numpy() for name in ("k", *VALUES, OTHER)})
        del frame
        for table in (result, left, right):
            table.release()
        assert plan is not None
        kind = plan.notes[0].partition(" ")[0]
        return {"seconds": seconds, "summed": sums, "strategy": plan.strategy, "rounds": plan.rounds, "kind": kind}

    serve(step, context.rank)


if __name__ == "__main__":
    main(int(sys.argv[1]))
