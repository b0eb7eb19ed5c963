"""Spans: where they record, and what they do to those around them."""

from __future__ import annotations

import asyncio
import doctest
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

from gcylon_lab.errors import ArgumentError
from gcylon_lab.profiling import (
    NO_OPERATION,
    Recorder,
    by_span,
    current_recorder,
    mark,
    operation,
    recording,
    report,
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


def test_a_decorated_function_is_timed_where_it_runs_not_where_it_was_made() -> None:
    @span("load", "io", bytes=3)
    def load(n: int, *, times: int = 1) -> int:
        """Its own words."""
        return n * times

    assert load.__name__ == "load" and load.__doc__ == "Its own words." and load(2, times=3) == 6
    first, second = Recorder(), Recorder()
    for recorder in (first, second):
        with recording(recorder), span("around"):
            assert load(1) == 1
        assert [(e.name, e.category, e.bytes) for e in recorder.events()] == [("load", "io", 3), ("around", "user", 0)]
    with recording(first), pytest.raises(TypeError):
        load()
    assert first.recorded == 3


def test_a_decorated_async_function_is_timed_beside_the_others_of_its_thread() -> None:
    @span("wait")
    async def wait(s: float) -> float:
        await asyncio.sleep(s)
        return s

    async def both() -> list[float]:
        return list(await asyncio.gather(wait(0.03), wait(0.01)))

    with recording(Recorder()) as recorder, operation("x", 1) as record:
        assert asyncio.run(both()) == [0.03, 0.01]
    assert recorder is not None
    spent = sorted(event.end_ns - event.start_ns for event in recorder.events())
    assert spent[0] >= 10e6 and spent[1] >= 30e6 and record.phases["wait"] == sum(spent)


def test_what_cannot_be_decorated_is_refused_with_what_helps() -> None:
    def pieces() -> Iterator[int]:
        yield 1

    async def async_pieces() -> AsyncIterator[int]:
        yield 1

    for generator in (pieces, async_pieces):
        with pytest.raises(ArgumentError, match=r"cannot time the generator .*pieces.*Use `with span"):
            span("x")(generator)
    for thing in (3, Recorder, classmethod(pieces)):
        with pytest.raises(ArgumentError, match=r"@span\('x'\) expected a function"):
            span("x")(thing)  # type: ignore[type-var]


def test_a_recorder_may_leave_spans_out() -> None:
    with recording(Recorder()) as recorder:
        assert recorder is not None
        recorder.spans = False
        with operation("shuffle", 1), span("compute"):
            mark("x")
        assert (recorder.recorded, [record.verb for record in recorder.operations]) == (0, ["shuffle"])


def test_times_by_span_are_those_of_numpy() -> None:
    spans = [["a", "user", 0, ns, -1, 0, ""] for ns in (10**9, 3 * 10**9, 2 * 10**9)] + [["b", "io", 5, 6, -1, 0, ""]]
    snapshots = [{"rank": rank, "spans": spans, "dropped_events": 2} for rank in range(2)]
    times = by_span(snapshots)
    assert times.loc[("a", "user", 1)].to_dict() == pytest.approx(
        {"count": 3, "total_s": 6.0, "mean_s": 2.0, "p50_s": 2.0, "p95_s": np.percentile([1, 2, 3], 95), "max_s": 3.0}
    )
    assert len(times) == 4 and times.attrs["dropped_events"] == 4
    with pytest.raises(ArgumentError, match="This thread records nothing"):
        by_span()
    assert doctest.testmod(report).attempted > 3 and not doctest.testmod(report).failed
