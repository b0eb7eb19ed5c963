"""sort_values on GPU ranks: one rank, several that share a GPU, and one for each GPU."""

from __future__ import annotations

import pytest
from programs import right_on_gpus

from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.memory.nvml import visible_gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),  # four ranks that share a GPU with other programs took 120 s and more
    pytest.mark.skipif(not visible_gpus() or bool(why_unavailable()), reason="there is no GPU that can be used"),
]


@pytest.mark.parametrize("ranks, route", [(1, "auto"), (2, "peer"), (4, "peer"), (2, "host"), (2, "nccl")])
def test_rows_are_in_order_and_nothing_is_left(ranks: int, route: str) -> None:
    if route == "nccl" and len(visible_gpus()) < ranks:
        pytest.skip(f"NCCL wants a GPU a rank, and there are {len(visible_gpus())}")
    right_on_gpus("sorts_on_gpu.py", ranks, route)
