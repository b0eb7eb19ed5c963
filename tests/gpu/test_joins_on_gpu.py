"""Every kind of join on GPU ranks: one rank, several that share a GPU, and one for each GPU."""

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


@pytest.mark.parametrize("ranks, route", [(1, "auto"), (2, "peer"), (2, "host"), (4, "peer")])
def test_joins_give_what_pandas_gives(ranks: int, route: str) -> None:
    right_on_gpus("joins_on_gpu.py", ranks, route)
