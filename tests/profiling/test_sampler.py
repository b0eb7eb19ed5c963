"""The sampler: its rate, its bounds, its own cost, and that nothing in it ends the work that it watches."""

from __future__ import annotations

import threading
import time
from itertools import count

import pytest

from gcylon_lab.errors import ArgumentError
from gcylon_lab.profiling import Recorder, Sample, Sampler, read_rss_bytes, sampler


def probe() -> Sample:
    return Sample(used_bytes=10, limit_bytes=100, disk_bytes=3, pinned_bytes=2, rss_bytes=1)


def wait_for(sampling: Sampler, samples: int) -> None:
    deadline = time.monotonic() + 20
    while len(sampling.samples()) < samples:
        assert time.monotonic() < deadline, "the sampler took no samples"
        time.sleep(0.005)


def test_samples_come_at_the_rate_asked_for_in_order_of_time() -> None:
    sampling = Sampler(Recorder(), probe, hz=100)
    begin = time.perf_counter_ns()
    sampling.start()
    wait_for(sampling, 20)
    sampling.stop()
    end = time.perf_counter_ns()
    samples = sampling.samples()
    times = [sample[0] for sample in samples]
    assert times == sorted(set(times))
    assert begin <= times[0] and times[-1] <= end
    # A busy machine makes fewer, none makes more.
    assert len(samples) <= (end - begin) / 1e9 * 100 + 2
    assert {sample[1:] for sample in samples} == {probe()}


def samplers() -> set[threading.Thread]:
    """Those that run in this process, other tests' contexts' among them."""
    return {thread for thread in threading.enumerate() if thread.name == "memory sampler"}


def test_stop_ends_the_thread_and_keeps_the_samples_and_start_goes_on() -> None:
    sampling = Sampler(Recorder(), probe, hz=200)
    before = samplers()
    sampling.stop()
    sampling.start()
    sampling.start()
    assert len(samplers() - before) == 1
    wait_for(sampling, 3)
    sampling.stop()
    sampling.stop()
    assert not sampling.running
    kept = len(sampling.samples())
    time.sleep(0.05)
    assert len(sampling.samples()) == kept
    sampling.start()
    wait_for(sampling, kept + 2)
    sampling.stop()


def test_stop_does_not_wait_for_the_next_sample() -> None:
    before = samplers()
    sampling = Sampler(Recorder(), probe, hz=0.01)
    sampling.start()
    wait_for(sampling, 1)
    begin = time.monotonic()
    sampling.stop()
    assert time.monotonic() - begin < 2
    assert not samplers() - before


def test_stop_may_be_called_from_the_tick() -> None:
    stopped = threading.Event()

    def tick() -> None:
        sampling.stop()
        stopped.set()

    sampling = Sampler(Recorder(), probe, hz=100, on_tick=tick)
    sampling.start()
    assert stopped.wait(10)
    assert not sampling.running


def test_sample_now_needs_no_thread() -> None:
    sampling = Sampler(Recorder(), probe)
    assert sampling.latest() is None
    assert sampling.sample_now() == probe()
    assert [sample[1:] for sample in sampling.samples()] == [probe()]
    assert sampling.latest() == sampling.samples()[0]
    assert sampling.cpu_ns > 0


def test_the_ring_is_bounded_and_the_latest_are_kept() -> None:
    numbers = count()
    sampling = Sampler(Recorder(), lambda: Sample(next(numbers), 0, 0, 0, 0), capacity=4)
    for _ in range(10):
        sampling.sample_now()
    assert [sample[1] for sample in sampling.samples()] == [6, 7, 8, 9]


def test_samples_since_a_time_are_later_than_it() -> None:
    numbers = count()
    sampling = Sampler(Recorder(), lambda: Sample(next(numbers), 0, 0, 0, 0))
    for _ in range(5):
        sampling.sample_now()
    third = sampling.samples()[2][0]
    assert [sample[1] for sample in sampling.samples(third)] == [3, 4]
    assert sampling.samples(sampling.samples()[-1][0]) == []


def test_ticks_are_limited_on_their_own() -> None:
    ticks: list[int] = []
    sampling = Sampler(Recorder(), probe, hz=200, on_tick=lambda: ticks.append(time.perf_counter_ns()), tick_hz=20)
    sampling.start()
    begin = time.perf_counter_ns()
    wait_for(sampling, 60)
    sampling.stop()
    seconds = (time.perf_counter_ns() - begin) / 1e9
    assert 2 <= len(ticks) <= seconds * 20 + 2
    assert min(b - a for a, b in zip(ticks, ticks[1:], strict=False)) >= 20e6


def test_a_failing_probe_is_counted_and_told_once_and_sampling_goes_on() -> None:
    recorder, numbers = Recorder(), count()

    def broken() -> Sample:
        if next(numbers) < 3:
            raise RuntimeError("no budget yet")
        return probe()

    sampling = Sampler(recorder, broken, hz=200)
    sampling.start()
    wait_for(sampling, 2)
    sampling.stop()
    assert sampling.errors == 3
    assert [event.name for event in recorder.events()] == ["probe failed: RuntimeError: no budget yet"]
    assert Sampler(recorder, lambda: 1 / 0).sample_now() is None  # type: ignore[arg-type, return-value]


def test_a_failing_tick_does_not_end_the_sampling() -> None:
    recorder = Recorder()
    sampling = Sampler(recorder, probe, hz=200, on_tick=lambda: [][1], tick_hz=200)
    sampling.start()
    wait_for(sampling, 10)
    sampling.stop()
    assert sampling.errors >= 2
    assert recorder.events()[0].name == "on_tick failed: IndexError: list index out of range"


def test_its_cpu_time_is_measured_and_grows_with_the_work() -> None:
    def spin(seconds: float) -> Sample:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return probe()

    sampling = Sampler(Recorder(), lambda: spin(0.004), hz=200)
    sampling.start()
    wait_for(sampling, 5)
    sampling.stop()
    threads_cpu = sampling.cpu_ns
    assert threads_cpu >= 4 * 4e6
    sampling.sample_now()
    assert 4e6 <= sampling.cpu_ns - threads_cpu < 40e6


def test_a_slow_probe_leaves_half_of_the_time() -> None:
    due = time.perf_counter_ns()
    assert sampler._next(due, 10**9) == due + 10**9
    assert sampler._next(due - 5 * 10**9, 10**9) >= due + 5 * 10**8


@pytest.mark.parametrize(("hz", "tick_hz", "capacity"), [(0, 5, 1), (20, -1, 1), (20, 5, 0)])
def test_rates_and_capacity_must_be_positive(hz: float, tick_hz: float, capacity: int) -> None:
    with pytest.raises(ArgumentError, match=f"{hz} Hz, tick at {tick_hz} Hz and keep {capacity}"):
        Sampler(Recorder(), probe, hz, tick_hz=tick_hz, capacity=capacity)


def test_resident_memory_grows_with_what_is_touched() -> None:
    before = read_rss_bytes()
    block = bytearray(b"x") * (64 << 20)
    assert 50 << 20 < read_rss_bytes() - before < 200 << 20
    del block


def test_resident_memory_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise FileNotFoundError

    now = read_rss_bytes()
    monkeypatch.setattr(sampler.os, "open", refuse)
    assert read_rss_bytes() >= now * 0.9
