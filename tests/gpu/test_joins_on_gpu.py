"""Every kind of join on GPU ranks: one rank, several that share a GPU, and one for each GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gcylon_lab.cluster.mpiexec import find_mpiexec
from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.gpu_status import count_gpus

PROGRAM = Path(__file__).with_name("joins_on_gpu.py")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not count_gpus() or bool(why_unavailable()), reason="there is no GPU that can be used"),
]


@pytest.mark.parametrize("ranks, route", [(1, "auto"), (2, "peer"), (2, "host"), (4, "peer")])
def test_joins_give_what_pandas_gives(ranks: int, route: str) -> None:
    mpi = find_mpiexec()
    command = [mpi.path, *mpi.arguments, "-n", str(ranks), sys.executable, str(PROGRAM)]
    path = os.pathsep.join([str(PROGRAM.parents[2]), str(PROGRAM.parents[1] / "ops")])
    environment = os.environ | mpi.environment | {"GCYLON_TRANSPORT": route, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["kind"] == "gpu", found["reason"]
    assert found["wrong"] == []
