"""NVML: what CUDA_VISIBLE_DEVICES leaves, and nothing raised where there is no GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gcylon_lab.memory import nvml
from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.nvml import GpuStatus, all_gpus, count_gpus, visible_gpus
from gcylon_lab.profiling import GpuSample
from gcylon_lab.runtime.devices import gpu_probe


class FakeNvml:
    """A machine with three GPUs, of which the last has no utilisation."""

    uuids = ("GPU-aa11", "GPU-ab22", "GPU-cc33")

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return self.uuids[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in (*self.uuids, "MIG-1"):
            raise RuntimeError("not found")
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetName(self, handle: str) -> bytes:
        return b"A GPU"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(total=100, used=10)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        if handle == self.uuids[2]:
            raise RuntimeError("not supported")
        return SimpleNamespace(gpu=50)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=1, usedGpuMemory=5)]


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_started", [FakeNvml()])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("1,7,0", [1]),
        ("", []),
        ("-1", []),
        ("0,0", [0]),
        ("GPU-ab,0", [1, 0]),
        ("GPU-a", []),
        ("MIG-1", [-1]),
    ],
)
def test_what_is_visible(three: None, monkeypatch: pytest.MonkeyPatch, listed: str | None, expected: list[int]) -> None:
    if listed is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    assert [gpu.index for gpu in visible_gpus()] == expected
    assert count_gpus() == len(expected)


def test_what_is_not_told_is_none(three: None) -> None:
    figures = GpuStatus().read()
    assert (figures.name, figures.total_bytes, figures.used_bytes, figures.utilisation) == ("A GPU", 100, 10, 0.5)
    assert figures.own_bytes is None
    assert GpuStatus("GPU-cc33").read().utilisation is None
    assert GpuStatus("GPU-unknown").read().used_bytes is None


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_started", [None])
    assert (all_gpus(), count_gpus()) == ([], 0)
    figures = GpuStatus().read()
    assert (figures.uuid, figures.name, figures.used_bytes, figures.own_bytes) == (None, None, None, None)


def rank_with(slab_bytes: int) -> Any:
    return SimpleNamespace(device=SimpleNamespace(slab=SimpleNamespace(nbytes=slab_bytes)))


def test_a_ranks_sampler_asks_for_its_gpu(three: None, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = gpu_probe(rank_with(7))
    assert probe is not None
    assert (probe.uuid, probe.name, probe.total_bytes, probe.held_bytes) == (visible_gpus()[0].uuid, "A GPU", 100, 7)
    assert probe.read() == GpuSample(10, 50)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    other = gpu_probe(rank_with(7))
    assert other is not None and other.uuid == "GPU-cc33" and other.read() == GpuSample(10, None)


def test_there_is_nothing_to_ask_on_a_cpu_engine_or_without_nvml(three: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_probe(SimpleNamespace(device=None)) is None  # type: ignore[arg-type]
    monkeypatch.setattr(nvml, "_started", [None])
    assert gpu_probe(rank_with(7)) is None


@pytest.mark.gpu
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_the_gpu_of_this_process() -> None:
    pytest.importorskip("pynvml")
    import cupy

    figures = GpuStatus().read()
    print(figures)
    assert count_gpus() == cupy.cuda.runtime.getDeviceCount()
    assert figures.name and figures.total_bytes and figures.used_bytes is not None
    assert figures.total_bytes >= cupy.cuda.runtime.memGetInfo()[1]
