"""resample and Grouper: the spans of pandas on the whole table, whichever rank has its first time."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from relations import THREADS
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError
from gcylon_lab.runtime.context import current

ALONE = World("single", 1)
RULES = (
    "D", "2D", "7D", "30D", "W", "MS", "QS", "YS", "ME", "QE", "YE", "h", "5h", "6h", "7h", "24h", "48h", "7min",
    "90min", "37s", "10s", "700ms", "W-WED", "2W", "5W-MON", "2MS", "5MS", "3ME", "2QS", "2QE", "3YS", "2YE",
    pd.offsets.Hour(11), pd.offsets.Day(3), pd.offsets.MonthEnd(), pd.offsets.Week(2, weekday=5),
)  # fmt: skip
# Both changes of the clocks in the year of these days; Sao Paulo's are at midnight, which is there twice or never.
ZONES = ("", "Europe/Berlin", "Asia/Kolkata", "America/Sao_Paulo", "Australia/Lord_Howe")


def times(zone: str, rows: int = 400) -> pd.DataFrame:
    """Rows in no order, without the first hours of the first day, and some without a time."""
    rng = np.random.default_rng(7)
    start = pd.Timestamp("2017-09-29 05:17:03")
    time = pd.Series(start + pd.to_timedelta(rng.integers(0, 200 * 86_400_000, rows), "ms").as_unit("us"))
    time = time.where(rng.random(rows) > 0.05)
    time = time.dt.tz_localize("UTC").dt.tz_convert(zone) if zone else time
    return pd.DataFrame({"t": time, "k": rng.integers(0, 3, rows), "x": rng.integers(1, 100, rows)})


def expected(frame: pd.DataFrame, rule: Any) -> pd.DataFrame:
    """pandas' answer, without the spans that have no rows."""
    groups = frame.resample(rule, on="t")["x"]
    return groups.sum()[groups.count() > 0].reset_index()


def share(frame: pd.DataFrame) -> pd.DataFrame:
    rank, size = current().rank, current().size
    edges = np.arange(size + 1) * len(frame) // size
    return frame.iloc[edges[rank] : edges[rank + 1]].reset_index(drop=True)


def summed(frame: pd.DataFrame, rules: Any) -> list[pd.DataFrame]:
    table = gl.from_local(share(frame))
    return [table.resample(rule, on="t")["x"].sum().to_pandas(None) for rule in rules]


def same(found: pd.DataFrame, wanted: pd.DataFrame, what: Any) -> None:
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False, obj=str(what))


@pytest.mark.parametrize("zone", ZONES)
def test_spans_are_those_of_pandas(zone: str) -> None:
    frame = times(zone)
    # pandas puts the last day of a week that ends where midnight is never into the next week
    rules = [rule for rule in RULES if "W" not in str(rule) or zone != "America/Sao_Paulo"]
    for rule, found in zip(rules, ALONE.run(summed, frame, rules)[0], strict=True):
        same(found, expected(frame, rule), rule)


@pytest.mark.parametrize("world", THREADS)
def test_all_ranks_count_from_the_first_day_of_the_whole_table(world: World) -> None:
    frame = times("").sort_values("t", ascending=False, ignore_index=True)  # the last rank has the first time
    rules = ("7D", "5h", "D", "3W", "5MS")
    for made in world.run(summed, frame, rules):
        for rule, found in zip(rules, made, strict=True):
            same(found, expected(frame, rule), rule)


def grouped(frame: pd.DataFrame, by: Any) -> pd.DataFrame:
    return gl.from_local(share(frame)).groupby(by, sort=True)["x"].sum().to_pandas(None)


@pytest.mark.parametrize("world", THREADS)
def test_a_grouper_beside_another_key_counts_from_the_first_day_too(world: World) -> None:
    frame = times("")
    for by in ([pd.Grouper(key="t", freq="7D"), "k"], ["k", pd.Grouper(key="t", freq="7h")]):
        wanted = frame.groupby(by)["x"].sum().reset_index()
        for found in world.run(grouped, frame, by):
            same(found, wanted[wanted.x > 0].reset_index(drop=True), by)


def answers_of_verbs(frame: pd.DataFrame) -> Any:
    table = gl.from_local(frame)
    weeks = pd.Grouper(key="t", freq="7D")
    plan = table.groupby(weeks).plan()
    ranks = table.assign(total=table.groupby(weeks)["x"].cumsum(), n=table.groupby(weeks).ngroup()).to_pandas(None)
    return plan, ranks, table.pivot_table("x", weeks, "k", "sum").to_pandas(None), table.groupby(weeks).ngroups


