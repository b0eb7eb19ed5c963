"""The ranks of ``bench peak``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pandas as pd
from mpi4py import MPI

import gcylon_lab as gl

from .harness.cases import KEY, ShuffleCase
from .harness.checks import check_ranks, count_and_sum, high_water_bytes, reset_high_water
from .harness.worker_processes import Answer, serve
from .verbs.ours import local_columns

_PIECE_ROWS = 2**17


class _Pieces:
    """A part made piece by piece, never whole in memory, with its checksum."""

    def __init__(self, rank: int, repeat: int, rows: int) -> None:
        self._rank, self._repeat, self._rows = rank, repeat, rows
        self.rows = self.checksum = 0

    def __iter__(self) -> Iterator[pd.DataFrame]:
        for number, start in enumerate(range(0, self._rows, _PIECE_ROWS)):
            piece = ShuffleCase(rows=min(_PIECE_ROWS, self._rows - start))
            columns = piece.columns(self._rank, self._repeat * 10_000 + number)
            rows, checksum = count_and_sum(columns)
            self.rows, self.checksum = self.rows + rows, (self.checksum + checksum) % 2**64
            yield pd.DataFrame(columns)


def main(budget_bytes: int) -> None:
    """Serve the bench on every rank."""
    context = gl.initialize(gl.GcylonConfig(gpu_memory_limit=budget_bytes))
    comm = MPI.COMM_WORLD

    def step(rows: int, repeat: int) -> Answer:
        pieces = _Pieces(comm.rank, repeat, rows)
        table = gl.from_local(pieces)
        context.budget.reset_peak()
        comm.Barrier()
        reset_high_water()
        before, start = high_water_bytes(), time.perf_counter()
        result = table.shuffle(KEY, strategy="staged")
        seconds, grown_bytes = time.perf_counter() - start, high_water_bytes() - before
        peak_bytes, record = context.budget.peak_bytes, context.recorder.operations[-1]
        wrong = check_ranks(comm, (pieces.rows, pieces.checksum), local_columns(result), check_keys=True)
        tiers = result.tiers
        result.release()
        table.release()
        return {
            "wrong": wrong,
            "seconds": seconds,
            "peak_bytes": peak_bytes,
            "grown_bytes": grown_bytes,
            "rounds": record.rounds_done,
            "staged_bytes": record.staged_bytes,
            "result_tiers": tiers,
        }

    serve(step, context.rank)


if __name__ == "__main__":
    main(int(sys.argv[1]))
