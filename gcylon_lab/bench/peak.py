"""``gcylon-lab bench peak``: a staged shuffle of parts much larger than the budget."""

from __future__ import annotations

from typing import Any

from ..errors import ClusterError
from .harness.cases import ROW_BYTES
from .harness.worker_processes import mpi_contender

_WARMUP_PART = 8


def run(ranks: int, part_bytes: int, budget_bytes: int) -> dict[str, Any]:
    """Shuffle staged, and see that the rows are the same and the memory stayed within bounds.

    Parameters
    ----------
    ranks : int
    part_bytes, budget_bytes : int
        Of each rank.

    Returns
    -------
    dict
        Plain values; of every rank ``peak_bytes`` (of the budget), ``grown_bytes`` (VmHWM above where it was when it
        was reset, after a warm-up on an eighth of the rows), staged_bytes, rounds and seconds.

    Raises
    ------
    ClusterError
        If rows were lost or changed.
    """
    rows = part_bytes // ROW_BYTES
    with mpi_contender("peak", "gcylon_lab.bench.peak_ranks", ranks, str(budget_bytes), step_s=1200) as contender:
        contender.step(rows=rows // _WARMUP_PART, repeat=0)
        answers = contender.step(rows=rows, repeat=1)
    wrong = next((answer["wrong"] for answer in answers if answer["wrong"]), "")
    if wrong:
        raise ClusterError(f"The staged shuffle gave a wrong result: {wrong}.")
    return {
        "bench": "peak",
        "case": {"ranks": ranks, "part_bytes": rows * ROW_BYTES, "budget_bytes": budget_bytes},
        "ranks": answers,
        "peak_bytes": max(answer["peak_bytes"] for answer in answers),
        "grown_bytes": max(answer["grown_bytes"] for answer in answers),
        "seconds": max(answer["seconds"] for answer in answers),
    }
