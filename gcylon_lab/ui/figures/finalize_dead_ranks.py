"""Pure: what ranks that are gone told last, brought to its end: nobody else ends it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from .view import Snapshot

_GONE = "the rank is gone"


def with_dead_ended(snapshots: Sequence[Snapshot], dead: Collection[int]) -> list[Snapshot]:
    """Return the snapshots, in which dead ranks run nothing: what they had begun ended with their last news.

    Parameters
    ----------
    snapshots : sequence of dict
    dead : collection of int
        The ranks that are gone.
    """
    return [_ended(s) if int(s["rank"]) in dead else s for s in snapshots]


def _ended(snapshot: Snapshot) -> Snapshot:
    last = int(snapshot["now_ns"])
    operations = [r if r["end_ns"] else _cut_off(r, last) for r in snapshot["operations"]]
    return snapshot | {"progress": None, "operations": operations}


def _cut_off(record: dict[str, Any], last_ns: int) -> dict[str, Any]:
    # One that its rank had heard to fail keeps its own words.
    return record | {"end_ns": max(last_ns, int(record["start_ns"])), "error": record["error"] or _GONE}
