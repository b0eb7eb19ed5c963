"""Spans: where they record, and what they do to those around them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from gcylon_lab.profiling import (
    NO_OPERATION,
    Recorder,
    current_recorder,
    mark,
    operation,
    recording,
    set_recorder,
    span,
)


@pytest.fixture(autouse=True)
def nobody_records() -> Iterator[None]:
    """Whoever made tables in this process before."""
    before = set_recorder(None)
    yield
    set_recorder(before)


def test_without_a_recorder_spans_and_marks_do_nothing() -> None:
    assert current_recorder() is None
    with span("partition", "algorithm", bytes=5) as quiet:
        quiet.bytes = 6
        mark("x")
    assert current_recorder() is None


def test_recording_is_for_the_block_and_nests() -> None:
    outer, inner = Recorder(), Recorder()
    with recording(outer):
        with recording(inner):
            assert current_recorder() is inner
            mark("in")
        with recording(None):
            mark("nowhere")
        assert current_recorder() is outer
        mark("out")
    assert current_recorder() is None
    assert [event.name for event in inner.events()] == ["in"]
    assert [event.name for event in outer.events()] == ["out"]


def test_recording_ends_with_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), recording(Recorder()):
        raise ZeroDivisionError
    assert current_recorder() is None


def test_set_recorder_stays_and_returns_the_one_before() -> None:
    recorder = Recorder()
    assert set_recorder(recorder) is None
    try:
        mark("x")
    finally:
        assert set_recorder(None) is recorder
    assert recorder.recorded == 1


def test_each_thread_has_a_recorder_of_its_own() -> None:
    recorders = [Recorder() for _ in range(4)]
    begin = threading.Barrier(4)

    def rank(i: int) -> None:
        begin.wait()
        with recording(recorders[i]), operation("shuffle", i):
            for _ in range(i + 1):
                with span(f"rank {i}"):
                    pass

    threads = [threading.Thread(target=rank, args=(i,)) for i in range(4)]
    with recording(Recorder()) as mine:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert mine is not None and mine.recorded == 0
    for i, recorder in enumerate(recorders):
        assert [event.name for event in recorder.events()] == [f"rank {i}"] * (i + 1)
        assert {event.operation for event in recorder.events()} == {i}


def test_an_exception_passes_and_the_span_is_kept() -> None:
    recorder = Recorder()
    with recording(recorder):
        with pytest.raises(ValueError, match="inside"), span("compute"):
            raise ValueError("inside")
        with span("after"):
            pass
    assert [event.name for event in recorder.events()] == ["compute", "after"]


def test_bytes_and_tier_may_be_known_only_at_the_end() -> None:
    recorder = Recorder()
    with recording(recorder), span("stage", "memory") as staged:
        staged.bytes = 42
        staged.tier = "disk"
    assert recorder.events()[0][5:7] == (42, "disk")


def test_spans_carry_the_operation_around_them() -> None:
    recorder = Recorder()
    with recording(recorder):
        with span("before"), operation("gather", 3):
            mark("inside")
            with span("exchange"):
                pass
        mark("after")
    assert [(event.name, event.operation) for event in recorder.events()] == [
        ("inside", 3),
        ("exchange", 3),
        ("before", NO_OPERATION),
        ("after", NO_OPERATION),
    ]


def test_overlapping_spans_may_end_in_any_order_and_after_the_operation() -> None:
    recorder = Recorder()
    with recording(recorder):
        with operation("shuffle", 8):
            first = span("exchange", "transfer", overlapping=True).__enter__()
            second = span("stage", "memory", overlapping=True).__enter__()
            first.__exit__(None, None, None)
        second.__exit__(None, None, None)
    assert [(event.name, event.operation) for event in recorder.events()] == [("exchange", 8), ("stage", 8)]
    first_event, second_event = recorder.events()
    assert first_event.start_ns < second_event.start_ns < first_event.end_ns < second_event.end_ns


def test_importing_the_package_loads_neither_nvtx_nor_numpy() -> None:
    heavy = "('nvtx', 'numpy', 'pandas', 'mpi4py')"
    code = f"import sys, gcylon_lab.profiling; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
