"""Snapshots are plain JSON on rank 0's clock; merging them loses, doubles and hoards nothing."""

from __future__ import annotations

import copy
import json
import os
import threading
import time
from typing import Any

import numpy as np
import pytest

from gcylon_lab.profiling import (
    RankSnapshot,
    Recorder,
    Sample,
    Sampler,
    mark,
    merge,
    operation,
    recording,
    snapshot,
    span,
    take_snapshot,
)

KEYS = {
    "version", "rank", "host", "pid", "clock_offset_ns", "now_ns", "limit_bytes", "samples", "gpu", "operations",
    "spans", "span_threads", "threads", "marks", "progress", "copy_rates", "uses", "pools", "dropped_events",
    "event_cost_ns", "sampler_cpu_ns",
}  # fmt: skip


def probe() -> Sample:
    return Sample(10, 100, 3, 2, 1)


def one_operation(recorder: Recorder, clock: Any, number: int = 1) -> None:
    with recording(recorder), operation("shuffle", number) as record:
        record.bytes_in = 1000
        with span("partition", "algorithm", bytes=8, tier="device"):
            clock.pass_ns(10)
        mark("spill", "memory", bytes=2, tier="disk")
        clock.pass_ns(5)


def test_everything_by_hand(clock: Any) -> None:
    recorder = Recorder()
    recorder.clock_offset_ns = 400
    one_operation(recorder, clock)
    taken = take_snapshot(recorder, None, 2, "host2")
    assert set(taken) == KEYS
    assert (taken["version"], taken["rank"], taken["host"], taken["pid"]) == (1, 2, "host2", os.getpid())
    assert (taken["clock_offset_ns"], taken["now_ns"]) == (400, 615)
    assert taken["spans"] == [["partition", "algorithm", 600, 610, 1, 8, "device"]]
    assert taken["span_threads"] == [0]
    assert taken["threads"] == [threading.current_thread().name]
    assert taken["marks"] == [["spill", "memory", 610, 1, 2, "disk"]]
    (row,) = taken["operations"]
    assert (row["number"], row["verb"], row["start_ns"], row["end_ns"]) == (1, "shuffle", 600, 615)
    assert (row["bytes_in"], row["phases"], row["phase_bytes"]) == (1000, {"partition": 10}, {"partition": 8})
    assert taken["progress"] is None
    assert taken["samples"] == {name: [] for name in snapshot.SAMPLE_COLUMNS}
    assert (taken["limit_bytes"], taken["dropped_events"], taken["sampler_cpu_ns"]) == (0, 0, 0)
    assert taken["event_cost_ns"] > 0


def test_it_survives_json_unchanged_also_with_numbers_of_numpy() -> None:
    recorder = Recorder()
    sampling = Sampler(recorder, lambda: Sample(*(np.int64(n) for n in range(5))))  # type: ignore[arg-type]
    sampling.sample_now()
    with recording(recorder), operation("shuffle", np.int64(7)) as record:  # type: ignore[arg-type]
        record.rounds = np.int64(3)  # type: ignore[assignment]
        record.measured_peak_bytes = np.float64(5.0)  # type: ignore[assignment]
        with span("exchange", bytes=np.int64(9)):  # type: ignore[arg-type]
            taken = take_snapshot(recorder, sampling, np.int64(0), "h")  # type: ignore[arg-type]
    taken_after = take_snapshot(recorder, sampling, 0, "h")
    for each in (taken, taken_after):
        assert json.loads(json.dumps(each, allow_nan=False)) == each
    assert taken_after["operations"][0]["measured_peak_bytes"] == 5
    assert taken_after["spans"][0][5] == 9


def test_the_running_operations_are_there_with_their_progress(clock: Any) -> None:
    recorder = Recorder()
    recorder.clock_offset_ns = 100
    with recording(recorder), operation("join", 1):
        with operation("gather", 2):
            pass
        clock.pass_ns(50)
        with operation("shuffle", 3) as record:
            record.rounds, record.rounds_done = 8, 5
            with span("waiting", "sync"):
                taken = take_snapshot(recorder, None, 0, "h")
    assert [(row["verb"], row["end_ns"] == 0) for row in taken["operations"]] == [
        ("gather", False),
        ("join", True),
        ("shuffle", True),
    ]
    assert taken["progress"] == {
        "verb": "shuffle", "number": 3, "round": 5, "rounds": 8, "phase": "waiting", "since_ns": 950,
    }  # fmt: skip


def test_samples_are_on_the_clock_of_rank_0_and_the_limit_is_the_latest() -> None:
    recorder = Recorder()
    recorder.clock_offset_ns = -10_000_000_000
    limits = iter([100, 80])
    sampling = Sampler(recorder, lambda: Sample(10, next(limits), 3, 2, 1))
    sampling.sample_now()
    sampling.sample_now()
    taken = take_snapshot(recorder, sampling, 0, "h")
    assert taken["samples"]["t_ns"] == [sample[0] + 10_000_000_000 for sample in sampling.samples()]
    assert taken["samples"]["limit_bytes"] == [100, 80]
    assert taken["limit_bytes"] == 80
    later = take_snapshot(recorder, sampling, 0, "h", since_ns=taken["samples"]["t_ns"][0])
    assert later["samples"]["limit_bytes"] == [80]


