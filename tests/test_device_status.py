"""Whether there are GPUs: in words, with what helps, and without a CUDA context in the process that asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gcylon_lab as gl
from gcylon_lab.memory import driver
from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.driver import DriverAnswer, DriverGpu, ask_driver
from gcylon_lab.runtime import device_status as module
from gcylon_lab.runtime.device_status import device_status
from gcylon_lab.units import GIB, MIB

GPU = DriverGpu(0, "1b2c", "NVIDIA <H200>", 141 * GIB, 132, 60 * MIB, "9.0")
# A driver of one GPU, for a compiler: the calls that are made of it, with the numbers of cuda.h.
FAKE = """
#include <string.h>
int cuInit(unsigned flags) { return INIT; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "A GPU", n); return 0; }
int cuDeviceTotalMem_v2(size_t *n, int d) { *n = 8ull << 30; return 0; }
int cuDeviceGetUuid_v2(unsigned char *u, int d) { memset(u, 16 + d, 16); return 0; }
int cuDeviceGetAttribute(int *v, int a, int d)
{ *v = a == 16 ? 78 : a == 38 ? 4 << 20 : a == 75 ? 8 : a == 76 ? 6 : -1; return 0; }
"""


@pytest.fixture(autouse=True)
def forgotten() -> Any:
    module._asked.cache_clear()
    yield
    module._asked.cache_clear()


@pytest.mark.skipif(not why_unavailable(), reason="there is a GPU")
def test_without_a_gpu_the_reason_is_that_of_engines_and_something_helps() -> None:
    status = gl.device_status()
    assert not status.available and status.reason == why_unavailable() and status.count == 0
    assert repr(status).startswith(f"<DeviceStatus: {status.state}: ") and status.what_to_do in repr(status)
    assert f"<b>GPUs: {status.state}</b> · {status.reason}. " in status._repr_html_()


@pytest.mark.parametrize(
    ("state", "helps"),
    [
        ("available", "gl.Cluster"), ("not installed", "pip install 'gcylon-lab[gpu]'"), ("no driver", "driver"),
        ("no device", "CUDA_VISIBLE_DEVICES"), ("failed", "gpu-cu12"),
    ],
)  # fmt: skip
def test_every_state_says_what_to_do_and_is_asked_for_once(
    state: str, helps: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask() -> DriverAnswer:
        asked.append("")
        return DriverAnswer(state, "" if state == "available" else "so <it> is", (GPU,))

    monkeypatch.setattr(module, "ask_driver", ask)
    for _ in range(2):
        status = device_status()
    assert len(asked) == 1 and status.available == (state == "available") and helps in status.what_to_do
    assert "GPU 0: NVIDIA <H200>, 141 GiB, 132 multiprocessors, 60 MiB of L2, compute capability 9.0" in repr(status)
    assert "NVIDIA &lt;H200&gt;" in status._repr_html_() and "<it>" not in status._repr_html_()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    device_status()
    assert len(asked) == 2, "another value may hide others"


@pytest.fixture
def fake_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A library that goes by the driver's name and starts with a given error."""
    if not why_unavailable():
        pytest.skip("there is a GPU")

    def build(init: int) -> None:
        (tmp_path / "cuda.c").write_text(FAKE)
        command = ["cc", "-shared", f"-DINIT={init}", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "cuda.c")]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("there is no C compiler")
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: None)  # it is found by processes that are started

    return build


def test_the_driver_is_asked_in_another_process(fake_driver: Any) -> None:
    fake_driver(0)
    found = ask_driver()
    assert [gpu.index for gpu in found.gpus] == [0, 1]
    first = found.gpus[0]
    assert first.uuid == "10101010-1010-1010-1010-101010101010" and first.name == "A GPU"
    assert (first.total_bytes, first.multiprocessors, first.l2_bytes, first.capability) == (8 * GIB, 78, 4 * MIB, "8.6")
    assert found.state == "not installed" and "not installed" in found.reason
    fake_driver(100)
    assert ask_driver().gpus == ()


def test_a_process_that_ends_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(driver, "_ASK", "import sys; sys.exit('it broke')")
    assert ask_driver() == DriverAnswer("failed", "the process that asks the driver ended: it broke")
    monkeypatch.setattr(driver, "_ASK", "import time; time.sleep(60)")
    monkeypatch.setattr(driver, "_TIMEOUT_S", 0.2)
    assert "did not answer" in ask_driver().reason


@pytest.mark.gpu
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_gpus_are_seen_without_a_context_here() -> None:
    code = (
        "import ctypes, gcylon_lab as gl; s = gl.device_status(); assert s.available and s.count, s; "
        "g = s.gpus[0]; assert g.multiprocessors > 0 and g.l2_bytes > 0 and g.free_bytes, g; "
        "p = ctypes.c_void_p(); assert ctypes.CDLL('libcuda.so.1').cuCtxGetCurrent(ctypes.byref(p)) == 3"  # not started
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
