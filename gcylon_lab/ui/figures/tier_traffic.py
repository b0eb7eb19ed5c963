"""Pure: the bytes that ranks moved down and up a tier, and how fast, beside what the machine copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...units import format_rate
from .series import readable
from .view import Snapshot

DIRECTIONS = {"down": "stage", "up": "unstage"}
TIERS = ("pinned", "disk")


@dataclass(slots=True)
class Moved:
    """What one rank moved in one direction, to or from one tier."""

    nbytes: int = 0
    seconds: float = 0.0


RankMoves = dict[tuple[str, str], Moved]


def moves_of(snapshot: Snapshot) -> RankMoves:
    """Return what a rank moved, by (direction, tier), as its kept spans tell.

    Copies from and to page-locked memory go on after their span: their time is that of the operations'
    copies, where an operation moved to no other tier.
    """
    moves: RankMoves = {}
    tiers: dict[int, set[str]] = {}
    directions = {name: direction for direction, name in DIRECTIONS.items()}
    for name, _, start_ns, end_ns, number, nbytes, tier in snapshot["spans"]:
        if name in directions and tier:
            moved = moves.setdefault((directions[name], tier), Moved())
            moved.nbytes += nbytes
            moved.seconds += (end_ns - start_ns) / 1e9 if tier == "disk" else 0.0
            tiers.setdefault(number, set()).add(tier)
    pinned = [r for r in snapshot["operations"] if tiers.get(int(r["number"])) == {"pinned"}]
    copied = sum(int(r["staged_bytes"]) + int(r["unstaged_bytes"]) for r in pinned)
    seconds = sum(int(r.get("staging_copy_ns", 0)) for r in pinned) / 1e9
    for direction in DIRECTIONS:
        moved = moves.get((direction, "pinned"), Moved())
        moved.seconds = moved.nbytes * seconds / copied if copied else 0.0
    return moves


def rate(moves: Sequence[RankMoves], direction: str, tier: str) -> float | None:
    """Return the bytes a second of a rank, over all ranks that moved; None where no time is known."""
    told = [m[direction, tier] for m in moves if (direction, tier) in m]
    seconds = sum(m.seconds for m in told)
    return sum(m.nbytes for m in told) / seconds if seconds > 0 else None


def machine_rate(snapshots: Sequence[Snapshot], direction: str, tier: str) -> float | None:
    """Return the bytes a second that a rank measured for such copies, the mean over ranks; None where none did."""
    rates = [float((s.get("copy_rates") or {}).get(tier, {}).get(direction, 0)) for s in snapshots]
    told = [value for value in rates if value > 0]
    return sum(told) / len(told) if told else None


def sentence(snapshots: Sequence[Snapshot], moves: Sequence[RankMoves], tier: str) -> str:
    """Return in words what went down to a tier and came up again, and what the machine could; empty where nothing did.

    Two short lines, since another panel stands beside it.
    """
    parts, machines = [], []
    for direction in DIRECTIONS:
        nbytes = sum(m[direction, tier].nbytes for m in moves if (direction, tier) in m)
        if nbytes:
            at, machine = rate(moves, direction, tier), machine_rate(snapshots, direction, tier)
            speed = f" at {format_rate(at)}" if at else ""
            parts.append(f"{readable(nbytes)} {direction}{speed}")
            machines += [f"{format_rate(machine)} {direction}"] if at and machine else []
    beside = f"<br>the machine's {tier}: {', '.join(machines)}" if machines else ""
    return f"{tier}: {', '.join(parts)}{beside}" if parts else ""
