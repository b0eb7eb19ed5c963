"""What the CUDA driver says of GPUs, asked in a process of its own: the one that asks gets no CUDA context."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .device import availability

_TIMEOUT_S = 60.0
_ASK = "from gcylon_lab.memory.driver import answer; answer()"
# The driver's numbers of cuda.h.
_PROCESSORS, _L2_BYTES, _MAJOR, _MINOR = 16, 38, 75, 76


@dataclass(frozen=True, slots=True)
class DriverGpu:
    """A GPU as the driver describes it; ``uuid`` without what NVML puts before it."""

    index: int
    uuid: str
    name: str
    total_bytes: int
    multiprocessors: int
    l2_bytes: int
    capability: str


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """Whether processes of this environment can work on GPUs, as `availability` says it, and which they see."""

    state: str
    reason: str
    gpus: tuple[DriverGpu, ...] = ()


def ask_driver() -> DriverAnswer:
    """Ask; takes a second or two where there is a driver, and nothing to speak of elsewhere."""
    try:
        ctypes.CDLL("libcuda.so.1")  # which starts nothing
    except OSError:
        return DriverAnswer(*availability())
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _ASK], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_TIMEOUT_S, check=True,
        )  # fmt: skip
        found = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return DriverAnswer("failed", f"the driver did not answer in {_TIMEOUT_S:.0f} s")
    except (subprocess.CalledProcessError, ValueError, IndexError) as error:
        said = (getattr(error, "stderr", "") or "").strip().splitlines() or [str(error)]
        return DriverAnswer("failed", f"the process that asks the driver ended: {said[-1]}")
    return DriverAnswer(found["state"], found["reason"], tuple(DriverGpu(**gpu) for gpu in found["gpus"]))


def answer() -> None:
    """In the process that is started for it: print what there is as JSON."""
    state, reason = availability()
    print(json.dumps({"state": state, "reason": reason, "gpus": [asdict(gpu) for gpu in _gpus()]}), flush=True)


def _gpus() -> list[DriverGpu]:
    """Without a library beyond the driver's own: it is there where cuDF is not."""
    try:
        cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
        if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
            return []
        return [_describe(cuda, index) for index in range(count.value)]
    except (OSError, AttributeError):  # no driver, or one without what is asked for
        return []


def _describe(cuda: Any, index: int) -> DriverGpu:
    device, name, total, number = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t(), ctypes.c_int()
    uuid = (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device)
    cuda.cuDeviceGetUuid_v2(ctypes.byref(uuid), device)

    def told(attribute: int) -> int:
        cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        return number.value

    digits = bytes(uuid).hex()
    cut = [digits[start:stop] for start, stop in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))]
    return DriverGpu(
        index, "-".join(cut), name.value.decode(errors="replace"), total.value, told(_PROCESSORS), told(_L2_BYTES),
        f"{told(_MAJOR)}.{told(_MINOR)}",
    )  # fmt: skip
