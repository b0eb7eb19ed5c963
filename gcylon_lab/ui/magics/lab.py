"""The magics themselves."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import MagicArgumentParser

from ...config import nearest
from ...profiling.report import write_chrome_trace
from ...runtime.device_status import device_status
from ...units import format_bytes, format_count, format_seconds
from ..report import html_report
from .clusters import Clusters, show_cluster
from .completion import SUBCOMMANDS
from .plans import PlanShown, planned
from .profiles import profile, since
from .settings import changed, describe, split_words, taken_back
from .shown import refuse, show, table, told_shortly


class CellFailed(Exception):
    """A cell under ``%%lab_profile`` ended in an error, which was shown already."""

    def _render_traceback_(self) -> list[str]:
        return [f"%%lab_profile: {self}"]


@magics_class
class LabMagics(Magics):
    """``%lab``, ``%lab_plan`` and ``%%lab_profile``."""

    shell: Any

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.clusters = Clusters(shell)

    @line_magic
    @no_var_expand
    @told_shortly
    def lab(self, line: str) -> None:
        """Start, look at, set and end a cluster.

        ::

            %lab up 4                          start 4 ranks; the variable `lab` is the cluster
            %lab up 2 gpu_memory_limit=64MiB   with settings, which become the ranks' ceiling
            %lab up --name other               in another variable, beside the first
            %lab status                        what every rank is doing now
            %lab config                        the settings
            %lab config chunk_size_bytes=4MiB allow_disk_spill=false
            %lab config default                all as they are by default (or: low_memory, high_throughput)
            %lab profile off                   no spans, no samples of memory (or: on, or samples a second)
            %lab restart                       new engines; tables and handles are gone, settings stay
            %lab down                          end the engines

        A cluster that `lab` is already is used. Options of ``up``: --name NAME, --mpi auto|openmpi|mpich|PATH,
        --grace SECONDS, --prelude FILE, --timeout SECONDS, --attach. With several clusters, ``status``,
        ``restart`` and ``down`` take a variable's name. Settings of `config` hold from the next operation on.
        """
        words = split_words(line)
        command = words[0] if words else "status"
        if command not in SUBCOMMANDS:
            meant = nearest(command, SUBCOMMANDS)
            hint = f" Did you mean {meant}?" if meant else ""
            raise refuse(
                f"%lab has no subcommand {command!r}.{hint} It has {', '.join(SUBCOMMANDS)}; %lab? tells more."
            )
        getattr(self, f"_{command}")(words[1:])

    @line_magic
    @no_var_expand
    @told_shortly
    def lab_plan(self, line: str) -> PlanShown:
        """Show the plan of a verb's call, without running it.

        ::

            %lab_plan t.shuffle("k", strategy="staged")
            %lab_plan t.join(u, on="k")
            %lab_plan t.groupby("k").agg({"v": "sum"})

        No rank is asked, but to run row-wise verbs that the table remembers: its size is not known before. ``_.plan``
        is the plan itself.
        """
        return planned(line, self.shell.user_ns)

    @cell_magic
    @no_var_expand
    @told_shortly
    def lab_profile(self, line: str, cell: str) -> None:
        """Run a cell, and show what the ranks did in it.

        ::

            %%lab_profile --report cell.html --trace cell.json
            u = t.shuffle("k")

        The cell may itself begin with ``%%px``. Shown are its operations with strategy, rounds, time, rate, peaks
        predicted and measured, what was staged, and how evenly the ranks worked. ``--report`` writes these with
        figures as one HTML file, ``--trace`` a Chrome trace for ui.perfetto.dev; both of this cell alone.
        """
        options = _profile_parser().parse_args(split_words(line))
        self._check_cell(cell)
        marks = self._times()
        start = time.monotonic()
        result = self.shell.run_cell(cell, store_history=False)
        seconds = time.monotonic() - start
        if self.clusters.is_there():
            self._show_profile(marks, seconds, options)
        else:
            show(profile([], seconds, ["There is no cluster."]))
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            raise CellFailed(f"the cell ended in {type(error).__name__} after {format_seconds(seconds)}.") from None

    # --- the parts of %lab ---

    def _up(self, words: list[str]) -> None:
        show_cluster(self.clusters.up(words))

    def _down(self, words: list[str]) -> None:
        self.clusters.down(words)

    def _restart(self, words: list[str]) -> None:
        name, cluster = self.clusters.named(words)
        print(f"Restarting {name} …")
        cluster.restart()
        show_cluster(cluster)

    def _status(self, words: list[str]) -> None:
        name, cluster = self.clusters.named(words)
        rows = [
            [
                f"rank {row['rank']}",
                row["host"],
                str(row["pid"]),
                row["state"],
                row["operation"] or row["running"],
                _rounds(row["progress"]),
                f"{format_bytes(memory.get('used_bytes', 0))} of {format_bytes(memory.get('limit_bytes', 0))}",
            ]
            for row, memory in zip(cluster.status(), cluster._session.memory, strict=True)
        ]
        head = ["", "host", "process", "state", "in", "round", "memory, as last reported"]
        count = len(cluster._session.infos)
        tables = f"{format_count(count)} table{'s' * (count != 1)}"
        above = f"{name}: {cluster.n} rank{'s' * (cluster.n != 1)}, {tables}"
        show(table(head, rows, above=above, below=f"{cluster.ranks[0].engines}. {device_status().summary()}"))

    def _config(self, words: list[str]) -> None:
        _, cluster = self.clusters.named()
        if words:
            before = cluster.config
            cluster.config = changed(before, words)
            if gone := taken_back(before, words):
                print(gone)
        show(describe(cluster.config))

    def _profile(self, words: list[str]) -> None:
        _, cluster = self.clusters.named()
        if len(words) > 1:
            raise refuse(f"%lab profile takes on, off or samples a second, but was given {' '.join(words)}.")
        if words:
            cluster.profile = _profile_setting(words[0])
        hz = cluster.profile
        print(f"The profiler takes {hz:g} samples a second." if hz else "The profiler is off.")

    # --- the parts of %%lab_profile ---

    def _check_cell(self, cell: str) -> None:
        if not cell.strip():
            raise refuse("%%lab_profile stands above the code that it profiles; this cell has none.")
        if _in_loop() and self._awaits(cell):
            raise refuse(
                "%%lab_profile cannot hold an await here: the notebook's loop runs already. "
                "Take .result() of what is awaited, as in t.shuffle_async(...).result()."
            )

    def _awaits(self, cell: str) -> bool:
        transformed = self.shell.transform_cell(cell)
        return bool(self.shell.should_run_async(cell, transformed_cell=transformed))

    def _times(self) -> dict[int, int]:
        if not self.clusters.is_there():
            return {}
        _, cluster = self.clusters.named()
        return {snapshot["rank"]: int(snapshot["now_ns"]) for snapshot in cluster.snapshots()}

    def _show_profile(self, marks: dict[int, int], seconds: float, options: Any) -> None:
        _, cluster = self.clusters.named()
        snapshots = since(cluster.snapshots(), marks)
        notes = []
        if options.report:
            notes.append(f"Report: {html_report(options.report, snapshots, title='Profile of a cell')}")
        if options.trace:
            path = options.trace.expanduser().resolve()
            write_chrome_trace(path, snapshots)
            notes.append(f"Trace: {path} (ui.perfetto.dev opens it)")
        show(profile(snapshots, seconds, notes))


def _profile_parser() -> Any:
    parser = MagicArgumentParser("%%lab_profile", add_help=False)  # type: ignore[no-untyped-call]
    parser.add_argument("--report", type=Path, metavar="FILE.html")
    parser.add_argument("--trace", type=Path, metavar="FILE.json")
    return parser


def _profile_setting(word: str) -> bool | float:
    if word in ("on", "off"):
        return word == "on"
    try:
        return float(word)
    except ValueError:
        raise refuse(f"%lab profile {word} is invalid. Expected on, off, or samples a second.") from None


def _rounds(progress: Any) -> str:
    return f"{progress['round']}/{progress['rounds']}" if progress and progress["rounds"] else ""


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
