"""Our verbs on GPU ranks as a contender: budget, agreements, spans and sampler are all on."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np

import gcylon_lab as gl

from ...profiling import set_recorder
from ...runtime.context import Context
from ..harness.row_sums import descents, stray_rows
from ..harness.worker_processes import Answer, serve
from .cases import KEY_RANGE, ROW_BYTES, GpuCase, case_named, ceiling_bytes


class Ranks:
    """One rank's tables, made when they are first asked for, and what is known of them."""

    def __init__(self, context: Context, rows: int) -> None:
        self.context = context
        self.rows = rows
        self._table: gl.Table | None = None
        self._skewed: bool | None = None
        self.sums: tuple[int, ...] = ()

    def table(self, skewed: bool) -> gl.Table:
        """The input: keys over 2**40, or 90% of them one key."""
        if self._table is None or self._skewed is not skewed:
            if self._table is not None:
                self._table.release()
            self._table, self._skewed = None, None
            self._table, self._skewed = self._make(skewed), skewed
            self.sums = self.checksum(self._table)
        return self._table

    def _make(self, skewed: bool) -> gl.Table:
        import cudf
        import cupy

        random = cupy.random.default_rng(self.context.rank)

        def frames() -> Any:
            left, step = self.rows, -(-self.rows // 8)
            while left:
                n = min(step, left)
                left -= n
                keys = random.integers(0, KEY_RANGE, n, dtype=cupy.int64)
                if skewed:
                    keys[random.random(n) < 0.9] = 7
                yield cudf.DataFrame({"k": keys} | {f"v{i}": random.random(n) for i in range(3)})

        return gl.from_local(frames())

    def checksum(self, table: gl.Table) -> tuple[int, ...]:
        """Rows, and a sum of every column's bits, modulo 2**64."""
        import cupy

        rows, sums = 0, [0] * 4
        backend = self.context.workspace.backend
        for chunk in table._part.chunks:
            with chunk.load(self.context.workspace) as data:
                rows += data.rows
                views: list[Any] = backend.fixed_views(data, 0, data.rows)
                for place, view in enumerate(views):
                    sums[place] += int(cupy.sum(view.view(cupy.uint64), dtype=cupy.uint64))
        return rows, *(value % 2**64 for value in sums)

    def wrong(self, case: GpuCase, result: gl.Table) -> str:
        """Collective: all ranks call it. Compare all rows before and after, and see that equal keys met, or ascend."""
        context = self.context
        after = self.checksum(result)
        stray = 0
        if case.verb == "sort_values":
            everywhere = descents(result, context.workspace, "k")
            stray = everywhere if context.rank == 0 else 0
        if case.verb == "shuffle":
            stray = stray_rows(result, context.workspace, "k")
        mine = np.array([value - 2**63 for value in (*self.sums, *after)] + [stray], dtype=np.int64)
        told = context.transport.agree(mine).astype(object)
        before, ended = told[:, :5] + 2**63, told[:, 5:10] + 2**63
        want = [sum(before[:, i]) % 2**64 for i in range(5)]
        got = [sum(ended[:, i]) % 2**64 for i in range(5)] if case.verb in ("shuffle", "sort_values") else list(after)
        if want != got:
            return f"rows or checksums differ: {want} before, {got} after"
        return f"{sum(told[:, 10])} rows are where they do not belong" if any(told[:, 10]) else ""


def main(rows: int, extra_ceiling: float = 1.0) -> None:
    """Serve the bench on every rank; the order's ``variant`` is a case's name."""
    size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    ceiling = int(ceiling_bytes(rows * ROW_BYTES, size) * extra_ceiling)
    context = gl.initialize(gl.GcylonConfig(gpu_memory_limit=ceiling), engine="gpu")
    status = _gpu_used()
    ranks = Ranks(context, rows)

    def step(variant: str, repeat: int, check: bool, recording: bool = True, sampling: bool = True) -> Answer:
        record_or_not(context, recording=recording, sampling=sampling)
        case = case_named(variant)
        table = ranks.table(case.skewed)
        config = gl.GcylonConfig(gpu_memory_limit=case.limit_bytes(rows * ROW_BYTES, context.size))
        context.transport.agree(np.zeros(1, dtype=np.int64))
        arguments = {"shuffle": {"on": "k"}, "sort_values": {"by": "k"}}.get(case.verb, {})
        start = time.perf_counter()
        result = getattr(table, case.verb)(**arguments, strategy=case.strategy, config=config)
        seconds = time.perf_counter() - start
        wrong = ranks.wrong(case, result) if check else ""
        result.release()
        if not recording:
            return {"seconds": seconds, "wrong": wrong}
        record = context.recorder.operations[-1]
        return {
            "seconds": seconds,
            "wrong": wrong,
            "strategy": record.strategy,
            "rounds": record.rounds_done,
            "peak": record.measured_peak_bytes,
            "predicted": record.predicted_peak_bytes,
            "budget": record.budget_bytes,
            "staged": record.staged_bytes,
            "grown": _gpu_used() - status,
            "route": context.equipment.route,
        }

    serve(step, context.rank)


def record_or_not(context: Context, *, recording: bool, sampling: bool) -> None:
    """Turn spans and records, and samples, of this rank on or off, for a bench of what they cost."""
    recorder: Any = context.recorder if recording else None
    context.workspace.recorder = recorder
    set_recorder(recorder)
    if sampling is not context.sampler.running:
        (context.sampler.start if sampling else context.sampler.stop)()


def _gpu_used() -> int:
    from ...memory.nvml import GpuStatus

    return GpuStatus().read().used_bytes or 0


if __name__ == "__main__":
    main(int(float(sys.argv[1])))
