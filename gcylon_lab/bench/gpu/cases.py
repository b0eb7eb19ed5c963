"""What ``gcylon-lab bench gpu`` runs: verbs, strategies and budgets, in multiples of a rank's bytes."""

from __future__ import annotations

from dataclasses import dataclass

ROW_BYTES = 32  # one int64 key, three float64 columns
KEY_RANGE = 1 << 40


@dataclass(frozen=True, slots=True)
class GpuCase:
    """One line of the table.

    Attributes
    ----------
    name, verb, strategy : str
    budget : float
        The limit over a rank's input bytes, with the input alive.
    per_rank : float
        What is added to it for every rank: the result of an all-gather.
    skewed : bool
        Whether one key holds 90% of the rows.
    """

    name: str
    verb: str
    strategy: str
    budget: float
    per_rank: float = 0.0
    skewed: bool = False

    def limit_bytes(self, rank_bytes: int, ranks: int) -> int:
        """The budget of one rank."""
        return int(rank_bytes * (self.budget + self.per_rank * ranks))


CASES = (
    GpuCase("shuffle direct", "shuffle", "direct", 4.0),
    GpuCase("shuffle chunked", "shuffle", "chunked", 2.15),
    GpuCase("shuffle staged", "shuffle", "staged", 1.15),
    GpuCase("allgather direct", "allgather", "direct", 1.5, 1.0),
    GpuCase("allgather staged", "allgather", "staged", 1.25),
    GpuCase("skewed shuffle auto", "shuffle", "auto", 1.5, 1.0, True),
    GpuCase("skewed shuffle staged", "shuffle", "staged", 1.5, 0.0, True),
    GpuCase("sort direct", "sort_values", "direct", 4.0),
    GpuCase("sort staged", "sort_values", "staged", 2.0),
)


def case_named(name: str) -> GpuCase:
    """The case of a name."""
    return next(case for case in CASES if case.name == name)


def ceiling_bytes(rank_bytes: int, ranks: int) -> int:
    """The limit that lets every case run beside both inputs, the even and the skewed one, which takes its place."""
    return max(case.limit_bytes(rank_bytes, ranks) for case in CASES)
