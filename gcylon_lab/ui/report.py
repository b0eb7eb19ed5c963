"""One HTML file with the figures and their numbers, which opens without a network."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .._version import __version__
from ..profiling.report import HIDDEN_MEANS, summary
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
from .figures.series import readable
from .figures.theme import DARK, LIGHT
from .figures.view import Snapshot, make_view
from .live.scripts import script

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
    from plotly.offline import get_plotlyjs

    view = make_view(snapshots)
    figures = {theme.name: figure_dict(view, theme) for theme in (LIGHT, DARK)}
    height = figures["light"]["layout"]["height"]
    # "</script>" in a name would end the element early.
    data = json.dumps(figures, allow_nan=False).replace("<", "\\u003c")
    sections = [_section(heading, table) for heading, table in (tables or {}).items()]
    sections += [_section("Operations", operation_table(snapshots)), *_hidden_note(snapshots)]
    sections += [_section("Traffic: who sent what to whom", traffic_table(snapshots))]
    sections += [_section("GPUs, as the driver tells (NVML)", gpu_table(snapshots))] if view.gpus else []
    sections += [_folded(name, make(snapshots)) for name, make in _DETAILS.items()]
    return "".join(
        [
            f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{script('report.css')}</style></head><body><h1>{escape(title)}</h1>",
            "".join(f"<p>{escape(note)}</p>" for note in (*_about(snapshots), *notes)),
            f'<div id="figure" role="img" aria-label="{escape(MEMORY_TITLE)}" style="height:{height}px"></div>',
            *sections,
            f'<script id="figures" type="application/json">{data}</script>',
            f"<script>{get_plotlyjs()}</script><script>{script('report.js')}</script></body></html>",
        ]
    )


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
    budget = max((int(s["limit_bytes"]) for s in snapshots), default=0)
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
