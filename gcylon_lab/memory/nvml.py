"""What NVML tells about GPUs. It loads no CUDA and takes no device memory, and answers None rather than raise."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_started: list[Any] = []  # pynvml, once started; None where it cannot be


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a part of one that is used like one (MIG), as this machine lists them."""

    index: int
    uuid: str
    name: str | None
    total_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """A GPU at one instant; None stands for what is not told.

    Attributes
    ----------
    used_bytes : int or None
        Of all processes, with what the driver keeps.
    utilisation : float or None
        Part of the last moment in which a kernel ran, in [0, 1].
    own_bytes : int or None
        Of this process, with its CUDA context. In a container the driver often does not know which process this is.
    """

    uuid: str | None
    name: str | None
    total_bytes: int | None
    used_bytes: int | None
    utilisation: float | None
    own_bytes: int | None


class GpuStatus:
    """The figures of one GPU.

    Parameters
    ----------
    uuid : str, optional
        Which one; the first that this process may use by default.
    """

    def __init__(self, uuid: str = "") -> None:
        if not uuid:
            uuid = next((gpu.uuid for gpu in visible_gpus()), "")
        self.uuid: str | None = uuid or None
        self._nvml = _nvml()
        self._handle: Any = _told(lambda: self._nvml.nvmlDeviceGetHandleByUUID(uuid)) if uuid else None
        self.name: str | None = self._ask(lambda nvml, gpu: _text(nvml.nvmlDeviceGetName(gpu)))
        self.total_bytes: int | None = self._ask(lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total))

    def read(self) -> GpuFigures:
        """Ask now; takes well below a millisecond. May be called from any thread."""
        return GpuFigures(
            self.uuid,
            self.name,
            self.total_bytes,
            self.read_used_bytes(),
            self.read_utilisation(),
            self._ask(_own_bytes),
        )

    def read_used_bytes(self) -> int | None:
        """Ask now for what all processes use, with what the driver keeps."""
        return self._ask(lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).used))

    def read_utilisation(self) -> float | None:
        """Ask now for the part of the last moment in which a kernel ran, in [0, 1]."""
        return self._ask(lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100)

    def _ask(self, question: Callable[[Any, Any], T | None]) -> T | None:
        if self._handle is None:
            return None
        return _told(lambda: question(self._nvml, self._handle))


def count_gpus() -> int:
    """Return how many GPUs this process may use, without loading CUDA; 0 where there is no driver."""
    return len(visible_gpus())


def all_gpus() -> list[Gpu]:
    """Return the GPUs of this machine, in the order of their PCI addresses."""
    nvml = _nvml()
    count = _told(lambda: int(nvml.nvmlDeviceGetCount())) or 0
    found = []
    for index in range(count):
        handle = _told(lambda at=index: nvml.nvmlDeviceGetHandleByIndex(at))  # type: ignore[misc]
        if handle is not None and (gpu := _describe(nvml, index, handle)) is not None:
            found.append(gpu)
    return found


def visible_gpus() -> list[Gpu]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves to this process, in its order.

    Numbers in it are taken as PCI order, so set ``CUDA_DEVICE_ORDER=PCI_BUS_ID``
    where GPUs of several kinds are mixed.
    """
    gpus, listed = all_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return gpus
    chosen: list[Gpu] = []
    for word in (part.strip() for part in listed.split(",")):
        gpu = _named(gpus, word)
        if gpu is None or gpu in chosen:
            break  # as CUDA does: nothing after a name that it does not know, and none twice
        chosen.append(gpu)
    return chosen


def _named(gpus: list[Gpu], word: str) -> Gpu | None:
    if word.isdigit():
        return next((gpu for gpu in gpus if gpu.index == int(word)), None)
    if word.startswith("MIG-"):
        nvml = _nvml()
        handle = _told(lambda: nvml.nvmlDeviceGetHandleByUUID(word))
        return None if handle is None else _describe(nvml, -1, handle)
    matching = [gpu for gpu in gpus if word and gpu.uuid.startswith(word)]
    return matching[0] if len(matching) == 1 else None


def _describe(nvml: Any, index: int, handle: Any) -> Gpu | None:
    uuid = _told(lambda: _text(nvml.nvmlDeviceGetUUID(handle)))
    if uuid is None:
        return None
    name = _told(lambda: _text(nvml.nvmlDeviceGetName(handle)))
    return Gpu(index, uuid, name, _told(lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total)))


def _own_bytes(nvml: Any, handle: Any) -> int | None:
    for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
        if process.pid == os.getpid() and process.usedGpuMemory is not None:
            return int(process.usedGpuMemory)
    return None


def _nvml() -> Any:
    with _lock:
        if not _started:
            _started.append(_start())
        return _started[0]


def _start() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml
    except Exception:  # not installed, no driver, a driver that does not fit
        return None


def _told(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except Exception:  # NVML not there, a GPU that was lost, a figure that this GPU does not give
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
