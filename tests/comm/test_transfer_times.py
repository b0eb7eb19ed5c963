"""The times of copies on streams, by a made-up GPU whose clock, and the host's, only goes on when somebody waits."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gcylon_lab.comm import device_waits
from gcylon_lab.comm.device_overlay import QueuedOverlay
from gcylon_lab.comm.device_waits import DeviceWaits
from gcylon_lab.comm.single import SingleTransport
from gcylon_lab.profiling import OperationRecord, Recorder, operation

MS = 1_000_000


class Gpu:
    """Streams as the times at which they will be free; ``now`` is what the host's clock says."""

    def __init__(self) -> None:
        self.now = 0
        self.current = Stream(self)
        self.asked: list[Event] = []
        self.cuda = SimpleNamespace(
            Event=lambda **_: Event(self),
            Stream=lambda **_: Stream(self),
            get_current_stream=lambda: self.current,
            get_elapsed_time=self.elapsed,
        )

    def elapsed(self, begun: Event, ended: Event) -> float:
        assert begun.done and ended.done, "asked before it is known"
        self.asked += [begun, ended]
        return (ended.at - begun.at) / MS


class Stream:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.free_at = 0

    def work(self, ms: float) -> None:
        self.free_at = max(self.free_at, self.gpu.now) + int(ms * MS)

    def wait_event(self, event: Event) -> None:
        self.free_at = max(self.free_at, event.at)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.at = 0

    def record(self, stream: Stream) -> None:
        self.at = max(stream.free_at, self.gpu.now)

    @property
    def done(self) -> bool:
        return self.gpu.now >= self.at


class Base(SingleTransport):
    """Checked by whoever waits; that is when time passes."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__()
        self.gpu = gpu

    def check(self) -> None:
        self.gpu.now += MS // 100


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=made.cuda))  # type: ignore[arg-type]
    clock = SimpleNamespace(perf_counter_ns=lambda: made.now, monotonic=lambda: 0.0, sleep=lambda s: None)
    monkeypatch.setattr(device_waits, "time", clock)
    return made


def queue(waits: DeviceWaits, streams: list[Stream], *ms: float, queueing_ms: float = 0, at_last: bool = False) -> None:
    """Queue copies, in time of the host's own; ``at_last`` they start only with the end of it, as NCCL's do."""
    waits.let_streams_follow()
    gpu = streams[0].gpu
    gpu.now += int(at_last * queueing_ms * MS)
    for stream, each in zip(streams, ms, strict=True):
        stream.work(each)
    gpu.now += int((not at_last) * queueing_ms * MS)
    waits.note_queued()


def times(record: OperationRecord) -> tuple[float, float]:
    return record.exchange_copy_ns / MS, record.exchange_wait_ns / MS


def run(gpu: Gpu, *, before_ms: float = 0, beside_ms: float = 0, copies: tuple[float, float] = (4, 6)) -> Any:
    """Copies of 4 and 6 ms on two streams, after work of the rank's own stream and beside what its host does."""
    streams = [Stream(gpu), Stream(gpu)]
    overlay = QueuedOverlay(Base(gpu), DeviceWaits(Base(gpu), streams))
    with operation("shuffle", 1, Recorder()) as record:
        gpu.current.work(before_ms)
        queue(overlay._waits, streams, *copies)
        gpu.now += int(beside_ms * MS)
        overlay.drain()
        gpu.now += 3 * MS  # nothing is under way, so nothing of this counts
        overlay.drain()
    return record


@pytest.mark.parametrize(
    ("before_ms", "beside_ms", "wait_ms"),
    [(0, 0, 6), (0, 2, 4), (0, 6, 0), (0, 20, 0), (5, 0, 6), (5, 8, 3)],
)
def test_what_was_not_waited_for_was_hidden(gpu: Gpu, before_ms: float, beside_ms: float, wait_ms: float) -> None:
    copy, wait = times(run(gpu, before_ms=before_ms, beside_ms=beside_ms))
    assert copy == pytest.approx(6, abs=0.02), "of copies side by side the longer one, without the work before"
    assert wait == pytest.approx(wait_ms, abs=0.02)


@pytest.mark.parametrize(
    ("queueing_ms", "at_last", "times_ms"), [(200, True, (4, 4)), (3, False, (1, 1)), (9, False, (0, 0))]
)
def test_while_its_rank_still_queues_an_exchange_is_not_beside_other_work(
    gpu: Gpu, queueing_ms: float, at_last: bool, times_ms: tuple[float, float]
) -> None:
    streams = [Stream(gpu)]
    waits = DeviceWaits(Base(gpu), streams)
    with operation("shuffle", 1, Recorder()) as record:
        queue(waits, streams, 4, queueing_ms=queueing_ms, at_last=at_last)
        waits.for_streams()
    assert times(record) == pytest.approx(times_ms, abs=0.03)


