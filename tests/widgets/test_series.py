"""Arithmetic on time series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcylon_lab.ui.controls.limit_slider import AUTO, format_size, limit_options
from gcylon_lab.ui.figures.series import (
    clean,
    decimate,
    memory_unit,
    merge_intervals,
    on_grid,
    percent,
    steps,
)
from gcylon_lab.units import GIB, KIB, MIB, parse_bytes


@given(st.lists(st.floats(0, 1e12), min_size=1, max_size=3000), st.integers(4, 700))
def test_decimation_keeps_the_maximum_and_both_ends(values: list[float], points: int) -> None:
    t, y = np.arange(len(values), dtype=float), np.array(values)
    few_t, few_y = decimate(t, y, points)
    assert len(few_t) == len(few_y) <= max(points, min(points, len(values)))
    assert few_y.max() == y.max()
    assert (few_t[0], few_t[-1]) == (t[0], t[-1])
    assert np.all(np.diff(few_t) > 0)
    assert set(zip(few_t, few_y, strict=True)) <= set(zip(t, y, strict=True))


def test_every_narrow_peak_survives() -> None:
    y = np.zeros(10_000)
    peaks = np.arange(50, 10_000, 500)
    y[peaks] = 1.0
    t, few = decimate(np.arange(10_000.0), y, 600)
    assert set(peaks) <= set(t[few == 1.0].astype(int))


def test_what_is_not_finite_is_left_out_and_time_is_put_in_order() -> None:
    t, y = clean([3.0, 1.0, 2.0, 4.0], [30.0, 10.0, float("nan"), float("inf")])
    assert t.tolist() == [1.0, 3.0]
    assert y.tolist() == [10.0, 30.0]


def test_grid_takes_the_largest_of_a_cell_and_carries_the_last_forward() -> None:
    t, y = np.array([0.1, 0.2, 0.3, 2.5]), np.array([1.0, 9.0, 4.0, 2.0])
    assert on_grid(t, y, np.array([0.0, 1.0, 2.0, 3.0, 4.0])).tolist() == [9.0, 4.0, 2.0, 2.0]


def test_grid_begins_with_what_was_there_before_it() -> None:
    t, y = np.array([0.5, 3.5]), np.array([7.0, 1.0])
    assert on_grid(t, y, np.array([1.0, 2.0, 3.0, 4.0])).tolist() == [7.0, 7.0, 1.0]
    assert on_grid(np.array([]), np.array([]), np.array([0.0, 1.0])).tolist() == [0.0]


def test_steps_keep_only_changes_and_ends() -> None:
    t, y = steps(np.arange(6.0), np.array([5.0, 5.0, 5.0, 8.0, 8.0, 8.0]))
    assert (t.tolist(), y.tolist()) == ([0.0, 3.0, 5.0], [5.0, 8.0, 8.0])


@pytest.mark.parametrize(
    ("largest", "unit"), [(3 * GIB, "GiB"), (GIB - 1, "MiB"), (5 * KIB, "KiB"), (12, "B"), (0, "MiB")]
)
def test_an_axis_has_the_unit_of_its_largest_value(largest: float, unit: str) -> None:
    assert memory_unit(largest)[1] == unit


def test_joined_intervals_say_how_much_of_them_was_covered() -> None:
    merged = merge_intervals([(2.0, 3.0), (0.0, 1.0), (10.0, 11.0)], 1.0)
    assert merged == [(0.0, 3.0, pytest.approx(2 / 3)), (10.0, 11.0, 1.0)]
    assert merge_intervals([(0.0, 2.0), (1.0, 3.0)], 0.0) == [(0.0, 3.0, 1.0)]


def test_a_share_that_is_not_nothing_is_not_shown_as_nothing() -> None:
    assert [percent(s) for s in (0.0, 0.001, 0.5, 1.04)] == ["0%", "under 1%", "50%", "104%"]


@given(st.integers(0, 2**50))
def test_a_size_as_text_reads_back_exactly(n: int) -> None:
    text = format_size(n)
    assert text == AUTO if n == 0 else parse_bytes(text.replace(",", "")) == n
    assert format_size(53 * MIB // 8) == "6.625 MiB"
    assert format_size(6785 * 1024) == "6785 KiB", "bytes only where nothing shorter is exact"


def test_the_slider_ends_at_the_ceiling_and_holds_what_is_set() -> None:
    options = dict(limit_options(100 * MIB, [77 * MIB]))
    assert max(options.values()) == 100 * MIB
    assert options["77 MiB"] == 77 * MIB
    assert options[AUTO] == 0
