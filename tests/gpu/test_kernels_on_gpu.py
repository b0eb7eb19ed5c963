"""Kernels of one's own and streams on GPU ranks: one rank, and two that share a GPU."""

from __future__ import annotations

import pytest
from programs import right_on_gpus

from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.nvml import visible_gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not visible_gpus() or bool(why_unavailable()), reason="there is no GPU that can be used"),
]


@pytest.mark.parametrize("ranks", [1, 2])
def test_answers_are_those_of_cpu_ranks(ranks: int) -> None:
    right_on_gpus("kernels_on_gpu.py", ranks, "auto")
