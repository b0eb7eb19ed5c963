"""``gcylon-lab bench gpu --tables tpch``: TPC-H tables beside a plain one, and rapidsmpf beside ours."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import ClusterError
from ...tutorials import make_tpch
from ...units import format_bytes, format_count, format_rate, format_seconds
from ..harness.reports import format_table, tell
from ..harness.statistics import Series, slowest
from ..harness.worker_processes import Contender, mpi_contender
from .gpu import memory_of
from .tpch_tables import CASES, TABLES

Say = Callable[[str], None]
SCALE_PER_RANK = 1.2  # lineitem then takes a little more than a GB on each rank
RAPIDSMPF_CHUNKS = (1, 16)


def run(
    ranks: int,
    scale: float,
    repeats: int,
    warmup: int,
    *,
    cases: Sequence[str] = (),
    peers: bool = True,
    say: Say = tell,
) -> dict[str, Any]:
    """Make the tables, and measure.

    Parameters
    ----------
    ranks : int
    scale : float
        TPC-H scale factor of all ranks together; 0 takes `SCALE_PER_RANK` for each.
    repeats, warmup : int
    cases : sequence of str, optional
        Names of `CASES`, such as "lineitem direct"; all by default.
    peers : bool
        Whether rapidsmpf takes part, where it is installed and there are GPUs.
    say : callable
        Gets lines of progress.

    Raises
    ------
    ClusterError
        If a contender fails, or its rows are wrong.
    """
    scale = scale or SCALE_PER_RANK * ranks
    names = [case.name for case in CASES if not cases or case.name in cases]
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="gcylon-lab-tpch-") as folder:
        say(f"making TPC-H lineitem and orders at scale {scale:g}")
        make_tpch(folder, scale)
        with mpi_contender("ours", "gcylon_lab.bench.gpu.tables_ours", ranks, folder) as contender:
            for name in names:
                lines.append(_ours(contender, name, repeats, warmup))
                say(f"ours {name} done")
        if peers and importlib.util.find_spec("rapidsmpf") is not None:
            tables = [table for table in TABLES if any(_is_of(table, line) for line in lines)]
            lines += _rapidsmpf(ranks, Path(folder), tables, repeats, warmup, lines, say)
    case = {"ranks": ranks, "scale": scale, "repeats": repeats, "warmup": warmup}
    return {"bench": "gpu tables", "case": case, "lines": lines}


def _ours(contender: Contender, variant: str, repeats: int, warmup: int) -> dict[str, Any]:
    answers, times = _measure(contender, variant, repeats, warmup)
    refused = next((answer["refused"] for answer in answers if "refused" in answer), "")
    return {"name": "ours", "variant": variant, "refused": refused} if refused else _line(variant, answers, times)


def _measure(
    contender: Contender, variant: str, repeats: int, warmup: int
) -> tuple[list[dict[str, Any]], tuple[float, ...]]:
    seen, times = [], []
    for repeat in range(repeats + warmup):
        answers = contender.step(variant=variant, repeat=repeat, check=repeat == 0)
        wrong = next((answer["wrong"] for answer in answers if answer["wrong"]), "")
        if wrong:
            raise ClusterError(f"In the bench {contender.name} ({variant}) gave a wrong result: {wrong}.")
        if any("refused" in answer for answer in answers):
            return answers, ()
        if repeat >= warmup:
            times.append(slowest(answers))
            seen += answers
    return seen, tuple(times)


def _line(variant: str, answers: Sequence[dict[str, Any]], times: tuple[float, ...]) -> dict[str, Any]:
    series = Series(times)
    line = {
        "name": "ours",
        "variant": variant,
        "rank_rows": max(answer["rows"] for answer in answers),
        "rank_bytes": answers[0]["bytes"],
        "bytes_per_s": series.rate(answers[0]["bytes"]),
        "engines": answers[0]["engines"],
    }
    return line | memory_of(answers) | series.as_dict()


def _rapidsmpf(
    ranks: int, folder: Path, tables: Sequence[str], repeats: int, warmup: int, ours: Sequence[dict[str, Any]], say: Say
) -> list[dict[str, Any]]:
    """The same tables by rapidsmpf; the bytes of a rank are those that ours counts, the rate is over the same."""
    lines = []
    for table in tables:
        mine = next(line for line in ours if _is_of(table, line))
        rows = str(mine["rank_rows"])
        command = [sys.executable, "-P", "-m", "gcylon_lab.bench.gpu.rapidsmpf", str(ranks), rows, str(folder), table]
        with Contender("rapidsmpf", command, ranks, start_s=180.0) as contender:
            for chunks in RAPIDSMPF_CHUNKS:
                _, times = _measure(contender, f"{chunks} chunks", repeats, warmup)
                series = Series(times)
                variant = f"{table}, {chunks} chunk{'s' * (chunks > 1)}"
                rate = series.rate(mine["rank_bytes"])
                kept = {key: mine[key] for key in ("rank_rows", "rank_bytes")}
                lines.append({"name": "rapidsmpf", "variant": variant, "bytes_per_s": rate} | kept | series.as_dict())
                say(f"rapidsmpf {variant} done")
    return lines


def _is_of(table: str, line: dict[str, Any]) -> bool:
    return "rank_rows" in line and str(line["variant"]).startswith(f"{table} ")


def format_tables(report: dict[str, Any]) -> str:
    """The report as text."""
    case, lines = report["case"], report["lines"]
    ran = [line for line in lines if "refused" not in line]
    ours = next((line for line in ran if line["name"] == "ours"), {"engines": "nothing ran", "route": "nothing"})
    header = (
        "what",
        "rows a rank",
        "bytes",
        "a rank",
        "median",
        "best",
        "peak",
        "budget",
        "rounds",
        "predicted/measured",
    )
    text = [
        f"TPC-H at scale {case['scale']:g} on {case['ranks']} ranks, shuffled on the order's key, "
        f"median of {case['repeats']} after {case['warmup']} warm-ups; rows and checksums are right",
        f"{ours['engines']}; rows travelled by {ours['route']}",
        "",
        format_table(header, [_cells(line) for line in ran]),
    ]
    text += [f"{line['name']} {line['variant']} was refused: {line['refused']}" for line in lines if "refused" in line]
    return "\n".join(text)


def _cells(line: dict[str, Any]) -> tuple[str, ...]:
    memory = ("", "", "", "")
    if "peak" in line:
        low, high = line["predicted_over_measured"]
        above = "" if line["within"] else " ABOVE THE BUDGET"
        memory = (
            format_bytes(line["peak"]), format_bytes(line["budget"]) + above, str(line["rounds"]),
            f"{low:.3f}-{high:.3f}",
        )  # fmt: skip
    return (
        f"{line['name']} {line['variant']}",
        format_count(line["rank_rows"]),
        format_bytes(line["rank_bytes"]),
        format_rate(line["bytes_per_s"]),
        format_seconds(line["median_s"]),
        format_seconds(line["min_s"]),
        *memory,
    )
