"""Offsets of clocks from shared meetings."""

from __future__ import annotations

import numpy as np
import pytest

from gcylon_lab.errors import ArgumentError
from gcylon_lab.profiling.clock import Int64s, estimate_offset_ns, offset_bounds_ns


def meetings(offsets: list[int], rounds: int, jitter_ns: int, seed: int = 0) -> tuple[Int64s, Int64s]:
    """Rounds in which all leave after the last has entered, read on clocks that are off."""
    random = np.random.default_rng(seed)
    shape = (rounds, len(offsets))
    enter = np.arange(rounds)[:, None] * 10_000_000 + random.integers(0, jitter_ns + 1, shape)
    leave = enter.max(axis=1, keepdims=True) + random.integers(0, jitter_ns + 1, shape)
    clock = np.array(offsets, dtype=np.int64)
    return enter + clock, leave + clock


def test_by_hand() -> None:
    # Rank 1's clock is 1000 ahead. Round 0 bounds it to [1000-30, 1000+25], round 1 to [1000-5, 1000+40].
    enter = np.array([[0, 1010], [100, 1135]])
    leave = np.array([[40, 1025], [140, 1140]])
    assert offset_bounds_ns(enter, leave, 1) == (max(1010 - 40, 1135 - 140), min(1025 - 0, 1140 - 100)) == (995, 1025)
    assert estimate_offset_ns(enter, leave, 1) == 1010


@pytest.mark.parametrize("offset", [0, 123_456_789, -987_654_321, 2**61])
def test_meetings_without_delay_give_the_offset_exactly(offset: int) -> None:
    enter, leave = meetings([0, offset, 5], 3, 0)
    assert offset_bounds_ns(enter, leave, 1) == (offset, offset)
    assert estimate_offset_ns(enter, leave, 1) == offset
    assert estimate_offset_ns(enter, leave, 0) == 0


@pytest.mark.parametrize("seed", range(20))
def test_the_offset_is_always_within_the_bounds_and_more_rounds_narrow_them(seed: int) -> None:
    offsets = [0, 5_000_000_000, -17, 40_000]
    enter, leave = meetings(offsets, 32, 50_000, seed)
    for rank, offset in enumerate(offsets):
        widths = []
        for rounds in (1, 4, 32):
            lower, upper = offset_bounds_ns(enter[:rounds], leave[:rounds], rank)
            assert lower <= offset <= upper
            widths.append(upper - lower)
            estimate = estimate_offset_ns(enter[:rounds], leave[:rounds], rank)
            assert abs(estimate - offset) <= (upper - lower) / 2 + 1
        assert widths == sorted(widths, reverse=True)


def test_a_rank_that_is_always_late_does_not_pull_the_estimate_outside_the_bounds() -> None:
    enter = np.array([[0, 9_000], [100_000, 109_000]])
    leave = np.array([[9_001, 9_001], [109_001, 109_001]])
    lower, upper = offset_bounds_ns(enter, leave, 1)
    assert lower <= 0 <= upper
    assert lower == -1


def test_clocks_that_drifted_apart_give_the_middle() -> None:
    enter = np.array([[0, 0], [1_000_000, 1_000_100]])
    leave = enter + 1
    lower, upper = offset_bounds_ns(enter, leave, 1)
    assert lower > upper
    assert estimate_offset_ns(enter, leave, 1) == (lower + upper) // 2


@pytest.mark.parametrize(
    ("enter", "leave", "rank"),
    [((2, 3), (2, 2), 0), ((2, 3), (2, 3), 3), ((2, 3), (2, 3), -1), ((0, 3), (0, 3), 0), ((3,), (3,), 0)],
)
def test_times_that_say_nothing_are_refused(enter: tuple[int, ...], leave: tuple[int, ...], rank: int) -> None:
    with pytest.raises(ArgumentError, match="say nothing of rank"):
        estimate_offset_ns(np.zeros(enter, np.int64), np.zeros(leave, np.int64), rank)
