"""Every verb and strategy on GPU ranks: one rank, several that share a GPU, and one for each GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gcylon_lab.cluster.launch.mpiexec import find_mpiexec
from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.nvml import visible_gpus

PROGRAM = Path(__file__).with_name("exchanges_on_gpu.py")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not visible_gpus() or bool(why_unavailable()), reason="there is no GPU that can be used"),
]


@pytest.mark.parametrize("ranks, route", [(1, "auto"), (2, "peer"), (2, "host"), (4, "peer"), (2, "nccl"), (4, "nccl")])
def test_rows_are_right_and_nothing_is_left(ranks: int, route: str) -> None:
    if route == "nccl" and len(visible_gpus()) < ranks:
        pytest.skip(f"NCCL wants a GPU a rank, and there are {len(visible_gpus())}")
    mpi = find_mpiexec()
    command = [mpi.path, *mpi.arguments, "-n", str(ranks), sys.executable, str(PROGRAM)]
    environment = os.environ | mpi.environment | {"GCYLON_TRANSPORT": route, "PYTHONPATH": str(PROGRAM.parents[2])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kind"] == "gpu", found["reason"]
    assert found["wrong"] == []
