"""What ranks work with: where a GPU cannot be used all ranks take CPUs and say why, unless GPUs were asked for."""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gcylon_lab.cli import doctor
from gcylon_lab.comm.single import SingleTransport
from gcylon_lab.comm.threads import ThreadsWorld
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ConfigError
from gcylon_lab.memory.device import DeviceUnavailable, why_unavailable
from gcylon_lab.runtime import devices
from gcylon_lab.runtime.device_status import DeviceStatus, GpuDevice
from gcylon_lab.runtime.devices import Equipment, equip
from gcylon_lab.units import GIB, MIB

# Each question is asked in a process of its own; what takes long to import, and none of them changes, is there before.
ASK = """
import json, os, sys, traceback
import gcylon_lab as gl
from gcylon_lab.runtime import context; from gcylon_lab.cli import doctor

def say():
    context = gl.initialize(sample_hz=0)
    made = context.equipment
    return {"kind": made.kind, "line": made.describe(), "device": context.device}

def examine():
    found = next(iter(doctor._engines(gl.device_status())))
    return {"status": found.status, "value": found.value}

assert not {"cupy", "rmm", "pylibcudf", "cudf"} & set(sys.modules)
for question, engine in json.loads(sys.argv[1]):
    if not (child := os.fork()):
        os.environ["GCYLON_ENGINE"] = engine
        try:
            said = {"said": {"say": say, "examine": examine}[question](), "error": ""}
        except Exception:
            said = {"said": {}, "error": traceback.format_exc()}
        print(json.dumps(said), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
CUPY = """
class _Runtime:
    class CUDARuntimeError(RuntimeError):
        pass
    @staticmethod
    def getDeviceCount():
        {count}
class cuda:
    runtime = _Runtime
"""
H100 = GpuDevice(0, "ab", "NVIDIA H100 80GB HBM3", 80 * GIB, 79 * GIB, 132, 50 * MIB, "9.0")
NO_GPU = DeviceStatus("no driver", "there is none")
needs_none = pytest.mark.skipif(not why_unavailable(), reason="there is a GPU that can be used")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of libraries in which some library goes by the name of the driver's, so that it loads."""
    found = next((path for path in Path("/").glob("lib*/**/libm.so.6")), None)
    if found is None:
        pytest.skip(f"{ctypes.util.find_library('m')} is not where it is looked for")
    (tmp_path / "libcuda.so.1").symlink_to(found)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    return tmp_path


