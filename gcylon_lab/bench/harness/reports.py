"""How benches are shown: text tables, and JSON with the machine beside the figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from ...profiling.report import format_table as aligned
from ...units import format_bytes, format_seconds
from ...whole_files import write_whole
from ..benchmark import Benchmark
from .measurement import machine


def tell(line: str) -> None:
    """Print a line of progress at once, beside what is printed in the end."""
    print(line, file=sys.stderr, flush=True)


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out cells in columns; the first is set left, the others right.

    Parameters
    ----------
    header : sequence of str
    rows : iterable of sequence of str
        Each as long as the header.
    """
    return "\n".join(aligned(header, list(rows)))


def format_shuffle(report: dict[str, Any]) -> str:
    """The shuffle or sort bench as text."""
    return format_turns(report, report["bench"], "of one int64 key and three float64 columns")


def format_turns(report: dict[str, Any], bench: str, columns: str, *, best: str = "the best of ") -> str:
    """A bench whose contenders took turns as text: every contender, and ours over each peer's best.

    Parameters
    ----------
    report : dict
        As of `gcylon_lab.bench.harness.interleaved_runs.report_of`.
    bench, columns : str
        What was done, and with which columns, in words.
    best : str
        What stands before a peer's name; empty where peers have one way of doing it only.
    """
    case, chosen = report["case"], report["contenders"][0]["chosen"]
    title = (
        f"{bench}, {case['ranks']} ranks, {case['rows']:,} rows a rank {columns} ({format_bytes(case['rank_bytes'])}), "
        f"median of {case['repeats']} after {case['warmup']} warm-ups; throughput a rank"
    )
    lines = [Benchmark.from_report(report, title).to("text"), "", f"ours chose {chosen}"]
    lines += [f"ours is {r:.2f} x {best}{name} ({report['best'][name]})" for name, r in report["ratios"].items()]
    return "\n".join(lines)


def format_profiling(report: dict[str, Any]) -> str:
    """The profiling bench as text."""
    case = report["case"]
    return (
        f"profiling, shuffle on {case['ranks']} ranks, {case['rows']:,} rows a rank, {case['repeats']} times: "
        f"{report['events']} events of {report['event_cost_ns']} ns each, sampler "
        f"{format_seconds(report['sampler_cpu_s'])} of CPU time, operation {format_seconds(report['cpu_s'])}\n"
        f"recording costs {100 * report['share']:.2f}% of the operation's CPU time (on the rank where it is most)"
    )


def format_cluster(report: dict[str, Any]) -> str:
    """The cluster bench as text."""
    case = report["case"]
    names = {
        "start_own": "start, ipyparallel's own",
        "start_ours": "start, gl.Cluster",
        "trip_own": "round trip, ipyparallel's apply_sync",
        "trip_run": "round trip, lab.run",
        "trip_verb": "round trip, a handle's repartition of one row a rank",
        "push_own": "rows to the ranks, ipyparallel's push of arrays",
        "scatter": "rows to the ranks, lab.scatter",
        "pull_own": "rows to the notebook, ipyparallel's pull of arrays",
        "collect": "rows to the notebook, t.collect",
    }
    title = (
        f"cluster, {case['ranks']} ranks, {case['starts']} starts, {case['trips']} round trips each and "
        f"{case['megabytes']} MB of rows, in turn"
    )
    series = {names[name]: report["series"][name] for name in names}
    grown = ", ".join(f"{format_bytes(nbytes)} in {name}" for name, nbytes in report["grown_bytes"].items())
    return f"{Benchmark.from_report({'series': series}, title).to('text')}\nthe notebook's memory grew by {grown}"


def format_peak(report: dict[str, Any]) -> str:
    """The peak bench as text."""
    case = report["case"]
    rows = [
        (
            f"rank {number}",
            format_bytes(rank["peak_bytes"]),
            format_bytes(rank["grown_bytes"]),
            format_bytes(rank["staged_bytes"]),
            str(rank["rounds"]),
            format_seconds(rank["seconds"]),
        )
        for number, rank in enumerate(report["ranks"])
    ]
    title = (
        f"peak, staged shuffle on {case['ranks']} ranks, {format_bytes(case['part_bytes'])} a rank, "
        f"budget {format_bytes(case['budget_bytes'])}: all rows are there, equal keys met"
    )
    return f"{title}\n\n{format_table(('', 'budget peak', 'VmHWM grew', 'staged', 'rounds', 'time'), rows)}"


def as_json(report: dict[str, Any]) -> str:
    """A report with the machine beside it."""
    return json.dumps(report | {"machine": machine()}, indent=2) + "\n"


def write_json(path: str, report: dict[str, Any]) -> None:
    """Write a report with the machine beside it."""
    write_whole(path, as_json(report), 0o666)
