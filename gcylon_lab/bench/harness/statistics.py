"""What is said about a series of times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

PERCENTILES = (5, 25, 75, 95)
CONFIDENCE = 0.95
RESAMPLES = 10_000
SEED = 0
LEAST_TIMES = 3  # below, an interval would be as narrow as chance makes it


@dataclass(frozen=True)
class Series:
    """Times of one contender, in seconds, warm-ups left out."""

    times_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The middle time."""
        return statistics.median(self.times_s)

    @property
    def mean_s(self) -> float:
        """The arithmetic mean."""
        return statistics.fmean(self.times_s)

    @property
    def deviation_s(self) -> float:
        """The standard deviation of the sample; 0 for a single time."""
        return statistics.stdev(self.times_s) if len(self.times_s) > 1 else 0.0

    @cached_property
    def percentiles_s(self) -> dict[str, float]:
        """The `PERCENTILES`, interpolated between times, as ``{"p5": ...}``."""
        values = np.percentile(self.times_s, PERCENTILES)
        return {f"p{p}": float(value) for p, value in zip(PERCENTILES, values, strict=True)}

    @cached_property
    def interval_s(self) -> tuple[float, float] | None:
        """Where the median lies with `CONFIDENCE`, or None of fewer than `LEAST_TIMES` times.

        By the bootstrap: percentiles of the medians of `RESAMPLES` samples drawn from the times, with the seed `SEED`,
        so that the same times have the same interval.
        """
        count = len(self.times_s)
        if count < LEAST_TIMES:
            return None
        drawn = np.random.default_rng(SEED).integers(0, count, (RESAMPLES, count))
        medians = np.median(np.asarray(self.times_s)[drawn], axis=1)
        tail = 100 * (1 - CONFIDENCE) / 2
        low, high = np.percentile(medians, (tail, 100 - tail))
        return float(low), float(high)

    @property
    def spread(self) -> float:
        """The middle half's width over the median; 0.1 says that half the times lie within 10%."""
        return (self.percentiles_s["p75"] - self.percentiles_s["p25"]) / self.median_s

    def rate(self, rank_bytes: int) -> float:
        """Input bytes of one rank over the median time, in bytes a second."""
        return rank_bytes / self.median_s

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {
            "median_s": self.median_s,
            "interval_s": self.interval_s,
            "mean_s": self.mean_s,
            "deviation_s": self.deviation_s,
            "min_s": min(self.times_s),
            "max_s": max(self.times_s),
            **{f"{name}_s": value for name, value in self.percentiles_s.items()},
            "spread": self.spread,
        }


def slowest(answers: Sequence[dict[str, Any]]) -> float:
    """The slowest rank's time of one step."""
    return max(float(answer["seconds"]) for answer in answers)
