"""Sizes, rates and times: shown with the digits that matter, and read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcylon_lab import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (units.MIB - units.KIB, "1,023 KiB"),
        (units.MIB - 512, "1.00 MiB"),
        (units.MIB - 513, "1,023 KiB"),
        (units.GIB - 1, "1.00 GiB"),
        (64 * units.MIB, "64 MiB"),
        (int(8.4 * units.GIB), "8.40 GiB"),
        (int(12.34 * units.GIB), "12.3 GiB"),
        (5000 * 1024**4, "5,000 TiB"),
        (-3 * units.MIB, "-3 MiB"),
    ],
)
def test_bytes_are_shown_in_binary_units(value, text):
    assert units.format_bytes(value) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64MiB", 64 * 2**20),
        ("64 mib", 64 * 2**20),
        ("4GB", 4 * 10**9),
        ("4 g", 4 * 10**9),
        ("1.5 GiB", 3 * 2**29),
        ("1048576", 1048576),
        ("1e6", 10**6),
        (123, 123),
        (2.9, 2),
    ],
)
def test_sizes_are_read_in_both_systems(text, value):
    assert units.parse_bytes(text) == value


@pytest.mark.parametrize("text", ["", "many", "4 XB", "-4MiB", "4 5 MiB", "MiB"])
def test_what_is_no_size_is_said(text):
    with pytest.raises(ValueError, match="is not a size; write for example 64MiB"):
        units.parse_bytes(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.234e9, "1.23 GB/s"), (25e6, "25 MB/s"), (3.4e11, "340 GB/s"), (0, "0 MB/s"), (99.9e6, "99.9 MB/s")],
)
def test_rates(value, text):
    assert units.format_rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12.5e-6, "12.5 µs"),
        (0.0125, "12.5 ms"),
        (1.0, "1 s"),
        (59.94, "59.9 s"),
        (125, "2 min 5 s"),
        (3.14159, "3.14 s"),
    ],
)
def test_times_are_shown(value, text):
    assert units.format_seconds(value) == text


@pytest.mark.parametrize(
    ("text", "value"), [("250ms", 0.25), ("10 s", 10), ("2min", 120), ("1h", 3600), ("5", 5), ("3 µs", 3e-6), (7, 7)]
)
def test_times_are_read(text, value):
    assert units.parse_seconds(text) == pytest.approx(value)


def test_what_is_no_time_is_said():
    with pytest.raises(ValueError, match="is not a time; write for example 250ms"):
        units.parse_seconds("soon")


@given(st.integers(0, 2**60))
def test_what_is_shown_reads_back_to_three_digits(value):
    assert units.parse_bytes(units.format_bytes(value).replace(",", "")) == pytest.approx(value, rel=0.006, abs=1)


def test_counts():
    assert units.format_count(1234567) == "1,234,567"
