"""``gcylon-lab bench files``: ours and the library alone take turns on the same files."""

from __future__ import annotations

import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...errors import ClusterError
from ...units import format_bytes, format_rate, format_seconds
from ..harness.interleaved_runs import Say
from ..harness.reports import tell
from ..harness.statistics import Series
from ..harness.worker_processes import Contender, mpi_contender
from .case import FilesCase, can_hold, table_of, write


def run(case: FilesCase, *, peer: bool = True, say: Say = tell) -> dict[str, Any]:
    """Read and write tables of several kinds in several formats.

    Parameters
    ----------
    case : FilesCase
    peer : bool, default True
        Whether the library is measured too: pyarrow on one thread, or libcudf where our rank has a GPU.
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict
        Plain values; ``lines`` has, of each action, format and kind, bytes that each contender read or wrote, times,
        and their ratio; and time of CPUs, of all ranks together, with the ratio of that.

    Raises
    ------
    ClusterError
        If a contender fails, or reads another number of rows.
    """
    with tempfile.TemporaryDirectory(prefix="files-") as folder:
        rows = _make(case, Path(folder), say)
        with mpi_contender("ours", "gcylon_lab.bench.files.ours", case.ranks, folder, step_s=600) as ours:
            action, format_, kind = case.steps()[0]
            engine = ours.step(action=action, format=format_, kind=kind)[0]["kind"]
            if not peer:
                return _report(case, engine, _lines(case, rows, {"ours": ours}, say))
            command = [sys.executable, "-P", "-m", "gcylon_lab.bench.files.library", folder, engine]
            with Contender("the library", command, 1, step_s=600) as library:
                both = {"ours": ours, "library": library}
                return _report(case, engine, _lines(case, rows, both, say))


def _report(case: FilesCase, engine: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {"bench": "files", "engine": engine, "case": asdict(case), "lines": lines}


def _make(case: FilesCase, folder: Path, say: Say) -> dict[str, int]:
    """Files of all kinds; parquet too where it is not read, since what is written comes of it."""
    rows = {}
    for kind in case.kinds:
        table = table_of(kind, case.megabytes * 10**6)
        rows[kind] = table.num_rows
        for format_ in dict.fromkeys(("parquet", *case.formats)):
            if can_hold(format_, kind):
                write(table, format_, folder / f"{kind}.{format_}")
        say(f"files of {kind} tables are made")
    return rows


def _lines(case: FilesCase, rows: dict[str, int], contenders: dict[str, Contender], say: Say) -> list[dict[str, Any]]:
    lines = []
    for action, format_, kind in case.steps():
        times: dict[str, list[float]] = {name: [] for name in contenders}
        cpu_times: dict[str, list[float]] = {name: [] for name in contenders}
        nbytes: dict[str, int] = {}
        for repeat in range(case.warmup + case.repeats):
            for name, contender in contenders.items():
                answers = contender.step(action=action, format=format_, kind=kind)
                seconds = [answer["seconds"] for answer in answers]
                if None in seconds:
                    continue  # what it has no function for
                if answers[0]["rows"] != rows[kind]:
                    what = f"{name} has {answers[0]['rows']} of {rows[kind]} rows of {kind}.{format_}"
                    raise ClusterError(f"In the bench {what}.", advice="Report it, with the machine and the command.")
                if repeat >= case.warmup:
                    times[name].append(max(seconds))
                    cpu_times[name].append(sum(answer["cpu_s"] for answer in answers))
                    nbytes[name] = sum(answer["bytes"] for answer in answers)
        series = {name: Series(tuple(found)) for name, found in times.items() if found}
        cpu = {name: statistics.median(found) for name, found in cpu_times.items() if found}
        line: dict[str, Any] = {
            "name": f"{action} {format_} {kind}",
            "file_bytes": nbytes,
            "series": {name: one.as_dict() for name, one in series.items()},
            "cpu_s": cpu,
        }
        if len(series) == 2:
            line["ratio"] = series["ours"].median_s / series["library"].median_s
            line["cpu_ratio"] = cpu["ours"] / cpu["library"]
        lines.append(line)
        say(f"{line['name']}: {format_seconds(series['ours'].median_s)}")
    return lines


def format_files(report: dict[str, Any]) -> str:
    """The report as text."""
    case = report["case"]
    library = "libcudf" if report["engine"] == "gpu" else "pyarrow on one thread (pandas writes json)"
    lines = [
        f"tables of {case['megabytes']} MB, {case['ranks']} {report['engine'].upper()} rank(s), medians of "
        f"{case['repeats']}, beside {library}",
        "ratios are of the time that passes, and of the time of CPUs",
        "",
        f"{'':<22}{'file':>10}{'ours':>10}{'rate':>12}{'library':>10}{'ratio':>8}{'CPUs':>8}",
    ]
    for line in report["lines"]:
        ours, peer = (line["series"].get(name) for name in ("ours", "library"))
        median = Series(tuple(ours["times_s"])).median_s
        told = format_seconds(Series(tuple(peer["times_s"])).median_s) if peer else "-"
        ratios = (f"{line[of]:.2f}" if of in line else "-" for of in ("ratio", "cpu_ratio"))
        nbytes = line["file_bytes"]["ours"]
        rate = format_rate(nbytes / median)
        lines.append(
            f"{line['name']:<22}{format_bytes(nbytes):>10}{format_seconds(median):>10}{rate:>12}{told:>10}"
            + "".join(f"{ratio:>8}" for ratio in ratios)
        )
    return "\n".join(lines)
