"""The recorder: what it keeps, what it drops, and what other threads may do to it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import pytest

from gcylon_lab.errors import ArgumentError
from gcylon_lab.profiling import (
    NO_OPERATION,
    OperationRecord,
    Recorder,
    add_category,
    categories,
    mark,
    operation,
    recording,
    span,
)
from gcylon_lab.profiling.events import newest


def test_a_span_and_a_mark_are_kept_with_all_their_fields() -> None:
    recorder = Recorder()
    with recording(recorder):
        with span("partition", "algorithm", bytes=7, tier="device"):
            pass
        mark("spill", "memory", bytes=3, tier="disk")
    event, instant = recorder.events()
    assert event[:2] + event[4:] == ("partition", "algorithm", NO_OPERATION, 7, "device", threading.get_ident())
    assert event.start_ns < event.end_ns <= instant.start_ns
    assert not event.is_mark
    assert (instant.name, instant.category, instant.bytes, instant.tier) == ("spill", "memory", 3, "disk")
    assert instant.is_mark


@pytest.mark.parametrize(("recorded", "dropped"), [(0, 0), (4, 0), (5, 0), (6, 1), (500, 495)])
def test_the_ring_is_bounded_and_counts_what_it_drops(recorded: int, dropped: int) -> None:
    recorder = Recorder(capacity=5)
    with recording(recorder):
        for i in range(recorded):
            mark(f"m{i}")
    assert recorder.recorded == recorded
    assert recorder.dropped == dropped
    assert [event.name for event in recorder.events()] == [f"m{i}" for i in range(dropped, recorded)]


def test_dropped_is_exact_when_threads_record_together() -> None:
    recorder = Recorder(capacity=100)
    begin = threading.Barrier(4)

    def work() -> None:
        begin.wait()
        with recording(recorder):
            for _ in range(2000):
                with span("compute"):
                    pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.recorded == 8000
    assert recorder.dropped == 7900
    assert len(recorder.events()) == 100


def test_reading_while_another_thread_records_neither_fails_nor_tears_events() -> None:
    recorder = Recorder(capacity=1000)
    stop = threading.Event()

    def work() -> None:
        with recording(recorder):
            while not stop.is_set():
                with span("compute", "kernel", bytes=11, tier="device"):
                    pass

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(200):
            assert all(event.name == "compute" and event.bytes == 11 for event in recorder.events())
            assert recorder.dropped >= 0
    finally:
        stop.set()
        thread.join()
    assert recorder.recorded > 0


class Busy(deque[int]):
    """Another thread appends to it between two steps of who reads it, some times."""

    def __reversed__(self) -> Iterator[int]:
        found = super().__reversed__()
        if self[-1] < 8:
            self.append(self[-1] + 1)
        return found


def test_the_newest_are_read_whatever_comes_meanwhile() -> None:
    assert newest(Busy(range(5), maxlen=5), 3) == [8, 7, 6]


def test_events_since_a_time_are_those_that_ended_then_or_later() -> None:
    recorder = Recorder()
    with recording(recorder):
        for i in range(20):
            mark(f"m{i}")
    since = recorder.events()[12].end_ns
    assert [event.name for event in recorder.events(since)] == [f"m{i}" for i in range(12, 20)]
    assert recorder.events(recorder.events()[-1].end_ns + 1) == []


def test_a_long_span_that_began_earlier_is_found_by_its_end() -> None:
    recorder = Recorder()
    with recording(recorder), span("long"):
        mark("before")
        since = recorder.events()[0].end_ns + 1
        mark("within")
    assert [event.name for event in recorder.events(since)] == ["within", "long"]


def test_clear_forgets_events_operations_and_the_dropped_count() -> None:
    recorder = Recorder(capacity=2)
    with recording(recorder):
        for _ in range(5):
            mark("old")
        with operation("shuffle", 1):
            pass
        recorder.clear()
        assert (recorder.recorded, recorder.dropped, len(recorder.operations)) == (0, 0, 0)
        for _ in range(3):
            mark("new")
    assert (recorder.recorded, recorder.dropped) == (3, 1)


def test_threads_get_small_numbers_that_stay() -> None:
    recorder = Recorder()
    assert [recorder.thread_position(ident, name) for ident, name in ((99, "main"), (7, ""), (99, "other"))] == [
        0,
        1,
        0,
    ]
    assert recorder.thread_names() == ["main", "thread 1"]


def test_an_unknown_category_is_refused_with_the_known_ones() -> None:
    for record in (span, mark):
        with pytest.raises(
            ArgumentError, match=r"'kernal' is not a category; known are kernel, .*add_category"
        ) as error:
            record("x", "kernal")
        assert error.value.numbers == {"category": "kernal"}


def test_a_category_can_be_added() -> None:
    add_category("model training", 0x102030)
    assert categories()["model training"] == 0x102030
    recorder = Recorder()
    with recording(recorder), span("epoch", "model training"):
        pass
    assert recorder.events()[0].category == "model training"
    with pytest.raises(ArgumentError, match="needs a name"):
        add_category("")


@pytest.mark.parametrize(("capacity", "operations"), [(0, 10), (-1, 10), (10, 0)])
def test_a_recorder_that_keeps_nothing_is_refused(capacity: int, operations: int) -> None:
    with pytest.raises(ArgumentError, match=f"{capacity} events and {operations} operations"):
        Recorder(capacity, operations)


@pytest.mark.parametrize("count", [0, 3, 8, 9, 100])
def test_operations_since_a_time_are_those_that_ended_then_or_later(count: int) -> None:
    recorder = Recorder()
    recorder.operations.extend(OperationRecord(number, "shuffle", end_ns=10 * number) for number in range(1, count + 1))
    for since in (-5, 0, 10, 35, 10 * count - 65, 10 * count, 10 * count + 1):
        numbers = [record.number for record in recorder.ended(since)]
        assert numbers == [number for number in range(1, count + 1) if 10 * number >= since]
