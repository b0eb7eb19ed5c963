"""Our shuffle as a contender: tables, budget, agreements, spans and sampler are all on."""

from __future__ import annotations

import sys
import time
from typing import Any

import pandas as pd
from mpi4py import MPI

import gcylon_lab as gl

from ...profiling.cost import event_cost_ns
from ...runtime.context import Context
from ..harness.cases import KEY, VALUES, Columns, ShuffleCase
from ..harness.checks import check_ranks, count_and_sum
from ..harness.worker_processes import Answer, serve


def main(rows: int) -> None:
    """Serve the bench on every rank; the order's ``variant`` is the strategy."""
    context = gl.initialize()
    comm = MPI.COMM_WORLD
    case = ShuffleCase(ranks=comm.size, rows=rows)

    def step(repeat: int, variant: str, check_keys: bool) -> Answer:
        columns = case.columns(comm.rank, repeat)
        table = gl.from_local(pd.DataFrame(columns))
        comm.Barrier()
        watch = _Watch(context)
        result = table.shuffle(KEY, strategy=variant)
        figures = watch.stop()
        wrong = check_ranks(comm, count_and_sum(columns), local_columns(result), check_keys=check_keys)
        plan = result.last_plan
        result.release()
        table.release()
        assert plan is not None
        return figures | {"wrong": wrong, "strategy": plan.strategy, "rounds": plan.rounds}

    serve(step, context.rank)


def local_columns(table: gl.Table) -> Columns:
    """This rank's rows as numpy arrays."""
    frame = table.local()
    return {name: frame[name].to_numpy() for name in (KEY, *VALUES)}


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
    main(int(sys.argv[1]))
