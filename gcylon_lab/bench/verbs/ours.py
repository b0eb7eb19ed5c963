"""Ours as a contender: tables, budget, agreements, spans and sampler are all on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
from mpi4py import MPI

import gcylon_lab as gl

from ...profiling.cost import event_cost_ns
from ...runtime.context import Context
from ..harness.cases import KEY, VALUES, Columns
from ..harness.checks import check_ranks, count_and_sum
from ..harness.sort_cases import check_sorted, look_at
from ..harness.worker_processes import Answer, serve
from . import groupby, join
from .turns import case_of

_CALLS: dict[str, Callable[..., gl.Table]] = {
    "shuffle": lambda table, how: table.shuffle(KEY, strategy=how),
    "sort": lambda table, how: table.sort_values(KEY, strategy=how),
    "groupby": lambda table, how: table.groupby(KEY).agg(dict.fromkeys(VALUES, "sum"), strategy=how),
    "join": lambda left, right, how: left.join(right, on=KEY, strategy=how),
}


def main(verb: str, rows: int, *keys: int) -> None:
    """Serve the bench on every rank; the order's ``variant`` is the strategy."""
    context = gl.initialize()
    comm = MPI.COMM_WORLD
    case = case_of(verb, comm.size, rows, *keys)

    def step(repeat: int, variant: str, check_keys: bool = False) -> Answer:
        given = case.columns(comm.rank, repeat)
        tables = [gl.from_local(pd.DataFrame(columns)) for columns in (given if verb == "join" else [given])]
        comm.Barrier()
        watch = _Watch(context)
        result = _CALLS[verb](*tables, variant)
        figures, plan = watch.stop(), result.last_plan
        assert plan is not None
        figures |= {"strategy": plan.strategy, "rounds": plan.rounds} | looked_at(given, result, plan, check_keys)
        for table in (result, *tables):
            table.release()
        return figures

    def looked_at(given: Any, result: gl.Table, plan: Any, check_keys: bool) -> Answer:
        rows = local_columns(result)
        if verb == "shuffle":
            return {"wrong": check_ranks(comm, count_and_sum(given), rows, check_keys=check_keys)}
        if verb == "sort":
            return {"wrong": check_sorted(comm.allgather(look_at(given)), comm.allgather(look_at(rows)))}
        if verb == "groupby":
            return {"summed": groupby.summed(rows)}
        return {"summed": join.summed(rows), "kind": plan.notes[0].partition(" ")[0]}

    serve(step, context.rank)


def local_columns(table: gl.Table) -> Columns:
    """This rank's rows as numpy arrays."""
    frame = table.local()
    return {str(name): frame[name].to_numpy() for name in frame}


class _Watch:
    """Time, CPU time and the recording of one operation."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before = self._now()
        self._start = time.perf_counter()

    def _now(self) -> tuple[float, int, int]:
        return time.process_time(), self._context.recorder.recorded, self._context.sampler.cpu_ns

    def stop(self) -> dict[str, Any]:
        """Return seconds, cpu_s (all threads), events, event_cost_ns and sampler_cpu_s."""
        seconds = time.perf_counter() - self._start
        cpu_s, events, sampler_ns = (after - before for after, before in zip(self._now(), self._before, strict=True))
        return {
            "seconds": seconds,
            "cpu_s": cpu_s,
            "events": events,
            "event_cost_ns": event_cost_ns(),
            "sampler_cpu_s": sampler_ns / 1e9,
        }


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
