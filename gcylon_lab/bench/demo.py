"""``gcylon-lab demo``: the main job on real input, from nothing to a report."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import Any

from ..cluster.client.cluster import Cluster
from ..cluster.handles.handle import DistTable
from ..config import GcylonConfig
from ..errors import ArgumentError, ColumnMissing, GcylonError, ReadError, WriteError
from ..profiling.report import summary, write_chrome_trace
from ..tutorials import make_tpch
from ..units import format_bytes, format_count, format_rate, format_seconds, parse_bytes
from .harness.recordings import write_snapshots
from .harness.reports import format_table

_READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".json": "read_json", ".jsonl": "read_json"}


@dataclass(kw_only=True)
class Demo:
    """The demo's settings.

    Parameters
    ----------
    ranks : int
        Engines to start.
    scale : float
        TPC-H scale factor of the input that is made; 1 is about 1.2 GiB in memory.
    budget_bytes : int
        Budget of the staged operations on each rank.
    files : list of str
        The user's own input; TPC-H where empty.
    key : str
        Column to shuffle on.
    out : Path
        Folder for the report.
    """

    ranks: int
    scale: float
    budget_bytes: int
    files: list[str] = field(default_factory=list)
    key: str = ""
    out: Path = Path("gcylon-lab-demo")
    say: Callable[[str], None] = partial(print, flush=True)

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Demo:
        """Make it of the command line's arguments.

        Raises
        ------
        ArgumentError
            If they cannot be used.
        """
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        ranks = min(4, max(2, cores)) if arguments.ranks is None else arguments.ranks
        if ranks < 1 or arguments.scale <= 0:
            raise ArgumentError(
                f"ranks={ranks} and scale={arguments.scale:g} cannot be used.", advice="Both are above 0."
            )
        if arguments.files and not arguments.key:
            raise ArgumentError("Files of your own need a column to shuffle on.", advice="Name it with --key.")
        try:
            budget_bytes = parse_bytes(arguments.budget)
        except ValueError as error:
            raise ArgumentError(f"--budget: {error}.") from None
        return cls(
            ranks=ranks, scale=arguments.scale, budget_bytes=budget_bytes, files=arguments.files or [],
            key=arguments.key or "l_orderkey", out=Path(arguments.out),
        )  # fmt: skip

    def run(self) -> None:
        """Do it all, and print what was measured; nothing is left running."""
        _make_folder(self.out)
        with tempfile.TemporaryDirectory(prefix="gcylon-lab-demo-") as folder:
            large, small = self._input(Path(folder))
            with self._step(f"starting {self.ranks} MPI engines"):
                lab = Cluster(self.ranks, name="demo", progress=False)
            with lab:
                self._operate(lab, large, small)
                self._report(lab)

    def _input(self, folder: Path) -> tuple[list[str], list[str]]:
        if self.files:
            _look_for(self.files)
            return self.files, self.files
        with self._step(f"making TPC-H lineitem and orders at scale {self.scale:g}"):
            lineitem, orders = make_tpch(folder, self.scale)
        return [str(lineitem)], [str(orders)]

    def _operate(self, lab: Cluster, large: list[str], small: list[str]) -> None:
        with self._step("reading"):
            table = _read(lab, large)
        self.say(f"    {_describe(table)}")
        if self.key not in table.columns:
            raise ColumnMissing(
                f"There is no column {self.key!r}.", advice=f"The columns are {', '.join(table.columns)}."
            )
        rows = self._shuffle(table, "direct", None)
        chunked = lab.config.with_values(chunk_size_bytes="1MiB")
        self._same(rows, self._shuffle(table, "chunked", chunked), "chunked")
        table.release()
        tight = lab.config.with_values(gpu_memory_limit=self.budget_bytes)
        with self._step(f"reading again under a budget of {format_bytes(self.budget_bytes)} a rank"):
            table = _read(lab, large, tight)
        self.say(f"    {_describe(table)}")
        self._same(rows, self._shuffle(table, "staged", tight), "staged")
        table.release()
        self._allgather(lab, small)

    def _shuffle(self, table: DistTable, strategy: str, config: GcylonConfig | None) -> list[int]:
        with self._step(f"shuffle on {self.key}, {strategy}"):
            result = table.shuffle(self.key, strategy=strategy, config=config)
        self.say("    " + result.explain().splitlines()[0])
        rows = [info["rows"] for info in result.info()]
        result.release()
        return rows

    def _same(self, expected: Sequence[int], rows: Sequence[int], strategy: str) -> None:
        if list(expected) != list(rows):
            raise GcylonError(f"The {strategy} shuffle left {rows} rows on the ranks, the direct one {expected}.")

    def _allgather(self, lab: Cluster, small: list[str]) -> None:
        table = _read(lab, small)
        plan = table.plan.allgather()
        if plan.strategy == "staged":
            self.say(f"  allgather left out: it would bring {format_bytes(plan.result_bytes)} to every rank")
            return
        with self._step(f"allgather of {format_count(table.num_rows)} rows to every rank"):
            result = table.allgather()
        self.say("    " + result.explain().splitlines()[0])
        result.release()

    def _report(self, lab: Cluster) -> None:
        from ..ui import html_report

        snapshots = lab.snapshots()
        self.say("")
        self.say(format_operations(summary(snapshots)["operations"]))
        self.say("")
        write_snapshots(self.out / "snapshots.json", snapshots)
        write_chrome_trace(self.out / "trace.json", snapshots)
        html_report(self.out / "report.html", snapshots, title="gcylon-lab demo")
        self.say(f"report   {self.out / 'report.html'}   opens in a browser, without a network")
        self.say(f"trace    {self.out / 'trace.json'}   opens in ui.perfetto.dev")
        self.say(f"record   {self.out / 'snapshots.json'}   for `gcylon-lab report`")

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        self.say(f"  {what} ...")
        yield
        self.say(f"    {format_seconds(time.perf_counter() - start)}")


def format_operations(rows: Sequence[dict[str, Any]]) -> str:
    """The table that the demo ends with: one line an operation, from the rows of `summary`."""
    header = ("operation", "strategy", "rounds", "time", "a rank", "peak", "budget", "staged")
    return format_table(header, [_operation_cells(row) for row in rows])


def _operation_cells(row: dict[str, Any]) -> tuple[str, ...]:
    rate = row["gb_per_s"]
    return (
        row["verb"],
        row["strategy"] or "-",
        format_count(row["rounds"]) if row["rounds"] else "-",
        format_seconds(row["seconds"]),
        format_rate(rate * 1e9) if rate else "-",
        format_bytes(row["measured_peak_bytes"]),
        format_bytes(row["budget_bytes"]) if row["budget_bytes"] else "-",
        format_bytes(row["staged_bytes"]) if row["staged_bytes"] else "-",
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(
            f"{folder} cannot be made: {error.strerror}.", advice="Give another folder with --out."
        ) from error


def _look_for(files: Sequence[str]) -> None:
    """Say what is missing before engines are started."""
    for file in files:
        if not ("://" in file or has_magic(file) or Path(file).exists()):
            raise ReadError(f"there is no file {file}", advice=f"The working folder is {os.getcwd()}.", path=file)


def _read(lab: Cluster, files: Sequence[str], config: GcylonConfig | None = None) -> DistTable:
    endings = {Path(file).suffix.lower() or ".parquet" for file in files}
    known = {_READERS.get(ending, "") for ending in endings}
    if len(known) != 1 or "" in known:
        raise ArgumentError(
            f"Files ending in {', '.join(sorted(endings))} cannot be read together.",
            advice=f"Give files of one kind: {', '.join(_READERS)}, or folders of parquet files.",
        )
    table: DistTable = getattr(lab, known.pop())(list(files), config=config)
    return table


def _describe(table: DistTable) -> str:
    places = [(nbytes, tier if tier.startswith("also") else f"on {tier}") for tier, nbytes in table.tiers.items()]
    tiers = ", ".join(f"{format_bytes(nbytes)} {place}" for nbytes, place in places if nbytes)
    return f"{format_count(table.num_rows)} rows of {table.num_columns} columns, {tiers or 'empty'}"
