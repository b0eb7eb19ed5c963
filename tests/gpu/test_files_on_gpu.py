"""Files on GPU ranks; the programs are `files_on_gpu.py` and `texts_on_gpu.py`."""

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
def test_parquet_files_give_what_they_give_cpu_ranks(ranks: int) -> None:
    right_on_gpus("files_on_gpu.py", ranks, "auto")


@pytest.mark.parametrize("ranks", [1, 2])
def test_csv_files_give_what_they_give_cpu_ranks(ranks: int) -> None:
    right_on_gpus("texts_on_gpu.py", ranks, "auto")
