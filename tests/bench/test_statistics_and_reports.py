"""What benches say about their times, and how they lay it out."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcylon_lab.bench.dashboard.figures import by_minute, flatness, turn_figures
from gcylon_lab.bench.harness import cases, reports
from gcylon_lab.bench.harness.statistics import Series, slowest


def test_a_series_is_judged_by_its_median():
    series = Series((1.0, 2.0, 4.0, 100.0, 3.0))
    assert series.median_s == 3.0
    assert series.rate(6 * 10**9) == 2e9
    assert series.spread == pytest.approx((4 - 2) / 3)
    assert Series((0.5,)).spread == 0.0


def test_a_step_is_as_slow_as_its_slowest_rank():
    assert slowest([{"seconds": 0.1}, {"seconds": 0.3}, {"seconds": 0.2}]) == 0.3


def test_a_table_has_its_columns_in_line():
    text = reports.format_table(("name", "rate"), [("ours", "1 GB/s"), ("a longer name", "12 GB/s")])
    assert text.splitlines() == [
        "name              rate",
        "-------------  -------",
        "ours            1 GB/s",
        "a longer name  12 GB/s",
    ]


def test_a_report_is_kept_with_its_machine(tmp_path):
    reports.write_json(str(tmp_path / "x.json"), {"bench": "none"})
    kept = json.loads((tmp_path / "x.json").read_text())
    assert kept["bench"] == "none" and kept["machine"]["cores"] >= 1 and kept["machine"]["packages"]["numpy"]


@given(st.integers(0, 200), st.integers(0, 2**32))
def test_the_checksum_knows_rows_but_not_their_order(rows, seed):
    columns = cases.ShuffleCase(rows=max(rows, 1)).columns(0, seed)
    columns = {name: values[:rows] for name, values in columns.items()}
    order = np.random.default_rng(seed).permutation(rows)
    cut = rows // 3
    parts = [{name: values[order][part] for name, values in columns.items()} for part in (slice(cut), slice(cut, None))]
    assert cases.add_checksums([cases.checksum(part) for part in parts]) == cases.checksum(columns)


def test_the_checksum_sees_a_value_in_another_row():
    columns = cases.ShuffleCase(rows=100).columns(0, 0)
    changed = {name: values.copy() for name, values in columns.items()}
    changed["v1"][[3, 4]] = changed["v1"][[4, 3]]
    assert cases.checksum(changed) != cases.checksum(columns)


def test_keys_that_did_not_meet_are_counted():
    assert cases.shared_keys([np.array([1, 2, 3]), np.array([4, 5])]) == 0
    assert cases.shared_keys([np.array([1, 2, 3]), np.array([3, 2])]) == 2


def test_every_rank_and_repeat_has_rows_of_its_own():
    case = cases.ShuffleCase(rows=1000)
    sums = {cases.checksum(case.columns(rank, repeat)) for rank in range(3) for repeat in range(3)}
    assert len(sums) == 9
    assert cases.checksum(case.columns(1, 2)) == cases.checksum(case.columns(1, 2))
    assert case.rank_bytes == sum(values.nbytes for values in case.columns(0, 0).values())


def test_memory_is_told_by_minute_and_by_what_it_gained_after_the_warm_up():
    grows = [{"at_s": 5.0 * i, "rss_bytes": 100.0 + i, "heap_bytes": 7.0, "nodes": 3.0} for i in range(60)]
    assert [minute["rss_bytes"] for minute in by_minute(grows)] == [105.5, 117.5, 129.5, 141.5, 153.5]
    figures = flatness(grows)
    assert figures["rss_last"] - figures["rss_first"] == 24.0
    assert figures["heap_last"] == figures["heap_first"] == 7.0


def test_what_answering_adds_is_counted_by_the_second():
    closed = {"seconds": 2.0, "engines_s": 4.0, "engines_beside_s": 0.1, "kernel_s": 0.1}
    opened = {"seconds": 4.0, "engines_s": 9.0, "engines_beside_s": 0.4, "kernel_s": 0.8}
    figures = turn_figures({"closed": [closed], "open": [opened]})
    assert figures["beside_added"] == pytest.approx(0.025)  # of two cores: 50 ms a second more
    assert (figures["kernel_closed"], figures["kernel_open"]) == (0.05, 0.2)
