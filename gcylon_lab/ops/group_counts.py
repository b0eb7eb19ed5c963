"""How many keys rows have, as far as some of them tell. Pure."""

from __future__ import annotations

import math

_AS_NEAR = 1 + 1e-12  # bounds of a number of groups that is guessed


def is_growing(state: float, before: float, rows: int) -> bool:
    """Whether a large state grows with most rows, which costs more than it saves."""
    return state > 4 * rows and state - before > rows // 2


def found_in(groups: float, rows: int) -> float:
    """How many of so many keys, each as often as the others, stand in so many rows."""
    return groups * -math.expm1(-rows / groups)


def rows_until(groups: float, found: float) -> float:
    """In how many rows so many of the keys stand, fewer than there are, each as often as the others."""
    return -groups * math.log1p(-found / groups) if found < groups else math.inf


def expected_groups(looked_at: int, found: int) -> float:
    """How many keys there are where so many rows, taken by chance, showed so many, each as often as the others."""
    if found <= 0:
        return 0.0
    if found >= looked_at:
        return float("inf")
    low, high = float(found), 1e18
    while high > low * _AS_NEAR:
        middle = (low * high) ** 0.5
        if found_in(middle, looked_at) < found:
            low = middle
        else:
            high = middle
    return high
