"""Rows appended on ranks: within the budget, staged for others, all of them or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import BudgetExceeded, SchemaMismatch


def _rows(rank: int, start: int, count: int) -> pd.DataFrame:
    numbers = np.arange(start, start + count)
    return pd.DataFrame({"rank": np.full(count, rank), "i": numbers, "s": pd.Series(numbers).astype(str).astype("str")})


def _append() -> dict[str, Any]:
    context = gl.current()
    budget, rank = context.budget, context.rank
    used = budget.used_bytes
    schema = _rows(0, 0, 0)
    config = gl.GcylonConfig(gpu_memory_limit=4 * 2**20)
    growing = gl.empty(schema, capacity=5000, config=config)
    claimed = budget.used_bytes - used
    for step in range(20):
        growing.append(_rows(rank, 1000 * step, 1000 if rank % 2 == 0 else 10))
    peak = budget.peak_bytes
    refused = ""
    before = growing.num_rows, growing.nbytes
    try:
        growing.append(_rows(rank, 0, 5) if rank else _rows(rank, 0, 5).assign(i=0.5))
    except SchemaMismatch as error:
        refused = str(error)
    same = before == (growing.num_rows, growing.nbytes)
    table = growing.table()
    rows = table.local()
    table.release()
    del table, growing
    return {
        "claimed": claimed,
        "refused": refused,
        "same": same,
        "rows": rows,
        "left": budget.used_bytes - used,
        "peak": peak,
    }


def test_small_pieces_on_every_world(world: World) -> None:
    for rank, seen in enumerate(world.run(_append)):
        count = 1000 if rank % 2 == 0 else 10
        want = pd.concat([_rows(rank, 1000 * step, count) for step in range(20)], ignore_index=True)
        pd.testing.assert_frame_equal(seen["rows"], want)
        assert seen["claimed"] == 5000 * 16 and seen["left"] == 0 and seen["same"]
        assert "0.5" in seen["refused"] and "'i'" in seen["refused"]


def _beyond() -> list[Any]:
    context = gl.current()
    limit = 2**20
    growing = gl.empty({"x": "float64"}, config=gl.GcylonConfig(gpu_memory_limit=limit))
    for step in range(8):
        growing.append({"x": np.full(40_000, float(step))})
    table = growing.table()
    tight = gl.GcylonConfig(gpu_memory_limit=limit).with_staging(allow_cpu_staging=False, allow_disk_spill=False)
    full = gl.empty({"x": "float64"}, config=tight)
    with pytest.raises(BudgetExceeded):
        for _ in range(8):
            full.append({"x": np.zeros(40_000)})
    kept = full.num_rows
    full.release()
    small, count = gl.empty({"x": "float64"}, config=tight), 0
    with pytest.raises(BudgetExceeded):
        while True:
            small.append({"x": np.full(5000, float(count))})
            count += 1
    last = small.table()
    assert count > 5 and last.tensor("x").tolist() == [float(i) for i in range(count) for _ in range(5000)]
    return [table._part.staged_bytes > 0, table.sum("x"), kept, context.budget.used_bytes <= limit]


def test_beyond_the_budget_rows_are_staged_or_refused(several: World) -> None:
    for staged, total, kept, inside in several.run(_beyond):
        assert staged and total == several.size * 40_000 * 28 and inside
        assert 0 < kept < 320_000 and kept % 40_000 == 0


def _objects() -> tuple[list[Any], str]:
    rank = gl.current().rank
    growing = gl.empty(pd.DataFrame({"o": pd.Series([], dtype=object)}))
    growing.append(pd.DataFrame({"o": pd.Series([None, None], dtype=object)}))
    for value in (b"first", b"second"):
        growing.append(pd.DataFrame({"o": pd.Series([value, None] if rank == 0 else [], dtype=object)}))
    with pytest.raises(SchemaMismatch) as refused:
        growing.append(pd.DataFrame({"o": pd.Series([True] if rank == 0 else [], dtype=object)}))
    return growing.table().local()["o"].tolist(), str(refused.value)


def test_objects_are_what_came_first(several: World) -> None:
    for rank, (values, refused) in enumerate(several.run(_objects)):
        assert values == [None, None, *([b"first", None, b"second", None] if rank == 0 else [])]
        assert "'o'" in refused