def test_traffic_is_kept_of_the_latest_operations_only() -> None:
    recorder, kept = Recorder(), snapshot.TRAFFIC_OPERATIONS
    with recording(recorder):
        for number in range(1, kept + 4):
            with operation("shuffle", number) as record:
                record.add_sent(np.array([number, 2]))
                record.add_sent(np.array([0, 5]))
    taken = take_snapshot(recorder, None, 0, "h")
    assert [row["sent_to"] for row in taken["operations"]] == [[]] * 3 + [[n, 7] for n in range(4, kept + 4)]
    assert [row["sent_bytes"] for row in taken["operations"]][:4] == [8, 9, 10, 11]
    later = copy.deepcopy(taken)
    for row in later["operations"]:
        row["number"] += 100
    merged = merge([taken], [later])[0]["operations"]
    assert sum(bool(row["sent_to"]) for row in merged) == kept


def test_since_leaves_out_what_ended_long_before() -> None:
    recorder = Recorder()
    with recording(recorder):
        with operation("shuffle", 1), span("old"):
            pass
        time.sleep(snapshot._SLACK_NS / 1e9 + 0.01)
        since = take_snapshot(recorder, None, 0, "h")["now_ns"]
        with operation("shuffle", 2), span("new"):
            pass
    taken = take_snapshot(recorder, None, 0, "h", since_ns=since)
    assert [row[0] for row in taken["spans"]] == ["new"]
    assert [row["number"] for row in taken["operations"]] == [2]


def test_a_feed_can_bound_the_events_of_a_snapshot() -> None:
    recorder = Recorder()
    with recording(recorder):
        for i in range(10):
            mark(f"m{i}")
    assert [row[0] for row in take_snapshot(recorder, None, 0, "h", max_events=3)["marks"]] == ["m7", "m8", "m9"]
    assert take_snapshot(recorder, None, 0, "h", max_events=0)["marks"] == []


def test_spans_say_which_thread_they_are_of() -> None:
    recorder = Recorder()

    def work() -> None:
        with recording(recorder), span("stage"):
            taken.append(take_snapshot(recorder, None, 0, "h"))

    taken: list[RankSnapshot] = []
    with recording(recorder), span("exchange"):
        pass
    thread = threading.Thread(target=work, name="stager")
    thread.start()
    thread.join()
    after = take_snapshot(recorder, None, 0, "h")
    assert after["span_threads"] == [0, 1]
    assert after["threads"][0] == threading.current_thread().name
    assert len(after["threads"]) == 2


def test_increments_merge_to_what_one_snapshot_has() -> None:
    """Of a rank that works on another thread meanwhile, at any moment."""
    recorder = Recorder(capacity=10**6)
    sampling = Sampler(recorder, probe, hz=500)
    stop = threading.Event()

    def work() -> None:
        with recording(recorder):
            number = 0
            while not stop.is_set():
                number += 1
                with operation("shuffle", number) as record:
                    for _ in range(20):
                        with span("partition"):
                            mark("m")
                        record.rounds_done += 1
                time.sleep(0.001)

    thread = threading.Thread(target=work)
    sampling.start()
    thread.start()
    merged: list[RankSnapshot] = []
    since = 0
    deadline, taken = time.monotonic() + 20, 0
    while taken < 25 or (len(recorder.events()) < 1200 and time.monotonic() < deadline):
        taken += 1
        time.sleep(0.01)
        new = take_snapshot(recorder, sampling, 0, "h", since_ns=since)
        since = new["now_ns"]
        merged = merge(merged, [new], max_events=10**6, max_samples=10**6, max_operations=10**6)
    stop.set()
    thread.join()
    sampling.stop()
    merged = merge(merged, [take_snapshot(recorder, sampling, 0, "h", since_ns=since)], max_events=10**6)
    whole = take_snapshot(recorder, sampling, 0, "h")
    assert len(whole["spans"]) > 500
    for name in ("spans", "span_threads", "marks", "operations", "samples"):
        assert merged[0][name] == whole[name], name


def made(rank: int, *, t: list[int], pid: int = 1, offset: int = 0, **more: Any) -> RankSnapshot:
    """A snapshot with a sample, a span, a mark and an operation at each time."""
    return {
        "version": 1, "rank": rank, "host": "h", "pid": pid, "clock_offset_ns": offset, "now_ns": t[-1] + 1,
        "limit_bytes": 9, "samples": {name: list(t) for name in snapshot.SAMPLE_COLUMNS},
        "operations": [{"number": i, "verb": "shuffle", "start_ns": i, "end_ns": i + 1} for i in t],
        "spans": [["s", "user", i, i + 1, 0, 0, ""] for i in t], "span_threads": [0 for _ in t], "threads": ["main"],
        "marks": [["m", "user", i, 0, 0, ""] for i in t], "progress": None, "dropped_events": 0,
        "event_cost_ns": 1, "sampler_cpu_ns": 0,
    } | more  # fmt: skip


