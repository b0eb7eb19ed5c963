"""The summary's numbers against sums made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from recorded import on_gpus, two_ranks

from gcylon_lab.profiling import (
    Recorder,
    format_summary,
    operation,
    phase_order,
    span,
    summary,
    take_snapshot,
)
from gcylon_lab.profiling.events import hidden_share


def test_the_operation_row_by_hand(clock: Any) -> None:
    shuffle, gather = summary(two_ranks(clock))["operations"]
    assert shuffle == {
        "number": 1, "verb": "shuffle", "strategy": "staged", "rounds": 4, "ranks": 2, "done": True,
        "seconds": pytest.approx(0.050),
        # 3 MB a rank in 50 ms
        "gb_per_s": pytest.approx(0.060),
        # busy: 50 - 35 = 15 ms and 50 - 15 = 35 ms
        "slowest_rank": 1, "skew": pytest.approx(35 / 25),
        "measured_peak_bytes": 701, "peak_rank": 1, "predicted_peak_bytes": 801, "budget_bytes": 999,
        "rows_in": 0, "rows_out": 0, "bytes_in": 6_000_000, "bytes_out": 0, "sent_bytes": 0, "received_bytes": 0,
        "staged_bytes": 300, "unstaged_bytes": 0, "hidden": None, "error": "",
    }  # fmt: skip
    assert (gather["seconds"], gather["gb_per_s"], gather["skew"]) == (0, None, None)
    assert gather["error"] == "RankError: it broke"


def test_the_rank_rows_by_hand(clock: Any) -> None:
    rows = summary(two_ranks(clock))["ranks"]
    assert [(row["number"], row["rank"], row["host"]) for row in rows] == [
        (1, 0, "host0"),
        (1, 1, "host1"),
        (2, 0, "host0"),
        (2, 1, "host1"),
    ]
    first = rows[0]
    assert first["seconds"] == pytest.approx(0.050)
    assert first["waiting_s"] == pytest.approx(0.035)
    assert first["busy_s"] == pytest.approx(0.015)
    assert first["other_s"] == pytest.approx(0.003)
    assert first["gb_per_s"] == pytest.approx(0.080)
    assert (first["staged_bytes"], first["measured_peak_bytes"], first["strategy"]) == (100, 700, "staged")


def test_the_phase_rows_by_hand(clock: Any) -> None:
    rows = [row for row in summary(two_ranks(clock))["phases"] if row["rank"] == 1]
    assert [(row["phase"], row["bytes"], row["staged_bytes"], row["measured_peak_bytes"]) for row in rows] == [
        ("exchange", 2_000_000, 200, 701),
        ("waiting", 0, 200, 701),
        ("hash", 0, 200, 701),
    ]
    assert [row["seconds"] for row in rows] == pytest.approx([0.030, 0.015, 0.002])
    assert rows[0]["gb_per_s"] == pytest.approx(2 / 30)
    assert rows[1]["gb_per_s"] is None


def test_phases_and_the_rest_make_up_the_whole(clock: Any) -> None:
    rows = summary(two_ranks(clock))
    for rank in rows["ranks"]:
        spent = sum(
            row["seconds"] for row in rows["phases"] if (row["number"], row["rank"]) == (rank["number"], rank["rank"])
        )
        assert spent + rank["other_s"] == pytest.approx(rank["seconds"])


def test_an_operation_that_runs_counts_up_to_the_snapshot(clock: Any) -> None:
    recorder = Recorder()
    with operation("sort", 1, recorder) as record:
        record.bytes_in = 500
        clock.pass_ns(250_000_000)
        running = take_snapshot(recorder, None, 0, "h")
    rows = summary([running])
    assert (rows["operations"][0]["seconds"], rows["operations"][0]["done"]) == (0.25, False)
    assert "250 ms so far" in format_summary([running])


def test_the_order_of_snapshots_does_not_matter(clock: Any) -> None:
    ranks = two_ranks(clock)
    assert summary(ranks) == summary(ranks[::-1])


def test_there_is_never_a_nan(clock: Any) -> None:
    recorder = Recorder()
    with operation("gather", 1, recorder), span("exchange", bytes=10):
        pass
    taken = take_snapshot(recorder, None, 0, "h")
    text = json.dumps(summary([taken]), allow_nan=False)
    assert json.loads(text)["phases"][0]["gb_per_s"] is None
    assert json.dumps(summary([]), allow_nan=False) == '{"operations": [], "ranks": [], "phases": [], "traffic": []}'


def test_phases_come_in_their_own_order_then_by_name() -> None:
    names = ["zeta", "waiting", "alpha", "partition", "unstage", "exchange"]
    assert sorted(names, key=phase_order) == ["partition", "exchange", "unstage", "waiting", "alpha", "zeta"]


def test_the_text_says_what_matters(clock: Any) -> None:
    ranks = two_ranks(clock)
    ranks[0]["dropped_events"] = 1_234
    lines = format_summary(ranks).splitlines()
    assert lines[0].split() == (
        "operation strategy rounds time a rank peak predicted budget staged hidden slowest skew".split()
    )
    assert lines[2].split() == ("1 shuffle staged 4 50 ms 60 MB/s 701 B 801 B 999 B 300 B - rank 1 1.40".split())
    assert lines[5].split() == "operation rank exchange waiting hash other hidden".split()
    assert lines[7].split() == "1 shuffle 0 10 ms 35 ms 2 ms 3 ms -".split()
    assert lines[8].split() == "1 shuffle 1 30 ms 15 ms 2 ms 3 ms -".split()
    assert lines[-2] == "operation 2: RankError: it broke"
    assert lines[-1].startswith("1,234 older events were dropped")
    assert len({len(line) for line in lines[:4]}) == len({len(line) for line in lines[5:11]}) == 1
    assert "nan" not in "".join(lines)
    assert format_summary([]) == "No operations were recorded."


def test_what_foresees_no_peak_shows_none(clock: Any) -> None:
    ranks = two_ranks(clock)
    for snapshot in ranks:
        snapshot["operations"][0]["predicted_peak_bytes"] = 0
    assert format_summary(ranks).splitlines()[2].split()[10:12] == ["-", "999"]


def test_traffic_by_hand(clock: Any) -> None:
    ranks = two_ranks(clock)
    assert summary(ranks)["traffic"] == [] and "between ranks" not in format_summary(ranks)
    ranks[0]["operations"][0]["sent_to"] = [100, 300]
    ranks[1]["operations"][0]["sent_to"] = [1_000_000, 600]
    (row,) = summary(ranks)["traffic"]
    assert row == {
        "number": 1, "verb": "shuffle", "sent": [[100, 300], [1_000_000, 600]], "between_bytes": 1_000_300,
        "within_hosts_bytes": 0,
        "kept_bytes": 700, "heaviest_from": 1, "heaviest_to": 0, "heaviest_bytes": 1_000_000, "most_to": 0,
        "most_to_bytes": 1_000_100, "receive_skew": pytest.approx(2 * 1_000_100 / 1_001_000),
    }  # fmt: skip
    lines = [line.split() for line in format_summary(ranks).splitlines()]
    assert "operation between ranks within hosts kept heaviest most to of the mean".split() in lines
    assert "1 shuffle 977 KiB 0 B 700 B 1 to 0, 977 KiB rank 0, 977 KiB 200%".split() in lines
    ranks[1]["operations"][0]["sent_to"] = []  # not told, or too old
    assert summary(ranks)["traffic"][0]["sent"] == [[100, 300], None]


def test_a_failed_operation_has_no_rate() -> None:
    recorder = Recorder()
    with pytest.raises(ValueError, match="broke"), operation("shuffle", 1, recorder) as record:
        record.bytes_in = 1_000_000
        raise ValueError("it broke")
    made = summary([take_snapshot(recorder, None, 0, "host0")])
    assert [made[name][0]["gb_per_s"] for name in ("operations", "ranks")] == [None, None]


def test_how_much_of_the_transfers_was_hidden_by_hand(clock: Any) -> None:
    rows = summary(on_gpus(two_ranks(clock)))
    assert [row["hidden"] for row in rows["ranks"]] == [pytest.approx(0.75), 0.0, None, None]
    assert (rows["ranks"][0]["transfer_s"], rows["ranks"][0]["transfer_wait_s"]) == pytest.approx((0.040, 0.010))
    shuffle, gather = rows["operations"]
    assert (shuffle["hidden"], gather["hidden"]) == (pytest.approx(1 - 20 / 50), None)
    lines = format_summary(on_gpus(two_ranks(clock))).splitlines()
    assert lines[2].split()[-4:] == ["60%", "rank", "1", "1.40"]
    assert [lines[7].split()[-1], lines[8].split()[-1], lines[9].split()[-1]] == ["75%", "0%", "-"]
    assert lines[11].startswith("hidden: of the time in which transfers were under way")


def test_a_share_is_never_below_nothing_or_above_all() -> None:
    assert [hidden_share(*pair) for pair in ((0, 0), (2, 3), (2, -1), (2, 1))] == [None, 0, 1, 0.5]


def test_the_text_tells_of_each_gpu_once(clock: Any) -> None:
    ranks = on_gpus(two_ranks(clock))
    said = [line for line in format_summary(ranks).splitlines() if line.startswith("GPU")]
    assert said == [
        "GPU 3f2a91c0 of ranks 0, 1: 900 B in use by all programs, 100 B of it outside the budgets; 60% busy on average"
    ]
    for rank in ranks:
        rank["gpu"]["samples"] |= {"used_bytes": [None] * 3, "utilisation": [None] * 3}
    assert "GPU 3f2a91c0 of ranks 0, 1: utilisation not reported" in format_summary(ranks)


def test_phases_of_many_verbs_stand_in_a_table_for_each() -> None:
    recorder = Recorder()
    for number, verb in enumerate(("join", "sort_values"), 1):
        with operation(verb, number, recorder):
            for step in range(9):
                with span(f"{verb[:4]} {step}"):
                    pass
    lines = format_summary([take_snapshot(recorder, None, 0, "h")]).splitlines()
    heads = [line for line in lines if line.startswith("operation") and "other" in line]
    assert ["join 0" in head for head in heads] == [True, False]
    assert ["sort 0" in head for head in heads] == [False, True]
