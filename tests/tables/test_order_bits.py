"""Words that order numbers, and how many of them lie in each part of a range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcylon_lab.backends.host.keys.order_preserving import bin_width, from_bits, histogram, to_bits

TOP = (1 << 64) - 1
EDGES = [0.0, 1.0, -1.0, 5e-324, -5e-324, np.inf, -np.inf, 1.7e308, -1.7e308]


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int8", "uint64", "uint8"])
def test_words_have_the_order_of_values_and_lead_back(dtype: str) -> None:
    random = np.random.default_rng(3)
    if dtype.startswith("float"):
        with np.errstate(over="ignore"):
            values = np.array([*EDGES, *random.normal(size=500) * 10.0 ** random.integers(-30, 30, 500)]).astype(dtype)
    else:
        limits = np.iinfo(dtype)
        values = random.integers(limits.min, limits.max, 500, dtype=dtype, endpoint=True)
        values = np.append(values, np.array([limits.min, limits.max, 0], dtype))
    words = to_bits(values)
    assert (values[np.argsort(words)] == np.sort(values)).all()
    assert (from_bits(words, values.dtype.kind) == values).all()


def test_both_zeros_are_one_word() -> None:
    assert len(set(to_bits(np.array([0.0, -0.0])).tolist())) == 1


@given(
    words=st.lists(st.integers(0, TOP) | st.integers(0, 70) | st.integers(TOP - 70, TOP), max_size=40),
    ends=st.tuples(st.integers(0, TOP), st.integers(0, TOP)) | st.tuples(st.integers(0, 70), st.integers(0, 70)),
    bins=st.sampled_from([1, 2, 3, 16, 4096]),
)
def test_words_are_counted_where_they_lie(words: list[int], ends: tuple[int, int], bins: int) -> None:
    _check(words, min(ends), max(ends), bins)


def test_words_of_a_whole_range_are_counted() -> None:
    _check([0, 1, TOP, TOP - 1, 1 << 63, (1 << 63) - 1], 0, TOP, 4096)
    _check([0, 3, 4, 5, 6, 7, 8, TOP], 4, 7, 4096)


def _check(words: list[int], low: int, high: int, bins: int) -> None:
    expected: dict[Any, int] = {}
    for word in words:
        if low <= word <= high:
            place = (word - low) // bin_width(low, high, bins)
            expected[place] = expected.get(place, 0) + 1
    counts = histogram(np.array(words, np.uint64), low, high, bins)
    assert counts.shape == (bins,) and counts.dtype == np.int64
    assert {place: int(counts[place]) for place in np.flatnonzero(counts).tolist()} == expected
