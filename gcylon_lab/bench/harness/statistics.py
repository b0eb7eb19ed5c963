"""What is said about a series of times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Series:
    """Times of one contender, in seconds, warm-ups left out."""

    times_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The middle time."""
        return statistics.median(self.times_s)

    @property
    def spread(self) -> float:
        """The middle half's width over the median; 0.1 says that half the times lie within 10%."""
        if len(self.times_s) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.times_s, n=4, method="inclusive")
        return (high - low) / self.median_s

    def rate(self, rank_bytes: int) -> float:
        """Input bytes of one rank over the median time, in bytes a second."""
        return rank_bytes / self.median_s

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {
            "median_s": self.median_s,
            "min_s": min(self.times_s),
            "max_s": max(self.times_s),
            "spread": self.spread,
        }


def slowest(answers: Sequence[dict[str, Any]]) -> float:
    """The slowest rank's time of one step."""
    return max(float(answer["seconds"]) for answer in answers)
