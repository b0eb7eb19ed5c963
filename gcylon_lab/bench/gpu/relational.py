"""``gcylon-lab bench gpu --tables relational``: join, sort and group-by on GPUs, and cudf-polars beside ours."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from ...units import format_bytes, format_count, format_rate, format_seconds
from ..harness.interleaved_runs import Say, refuse_wrong
from ..harness.reports import format_table, tell
from ..harness.statistics import Series, slowest
from ..harness.worker_processes import Contender, mpi_contender
from .cases import ROW_BYTES
from .gpu import memory_of

VERBS = ("join", "sort", "groupby")
BUDGET = 4.0  # times a rank's bytes: 16 GB for 4 GB
BARS = {"join": 1.6, "sort": 1.4, "groupby": 2.5}


def run(
    ranks: int, rows: int, repeats: int, warmup: int, *, cases: Sequence[str] = (), peers: bool = True, say: Say = tell
) -> dict[str, Any]:
    """Measure, contender after contender: their GPU memory would not fit side by side.

    Parameters
    ----------
    ranks : int
    rows : int
        On each rank: an int64 key over 2**40, a group of 100,000, two float64; and the same keys with a float64.
    repeats, warmup : int
    cases : sequence of str, optional
        Of `VERBS`; all by default.
    peers : bool
        Whether cudf-polars takes part, where it is installed.
    say : callable
        Gets lines of progress.

    Raises
    ------
    ClusterError
        If a contender fails, or its rows are wrong.
    """
    verbs = [verb for verb in VERBS if not cases or verb in cases]
    lines: list[dict[str, Any]] = []
    with mpi_contender("ours", "gcylon_lab.bench.gpu.relational_ours", ranks, str(rows), str(BUDGET)) as ours:
        lines += _measure(ours, verbs, rows, repeats, warmup, say)
    if peers and importlib.util.find_spec("cudf_polars") is not None:
        command = [sys.executable, "-P", "-m", "gcylon_lab.bench.gpu.cudf_polars", str(ranks), str(rows)]
        with Contender("cudf-polars", command, ranks, start_s=240.0) as theirs:
            lines += _measure(theirs, verbs, rows, repeats, warmup, say)
    case = {"ranks": ranks, "rows": rows, "repeats": repeats, "warmup": warmup, "rank_bytes": rows * ROW_BYTES}
    return {"bench": "gpu relational", "case": case, "lines": lines}


def _measure(
    contender: Contender, verbs: Sequence[str], rows: int, repeats: int, warmup: int, say: Say
) -> list[dict[str, Any]]:
    lines = []
    for verb in verbs:
        times, seen = [], []
        for repeat in range(repeats + warmup):
            answers = contender.step(variant=verb, repeat=repeat, check=repeat == 0)
            refuse_wrong(contender.name, verb, answers)
            if repeat >= warmup:
                times.append(slowest(answers))
                seen += answers
        series = Series(tuple(times))
        line = {"name": contender.name, "variant": verb, "bytes_per_s": series.rate(rows * ROW_BYTES)}
        if "peak" in seen[0]:
            line |= memory_of(seen) | {key: seen[0][key] for key in ("engines", "rows")}
        lines.append(line | series.as_dict())
        say(f"{contender.name} {verb} done")
    return lines


def format_relational(report: dict[str, Any]) -> str:
    """The report as text."""
    case, lines = report["case"], report["lines"]
    ours = next(line for line in lines if line["name"] == "ours")
    rates = {(line["name"], line["variant"]): line["bytes_per_s"] for line in lines}
    header = ("what", "a rank", "median", "best", "ran", "peak", "budget", "predicted/measured", "times cudf-polars")
    rows = []
    for line in lines:
        memory: tuple[str, ...] = ("",) * 5
        if "peak" in line:
            low, high = line["predicted_over_measured"]
            theirs = rates.get(("cudf-polars", line["variant"]))
            times = f"{line['bytes_per_s'] / theirs:.2f} (bar {BARS[line['variant']]})" if theirs else ""
            above = "" if line["within"] else " ABOVE THE BUDGET"
            memory = (
                f"{line['strategy']}, rounds: {line['rounds']}", format_bytes(line["peak"]),
                format_bytes(line["budget"]) + above, f"{low:.3f}-{high:.3f}", times,
            )  # fmt: skip
        speed = (format_rate(line["bytes_per_s"]), format_seconds(line["median_s"]), format_seconds(line["min_s"]))
        rows.append((f"{line['name']} {line['variant']}", *speed, *memory))
    return "\n".join(
        [
            f"{case['ranks']} ranks, {format_count(case['rows'])} rows a rank ({format_bytes(case['rank_bytes'])}; "
            f"joined with {format_bytes(case['rank_bytes'] // 2)}), median of {case['repeats']} after "
            f"{case['warmup']} warm-ups; rows are right",
            f"{ours['engines']}; rows travelled by {ours['route']}",
            "",
            format_table(header, rows),
        ]
    )