def with_libraries(folder: Path, cupy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules by the names of the GPU libraries, of which the first does what a broken or idle one does."""
    for name in ("rmm", "pylibcudf", "cudf"):
        (folder / f"{name}.py").write_text("")
    (folder / "cupy.py").write_text(cupy)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def ask(*questions: tuple[str, str]) -> list[dict[str, Any]]:
    """What processes of their own say and choose, for each question and engine, or the error that they end in."""
    command = [sys.executable, "-c", ASK, json.dumps(questions)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert len(done.stdout.splitlines()) == len(questions), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def falls_back(reason: str) -> None:
    """CPU engines with this reason, an error with it where GPU engines are asked for, and the doctor's two answers."""
    made, refused, chosen, *found = ask(
        ("say", ""), ("say", "gpu"), ("say", "cpu"), ("examine", "auto"), ("examine", "gpu")
    )
    assert made["said"]["kind"] == made["said"]["device"] == "cpu"
    line = made["said"]["line"]
    assert line.startswith(f"CPU engines, because {reason}")
    assert line.endswith("rows travel by nothing (there is one rank), because they are in ordinary memory")
    assert not refused["said"]
    error = refused["error"]
    assert error.splitlines()[-1].startswith(f"gcylon_lab.errors.ConfigError: GPU engines were asked for, but {reason}")
    assert "GCYLON_ENGINE=auto" in error
    assert chosen["said"]["line"].startswith("CPU engines, because GCYLON_ENGINE=cpu;")
    assert [each["said"]["status"] for each in found] == ["ok", "fail"]
    assert all(reason in each["said"]["value"] for each in found), found


@needs_none
def test_no_driver() -> None:
    if "driver" not in why_unavailable():
        pytest.skip("there is a driver")
    falls_back("there is no NVIDIA driver (libcuda.so.1 is not found)")


@needs_none
def test_a_driver_but_no_cudf(driver: Path) -> None:
    if any(map(equipment_library, ("cupy", "rmm", "pylibcudf", "cudf"))):
        pytest.skip("some of the libraries are installed")
    falls_back("cupy, rmm, pylibcudf, cudf not installed (pip install 'gcylon-lab[gpu]')")


def equipment_library(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


@needs_none
def test_libraries_that_do_not_load(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_libraries(driver, "raise ImportError('libcudart.so.13: cannot open shared object file.')", monkeypatch)
    reason = "libcudart.so.13: cannot open shared object file"
    falls_back(f"the GPU libraries do not load: ImportError: {reason}")


@needs_none
def test_a_driver_that_does_not_start(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = CUPY.format(count="raise _Runtime.CUDARuntimeError('cudaErrorInsufficientDriver')")
    with_libraries(driver, code, monkeypatch)
    falls_back("CUDA does not start: cudaErrorInsufficientDriver")


@needs_none
def test_devices_that_are_hidden(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = CUPY.format(count="raise _Runtime.CUDARuntimeError('cudaErrorNoDevice: no CUDA-capable device is detected')")
    with_libraries(driver, code, monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    falls_back("no GPU is visible (CUDA_VISIBLE_DEVICES='')")


@needs_none
def test_no_device(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_libraries(driver, CUPY.format(count="return 0"), monkeypatch)
    falls_back("no GPU is visible (see CUDA_VISIBLE_DEVICES)")


# --- a device is there, its memory is not ---


class Opened:
    """What stands for an open device where only its closing counts."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def on_threads(size: int, engine: str, config: GcylonConfig | None = None) -> list[Equipment | Exception]:
    """Choose on ranks that are threads of this process."""
    made: list[Any] = [None] * size

    def choose(transport: Any) -> None:
        try:
            made[transport.rank] = equip(transport, config or GcylonConfig(), engine)
        except Exception as error:
            made[transport.rank] = error

    threads = [threading.Thread(target=choose, args=(t,), name=str(t.rank)) for t in ThreadsWorld(size).transports()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return made


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Opened]]:
    """Let every rank see a GPU with so much free; returns the devices that were opened."""

    def prepare(free: list[int], gpu: str = "GPU-{rank}", fails: str = "") -> list[Opened]:
        opened: list[Opened] = []

        def look() -> tuple[int, str]:
            rank = int(threading.current_thread().name)
            return free[rank], gpu.format(rank=rank)

        def open_device(limit: int, *, checks: object, log_file: str, pool: str) -> Opened:
            if threading.current_thread().name == fails:
                raise DeviceUnavailable("a slab of 60.0 GiB cannot be made")
            opened.append(Opened())
            return opened[-1]

        monkeypatch.setattr(devices, "why_unavailable", lambda: "")
        monkeypatch.setattr(devices, "_look", look)
        monkeypatch.setattr(devices, "total_bytes", lambda: 80 * GIB)
        monkeypatch.setattr(devices, "open_device", open_device)
        return opened

    return prepare


def reasons(made: list[Equipment | Exception]) -> set[str]:
    assert all(isinstance(one, Equipment) and one.kind == "cpu" for one in made), made
    return {one.reason for one in made if isinstance(one, Equipment)}


def test_a_gpu_without_free_memory(gpus: Any) -> None:
    opened = gpus([100 * MIB, 100 * MIB])
    want = "the GPU is out of memory: 100 MiB of 80 GiB are free on it, and a rank needs 256 MiB"
    assert reasons(on_threads(2, "auto")) == {f"because {want}"}
    assert reasons(on_threads(2, "auto", GcylonConfig(gpu_memory_limit="64MiB"))) == {f"because {want}"}
    for error in on_threads(2, "gpu"):
        assert isinstance(error, ConfigError) and error.message == f"GPU engines were asked for, but {want}."
    assert opened == []


def test_ranks_that_share_a_gpu_share_what_is_free(gpus: Any) -> None:
    gpus([600 * MIB] * 3, gpu="GPU-0")
    said = reasons(on_threads(3, "auto"))
    assert said == {
        "because the GPU is out of memory: 600 MiB of 80 GiB are free on it, among 3 ranks, and a rank needs 256 MiB"
    }


@pytest.mark.parametrize("how", ["little is free", "it cannot be opened"])
def test_one_rank_without_memory_decides_for_all(gpus: Any, how: str) -> None:
    opened = gpus([GIB, 0 if how == "little is free" else GIB, GIB], fails="1" if how != "little is free" else "")
    (said,) = reasons(on_threads(3, "auto"))
    assert said.startswith("because on rank 1 ")
    assert ("out of memory" if how == "little is free" else "cannot be made") in said
    assert len(opened) == 2 and all(device.closed for device in opened)


def test_what_is_installed_but_does_not_load(gpus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus([GIB])

    def look() -> tuple[int, str]:
        raise ImportError("libcudf.so: undefined symbol.")

    monkeypatch.setattr(devices, "_look", look)
    assert reasons(on_threads(2, "auto")) == {
        "because the GPU libraries do not load: ImportError: libcudf.so: undefined symbol"
    }


# --- choices that are unknown, and what the doctor says of a real start ---


def test_unknown_choices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"GCYLON_ENGINE='tpu' is invalid. Expected one of auto, cpu, gpu"):
        equip(SingleTransport(), GcylonConfig(), "tpu")
    monkeypatch.setenv("GCYLON_TRANSPORT", "pigeon")
    with pytest.raises(ConfigError, match=r"GCYLON_TRANSPORT='pigeon' is invalid.*peer, nccl, host"):
        equip(SingleTransport(), GcylonConfig())
    found = list(doctor._engines(NO_GPU))
    assert [finding.status for finding in found] == ["fail"] and "GCYLON_TRANSPORT='pigeon'" in found[0].value


@pytest.mark.mpi
@needs_none
def test_the_doctor_starts_engines_and_says_what_they_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    (fallen_back,) = doctor._tried_engines(NO_GPU)
    assert fallen_back.status == "warn"
    assert fallen_back.value == f"CPU engines: tables are pandas, because {why_unavailable()}"
    monkeypatch.setenv("GCYLON_ENGINE", "gpu")
    (refused,) = doctor._tried_engines(NO_GPU)
    assert refused.status == "fail"
    assert refused.note.startswith(f"ConfigError: GPU engines were asked for, but {why_unavailable()}.")


@needs_none
def test_a_gpu_that_is_not_used_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    status = DeviceStatus("not installed", why_unavailable(), (H100,))
    monkeypatch.setattr(doctor, "device_status", lambda: status)
    found = {finding.topic: finding for finding in doctor._gpus()}
    assert found["gpus"].value == H100.describe() and found["gpus"].note == status.what_to_do
    assert found["engines"].status == "warn" and found["engines"].value.endswith(why_unavailable())
    monkeypatch.setenv("GCYLON_ENGINE", "cpu")
    found = {finding.topic: finding for finding in doctor._gpus()}
    assert found["engines"].status == "ok" and found["engines"].value.endswith("because GCYLON_ENGINE=cpu")


@pytest.mark.mpi
@needs_none
def test_a_cluster_that_cannot_have_gpus_says_so_without_a_traceback() -> None:
    import gcylon_lab as gl
    from gcylon_lab.errors import ClusterStartError

    with pytest.raises(ClusterStartError, match="GPU engines were asked for, but") as caught:
        gl.Cluster(2, name="forced", env={"GCYLON_ENGINE": "gpu"}, progress=False)
    assert why_unavailable() in caught.value.message and "Traceback" not in caught.value.message
