"""Operation records: the phases' accounts, nesting, threads, progress."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from gcylon_lab.errors import SpillError
from gcylon_lab.profiling import (
    OperationRecord,
    Recorder,
    current_recorder,
    mark,
    operation,
    recording,
    span,
)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def test_phases_by_hand(recorder: Recorder, clock: Any) -> None:
    with recording(recorder), operation("shuffle", 4, arguments="on='k'") as record:
        clock.pass_ns(5)
        for _ in range(3):
            with span("partition", "algorithm", bytes=100):
                clock.pass_ns(10)
            with span("exchange", "transfer", bytes=50):
                clock.pass_ns(20)
        with span("waiting", "sync"):
            clock.pass_ns(7)
    assert (record.number, record.verb, record.arguments) == (4, "shuffle", "on='k'")
    assert (record.start_ns, record.end_ns) == (1_000, 1_102)
    assert record.phases == {"partition": 30, "exchange": 60, "waiting": 7}
    assert record.phase_bytes == {"partition": 300, "exchange": 150}
    assert list(recorder.operations) == [record]
    assert recorder.active is None


def test_nested_spans_count_each_moment_once(recorder: Recorder, clock: Any) -> None:
    with recording(recorder), operation("shuffle", 1) as record:
        with span("exchange"):
            clock.pass_ns(1)
            with span("waiting"):
                clock.pass_ns(10)
                with span("stage"):
                    clock.pass_ns(100)
            with span("waiting"):
                clock.pass_ns(1_000)
            clock.pass_ns(10_000)
    assert record.phases == {"stage": 100, "waiting": 1_010, "exchange": 10_001}
    assert sum(record.phases.values()) == record.end_ns - record.start_ns
    assert [event.end_ns - event.start_ns for event in recorder.events()] == [100, 110, 1_000, 11_111]


def test_a_span_within_one_of_the_same_name_counts_once(recorder: Recorder, clock: Any) -> None:
    with recording(recorder), operation("sort", 1) as record, span("compute"):
        clock.pass_ns(3)
        with span("compute"):
            clock.pass_ns(4)
    assert record.phases == {"compute": 7}


def test_real_time_is_never_counted_twice(recorder: Recorder) -> None:
    with recording(recorder), operation("shuffle", 1) as record:
        with span("exchange"):
            time.sleep(0.01)
            with span("waiting"):
                time.sleep(0.02)
    assert record.phases["waiting"] >= 20e6
    assert 10e6 <= record.phases["exchange"]
    assert sum(record.phases.values()) <= record.end_ns - record.start_ns


def test_an_operation_inside_another_gives_it_its_phases(recorder: Recorder, clock: Any) -> None:
    with recording(recorder), operation("join", 1) as outer:
        with span("compute"):
            clock.pass_ns(1)
            with operation("shuffle", 2) as inner:
                clock.pass_ns(10)
                with span("exchange", bytes=9):
                    clock.pass_ns(100)
            assert recorder.active is outer
        with span("exchange", bytes=1):
            clock.pass_ns(1_000)
    assert inner.phases == {"exchange": 100}
    assert outer.phases == {"exchange": 1_100, "compute": 11}
    assert outer.phase_bytes == {"exchange": 10}
    assert [record.verb for record in recorder.operations] == ["shuffle", "join"]
    assert [(event.name, event.operation) for event in recorder.events()] == [
        ("exchange", 2),
        ("compute", 1),
        ("exchange", 1),
    ]
    assert inner.outer is None, "a kept record must not keep the records around it"


def test_overlapping_spans_count_in_full_and_leave_the_others_alone(recorder: Recorder, clock: Any) -> None:
    with recording(recorder), operation("shuffle", 1) as record:
        staging = span("stage", "memory", bytes=5, overlapping=True).__enter__()
        with span("exchange"):
            clock.pass_ns(10)
            staging.__exit__(None, None, None)
            assert record.phases == {}, "this thread's own account only"
            assert record.all_phases() == ({"stage": 10}, {"stage": 5})
    assert record.phases == {"exchange": 10, "stage": 10}
    assert record.phase_bytes == {"stage": 5}


def test_other_threads_lose_no_time_and_do_not_disturb(recorder: Recorder) -> None:
    def work() -> None:
        with recording(recorder):
            for _ in range(500):
                with span("stage", bytes=1):
                    pass

    with operation("shuffle", 6, recorder) as record:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(500):
            with span("stage", bytes=1):
                pass
        for thread in threads:
            thread.join()
    events = recorder.events()
    assert len(events) == 2000
    assert {event.operation for event in events} == {6}
    assert record.phases == {"stage": sum(event.end_ns - event.start_ns for event in events)}
    assert record.phase_bytes == {"stage": 2000}


def test_a_span_that_outlives_its_operation_still_counts(recorder: Recorder, clock: Any) -> None:
    with recording(recorder):
        with operation("shuffle", 1) as record:
            late = span("stage", overlapping=True).__enter__()
        clock.pass_ns(30)
        late.__exit__(None, None, None)
    assert record.phases == {"stage": 30}


def test_an_exception_is_told_in_the_record_and_passes(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="7"), operation("shuffle", 1, recorder) as record:
        raise ValueError("7 is a value of somebody's")
    assert record.error.startswith("ValueError (its text may hold values: ")
    with pytest.raises(SpillError), operation("shuffle", 1, recorder) as record:
        raise SpillError("the disk is full")
    assert record.error == "SpillError: the disk is full"
    monkeypatch.setenv("GCYLON_RECORD_LITERALS", "1")
    with pytest.raises(ValueError, match="too many rows"), operation("shuffle", 1, recorder) as record:
        raise ValueError("too many rows")
    assert record.error == "ValueError: too many rows"
    assert record.done
    assert recorder.active is None
    with pytest.raises(ValueError), operation("shuffle", 2, recorder) as record:
        record.error = "rank 3: said already"
        raise ValueError
    assert record.error == "rank 3: said already"


def test_a_recorder_given_is_used_inside_only(recorder: Recorder) -> None:
    with operation("gather", 1, recorder):
        assert current_recorder() is recorder
        mark("inside")
    assert current_recorder() is None
    assert recorder.recorded == 1


def test_a_span_around_an_operation_of_another_recorder_is_left_alone(recorder: Recorder, clock: Any) -> None:
    mine = Recorder()
    with recording(mine), operation("outer", 1) as record, span("compute"):
        with operation("inner", 1, recorder), span("exchange"):
            clock.pass_ns(10)
        clock.pass_ns(1)
    assert record.phases == {"compute": 11}
    assert recorder.operations[0].phases == {"exchange": 10}


def test_without_a_recorder_the_record_is_still_timed() -> None:
    with operation("gather", 5) as record, span("exchange"):
        record.bytes_in = 3
    assert isinstance(record, OperationRecord)
    assert 0 < record.start_ns < record.end_ns
    assert record.phases == {}


def test_operations_are_bounded() -> None:
    recorder = Recorder(operations=3)
    for i in range(10):
        with operation("gather", i, recorder):
            pass
    assert [record.number for record in recorder.operations] == [7, 8, 9]


def test_progress_as_another_thread_sees_it(recorder: Recorder, clock: Any) -> None:
    seen = []

    def look() -> None:
        thread = threading.Thread(target=lambda: seen.append(recorder.progress))
        thread.start()
        thread.join()

    look()
    with recording(recorder), operation("shuffle", 9) as record:
        record.rounds = 4
        clock.pass_ns(10)
        look()
        record.rounds_done = 2
        with span("exchange"):
            clock.pass_ns(10)
            with span("waiting", "sync"):
                look()
            look()
    look()
    assert seen == [
        None,
        ("shuffle", 9, 0, 4, "", 1_000),
        ("shuffle", 9, 2, 4, "waiting", 1_020),
        ("shuffle", 9, 2, 4, "exchange", 1_010),
        None,
    ]


def test_a_span_cut_short_does_not_swallow_what_comes_after(recorder: Recorder, clock: Any) -> None:
    with recording(recorder):
        with operation("shuffle", 1):
            span("exchange").__enter__()
            clock.pass_ns(5)
        with operation("shuffle", 2) as record:
            with span("partition"):
                clock.pass_ns(7)
            progress = recorder.progress
    assert progress is not None and progress.phase == ""
    assert record.phases == {"partition": 7}
