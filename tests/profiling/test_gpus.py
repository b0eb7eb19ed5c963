"""The figures of GPUs: sampled beside the memory, in snapshots, and each GPU counted once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from recorded import on_gpus, two_ranks

from gcylon_lab.profiling import (
    GpuProbe,
    GpuSample,
    RankSnapshot,
    Recorder,
    Sample,
    Sampler,
    gpus_of,
    merge,
    take_snapshot,
)


def probe() -> Sample:
    return Sample(1, 2, 3, 4, 5)


def gpu_probe(read: Callable[[], GpuSample]) -> GpuProbe:
    return GpuProbe("GPU-1", "H100", 80, 60, read)


def sampled(read: Callable[[], GpuSample], *, samples: int = 20, **rates: float) -> Sampler:
    """A sampler that ran until it had so many samples."""
    sampling = Sampler(Recorder(), probe, gpu=gpu_probe(read), **rates)
    deadline = time.monotonic() + 20
    sampling.start()
    while len(sampling.samples()) < samples:
        assert time.monotonic() < deadline, "the sampler took no samples"
        time.sleep(0.005)
    sampling.stop()
    return sampling


def test_a_gpu_is_read_on_the_samplers_thread_at_a_rate_of_its_own() -> None:
    began = time.monotonic()
    sampling = sampled(lambda: GpuSample(61, 90), samples=40, hz=100, gpu_hz=10)
    took = time.monotonic() - began
    told, memory = sampling.gpu_samples(), sampling.samples()
    assert {sample[1:] for sample in told} == {(61, 90)}
    assert 1 <= len(told) <= took * 10 + 2
    assert len(told) < len(memory)
    assert sampling.gpu_samples(told[-1][0]) == []
    assert {sample[1:] for sample in memory} == {probe()}, "never mixed into the budget's bytes"


def test_where_nothing_is_told_there_is_no_sample_and_no_error() -> None:
    sampling = sampled(lambda: GpuSample(None, None), hz=100, gpu_hz=50)
    assert sampling.gpu_samples() == [] and sampling.errors == 0
    half = sampled(lambda: GpuSample(5, None), hz=100, gpu_hz=50)
    assert {sample[1:] for sample in half.gpu_samples()} == {(5, None)}


def test_a_probe_that_breaks_does_not_end_the_sampler() -> None:
    sampling = sampled(lambda: 1 / 0, hz=100, gpu_hz=50)  # type: ignore[arg-type, return-value]
    assert sampling.errors > 1 and len(sampling.samples()) >= 20


def test_snapshots_carry_the_gpu_on_rank_0s_clock() -> None:
    sampling = sampled(lambda: GpuSample(61, 90), hz=100, gpu_hz=50, samples=5)
    recorder = Recorder()
    recorder.clock_offset_ns = 1_000
    taken = take_snapshot(recorder, sampling, 0, "h")["gpu"]
    first = sampling.gpu_samples()[0][0]
    assert {name: value for name, value in taken.items() if name != "samples"} == {
        "uuid": "GPU-1", "name": "H100", "total_bytes": 80, "held_bytes": 60,
    }  # fmt: skip
    assert taken["samples"]["t_ns"][0] == first - 1_000
    assert set(taken["samples"]["used_bytes"]) == {61} and set(taken["samples"]["utilisation"]) == {90}
    assert take_snapshot(recorder, Sampler(Recorder(), probe), 0, "h")["gpu"] is None
    assert take_snapshot(recorder, None, 0, "h")["gpu"] is None


def with_gpu(snapshot: RankSnapshot, *times: int, offset: int = 0) -> RankSnapshot:
    samples = {"t_ns": list(times), "used_bytes": [t + 1 for t in times], "utilisation": [None] * len(times)}
    gpu = {"uuid": "GPU-1", "name": "", "total_bytes": 9, "held_bytes": 1, "samples": samples}
    return snapshot | {"gpu": gpu, "clock_offset_ns": offset}


def test_merging_joins_the_figures_bounded_and_on_one_clock() -> None:
    empty = take_snapshot(Recorder(), None, 0, "h")
    (one,) = merge([with_gpu(empty, 1, 2, 3)], [with_gpu(empty, 3, 4)])
    assert one["gpu"]["samples"]["t_ns"] == [1, 2, 3, 4] and one["gpu"]["samples"]["used_bytes"] == [2, 3, 4, 5]
    (one,) = merge([with_gpu(empty, 1, 2, 3)], [with_gpu(empty, 3, 4)], max_samples=2)
    assert one["gpu"]["samples"]["t_ns"] == [3, 4]
    (one,) = merge([with_gpu(empty, 100, 200)], [with_gpu(empty, 230, offset=-30)])
    assert one["gpu"]["samples"]["t_ns"] == [130, 230]
    # One of an earlier version tells of none.
    old = {name: value for name, value in empty.items() if name != "gpu"}
    assert merge([old], [with_gpu(empty, 1)])[0]["gpu"]["samples"]["t_ns"] == [1]
    assert merge([old], [empty])[0]["gpu"] is None and merge([], [old])[0]["gpu"] is None


def test_ranks_that_share_a_gpu_have_one(clock: Any) -> None:
    ranks = on_gpus(two_ranks(clock))
    (gpu,) = gpus_of(ranks[::-1])
    assert (gpu.ranks, gpu.held_bytes, gpu.short_uuid) == ((0, 1), 800, "3f2a91c0")
    assert gpu.outside_bytes == [50, None, 100]
    assert (gpu.latest_used_bytes, gpu.latest_outside_bytes, gpu.latest_utilisation) == (900, 100, 80)
    assert gpu.mean_utilisation == pytest.approx(60)
    ranks[1]["gpu"]["uuid"] = "GPU-other"
    assert [(g.ranks, g.held_bytes, g.latest_outside_bytes) for g in gpus_of(ranks)] == [
        ((0,), 400, 500), ((1,), 400, 500),
    ]  # fmt: skip


def test_cpu_engines_have_none(clock: Any) -> None:
    assert gpus_of(two_ranks(clock)) == []
