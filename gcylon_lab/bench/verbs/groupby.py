"""The input of the group-by bench, and how results are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ClusterError
from ..harness.cases import KEY, VALUES, Columns, ShuffleCase
from ..harness.reports import format_turns

_NEAR = 1e-12  # sums of floats depend on the order in which they are added


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupbyCase(ShuffleCase):
    """One int64 key of a number of values, and three float64 columns to be summed, on every rank.

    Parameters
    ----------
    keys : int
        Different keys, each on all ranks.
    """

    keys: int = 100_000

    def columns(self, rank: int, repeat: int) -> Columns:
        """Make one rank's fresh input."""
        random = np.random.default_rng((repeat, rank))
        columns: Columns = {KEY: random.integers(0, self.keys, self.rows)}
        return columns | {name: random.random(self.rows) for name in VALUES}


def summed(columns: Columns) -> list[float]:
    """Groups, the sum of their keys, and of each column a sum in which every group counts differently."""
    keys = columns[KEY]
    weights = 1.0 + (keys % 1013)
    return [len(keys), int(keys.sum()), *(float((columns[name] * weights).sum()) for name in VALUES)]


def compare(seen: Sequence[tuple[str, Any, Sequence[dict[str, Any]]]]) -> None:
    """Refuse sums that differ.

    Raises
    ------
    ClusterError
        With the sums of all.
    """
    sums = [np.sum([answer["summed"] for answer in answers], axis=0) for _, _, answers in seen]
    if not all(np.allclose(one, sums[0], rtol=_NEAR, atol=0.0) for one in sums):
        given = "; ".join(f"{name} {one.tolist()}" for (name, _, _), one in zip(seen, sums, strict=True))
        raise ClusterError(f"In the bench the groups differ: {given}.")


def format_groupby(report: dict[str, Any]) -> str:
    """The group-by bench as text: every contender, and ours over each peer's best."""
    columns = f"of one int64 key with {report['case']['keys']:,} values and three float64 columns"
    return format_turns(report, "groupby sum", columns)
