"""``gcylon-lab bench profiling``: what recording costs, beside what it records."""

from __future__ import annotations

from typing import Any

from .harness.cases import ShuffleCase
from .harness.statistics import Series
from .harness.worker_processes import mpi_contender


def run(case: ShuffleCase) -> dict[str, Any]:
    """Shuffle, and put the cost of all events and of the sampler beside the operation's CPU time.

    Parameters
    ----------
    case : ShuffleCase

    Returns
    -------
    dict
        Plain values; ``series`` has the CPU times of the operation and of its recording, and ``share`` is (events x
        measured cost of one + sampler's CPU time) over the CPU time of the operations, of the rank where it is largest;
        ``median_share`` of the median repetition.
    """
    shares, rows = [], []
    with mpi_contender("ours", "gcylon_lab.bench.verbs.ours", case.ranks, "shuffle", str(case.rows)) as contender:
        for repeat in range(case.warmup + case.repeats):
            answers = contender.step(repeat=repeat, variant="auto", check_keys=False)
            if repeat >= case.warmup:
                rows += [answer | {"rank": rank, "cost_s": _cost_s(answer)} for rank, answer in enumerate(answers)]
                shares.append(max(_cost_s(answer) / answer["cpu_s"] for answer in answers))
    by_rank = [[row for row in rows if row["rank"] == rank] for rank in range(case.ranks)]
    share = max(sum(r["cost_s"] for r in rank) / sum(r["cpu_s"] for r in rank) for rank in by_rank)
    work = Series(tuple(row["cpu_s"] for row in rows))
    return {
        "bench": "profiling",
        "case": {"ranks": case.ranks, "rows": case.rows, "repeats": case.repeats, "warmup": case.warmup},
        "events": rows[0]["events"],
        "event_cost_ns": max(row["event_cost_ns"] for row in rows),
        "sampler_cpu_s": sum(row["sampler_cpu_s"] for row in rows) / len(rows),
        "cpu_s": work.median_s,
        "series": {"operation": work.as_dict(), "recording": Series(tuple(row["cost_s"] for row in rows)).as_dict()},
        "share": share,
        "median_share": Series(tuple(shares)).median_s,
        "steps": rows,
    }


def _cost_s(answer: dict[str, Any]) -> float:
    return float(answer["events"] * answer["event_cost_ns"] / 1e9 + answer["sampler_cpu_s"])
