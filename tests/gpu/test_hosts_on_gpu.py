"""Ranks that are told to be on two hosts: peer puts inside a host, NCCL or host memory between hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.nvml import visible_gpus

PROGRAM = Path(__file__).with_name("hosts_on_gpu.py")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(420),
    pytest.mark.skipif(not visible_gpus() or bool(why_unavailable()), reason="there is no GPU that can be used"),
]


def test_each_pair_of_ranks_goes_its_own_way() -> None:
    environment = os.environ | {"GCYLON_BENCH_ROWS": "1000000"}
    done = subprocess.run([sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, timeout=410)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
