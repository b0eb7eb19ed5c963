"""Reading keeps to its budget, also where tables of before would be in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.context import current, run_threads
from gcylon_lab.errors import BudgetExceeded

_TIGHT = gl.GcylonConfig(gpu_memory_limit=64 * 1024)


def read_after_others(path: str, live: bool) -> dict[str, Any]:
    context = current()
    old = gl.from_local(pd.DataFrame({"a": np.arange(20_000)}))
    young = gl.from_local(pd.DataFrame({"a": np.arange(4_000)}))
    if live:
        context.set_config(_TIGHT)
    table = gl.read_parquet(path, config=None if live else _TIGHT)
    record = list(context.recorder.operations)[-1]
    assert record.verb == "read_parquet"
    assert table.local()["a"].tolist() == list(range(4_000))
    assert old.local()["a"].tolist() == list(range(20_000))
    peak, largest = record.measured_peak_bytes, max(chunk.nbytes for chunk in table._part.chunks)
    return {"peak": peak, "largest": largest, "old": old.tiers, "young": young.tiers}


@pytest.mark.parametrize("live", [True, False])
def test_tables_of_before_give_way_to_reading(tmp_path: Path, live: bool) -> None:
    path = str(tmp_path / "a.parquet")
    pd.DataFrame({"a": np.arange(4_000)}).to_parquet(path)
    (seen,) = run_threads(1, read_after_others, path, live)
    assert seen["peak"] <= _TIGHT.gpu_memory_limit
    assert seen["old"]["device"] == 0
    assert seen["young"]["device"] > 0, "the one used last gave way first"
    assert seen["largest"] <= _TIGHT.gpu_memory_limit // 8


def read_with_room(path: str) -> dict[str, int]:
    old = gl.from_local(pd.DataFrame({"a": np.arange(20_000)}))
    gl.read_parquet(path)
    tiers: dict[str, int] = old.tiers
    return tiers


def test_nothing_gives_way_where_there_is_room(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pd.DataFrame({"a": np.arange(4_000)}).to_parquet(path)
    (tiers,) = run_threads(1, read_with_room, path)
    assert tiers["disk"] == 0


def read_without_staging(path: str) -> dict[str, int]:
    old = gl.from_local(pd.DataFrame({"a": np.arange(20_000)}))
    with pytest.raises(BudgetExceeded):
        gl.read_parquet(path, config=_TIGHT.with_staging(allow_disk_spill=False))
    tiers: dict[str, int] = old.tiers
    return tiers


def test_nothing_gives_way_where_staging_is_not_allowed(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    pd.DataFrame({"a": np.arange(4_000)}).to_parquet(path)
    (tiers,) = run_threads(1, read_without_staging, path)
    assert tiers["disk"] == 0
