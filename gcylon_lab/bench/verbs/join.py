"""The input of the join bench, and how results are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ClusterError
from ..harness.cases import VALUES, Columns
from ..harness.reports import format_turns

OTHER = "w"
_MIX = np.uint64(0x9E3779B97F4A7C15)


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


def compare(seen: Sequence[tuple[str, Any, Sequence[dict[str, Any]]]]) -> None:
    """Refuse rows that differ.

    Raises
    ------
    ClusterError
        With the sums of all.
    """
    sums = [_added(answers) for _, _, answers in seen]
    if any(one != sums[0] for one in sums):
        names = ", ".join(name for name, _, _ in seen)
        raise ClusterError(f"In the bench the joins of {names} gave different rows: {sums}.")


def _added(answers: Sequence[dict[str, Any]]) -> tuple[int, int]:
    return sum(a["summed"][0] for a in answers), sum(a["summed"][1] for a in answers) % 2**64


def format_join(report: dict[str, Any]) -> str:
    """The join bench as text: every contender, and ours over each peer."""
    columns = "of an int64 key and three float64 columns, with as many of the key and one"
    return format_turns(report, "join", columns, best="")
