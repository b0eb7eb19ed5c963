"""``gcylon-lab bench gpu --profiling``: what recording costs on GPU ranks; with it and without it take turns."""

from __future__ import annotations

from typing import Any

from ...errors import ClusterError
from ...units import format_bytes, format_seconds
from ..harness.reports import format_table
from ..harness.statistics import Series, slowest
from ..harness.worker_processes import Contender, mpi_contender
from .cases import ROW_BYTES

# Staging keeps its figures in the operation's record, which without a recorder nobody keeps; it is also the slowest.
CASES = ("shuffle direct", "shuffle chunked")
MODES = {
    "off": {"recording": False, "sampling": False},
    "spans": {"recording": True, "sampling": False},
    "all": {"recording": True, "sampling": True},
}
BAR = 0.02
_SHUFFLES = 5  # of a mode in a turn, after one that is not timed: a sampler that has just started samples at once


def run(ranks: int, rows: int, repeats: int, warmup: int) -> dict[str, Any]:
    """Shuffle without recording, with spans and records, and with the sampler too; the modes take turns.

    Parameters
    ----------
    ranks, rows : int
        As for `gpu.run`.
    repeats, warmup : int
        Turns, of some shuffles in each mode. Each turn begins with another mode.

    Returns
    -------
    dict
        Plain values; ``cost`` of a line is how much longer the median of a mode is than with nothing recorded.
    """
    lines: list[dict[str, Any]] = []
    with mpi_contender("ours", "gcylon_lab.bench.gpu.ours", ranks, str(rows)) as contender:
        for case in CASES:
            times: dict[str, list[float]] = {mode: [] for mode in MODES}
            names = list(MODES)
            for turn in range(repeats + warmup):
                for mode in names[turn % len(names) :] + names[: turn % len(names)]:
                    seconds = _shuffles(contender, case, mode, turn)
                    times[mode] += seconds if turn >= warmup else []
            series = {mode: Series(tuple(values)) for mode, values in times.items()}
            cost = {mode: one.median_s / series["off"].median_s - 1 for mode, one in series.items() if mode != "off"}
            lines.append({"variant": case, "cost": cost} | {mode: one.as_dict() for mode, one in series.items()})
    within = all(cost <= BAR for line in lines for cost in line["cost"].values())
    case_ = {"ranks": ranks, "rows": rows, "repeats": repeats, "warmup": warmup, "rank_bytes": rows * ROW_BYTES}
    return {"bench": "gpu profiling", "case": case_, "lines": lines, "within": within}


def _shuffles(contender: Contender, case: str, mode: str, turn: int) -> list[float]:
    seconds = []
    for number in range(_SHUFFLES + 1):
        first = turn == 0 and number == 0
        answers = contender.step(variant=case, repeat=turn, check=first, **MODES[mode])
        if any(answer["wrong"] for answer in answers):
            raise ClusterError(f"In the bench {case} gave a wrong result: {answers}.")
        seconds.append(slowest(answers))
    return seconds[1:]


def format_cost(report: dict[str, Any]) -> str:
    """The report as text."""
    case = report["case"]
    verdict = "within" if report["within"] else "ABOVE"
    header = ("", "off", "spans", "cost", "and sampler", "cost", "middle half, off", "all")
    return (
        f"recording on GPU ranks: {case['ranks']} ranks, {case['rows']:,} rows a rank "
        f"({format_bytes(case['rank_bytes'])}), medians of {case['repeats']} turns of {_SHUFFLES}\n\n"
        + format_table(header, [_cells(line) for line in report["lines"]])
        + f"\n\n{verdict} the {100 * BAR:g}% that it may cost"
    )


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    cells = [str(line["variant"]), format_seconds(line["off"]["median_s"])]
    for mode in ("spans", "all"):
        cells += [format_seconds(line[mode]["median_s"]), f"{100 * line['cost'][mode]:+.2f}%"]
    return (*cells, *(f"{100 * line[mode]['spread']:.0f}%" for mode in ("off", "all")))