def test_exchanges_that_go_on_one_into_the_other_are_one_stretch(gpu: Gpu) -> None:
    streams = [Stream(gpu)]
    waits = DeviceWaits(Base(gpu), streams)
    with operation("shuffle", 1, Recorder()) as record:
        queue(waits, streams, 4)
        gpu.now += 1 * MS
        queue(waits, streams, 4)
        waits.for_streams()
    assert times(record) == pytest.approx((8, 7), abs=0.03)


def test_a_gap_between_exchanges_that_were_queued_ahead_is_not_under_way(gpu: Gpu) -> None:
    streams = [Stream(gpu)]
    waits = DeviceWaits(Base(gpu), streams)
    with operation("shuffle", 1, Recorder()) as record:
        queue(waits, streams, 4)
        gpu.now += 1 * MS  # the first is still under way, and ends while the host does other things
        gpu.current.work(10)
        queue(waits, streams, 2)
        gpu.now += 11 * MS
        waits.for_streams()
    assert times(record) == pytest.approx((6, 1), abs=0.03)


def test_very_many_exchanges_ahead_are_counted_all_the_same(gpu: Gpu) -> None:
    streams = [Stream(gpu)]
    waits = DeviceWaits(Base(gpu), streams)
    with operation("shuffle", 1, Recorder()) as record:
        for _ in range(200):
            queue(waits, streams, 1)
            gpu.now += 2 * MS
        waits.for_streams()
    assert times(record) == pytest.approx((200, 0), abs=0.3)
    assert len(waits._times._spare) <= 64


def test_between_exchanges_that_ended_by_themselves_nothing_is_under_way(gpu: Gpu) -> None:
    streams = [Stream(gpu)]
    waits = DeviceWaits(Base(gpu), streams)
    with operation("shuffle", 1, Recorder()) as record:
        queue(waits, streams, 4)
        gpu.now += 50 * MS
        queue(waits, streams, 4)
        waits.for_streams()
    assert times(record) == pytest.approx((8, 4), abs=0.03)


def write(waits: DeviceWaits, gpu: Gpu, ms: float) -> None:
    with waits.writing():
        gpu.current.work(ms)


def test_what_kernels_write_is_waited_for_and_timed(gpu: Gpu) -> None:
    waits = DeviceWaits(Base(gpu), [Stream(gpu)])
    with operation("shuffle", 1, Recorder()) as record:
        gpu.current.work(3)  # not part of it
        write(waits, gpu, 4)
        gpu.now += 2 * MS
        write(waits, gpu, 5)
        waits.for_streams()
        assert gpu.now == pytest.approx(12 * MS, abs=0.02 * MS)
        gpu.current.work(50)
        waits.for_streams()  # what the rank computes itself is nobody's wait
        assert gpu.now == pytest.approx(12 * MS, abs=0.04 * MS)
    assert times(record) == pytest.approx((9, 9), abs=0.03)


def test_writing_and_copies_are_one_stretch(gpu: Gpu) -> None:
    streams = [Stream(gpu)]
    waits = DeviceWaits(Base(gpu), streams)
    with operation("shuffle", 1, Recorder()) as record:
        write(waits, gpu, 2)
        queue(waits, streams, 7)
        write(waits, gpu, 1)
        gpu.now += 5 * MS
        waits.for_streams()
    assert times(record) == pytest.approx((9, 4), abs=0.03)


def test_each_operation_has_its_own(gpu: Gpu) -> None:
    streams = [Stream(gpu)]
    waits, recorder = DeviceWaits(Base(gpu), streams), Recorder()
    with pytest.raises(ValueError), operation("failed", 1, recorder) as failed:
        queue(waits, streams, 4)
        raise ValueError
    gpu.now += 50 * MS
    with operation("next", 2, recorder) as after:
        queue(waits, streams, 1)
        waits.for_streams()
    assert times(failed) == pytest.approx((4, 0), abs=0.02)
    assert times(after) == pytest.approx((1, 1), abs=0.02)


def test_an_operation_inside_another_counts_in_both(gpu: Gpu) -> None:
    streams, recorder = [Stream(gpu)], Recorder()
    waits = DeviceWaits(Base(gpu), streams)
    with operation("outer", 1, recorder) as outer, operation("inner", 2, recorder):
        queue(waits, streams, 4)
        waits.for_streams()
    assert times(outer) == pytest.approx((4, 4), abs=0.02)


def test_outside_an_operation_nothing_is_timed(gpu: Gpu) -> None:
    streams = [Stream(gpu)]
    waits = DeviceWaits(Base(gpu), streams)
    queue(waits, streams, 4)
    waits.for_streams()
    assert gpu.now >= 4 * MS and gpu.asked == []
