"""``gcylon-lab bench join``: ours and dask take turns on the same two tables."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ClusterError
from ..units import format_bytes, format_rate, format_seconds
from .cases import VALUES, Columns
from .ranks import mpi_contender
from .reports import format_table, tell
from .seats import Contender
from .statistics import Series, slowest

PEERS = ("dask",)
OTHER = "w"
_MIX = np.uint64(0x9E3779B97F4A7C15)
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCase:
    """A table of an int64 key over 2**40 and three float64 columns, joined with one of its keys and one column.

    Parameters
    ----------
    ranks : int
    rows : int
        Of each table on each rank.
    repeats, warmup : int
        Timed repetitions, and those before them that are not reported.
    """

    ranks: int = 2
    rows: int = 5_000_000
    repeats: int = 7
    warmup: int = 2

    @property
    def rank_bytes(self) -> int:
        """Input bytes of one rank."""
        return self.rows * 8 * (1 + len(VALUES) + 2)

    def columns(self, rank: int, repeat: int) -> tuple[Columns, Columns]:
        """Make one rank's fresh input: the left side, and the right one with the keys of the next rank's."""
        random = np.random.default_rng((repeat, rank))
        keys = random.integers(0, 1 << 40, self.rows)
        left: Columns = {"k": keys} | {name: random.random(self.rows) for name in VALUES}
        beside = np.random.default_rng((repeat, (rank + 1) % self.ranks)).integers(0, 1 << 40, self.rows)
        return left, {"k": np.roll(beside, 7), OTHER: random.random(self.rows)}


def summed(columns: Columns) -> list[int]:
    """Rows, and a sum over rows modulo 2**64 that no order changes."""
    total = np.zeros(len(columns["k"]), np.uint64)
    for name in ("k", *VALUES, OTHER):
        total = (total ^ np.ascontiguousarray(columns[name]).view(np.uint64)) * _MIX
        total ^= total >> np.uint64(29)
    return [len(total), int(total.sum(dtype=np.uint64))]


def run(case: JoinCase, peers: Sequence[str] = PEERS, say: Say = tell) -> dict[str, Any]:
    """Measure ours and the peers named, turn by turn, and compare what they give.

    Parameters
    ----------
    case : JoinCase
    peers : sequence of {"dask"}
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict
        Plain values, as of `gcylon_lab.bench.shuffle.run`.

    Raises
    ------
    ClusterError
        If a contender fails, or gives other rows than the others.
    """
    names = ("ours", *peers)
    times: dict[str, list[float]] = {name: [] for name in names}
    chosen = ""
    with ExitStack() as stack:
        contenders = {name: stack.enter_context(_start(name, case)) for name in names}
        for repeat in range(case.warmup + case.repeats):
            sums = []
            for name, series in times.items():
                answers = contenders[name].step(repeat=repeat)
                sums.append(_added(answers))
                if repeat >= case.warmup:
                    series.append(slowest(answers))
                if name == "ours":
                    chosen = "{strategy}, {kind}, rounds: {rounds}".format(**answers[0])
            if any(one != sums[0] for one in sums):
                raise ClusterError(f"In the bench the joins of {', '.join(names)} gave different rows: {sums}.")
            say(f"turn {repeat + 1} of {case.warmup + case.repeats} done")
    return _report(case, {name: Series(tuple(series)) for name, series in times.items()}, chosen)


def _added(answers: Sequence[dict[str, Any]]) -> tuple[int, int]:
    return sum(a["summed"][0] for a in answers), sum(a["summed"][1] for a in answers) % 2**64


def _start(name: str, case: JoinCase) -> Contender:
    if name == "dask":
        command = [sys.executable, "-m", "gcylon_lab.bench.join_dask", str(case.ranks), str(case.rows)]
        return Contender(name, command, 1)
    return mpi_contender(name, "gcylon_lab.bench.join_ours", case.ranks, str(case.rows))


def _report(case: JoinCase, series: dict[str, Series], chosen: str) -> dict[str, Any]:
    variants = {"ours": f"auto ({chosen})", "dask": "merge"}
    contenders: list[dict[str, Any]] = [
        {"name": name, "variant": variants[name], "bytes_per_s": one.rate(case.rank_bytes)} | one.as_dict()
        for name, one in series.items()
    ]
    best = {c["name"]: c for c in contenders}
    return {
        "bench": "join",
        "case": {"ranks": case.ranks, "rows": case.rows, "repeats": case.repeats, "warmup": case.warmup,
                 "rank_bytes": case.rank_bytes},
        "contenders": contenders,
        "best": {name: c["variant"] for name, c in best.items()},
        "ratios": {name: best["ours"]["bytes_per_s"] / c["bytes_per_s"] for name, c in best.items() if name != "ours"},
    }  # fmt: skip


def format_join(report: dict[str, Any]) -> str:
    """The join bench as text: every contender, and ours over each peer."""
    case = report["case"]
    lines = [
        f"join, {case['ranks']} ranks, {case['rows']:,} rows a rank of an int64 key and three float64 columns, with as "
        f"many of the key and one ({format_bytes(case['rank_bytes'])}), median of {case['repeats']} after "
        f"{case['warmup']} warm-ups",
        "",
        format_table(
            ("contender", "a rank", "median", "fastest", "middle half"),
            [
                (
                    f"{c['name']} {c['variant']}",
                    format_rate(c["bytes_per_s"]),
                    format_seconds(c["median_s"]),
                    format_seconds(c["min_s"]),
                    f"{100 * c['spread']:.0f}%",
                )
                for c in report["contenders"]
            ],
        ),
    ]
    lines += [f"ours is {r:.2f} x {name} ({report['best'][name]})" for name, r in report["ratios"].items()]
    return "\n".join(lines)
