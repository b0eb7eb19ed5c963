"""``gcylon-lab bench gpu --profiling``: what recording costs on GPU ranks; with it and without it take turns."""

from __future__ import annotations

from typing import Any

from ..errors import ClusterError
from ..units import format_bytes, format_seconds
from .gpu_cases import ROW_BYTES
from .ranks import mpi_contender
from .reports import format_table
from .statistics import Series, slowest

# Staging keeps its figures in the operation's record, which without a recorder nobody keeps; it is also the slowest.
CASES = ("shuffle direct", "shuffle chunked")
BAR = 0.02


def run(ranks: int, rows: int, repeats: int, warmup: int) -> dict[str, Any]:
    """Shuffle with recorder and sampler on and off in turn, the order changing from turn to turn.

    Parameters
    ----------
    ranks, rows : int
        As for `gpu.run`.
    repeats, warmup : int
        Turns, of one shuffle of each.

    Returns
    -------
    dict
        Plain values; ``cost`` of a line is how much longer the median with recording is, over that without.
    """
    lines: list[dict[str, Any]] = []
    with mpi_contender("ours", "gcylon_lab.bench.gpu_ours", ranks, str(rows)) as contender:
        for case in CASES:
            times: dict[bool, list[float]] = {True: [], False: []}
            for turn in range(repeats + warmup):
                for recording in (True, False) if turn % 2 else (False, True):
                    answers = contender.step(variant=case, repeat=turn, check=turn == 0, recording=recording)
                    if any(answer["wrong"] for answer in answers):
                        raise ClusterError(f"In the bench {case} gave a wrong result: {answers}.")
                    if turn >= warmup:
                        times[recording].append(slowest(answers))
            on, off = (Series(tuple(times[recording])) for recording in (True, False))
            cost = on.median_s / off.median_s - 1
            lines.append({"variant": case, "cost": cost, "on": on.as_dict(), "off": off.as_dict()})
    case_ = {"ranks": ranks, "rows": rows, "repeats": repeats, "warmup": warmup, "rank_bytes": rows * ROW_BYTES}
    return {"bench": "gpu profiling", "case": case_, "lines": lines, "within": all(x["cost"] <= BAR for x in lines)}


def format_cost(report: dict[str, Any]) -> str:
    """The report as text."""
    case = report["case"]
    rows = [
        (
            line["variant"],
            format_seconds(line["on"]["median_s"]),
            format_seconds(line["off"]["median_s"]),
            f"{100 * line['cost']:+.2f}%",
            f"{100 * line['on']['spread']:.0f}%",
            f"{100 * line['off']['spread']:.0f}%",
        )
        for line in report["lines"]
    ]
    verdict = "within" if report["within"] else "ABOVE"
    return (
        f"recording on GPU ranks: {case['ranks']} ranks, {case['rows']:,} rows a rank "
        f"({format_bytes(case['rank_bytes'])}), medians of {case['repeats']} turns\n\n"
        + format_table(("", "on", "off", "cost", "middle half, on", "off"), rows)
        + f"\n\n{verdict} the {100 * BAR:g}% that it may cost"
    )
