"""Whether this machine has GPUs to work on, which, and what to do where it has not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from ..memory.driver import DriverAnswer, ask_driver
from ..memory.nvml import GpuStatus
from ..units import format_bytes

_CPU = "Until then engines work on CPUs, with pandas."
_TO_DO = {
    "available": "gl.Cluster(n) takes them, a rank a GPU.",
    "not installed": f"pip install 'gcylon-lab[gpu]' for CUDA 13, or 'gcylon-lab[gpu-cu12]' for CUDA 12. {_CPU}",
    "no driver": "Install NVIDIA's driver where there is a GPU (nvidia-smi shows whether it works); start a container "
    f"with its GPUs (docker run --gpus all). {_CPU}",
    "no device": "Set CUDA_VISIBLE_DEVICES to the GPUs to use, or unset it for all; start a container with its GPUs "
    f"(docker run --gpus all). {_CPU}",
    "failed": "Update the driver to one of the installed libraries' CUDA version, or install the libraries "
    f"that fit it: 'gcylon-lab[gpu]' is of CUDA 13, 'gcylon-lab[gpu-cu12]' of CUDA 12. {_CPU}",
}


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU that processes of this environment see.

    Attributes
    ----------
    index : int
        Its number, as CUDA counts.
    uuid, name : str
    total_bytes : int
    free_bytes : int or None
        Now; None where NVML (the package nvidia-ml-py) is not there to say it.
    multiprocessors : int
    l2_bytes : int
        Of the second-level cache.
    capability : str
        Compute capability, such as "9.0".
    """

    index: int
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int | None
    multiprocessors: int
    l2_bytes: int
    capability: str

    def describe(self) -> str:
        """All of it in a line."""
        memory = format_bytes(self.total_bytes)
        if self.free_bytes is not None:
            memory = f"{format_bytes(self.free_bytes)} of {memory} free"
        return (
            f"GPU {self.index}: {self.name}, {memory}, {self.multiprocessors} multiprocessors, "
            f"{format_bytes(self.l2_bytes)} of L2, compute capability {self.capability}"
        )


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """Whether there are GPUs to work on. Made by `device_status`.

    Attributes
    ----------
    state : {"available", "not installed", "no driver", "no device", "failed"}
        "failed": a driver and the libraries are there, and CUDA or a library does not start.
    reason : str
        Why not, in words; "" where they are available.
    gpus : tuple of GpuDevice
        Those that are seen; also where the libraries are not installed.
    """

    state: str
    reason: str
    gpus: tuple[GpuDevice, ...] = ()

    @property
    def available(self) -> bool:
        """Whether engines can work on GPUs."""
        return self.state == "available"

    @property
    def count(self) -> int:
        """How many GPUs are seen."""
        return len(self.gpus)

    @property
    def what_to_do(self) -> str:
        """What helps, or how to use them."""
        return _TO_DO[self.state]

    def summary(self) -> str:
        """A line beside what already says why engines are of their kind: which GPUs there are, or what helps."""
        if not self.available:
            return self.what_to_do
        seen: dict[str, int] = {}
        for gpu in self.gpus:
            kind = (
                f"{gpu.name} ({format_bytes(gpu.total_bytes)}, {gpu.multiprocessors} multiprocessors, {gpu.capability})"
            )
            seen[kind] = seen.get(kind, 0) + 1
        return "GPUs here: " + ", ".join(f"{count} × {kind}" if count > 1 else kind for kind, count in seen.items())

    def __repr__(self) -> str:
        head = f"<DeviceStatus: {self.state}{': ' * bool(self.reason)}{self.reason}>"
        return "\n".join([head, *(f"  {gpu.describe()}" for gpu in self.gpus), f"  {self.what_to_do}"])

    def _repr_html_(self) -> str:
        titles = ("GPU", "name", "free", "memory", "multiprocessors", "L2", "compute capability")
        rows = [
            (
                str(gpu.index), gpu.name, "" if gpu.free_bytes is None else format_bytes(gpu.free_bytes),
                format_bytes(gpu.total_bytes), str(gpu.multiprocessors), format_bytes(gpu.l2_bytes), gpu.capability,
            )
            for gpu in self.gpus
        ]  # fmt: skip
        cells = ["".join(f"<td>{escape(text)}</td>" for text in row) for row in ((titles, *rows) if rows else ())]
        table = f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>" if cells else ""
        told = f"{self.reason}. {self.what_to_do}" if self.reason else self.what_to_do
        head = f"<b>GPUs: {escape(self.state)}</b> · {escape(told)}"
        return f'<div style="font-size:13px"><div>{head}</div>{table}</div>'


def device_status() -> DeviceStatus:
    """Say whether this machine has GPUs to work on, which, and what to do where it has not.

    The process that asks gets no CUDA context: a process of its own asks the driver, once for each value of
    ``CUDA_VISIBLE_DEVICES``. What is free is asked for each time.

    Returns
    -------
    DeviceStatus

    Examples
    --------
    >>> import gcylon_lab as gl
    >>> status = gl.device_status()
    >>> status.available == (status.reason == "")
    True
    >>> bool(status.what_to_do)
    True
    """
    found = _asked(os.environ.get("CUDA_VISIBLE_DEVICES"))
    gpus = [
        GpuDevice(
            gpu.index, gpu.uuid, gpu.name, gpu.total_bytes, _free_bytes(gpu.uuid), gpu.multiprocessors, gpu.l2_bytes,
            gpu.capability,
        )
        for gpu in found.gpus
    ]  # fmt: skip
    return DeviceStatus(found.state, found.reason, tuple(gpus))


@lru_cache(maxsize=8)
def _asked(visible: str | None) -> DriverAnswer:
    return ask_driver()


def _free_bytes(uuid: str) -> int | None:
    for kind in ("GPU", "MIG"):
        status = GpuStatus(f"{kind}-{uuid}")
        used = status.read_used_bytes()
        if used is not None and status.total_bytes is not None:
            return status.total_bytes - used
    return None