def test_other_verbs_of_groups_have_the_same_spans() -> None:
    frame = times("").dropna(ignore_index=True)
    plan, ranks, pivot, n = ALONE.run(answers_of_verbs, frame)[0]
    weeks = frame.groupby((frame.t - frame.t.min().normalize()) // pd.Timedelta("7D"))
    assert "groupby" in str(plan)
    assert ranks["total"].tolist() == weeks["x"].cumsum().tolist()
    assert ranks["n"].tolist() == weeks.ngroup().tolist()
    assert n == weeks.ngroups
    wanted = frame.pivot_table("x", pd.Grouper(key="t", freq="7D"), "k", "sum").reset_index()
    pivot = pivot.rename(columns={"t_key": "t"})
    pd.testing.assert_frame_equal(pivot, wanted, check_dtype=False, check_names=False, check_column_type=False)


@pytest.mark.parametrize("dtype", ["timestamp[us][pyarrow]", "datetime64[s]", "date", "date32[day][pyarrow]"])
def test_spans_of_other_dtypes_of_times(dtype: str) -> None:
    frame = times("").dropna(ignore_index=True)
    frame["t"] = frame["t"].dt.floor("D" if "date" in dtype[:5] and "64" not in dtype else "s")
    given = frame.assign(t=frame.t.dt.date if dtype == "date" else frame.t.astype(dtype))
    for rule, found in zip(("7D", "7h"), ALONE.run(summed, given, ("7D", "7h"))[0], strict=True):
        same(found.assign(t=found.t.astype("datetime64[us]")), expected(frame, rule), rule)


def test_without_times_there_are_no_spans() -> None:
    frame = times("").assign(t=pd.NaT).astype({"t": "datetime64[us]"})
    assert [len(one) for one in ALONE.run(summed, frame, ("7D", "D"))[0]] == [0, 0]
    zoned = times("Asia/Kolkata").iloc[:0]
    assert [len(one) for one in ALONE.run(summed, zoned, ("7D", "7h"))[0]] == [0, 0]


def dates(frame: pd.DataFrame) -> list[Any]:
    return list(gl.from_local(frame).assign(d=gl.col("t").dt.date).to_pandas(None)["d"])


@pytest.mark.parametrize("zone", ZONES)
def test_dates_are_those_of_the_own_clock(zone: str) -> None:
    frame = times(zone)
    assert [None if pd.isna(one) else one for one in ALONE.run(dates, frame)[0]] == [
        None if pd.isna(one) else one for one in frame.t.dt.date
    ]


def rounded(frame: pd.DataFrame, name: str, unit: str) -> pd.Series:
    return gl.from_local(frame).assign(f=getattr(gl.col("t").dt, name)(unit)).to_pandas(None)["f"]


@pytest.mark.parametrize("name", ["floor", "ceil", "round"])
@pytest.mark.parametrize("unit", ["30min", "1h", "6h", "D"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Sao_Paulo"])
def test_times_of_a_zone_are_rounded_on_days_on_which_clocks_change_too(zone: str, unit: str, name: str) -> None:
    time = pd.Series(pd.date_range("2018-02-10", "2018-11-10", freq="17min", tz="UTC").tz_convert(zone))
    found = ALONE.run(rounded, pd.DataFrame({"t": time}), name, unit)[0]
    wanted = getattr(time.dt, name)(unit, ambiguous="NaT", nonexistent="NaT")
    there = wanted.notna()
    assert (found[there] == wanted[there]).all() and not found.isna().any()
    # Where clocks show the wanted time twice, it is on the side of the time itself; where never, it is what comes next.
    apart = (found - time).abs()[~there]
    assert (apart <= pd.Timedelta("25h" if unit == "D" else unit)).all()
    shown, floor = found[~there].dt.tz_localize(None), getattr(time[~there].dt.tz_localize(None).dt, name)(unit)
    assert ((shown == floor) | (shown == floor + pd.Timedelta("1h"))).all()


def without_zone(frame: pd.DataFrame) -> pd.Series:
    return gl.from_local(frame).assign(n=gl.col("t").dt.tz_localize(None)).to_pandas(None)["n"]


@pytest.mark.parametrize("zone", ZONES)
def test_times_without_their_zone_are_what_clocks_show(zone: str) -> None:
    frame = times(zone)
    wanted = frame.t.dt.tz_localize(None)
    pd.testing.assert_series_equal(ALONE.run(without_zone, frame)[0], wanted, check_names=False)
    arrow = frame.assign(t=frame.t.astype(pd.ArrowDtype(pa.timestamp("us", zone or None))))
    assert ALONE.run(without_zone, arrow)[0].astype("datetime64[us]").tolist() == wanted.tolist()
    with pytest.raises(ArgumentError, match="Give None, which leaves the zone out"):
        gl.col("t").dt.tz_localize("UTC")


def floors(frame: pd.DataFrame) -> pd.DataFrame:
    table = gl.from_local(frame)
    return table.assign(m=table.t.dt.floor("MS"), w=table.t.dt.floor("W")).to_pandas(None)


def test_a_month_of_a_zone_begins_at_midnight_on_either_side_of_a_change_of_the_clocks() -> None:
    frame = times("Europe/Berlin").dropna(ignore_index=True)
    made = ALONE.run(floors, frame)[0]
    local = frame.t.dt.tz_localize(None)
    for name, period in (("m", "M"), ("w", "W")):
        wanted = local.dt.to_period(period).dt.start_time.dt.tz_localize("Europe/Berlin")
        assert made[name].tolist() == wanted.tolist()


def refusals() -> list[str]:
    table = gl.from_local(pd.DataFrame({"t": pd.to_datetime(["2024-01-01"]), "x": [1], "d": [datetime.timedelta(1)]}))
    said = []
    for by in (
        pd.Grouper(key="t", freq="7D", origin="epoch"), pd.Grouper(key="t", freq="7D", label="right"),
        pd.Grouper(key="t", freq="5h", offset="1h"), pd.Grouper(key="t", freq="D", closed="right"),
        pd.Grouper(key="t", freq="QS-FEB"), pd.Grouper(key="x", freq="7D"), pd.Grouper(key="d", freq="2h"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError) as caught:
            table.groupby(by).size()
        said.append(str(caught.value))
    with pytest.raises(ArgumentError, match="'0D' of 't'"):
        table.resample("0D", on="t")
    return said


def test_other_spans_are_refused() -> None:
    epoch, label, offset, closed, quarters, numbers, spans = ALONE.run(refusals)[0]
    assert "origin='epoch'" in epoch
    assert "midnight of the first day" in epoch
    assert "label='right'" in label
    assert "offset=" in offset
    assert "closed='right'" in closed
    assert "'QS-FEB' of 't'" in quarters
    assert "'x', which holds int64" in numbers
    assert "'d', which holds timedelta64" in spans
