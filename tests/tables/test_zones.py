"""Clocks of time zones, as pandas has them, and multiples of units."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gcylon_lab.backends.expressions.computing import ROUNDED, rounded
from gcylon_lab.backends.expressions.zones import PER_SECOND, changes_of, instants, on_clocks

# With other rules once than now, at half hours, at midnight, by a calendar of its own, and never.
ZONES = [
    "America/Sao_Paulo", "Europe/Berlin", "Africa/Casablanca", "Asia/Gaza", "Australia/Lord_Howe", "Africa/Freetown",
    "Asia/Kolkata", "UTC", "+05:30", "-02:00",
]  # fmt: skip


def seconds_of(zone: str) -> np.ndarray:
    """Seconds of UTC, some of them beside changes of the clocks."""
    changes, _ = changes_of(zone)
    beside = [changes + more for more in (-3600, -1, 0, 1, 3599)]
    years = np.random.default_rng(3).integers(-5_300_000_000, 30_000_000_000, 2000)  # 1802 to 2920
    return np.concatenate([*beside, years]).astype(np.int64)


@pytest.mark.parametrize("zone", ZONES)
def test_clocks_show_what_those_of_pandas_show(zone: str) -> None:
    seconds = seconds_of(zone)
    shown = pd.DatetimeIndex(seconds.view("M8[s]")).tz_localize("UTC").tz_convert(zone).tz_localize(None).asi8
    np.testing.assert_array_equal(on_clocks(seconds, "s", zone), shown)
    for unit in ("ms", "us"):
        ticks = seconds * PER_SECOND[unit] + PER_SECOND[unit] - 1
        np.testing.assert_array_equal(on_clocks(ticks, unit, zone) // PER_SECOND[unit], shown)


@pytest.mark.parametrize("zone", ZONES)
def test_what_clocks_show_comes_back_as_the_first_such_instant(zone: str) -> None:
    seconds = seconds_of(zone)
    shown = on_clocks(seconds, "s", zone)
    back = instants(shown, "s", zone)
    np.testing.assert_array_equal(on_clocks(back, "s", zone), shown)
    assert (back <= seconds).all()
    first = pd.DatetimeIndex(shown.view("M8[s]")).tz_localize(zone, ambiguous=np.ones(len(shown), bool))
    np.testing.assert_array_equal(back, first.tz_convert("UTC").asi8)


@pytest.mark.parametrize("zone", ["America/Sao_Paulo", "Europe/Berlin", "America/Havana"])
def test_what_clocks_never_show_is_the_next_instant(zone: str) -> None:
    changes, offsets = changes_of(zone)
    forward = np.flatnonzero(np.diff(offsets) == 3600)
    shown = changes[forward] + offsets[forward] + 1200
    np.testing.assert_array_equal(instants(shown, "s", zone), changes[forward])
    index = pd.DatetimeIndex(shown.view("M8[s]")).tz_localize(zone, nonexistent="shift_forward")
    np.testing.assert_array_equal(instants(shown, "s", zone), index.tz_convert("UTC").asi8)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("rule", ["6h", "90min", "7D", "37s", "700ms"])
@pytest.mark.parametrize("name", ROUNDED)
def test_times_at_multiples_of_a_unit_are_those_of_pandas(name: str, rule: str, unit: str) -> None:
    random = np.random.default_rng(5).integers(-4_000_000_000, 4_000_000_000, 300)
    halves = [pd.Timedelta(rule).total_seconds() * half / 2 for half in range(-7, 8)]
    values = np.concatenate([random * 1000 + 123, np.array(halves) * 1000]).astype("M8[ms]").astype(f"M8[{unit}]")
    times = pd.Series(values).where(np.arange(len(values)) % 11 > 0)
    made = rounded(name, times, rule)
    expected = getattr(times.astype("M8[ns]").dt, name)(rule)
    assert made.isna().tolist() == times.isna().tolist()
    pd.testing.assert_series_equal(made.astype("M8[ns]"), expected)
