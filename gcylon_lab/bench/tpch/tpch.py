"""``gcylon-lab bench tpch``: queries of TPC-H on a cluster beside DuckDB on the same files, and in a small budget."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ...cluster.client.cluster import Cluster
from ...errors import ArgumentError, GcylonError
from ...tutorials import make_tpch
from ...units import format_bytes, format_count, format_seconds
from ..harness.interleaved_runs import Say
from ..harness.reports import format_table, tell
from ..harness.statistics import Series
from .queries import QUERIES, Tables
from .ranks import Answered, ask_on_rank, begin, peak_bytes
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
    threads : int
        Of DuckDB; 0 for as many as there are ranks.
    queries : tuple of int
        Numbers in `QUERIES`.
    budget_share : float
        In a second run each rank's budget is this part of its share of the columns that a query reads; 0 for none.
    repeats : int
        Of each query without a small budget, in turn with DuckDB; the first run of each is not counted if there are
        several.
    px : bool
        All ranks run a query's code, as in a ``%%px`` cell; otherwise the notebook does, with handles.
    """

    scale: float = 1.0
    ranks: int = 2
    queries: tuple[int, ...] = tuple(QUERIES)
    budget_share: float = 0.1
    repeats: int = 3
    px: bool = False
    threads: int = 0

    def __post_init__(self) -> None:
        unknown = [str(number) for number in self.queries if number not in QUERIES]
        if unknown or not self.queries:
            raise ArgumentError(
                f"There is no query {', '.join(unknown) or 'to run'}.",
                advice=f"The queries are {', '.join(map(str, QUERIES))}.",
            )
        if self.scale <= 0 or self.ranks < 1 or self.repeats < 1 or not 0 <= self.budget_share <= 1 or self.threads < 0:
            raise ArgumentError(
                "scale is above 0, ranks and repeats are at least 1, threads at least 0, budget-share is in [0, 1]."
            )


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
        duck = Duck(folder, case.threads or case.ranks)
        with Cluster(case.ranks, name="bench_tpch", progress=False) as lab:
            sizes = _Sizes(lab, Path(folder))
            queries = [_Query(lab, duck, Path(folder), sizes, number).measure(case, say) for number in case.queries]
        duck.close()
    return {
        "bench": "tpch",
        "case": {name: getattr(case, name) for name in ("scale", "ranks", "repeats", "budget_share", "px", "threads")},
        "queries": queries,
    }


class _Sizes:
    """Bytes of whole columns as ranks hold them: a query's input, also where it keeps few of its rows."""

    def __init__(self, lab: Cluster, folder: Path) -> None:
        self._lab = lab
        self._folder = folder
        self._known: dict[tuple[str, str], int] = {}

    def nbytes(self, asked: Sequence[tuple[str, str]]) -> int:
        """Of some columns of tables."""
        for table, column in asked:
            if (table, column) not in self._known:
                read = self._lab.read_parquet(str(self._folder / f"{table}.parquet"), columns=[column])
                self._known[table, column] = read.nbytes
        return sum(self._known[one] for one in asked)


class _Query:
    def __init__(self, lab: Cluster, duck: Duck, folder: Path, sizes: _Sizes, number: int) -> None:
        self._lab = lab
        self._sizes = sizes
        self._duck = duck
        self._folder = folder
        self._number = number

    def measure(self, case: TpchCase, say: Say) -> dict[str, Any]:
        ours, theirs = [], []
        for _ in range(case.repeats):
            start = time.perf_counter()
            expected = self._duck.ask(self._number)
            theirs.append(time.perf_counter() - start)
            ours.append(self._asked(expected, case))
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
            return self._asked(expected, case) | {"budget_bytes": budget_bytes}
        finally:
            self._lab.config = before

    def _asked(self, expected: Sequence[Any], case: TpchCase) -> dict[str, Any]:
        self._lab.run(begin)
        start = time.perf_counter()
        try:
            answered = self._on_ranks() if case.px else self._by_handles()
        except GcylonError as error:  # one query that is refused leaves the others to be asked
            answered = Answered(pd.DataFrame(), time.perf_counter() - start, [])
            difference = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        else:
            difference = first_difference(answered.rows, expected)
        return {
            "rows": len(answered.rows),
            "seconds": answered.seconds,
            "peak_bytes": max(self._lab.run(peak_bytes)),  # before columns are read to be weighed
            "input_bytes": self._sizes.nbytes(answered.asked),
            "difference": difference,
        }

    def _by_handles(self) -> Answered:
        tables = Tables(self._lab, self._folder)
        start = time.perf_counter()
        rows = QUERIES[self._number](tables)
        return Answered(rows, time.perf_counter() - start, tables.asked)

    def _on_ranks(self) -> Answered:
        told = self._lab.run(ask_on_rank, self._number, str(self._folder))
        slowest = max(one.seconds for one in told)
        return Answered(told[0].rows, slowest, told[0].asked)


def format_tpch(report: dict[str, Any]) -> str:
    """The TPC-H bench as text: a line for each query, without and with a small budget."""
    case = report["case"]
    way = "on the ranks" if case["px"] else "by handles"
    title = f"tpch {way}, scale {case['scale']:g}, {case['ranks']} ranks, median of the repeats after the first"
    header = ("query", "rows", "seconds", "DuckDB", "columns read", "peak a rank", "answer")
    text = f"{title}\n\n{format_table(header, map(_cells, report['queries']))}"
    text = f"{text}\n\n{_means(report['queries'])}\n\n{DERIVED}"
    if not case["budget_share"]:
        return text
    tight_header = ("query", "rows", "seconds", "budget a rank", "peak a rank", "answer")
    tight = format_table(tight_header, map(_tight_cells, report["queries"]))
    return f"{text}\n\nwith {case['budget_share']:g} of the columns read as each rank's budget\n\n{tight}"


def _means(queries: Sequence[dict[str, Any]]) -> str:
    asked = [one for one in queries if not one["difference"]]
    if not asked:
        return "no answer was equal"
    ours = statistics.geometric_mean(one["seconds"] for one in asked)
    times = statistics.geometric_mean(one["seconds"] / one["duckdb_s"] for one in asked)
    return f"geometric mean of {len(asked)}: {format_seconds(ours)}, {times:.2f} times DuckDB's"


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
