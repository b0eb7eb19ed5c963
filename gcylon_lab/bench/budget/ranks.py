"""The ranks of ``bench budget``."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from mpi4py import MPI

import gcylon_lab as gl

from ...errors import BudgetExceeded, GcylonError
from ...runtime.context import Context
from ..harness.checks import high_water_bytes, reset_high_water
from ..harness.worker_processes import Answer, serve
from .tables import KEY, KINDS, make_frame, make_right

_WARMUP_PART = 8


def _run(verb: str, kind: str, tables: Sequence[gl.Table], how: dict[str, Any], *, plan: bool = False) -> Any:
    """Run a verb on the first table, or plan it; a join with the second."""
    table, right = tables
    verbs: Any = table.plan if plan else table
    if verb == "groupby":
        function = KINDS[kind].function
        return verbs.groupby(KEY).agg({column: function for column in table.columns if column != KEY}, **how)
    if verb == "join":
        return verbs.join(right, on=KEY, **how)
    if verb == "distinct":
        return verbs.drop_duplicates(**how)
    return getattr(verbs, verb)(KEY, **how)


class _Rank:
    """The tables of one kind and skew, and what runs on them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kind = ""
        self._tables: list[gl.Table] = []
        self._small: list[gl.Table] = []
        self._sliced_for = 0

    def load(self, kind: str, skew: str, part_bytes: int) -> Answer:
        """Make the tables, and small ones of the same kind for warm-ups."""
        for table in (*self._tables, *self._small):
            table.release()
        self._kind, self._sliced_for = kind, self._context.budget.limit_bytes
        self._tables = self._made(kind, skew, part_bytes)
        # One long string would make a warm-up as large as what it warms up for.
        small = "str" if kind == "bigstr" else kind
        self._small = self._made(small, skew, part_bytes // _WARMUP_PART)
        for table in (self._tables[1], *self._small):
            self._stage(table, 0)  # what no operation counts with shall not be in its way
        part = self._tables[0]._live()
        return {"rows": part.rows, "nbytes": part.nbytes}

    def _made(self, kind: str, skew: str, part_bytes: int) -> list[gl.Table]:
        rank, size = self._context.rank, self._context.size
        return [
            gl.from_local(make_frame(kind, skew, part_bytes, rank, size)),
            gl.from_local(make_right(kind, part_bytes, rank, size)),
        ]

    def run(self, verb: str, limit_bytes: int, strategy: str, *, stage: bool, warm: bool) -> Answer:
        """Run a verb under a limit, 0 for none, and measure what it took."""
        if stage:
            self._stage_all(limit_bytes)
        config = gl.GcylonConfig(gpu_memory_limit=limit_bytes)
        how: dict[str, Any] = {"strategy": strategy, "config": config}
        if warm:
            self._warm_up(verb, how)
        answer: Answer = {"planned": self._planned(verb, how), "held": self._context.budget.used_bytes}
        answer |= self._measured(verb, how)
        return answer

    def _stage_all(self, limit_bytes: int) -> None:
        """Put the tables on disk; slices of a larger limit may be larger than this one, and so are made anew."""
        if limit_bytes < self._sliced_for:
            self._sliced_for = limit_bytes
            for place, table in enumerate(self._tables):
                rows = table.local()
                table.release()
                self._tables[place] = gl.from_local(rows)
        for table in self._tables:
            self._stage(table, limit_bytes)

    def _stage(self, table: gl.Table, limit_bytes: int) -> None:
        """Put a table on disk, in slices as a limit wants them, or where it is 0 none does."""
        workspace, part = self._context.workspace, table._live()
        with workspace.budget.limited(limit_bytes or workspace.budget.limit_bytes):
            part.stage(workspace, part.nbytes, workspace.slice_bytes(workspace.budget.limit_bytes))
            part.cut(workspace)

    def _warm_up(self, verb: str, how: dict[str, Any]) -> None:
        try:
            _run(verb, self._kind, self._small, how).release()
        except GcylonError as error:
            if not error.agreed:
                raise

    def _planned(self, verb: str, how: dict[str, Any]) -> int:
        """The peak that a plan predicts for the rank that needs most; 0 where it refuses."""
        try:
            return int(_run(verb, self._kind, self._tables, how, plan=True).highest_peak_bytes)
        except GcylonError as error:
            if not error.agreed:
                raise
            return 0

    def _measured(self, verb: str, how: dict[str, Any]) -> Answer:
        context = self._context
        context.budget.reset_peak()
        reset_high_water()
        MPI.COMM_WORLD.Barrier()
        before, start, cpu = high_water_bytes(), time.perf_counter(), time.process_time()
        answer: Answer = {"error": "", "refused": False, "would_do": 0, "rows": 0}
        result = None
        try:
            result = _run(verb, self._kind, self._tables, how)
        except GcylonError as error:
            answer["error"] = f"{type(error).__name__}: {error}"
            answer["refused"] = isinstance(error, BudgetExceeded)
            answer["would_do"] = error.numbers.get("would_do", 0)
        answer["cpu_s"], answer["seconds"] = time.process_time() - cpu, time.perf_counter() - start
        answer["grown"] = high_water_bytes() - before
        record = context.recorder.operations[-1]
        answer |= {
            "peak": context.budget.peak_bytes,
            "predicted": record.predicted_peak_bytes,
            "measured": record.measured_peak_bytes,
            "chosen": record.strategy,
            "rounds": record.rounds_done,
        }
        if result is not None:
            answer["rows"] = result.num_rows
            result.release()
        return answer


def main() -> None:
    """Serve the bench on every rank, on a CPU engine: how a process grows says nothing of a GPU's memory."""
    os.environ["GCYLON_ENGINE"] = "cpu"
    context = gl.initialize()
    rank = _Rank(context)

    def step(do: str, **order: Any) -> Answer:
        return rank.load(**order) if do == "load" else rank.run(**order)

    serve(step, context.rank)


if __name__ == "__main__":
    main()
