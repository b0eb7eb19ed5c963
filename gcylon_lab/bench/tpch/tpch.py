"""``gcylon-lab bench tpch``: queries of TPC-H on a cluster beside DuckDB on the same files, and in a small budget."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...cluster.client.cluster import Cluster
from ...errors import ArgumentError
from ...tutorials import make_tpch
from ...units import format_bytes, format_count, format_seconds
from ..harness.interleaved_runs import Say
from ..harness.reports import format_table, tell
from ..harness.statistics import Series
from .queries import QUERIES, Tables
from .sql import TABLES, Duck, first_difference

# What the Transaction Processing Performance Council asks to stand beside figures of queries derived from its own.
DERIVED = (
    "These queries and figures are derived from the TPC-H benchmark and are not comparable to published TPC-H results, "
    "as\nthey do not comply with the TPC-H specification. TPC Benchmark and TPC-H are trademarks of the TPC."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TpchCase:
    """What is asked, of how much, and how often.

    Parameters
    ----------
    scale : float
        TPC-H's scale factor.
    ranks : int
        And threads of DuckDB.
    queries : tuple of int
        Numbers in `QUERIES`.
    budget_share : float
        In a second run each rank's budget is this part of its share of the columns that a query reads; 0 for none.
    repeats : int
        Of each query without a small budget, in turn with DuckDB; the first run of each is not counted if there are
        several.
    """

    scale: float = 1.0
    ranks: int = 2
    queries: tuple[int, ...] = tuple(QUERIES)
    budget_share: float = 0.1
    repeats: int = 3

    def __post_init__(self) -> None:
        unknown = [str(number) for number in self.queries if number not in QUERIES]
        if unknown or not self.queries:
            raise ArgumentError(
                f"There is no query {', '.join(unknown) or 'to run'}.",
                advice=f"The queries are {', '.join(map(str, QUERIES))}.",
            )
        if self.scale <= 0 or self.ranks < 1 or self.repeats < 1 or not 0 <= self.budget_share <= 1:
            raise ArgumentError("scale is above 0, ranks and repeats are at least 1, budget-share is in [0, 1].")


def run(case: TpchCase, say: Say = tell) -> dict[str, Any]:
    """Ask every query of ours and of DuckDB, and compare the answers.

    Parameters
    ----------
    case : TpchCase
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict
        Plain values; of every query its ``rows``, ``input_bytes``, ``seconds``, ``duckdb_s``, ``peak_bytes`` (the most
        on a rank) and ``difference`` ("" where answers are equal), and under ``tight`` the same with ``budget_bytes``.
    """
    with tempfile.TemporaryDirectory(prefix="gcylon-lab-tpch-") as folder:
        make_tpch(folder, case.scale, TABLES)
        say(f"made TPC-H at scale {case.scale:g}")
        duck = Duck(folder, case.ranks)
        with Cluster(case.ranks, name="bench_tpch", progress=False) as lab:
            queries = [_Query(lab, duck, Path(folder), number).measure(case, say) for number in case.queries]
        duck.close()
    return {
        "bench": "tpch",
        "case": {"scale": case.scale, "ranks": case.ranks, "repeats": case.repeats, "budget_share": case.budget_share},
        "queries": queries,
    }


class _Query:
    def __init__(self, lab: Cluster, duck: Duck, folder: Path, number: int) -> None:
        self._lab = lab
        self._duck = duck
        self._tables = Tables(lab, folder)
        self._number = number

    def measure(self, case: TpchCase, say: Say) -> dict[str, Any]:
        ours, theirs = [], []
        for _ in range(case.repeats):
            start = time.perf_counter()
            expected = self._duck.ask(self._number)
            theirs.append(time.perf_counter() - start)
            ours.append(self._asked(expected))
        counted = slice(1 if case.repeats > 1 else 0, None)
        mine, duckdb = Series(tuple(one["seconds"] for one in ours[counted])), Series(tuple(theirs[counted]))
        found = ours[-1] | {
            "query": self._number,
            "name": f"query {self._number}",
            "seconds": mine.median_s,
            "duckdb_s": duckdb.median_s,
            "series": [{"variant": "ours", **mine.as_dict()}, {"variant": "duckdb", **duckdb.as_dict()}],
            "peak_bytes": max(one["peak_bytes"] for one in ours),
        }
        if case.budget_share:
            found["tight"] = self._in_a_budget(expected, case, int(found["input_bytes"]))
        say(f"query {self._number} done")
        return found

    def _in_a_budget(self, expected: Sequence[Any], case: TpchCase, input_bytes: int) -> dict[str, Any]:
        before, budget_bytes = self._lab.config, int(input_bytes * case.budget_share / case.ranks)
        self._lab.config = before.with_values(gpu_memory_limit=budget_bytes)
        try:
            return self._asked(expected) | {"budget_bytes": budget_bytes}
        finally:
            self._lab.config = before

    def _asked(self, expected: Sequence[Any]) -> dict[str, Any]:
        self._tables.read_bytes = 0
        self._lab.run(_begin)
        start = time.perf_counter()
        answer = QUERIES[self._number](self._tables)
        seconds = time.perf_counter() - start
        return {
            "rows": len(answer),
            "seconds": seconds,
            "input_bytes": self._tables.read_bytes,
            "peak_bytes": max(self._lab.run(_peak)),
            "difference": first_difference(answer, expected),
        }


def _begin() -> None:
    from ...runtime.context import current

    current().budget.reset_peak()


def _peak() -> int:
    from ...runtime.context import current

    return current().budget.peak_bytes


def format_tpch(report: dict[str, Any]) -> str:
    """The TPC-H bench as text: a line for each query, without and with a small budget."""
    case = report["case"]
    title = f"tpch, scale {case['scale']:g}, {case['ranks']} ranks, median of the repeats after the first"
    header = ("query", "rows", "seconds", "DuckDB", "columns read", "peak a rank", "answer")
    text = f"{title}\n\n{format_table(header, map(_cells, report['queries']))}"
    text = f"{text}\n\n{DERIVED}"
    if not case["budget_share"]:
        return text
    tight_header = ("query", "rows", "seconds", "budget a rank", "peak a rank", "answer")
    tight = format_table(tight_header, map(_tight_cells, report["queries"]))
    return f"{text}\n\nwith {case['budget_share']:g} of the columns read as each rank's budget\n\n{tight}"


def _cells(query: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(query["query"]),
        format_count(query["rows"]),
        format_seconds(query["seconds"]),
        format_seconds(query["duckdb_s"]),
        format_bytes(query["input_bytes"]),
        format_bytes(query["peak_bytes"]),
        query["difference"] or "equal",
    )


def _tight_cells(query: dict[str, Any]) -> tuple[str, ...]:
    tight = query["tight"]
    return (
        str(query["query"]),
        format_count(tight["rows"]),
        format_seconds(tight["seconds"]),
        format_bytes(tight["budget_bytes"]),
        format_bytes(tight["peak_bytes"]),
        tight["difference"] or "equal",
    )


def is_right(report: dict[str, Any]) -> bool:
    """Whether all answers were equal, and all peaks within their budgets."""
    runs = [(one, one.get("tight")) for one in report["queries"]]
    return all(
        not one["difference"]
        and (tight is None or (not tight["difference"] and tight["peak_bytes"] <= tight["budget_bytes"]))
        for one, tight in runs
    )
