"""``gcylon-lab bench gpu``: our verbs on GPUs beside the bare exchange, the pinned copy rate, and rapidsmpf."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from ..harness.interleaved_runs import Say, refuse_wrong
from ..harness.reports import tell
from ..harness.statistics import Series, slowest
from ..harness.worker_processes import Contender, mpi_contender
from .cases import CASES, ROW_BYTES

BARE = ("exchange", "pinned")
RAPIDSMPF = ("1 chunk", "16 chunks")


def run(
    ranks: int, rows: int, repeats: int, warmup: int, *, cases: Sequence[str] = (), peers: bool = True, say: Say = tell
) -> dict[str, Any]:
    """Measure, contender after contender in every repetition.

    Parameters
    ----------
    ranks : int
        One GPU each, or sharing what there is.
    rows : int
        On each rank: one int64 key, three float64 columns.
    repeats, warmup : int
    cases : sequence of str, optional
        Names of `CASES`; all by default.
    peers : bool
        Whether rapidsmpf takes part, where it is installed.
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict
        Plain values.

    Raises
    ------
    ClusterError
        If a contender fails, or its rows are wrong.
    """
    names = [case.name for case in CASES if not cases or case.name in cases]
    series: dict[tuple[str, str], list[float]] = {}
    seen: dict[tuple[str, str], list[dict[str, Any]]] = {}
    # One after the other: their GPU memory would not fit side by side, and an idle one keeps its own.
    for name, module, variants in _contenders(names, peers):
        with ExitStack() as stack:
            contender = stack.enter_context(_start(name, module, ranks, rows))
            for variant in variants:
                for repeat in range(repeats + warmup):
                    answers = contender.step(variant=variant, repeat=repeat, check=repeat == 0)
                    refuse_wrong(name, variant, answers)
                    if repeat >= warmup:
                        series.setdefault((name, variant), []).append(slowest(answers))
                        seen.setdefault((name, variant), []).extend(answers)
                say(f"{name} {variant} done")
    return _report(ranks, rows, repeats, warmup, series, seen)


def _contenders(names: Sequence[str], peers: bool) -> list[tuple[str, str, Sequence[str]]]:
    found: list[tuple[str, str, Sequence[str]]] = [("bare", "gcylon_lab.bench.gpu.bare", BARE)]
    if peers and importlib.util.find_spec("rapidsmpf") is not None:
        found.append(("rapidsmpf", "gcylon_lab.bench.gpu.rapidsmpf", RAPIDSMPF))
    found.append(("ours", "gcylon_lab.bench.gpu.ours", names))
    return found


def _start(name: str, module: str, ranks: int, rows: int) -> Contender:
    if name == "rapidsmpf":
        command = [sys.executable, "-P", "-m", module, str(ranks), str(rows)]
        return Contender(name, command, ranks, start_s=120.0)
    return mpi_contender(name, module, ranks, str(rows))


def _report(
    ranks: int,
    rows: int,
    repeats: int,
    warmup: int,
    series: dict[tuple[str, str], list[float]],
    seen: dict[tuple[str, str], list[dict[str, Any]]],
) -> dict[str, Any]:
    rank_bytes = rows * ROW_BYTES
    lines = []
    for (name, variant), times in series.items():
        one, answers = Series(tuple(times)), seen[name, variant]
        line: dict[str, Any] = {"name": name, "variant": variant, "bytes_per_s": one.rate(rank_bytes)} | one.as_dict()
        if name == "ours":
            line |= memory_of(answers) | {"grown": max(answer["grown"] for answer in answers)}
        if variant.startswith("allgather"):
            line["moved_bytes_per_s"] = line["bytes_per_s"] * (ranks - 1)
        lines.append(line)
    return {
        "bench": "gpu",
        "case": {"ranks": ranks, "rows": rows, "repeats": repeats, "warmup": warmup, "rank_bytes": rank_bytes},
        "lines": lines,
    }


def memory_of(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all ranks saw in all repetitions of one of our verbs: peak, budget, prediction, and how it ran."""
    ratios = [answer["predicted"] / answer["peak"] for answer in answers]
    return {
        "peak": max(answer["peak"] for answer in answers),
        "budget": answers[0]["budget"],
        "within": all(answer["peak"] <= answer["budget"] for answer in answers),
        "predicted_over_measured": [min(ratios), max(ratios)],
        "staged": max(answer["staged"] for answer in answers),
        "strategy": answers[0]["strategy"],
        "rounds": answers[0]["rounds"],
        "route": answers[0]["route"],
    }


def format_gpu(report: dict[str, Any]) -> str:
    """The table, in words."""
    case = report["case"]
    text = [
        f"{case['ranks']} ranks, {case['rows']:,} rows a rank ({case['rank_bytes'] / 1e9:.2f} GB), "
        f"median of {case['repeats']} after {case['warmup']} warm-ups",
        f"{'what':34}{'a rank':>12}{'median':>10}{'best':>10}{'peak':>10}{'budget':>10}{'rounds':>7}"
        "  predicted/measured",
    ]
    for line in report["lines"]:
        row = f"{line['name'] + ' ' + line['variant']:34}{line['bytes_per_s'] / 1e9:7.1f} GB/s"
        row += f"{line['median_s'] * 1e3:7.1f} ms{line['min_s'] * 1e3:7.1f} ms"
        if "peak" in line:
            low, high = line["predicted_over_measured"]
            row += f"{line['peak'] / 1e9:7.2f} GB{line['budget'] / 1e9:7.2f} GB{line['rounds']:7d}"
            row += f"  {low:.3f}-{high:.3f}"
            row += "" if line["within"] else "  ABOVE THE BUDGET"
        if "moved_bytes_per_s" in line:
            row += f"  moved {line['moved_bytes_per_s'] / 1e9:.0f} GB/s"
        text.append(row)
    ours = [line for line in report["lines"] if line["name"] == "ours"]
    if ours:
        grown = max(line["grown"] for line in ours) / 1e6
        text.append(f"rows travelled by {ours[0]['route']}; NVML's use of the GPU grew by {grown:.0f} MB after start")
    return "\n".join(text)
