"""What ranks recorded, kept in a file: written by the demo, shown by ``gcylon-lab report``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ReadError, WriteError
from ...profiling.report import format_summary, write_chrome_trace
from ...whole_files import write_whole

if TYPE_CHECKING:
    from ...profiling.snapshot import RankSnapshot

_VERSION = 1


def write_snapshots(path: str | Path, snapshots: Sequence[RankSnapshot]) -> None:
    """Write the ranks' snapshots as JSON.

    Raises
    ------
    WriteError
        If the file cannot be written.
    """
    try:
        write_whole(path, json.dumps({"version": _VERSION, "snapshots": list(snapshots)}))
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {error.strerror}.") from error


def read_snapshots(path: str | Path) -> list[RankSnapshot]:
    """Read what `write_snapshots` wrote, one snapshot a rank.

    Raises
    ------
    ReadError
        If there is no such file, or it holds something else.
    """
    try:
        kept = json.loads(Path(path).read_text())
        snapshots: list[RankSnapshot] = kept["snapshots"]
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ReadError(f"{path} holds no snapshots.", advice="Give a snapshots.json, as `demo` writes it.") from error
    if kept.get("version") != _VERSION:
        raise ReadError(f"{path} is of version {kept.get('version')!r}; this program reads version {_VERSION}.")
    return snapshots


def show(path: str | Path, *, html: str | None = None, trace: str | None = None) -> None:
    """Print a summary of a recording; write it as an HTML report and a Chrome trace where asked."""
    snapshots = read_snapshots(path)
    print(format_summary(snapshots))
    if html:
        from ...ui import html_report

        print(f"report: {html_report(html, snapshots)}")
    if trace:
        write_chrome_trace(trace, snapshots)
        print(f"trace: {trace}")
