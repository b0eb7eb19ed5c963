"""Our shuffle of TPC-H and plain tables as a contender: budget, agreements, spans and sampler are all on."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import gcylon_lab as gl

from ...errors import BudgetExceeded
from ...runtime.context import Context
from ..harness.row_sums import rows_and_sum, stray_rows
from ..harness.worker_processes import Answer, serve
from .tpch_tables import BUDGETS, TABLES, TableCase, case_named, count_rows, frames


class Inputs:
    """One rank's table of those that the bench asks for: one at a time."""

    def __init__(self, context: Context, folder: Path, plain_rows: int) -> None:
        self._context, self._folder, self._plain_rows = context, folder, plain_rows
        self._name = ""
        self._table: gl.Table | None = None
        self.rows_and_sum = (0, 0)

    def get(self, name: str) -> gl.Table:
        """Collective: all ranks call it. The table of a name; the one before is released."""
        if self._table is None or self._name != name:
            if self._table is not None:
                self._table.release()
            context = self._context
            made = frames(self._folder, TABLES[name], context.rank, context.size, self._plain_rows)
            self._table, self._name = gl.from_local(made), name
            self.rows_and_sum = rows_and_sum(self._table, context.workspace)
        return self._table


def find_wrong(context: Context, before: tuple[int, int], result: gl.Table, key: str) -> str:
    """Collective: all ranks call it. Compare all rows before and after, and see that equal keys met."""
    after = rows_and_sum(result, context.workspace)
    numbers = [value - 2**63 for value in (*before, *after)] + [stray_rows(result, context.workspace, key)]
    told = context.transport.agree(np.array(numbers, dtype=np.int64)).astype(object)
    rows_in, sum_in, rows_out, sum_out = (sum(told[:, i] + 2**63) % 2**64 for i in range(4))
    if (rows_in, sum_in) != (rows_out, sum_out):
        return f"rows or checksums differ: {rows_in} rows, {sum_in} before, {rows_out} rows, {sum_out} after"
    stray = sum(told[:, 4])
    return f"{stray} rows are on a rank that is not their key's" if stray else ""


def run_case(context: Context, inputs: Inputs, case: TableCase, *, check: bool) -> Answer:
    """Collective: all ranks call it. Shuffle once, and say how it went."""
    table, key = inputs.get(case.table), TABLES[case.table].key
    sizes = context.transport.agree(np.array([table.nbytes], dtype=np.int64))[:, 0]
    config = gl.GcylonConfig(gpu_memory_limit=int(case.budget * int(sizes.max())))
    context.transport.agree(np.zeros(1, dtype=np.int64))
    start = time.perf_counter()
    try:
        result = table.shuffle(key, strategy=case.strategy, config=config)
    except BudgetExceeded as error:
        return {"refused": str(error), "wrong": ""}
    seconds = time.perf_counter() - start
    record = context.recorder.operations[-1]
    wrong = find_wrong(context, inputs.rows_and_sum, result, key) if check else ""
    result.release()
    return {
        "seconds": seconds, "wrong": wrong, "strategy": record.strategy, "rounds": record.rounds_done,
        "peak": record.measured_peak_bytes, "predicted": record.predicted_peak_bytes, "budget": record.budget_bytes,
        "staged": record.staged_bytes, "rows": inputs.rows_and_sum[0], "bytes": int(sizes.max()),
        "engines": context.equipment.engines, "route": context.equipment.route,
    }  # fmt: skip


def main(folder: Path) -> None:
    """Serve the bench on every rank; the order's ``variant`` is a case's name."""
    size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    rank_bytes = -(-count_rows(folder, "lineitem") // size) * TABLES["lineitem"].row_bytes
    most = max(max(budgets.values()) for budgets in BUDGETS.values())
    context = gl.initialize(gl.GcylonConfig(gpu_memory_limit=int(rank_bytes * (most + 1))))
    inputs = Inputs(context, folder, rank_bytes // 32)

    def step(variant: str, repeat: int, check: bool) -> Answer:
        answer: dict[str, Any] = run_case(context, inputs, case_named(variant), check=check)
        return answer

    serve(step, context.rank)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
