"""Where a real GPU cannot be used: ranks take CPUs and say why, or refuse if GPUs were asked for.

    python -m pytest tests/gpu/test_fallbacks_on_gpu.py

Fills the memory of the first GPU for some seconds, so nothing else should need it meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gcylon_lab.cluster.launch.mpiexec import find_mpiexec
from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.nvml import visible_gpus

GPUS = [gpu.uuid for gpu in visible_gpus()]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.mpi,
    pytest.mark.skipif(not GPUS or bool(why_unavailable()), reason="there is no GPU that can be used"),
]

FILL = """
import sys, cupy
runtime, left, held = cupy.cuda.runtime, int(sys.argv[1]) * 2**20, []
for piece in (2**30, 2**26, 2**22, 2**21):
    while runtime.memGetInfo()[0] >= left + piece:
        try:
            held.append(runtime.malloc(piece))
        except runtime.CUDARuntimeError:
            break
print(runtime.memGetInfo()[0] // 2**20, flush=True)
sys.stdin.read()
"""
SAY = """
import json, sys
for name in sys.argv[1:]:
    sys.modules[name] = None
import pandas as pd
import gcylon_lab as gl
context = gl.initialize(sample_hz=0)
table = gl.from_local(pd.DataFrame({"k": range(1000)}))
rows = context.transport.agree(__import__("numpy").array([table.shuffle("k").num_rows]))[:, 0].sum()
if context.rank == 0:
    made = context.equipment
    print(json.dumps({"kind": made.kind, "line": made.describe(), "rows": int(rows)}), flush=True)
context.close()
"""


@contextmanager
def filled(left_mib: int) -> Iterator[int]:
    """Another process holds all memory of the first GPU but so much; gives what is left in MiB."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": GPUS[0]}
    command = [sys.executable, "-c", FILL, str(left_mib)]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(20)


def say(ranks: int, *hidden: str, **variables: str) -> tuple[dict[str, Any], str]:
    """What so many ranks choose, and what they wrote."""
    mpi = find_mpiexec()
    command = [mpi.path, *mpi.arguments, "-n", str(ranks), sys.executable, "-c", SAY, *hidden]
    environment = os.environ | mpi.environment | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    said = next((line for line in done.stdout.splitlines() if line.startswith("{")), "null")
    return json.loads(said), done.stderr


def falls_back(reason: str, ranks: int, *hidden: str, **variables: str) -> None:
    made, wrote = say(ranks, *hidden, **variables)
    assert made, wrote
    assert made["kind"] == "cpu" and reason in made["line"], made
    assert made["rows"] == 1000 * ranks
    nothing, wrote = say(ranks, *hidden, **variables, GCYLON_ENGINE="gpu")
    assert nothing is None
    assert "ConfigError: GPU engines were asked for, but " in wrote and reason in wrote


def test_no_cudf() -> None:
    falls_back("cudf not installed", 2, "cudf")


def test_no_device() -> None:
    falls_back("no GPU is visible (CUDA_VISIBLE_DEVICES='')", 1, CUDA_VISIBLE_DEVICES="")


def test_memory_is_exhausted() -> None:
    """For a GPU that nobody else uses: others find no memory meanwhile, and what they give back is free here."""
    ranks = max(2, len(GPUS))  # the first GPU's rank decides for all
    made, wrote = say(ranks)
    assert made and made["kind"] == "gpu", wrote
    with filled(64) as left:
        assert left < 200
        falls_back("out of memory", ranks)
        command = [sys.executable, "-m", "gcylon_lab", "doctor", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        found = {finding["topic"]: finding for finding in json.loads(done.stdout)["findings"]}
        if len(GPUS) <= 2:  # the doctor starts two ranks
            assert found["engines"]["status"] == "warn" and "out of memory" in found["engines"]["value"], found
    assert say(ranks)[0]["kind"] == "gpu"


def test_a_limit_that_does_not_fit() -> None:
    with filled(2000):
        falls_back("cannot be made", 2, GCYLON_GPU_MEMORY_LIMIT="8GiB")
        made, wrote = say(2, GCYLON_GPU_MEMORY_LIMIT="300MiB")
        assert made and made["kind"] == "gpu", wrote