def test_merging_is_bounded_to_the_latest() -> None:
    merged: list[RankSnapshot] = []
    for i in range(50):
        merged = merge(merged, [made(0, t=[10 * i, 10 * i + 5])], max_samples=7, max_events=6, max_operations=5)
    (one,) = merged
    latest = [465, 470, 475, 480, 485, 490, 495]
    assert {name: column for name, column in one["samples"].items()} == dict.fromkeys(one["samples"], latest)
    assert [row[2] for row in one["spans"]] == [row[2] for row in one["marks"]] == latest[1:]
    assert len(one["span_threads"]) == 6
    assert [row["number"] for row in one["operations"]] == latest[2:]


def test_the_first_snapshot_is_bounded_too() -> None:
    (one,) = merge([], [made(0, t=list(range(100)))], max_samples=3, max_events=2, max_operations=1)
    assert one["samples"]["t_ns"] == [97, 98, 99]
    assert len(one["spans"]) == 2 and len(one["operations"]) == 1


def test_equal_texts_of_what_is_kept_are_one_object() -> None:
    merged: list[RankSnapshot] = []
    for i in range(3):
        row = {"number": i, "verb": "shuffle", "start_ns": i, "end_ns": i, "phases": {"partition of rows": 1}}
        events = {"spans": [["a span", "user", i, i + 1, 0, 0, "disk"]], "marks": [["a mark", "user", i, 0, 0, "disk"]]}
        told = json.loads(json.dumps(made(0, t=[i], operations=[row]) | events))
        merged = merge(merged, [told])
    (one,) = merged
    texts = [text for row in (*one["spans"], *one["marks"]) for text in row if isinstance(text, str)]
    for row in one["operations"]:
        texts += [*row, row["verb"], *row["phases"]]
    assert len(texts) == 3 * (3 + 3 + 5 + 1 + 1)
    assert len({id(text) for text in texts}) == len(set(texts))


def test_merging_changes_neither_and_keeps_ranks_that_say_nothing() -> None:
    old, new = [made(1, t=[1, 2]), made(0, t=[3])], [made(2, t=[4]), made(1, t=[2, 5])]
    before = copy.deepcopy((old, new))
    merged = merge(old, new)
    assert (old, new) == before
    assert [one["rank"] for one in merged] == [0, 1, 2]
    assert merged[1]["samples"]["t_ns"] == [1, 2, 5]
    assert [row[2] for row in merged[1]["spans"]] == [1, 2, 5]


def test_a_running_operation_is_replaced_by_its_later_state() -> None:
    running = made(0, t=[5], operations=[{"number": 1, "verb": "shuffle", "start_ns": 5, "end_ns": 0}])
    done = made(0, t=[9], operations=[{"number": 1, "verb": "shuffle", "start_ns": 5, "end_ns": 9}])
    (one,) = merge([running], [done])
    assert one["operations"] == [{"number": 1, "verb": "shuffle", "start_ns": 5, "end_ns": 9}]


def test_a_restarted_rank_starts_anew() -> None:
    (one,) = merge([made(0, t=[1, 2], pid=1)], [made(0, t=[3], pid=2)])
    assert one["samples"]["t_ns"] == [3] and len(one["spans"]) == 1


@pytest.mark.parametrize("offset", [-30, 30])
def test_when_the_clock_is_measured_anew_earlier_times_move_with_it(offset: int) -> None:
    old = made(0, t=[100, 200], operations=[{"number": 1, "verb": "sort", "start_ns": 100, "end_ns": 0}])
    again = made(0, t=[200 - offset, 300 - offset], offset=offset, operations=[])
    (one,) = merge([old], [again])
    aligned = [100 - offset, 200 - offset, 300 - offset]
    assert one["samples"]["t_ns"] == aligned
    assert [row[2] for row in one["spans"]] == [row[2] for row in one["marks"]] == aligned
    assert (one["operations"][0]["start_ns"], one["operations"][0]["end_ns"]) == (100 - offset, 0)


def test_an_interval_without_news_keeps_everything() -> None:
    old = made(0, t=[1, 2])
    empty = made(0, t=[9]) | {
        "samples": {name: [] for name in snapshot.SAMPLE_COLUMNS},
        "operations": [], "spans": [], "span_threads": [], "marks": [], "limit_bytes": 0,
    }  # fmt: skip
    (one,) = merge([old], [empty])
    assert one["samples"] == old["samples"] and one["spans"] == old["spans"]
    assert (one["now_ns"], one["limit_bytes"]) == (10, 9)
