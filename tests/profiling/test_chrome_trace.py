"""The Chrome trace: its schema, and that every moment is where it was."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from recorded import on_gpus, two_ranks

from gcylon_lab.errors import WriteError
from gcylon_lab.profiling import (
    Recorder,
    Sample,
    Sampler,
    chrome_trace,
    mark,
    operation,
    recording,
    span,
    take_snapshot,
    write_chrome_trace,
)

Row = dict[str, Any]
NUMBER = (int, float)


def check_schema(trace: Row) -> None:
    """Assert what a reader of the Trace Event Format relies on."""
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    named: set[tuple[int, int]] = set()
    last = 0.0
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert isinstance(event["ts"], NUMBER) and math.isfinite(event["ts"]) and event["ts"] >= 0
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                named.add((event["pid"], event["tid"]))
            continue
        assert event["ts"] >= last, "events are in order of time"
        last = event["ts"]
        assert (event["pid"], event["tid"]) in named, "its thread has a name"
        assert isinstance(event["cat"], str) and isinstance(event["args"], dict)
        if event["ph"] == "X":
            assert isinstance(event["dur"], NUMBER) and event["dur"] >= 0
        elif event["ph"] == "i":
            assert event["s"] in ("t", "p", "g")
        else:
            assert event["ph"] == "C"
            assert all(isinstance(value, NUMBER) for value in event["args"].values())
    check_nesting(trace)


def check_nesting(trace: Row) -> None:
    """Complete events of one thread may only nest."""
    for key in {(event["pid"], event["tid"]) for event in trace["traceEvents"]}:
        ends: list[float] = []
        for event in trace["traceEvents"]:
            if event["ph"] == "X" and (event["pid"], event["tid"]) == key:
                while ends and ends[-1] <= event["ts"] + 1e-6:
                    ends.pop()
                end = event["ts"] + event["dur"]
                assert not ends or end <= ends[-1] + 1e-6, event
                ends.append(end)


def of_kind(trace: Row, ph: str) -> list[Row]:
    return [event for event in trace["traceEvents"] if event["ph"] == ph]


def test_two_ranks_by_hand(clock: Any) -> None:
    trace = chrome_trace(two_ranks(clock))
    check_schema(trace)
    shown = [
        (event["pid"], event["tid"], event["name"], event["ts"], event["dur"])
        for event in of_kind(trace, "X")
        if event["name"] != "gather 2"
    ]
    assert sorted(shown) == [
        (0, 0, "shuffle 1", 0.0, 50_000.0),
        (0, 1, "exchange", 0.0, 12_000.0),
        (0, 1, "hash", 10_000.0, 2_000.0),
        (0, 1, "waiting", 12_000.0, 35_000.0),
        (1, 0, "shuffle 1", 0.0, 50_000.0),
        (1, 1, "exchange", 0.0, 32_000.0),
        (1, 1, "hash", 30_000.0, 2_000.0),
        (1, 1, "waiting", 32_000.0, 15_000.0),
    ]
    (instant, _) = of_kind(trace, "i")
    assert (instant["name"], instant["cat"], instant["ts"]) == ("spill", "memory", 12_000.0)
    assert instant["args"] == {"operation": 1, "bytes": 64, "tier": "disk"}


def test_processes_and_threads_are_named(clock: Any) -> None:
    ranks = two_ranks(clock)
    names = {
        (event["name"], event["pid"], event["tid"]): next(iter(event["args"].values()))
        for event in of_kind(chrome_trace(ranks), "M")
    }
    assert names["process_name", 1, 0] == f"rank 1 on host1 (pid {ranks[1]['pid']})"
    assert names["process_sort_index", 1, 0] == 1
    assert names["thread_name", 0, 0] == "operations"
    assert names["thread_name", 0, 1] == "MainThread"


def test_memory_is_a_counter_track_each(clock: Any) -> None:
    counters = [event for event in of_kind(chrome_trace(two_ranks(clock)), "C") if event["pid"] == 1]
    tracks = {event["name"] for event in counters}
    assert tracks == {
        "memory: used of the budget",
        "memory: budget",
        "memory: staged to disk",
        "memory: resident",
    }, "a track of zeros is left out"
    used = [
        (event["ts"], event["args"]["bytes"]) for event in counters if event["name"] == "memory: used of the budget"
    ]
    assert used == [(0.0, 1), (20_000.0, 0), (50_000.0, 7)]


def test_operations_carry_their_numbers(clock: Any) -> None:
    events = of_kind(chrome_trace(two_ranks(clock)), "X")
    (shuffle,) = [event for event in events if event["name"] == "shuffle 1" and event["pid"] == 0]
    arguments = shuffle["args"]
    assert arguments["strategy"] == "staged" and arguments["arguments"] == "on='k'"
    assert arguments["exchange_ms"] == 10 and arguments["waiting_ms"] == 35
    assert arguments["running"] is False
    assert "start_ns" not in arguments and "phases" not in arguments


def test_spans_that_overlap_get_lanes_of_their_own(clock: Any) -> None:
    recorder = Recorder()
    with recording(recorder):
        first = span("first", overlapping=True).__enter__()
        clock.pass_ns(1_000)
        with span("inside"):
            clock.pass_ns(1_000)
            second = span("second", overlapping=True).__enter__()
        clock.pass_ns(1_000)
        first.__exit__(None, None, None)
        clock.pass_ns(1_000)
        second.__exit__(None, None, None)
        with span("after"):
            clock.pass_ns(1_000)
    trace = chrome_trace([take_snapshot(recorder, None, 0, "h")])
    check_schema(trace)
    lanes = {event["name"]: event["tid"] for event in of_kind(trace, "X")}
    assert lanes == {"first": 1, "inside": 1, "second": 2, "after": 1}
    names = [event["args"]["name"] for event in of_kind(trace, "M") if event["name"] == "thread_name"]
    assert names == ["operations", "MainThread", "MainThread, overlapping 1"]


def test_what_really_ran_makes_a_valid_trace(tmp_path: Path) -> None:
    recorder = Recorder()
    sampling = Sampler(recorder, lambda: Sample(5, 10, 0, 0, 1), hz=200)
    sampling.start()
    with recording(recorder):
        for number in range(3):
            with operation("shuffle", number):
                for _ in range(4):
                    with span("partition", "algorithm"), span("hash", "kernel"):
                        time.sleep(0.002)
                    mark("round", "sync")
    sampling.stop()
    with recording(recorder), operation("gather", 9):
        running = take_snapshot(recorder, sampling, 0, "h")
    path = tmp_path / "trace.json"
    write_chrome_trace(path, [running])
    trace = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    check_schema(trace)
    operations = [event for event in of_kind(trace, "X") if event["cat"] == "operation"]
    assert [event["args"]["running"] for event in operations] == [False, False, False, True]
    for event in of_kind(trace, "X"):
        around = [one for one in operations if one["args"]["number"] == event["args"].get("operation")]
        for one in around:
            assert one["ts"] <= event["ts"] and event["ts"] + event["dur"] <= one["ts"] + one["dur"] + 1e-6
    assert len(of_kind(trace, "C")) == 3 * len(sampling.samples())


def test_of_nothing_is_valid_too() -> None:
    check_schema(chrome_trace([]))
    empty = chrome_trace([take_snapshot(Recorder(), None, 3, "h")])
    check_schema(empty)
    assert {event["pid"] for event in empty["traceEvents"]} == {3}


def test_a_path_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "trace.json"
    with pytest.raises(WriteError, match=r"cannot be written to .*missing/trace.json: No such file") as error:
        write_chrome_trace(path, [])
    assert error.value.numbers == {"path": str(path)}


def test_a_gpu_that_ranks_share_has_its_tracks_once(clock: Any) -> None:
    ranks = two_ranks(clock)
    before = of_kind(chrome_trace(ranks), "C")
    trace = chrome_trace(on_gpus(ranks))
    check_schema(trace)
    added = [event for event in of_kind(trace, "C") if event not in before]
    assert [(e["pid"], e["name"], e["ts"], e["args"]) for e in added] == [
        (0, "GPU memory: in use, all programs", 0, {"bytes": 850}),
        (0, "GPU memory: outside the budget", 0, {"bytes": 50}),
        (0, "GPU utilisation", 20_000, {"percent": 40}),
        (0, "GPU memory: in use, all programs", 50_000, {"bytes": 900}),
        (0, "GPU memory: outside the budget", 50_000, {"bytes": 100}),
        (0, "GPU utilisation", 50_000, {"percent": 80}),
    ]
    shuffle = next(e for e in trace["traceEvents"] if e["name"] == "shuffle 1" and e["pid"] == 0)
    names = ("exchange_copy_ms", "exchange_wait_ms", "staging_copy_ms", "staging_wait_ms", "exchange_ms")
    assert [shuffle["args"][name] for name in names] == [30, 10, 10, 0, 10]
    assert not [name for name in shuffle["args"] if name.endswith("_ns")]
