"""Reading keeps to its budget, also where tables of before would be in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.engine.store.chunk import stage_slices
from gcylon_lab.errors import BudgetExceeded, SchemaMismatch
from gcylon_lab.memory.budget import exceeded
from gcylon_lab.runtime.context import current, run_threads

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
    tiers = {"old": old.tiers, "young": young.tiers}  # before they are next used
    assert table.local()["a"].tolist() == list(range(4_000))
    assert old.local()["a"].tolist() == list(range(20_000))
    peak, largest = record.measured_peak_bytes, max(chunk.nbytes for chunk in table._part.chunks)
    return {"peak": peak, "largest": largest, **tiers, "old after use": old.tiers}


@pytest.mark.parametrize("live", [True, False])
def test_tables_of_before_give_way_to_reading(tmp_path: Path, live: bool) -> None:
    path = str(tmp_path / "a.parquet")
    pd.DataFrame({"a": np.arange(4_000)}).to_parquet(path)
    (seen,) = run_threads(1, read_after_others, path, live)
    assert seen["peak"] <= _TIGHT.gpu_memory_limit
    assert seen["old"]["device"] == 0
    # A limit of one operation ends with it: what it staged comes back when it is next used.
    assert (seen["old after use"]["device"], seen["old after use"]["disk"]) == (
        (0, seen["old"]["disk"]) if live else (160_000, 0)
    )
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


def take_in_with(values: list[list[Any]], staged: bool) -> str:
    config = gl.GcylonConfig(gpu_memory_limit=4096) if staged else None
    try:
        table = gl.from_local(pd.DataFrame({"c": values[current().rank], "d": "x"}), config=config)
    except SchemaMismatch as error:
        return str(error)
    table.local()
    return str(table.dtypes["c"])


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        [[2**53 + 1] * 999, [0.5] * 999],
        [[1] * 999, [2**64 - 1] * 999],
        [[[2**53 + 1]] * 999, [[0.5]] * 999],
        [[pd.Timestamp("9000-01-01").as_unit("s")] * 999, [pd.Timestamp("2000-01-01").as_unit("ns")] * 999],
    ],
    ids=["int_and_float", "uint64", "nested", "times"],
)
def test_values_that_the_common_dtype_does_not_hold_are_told_on_all_ranks(values: Any, staged: bool) -> None:
    said = run_threads(2, take_in_with, values, staged)
    assert said[0] == said[1] and "column 'c'" in said[0] and "cannot represent" in said[0]
    assert "Give values that" in said[0]


def test_values_that_the_common_dtype_holds_are_taken_in() -> None:
    assert run_threads(2, take_in_with, [[2**53], [0.5]], False) == ["float64"] * 2


def test_pieces_of_one_rank_are_looked_at_too(tmp_path: Path) -> None:
    for name, values in (("0", [2**53 + 1]), ("1", [0.5])):
        pd.DataFrame({"c": values}).to_parquet(tmp_path / f"{name}.parquet")

    def read() -> str:
        with pytest.raises(SchemaMismatch) as caught:
            gl.read_parquet(str(tmp_path))
        return str(caught.value)

    assert all("column 'c'" in text for size in (1, 2, 3) for text in run_threads(size, read))


class _LittleRoom:
    """Stands before a backend that has room to pack so many rows at once."""

    def __init__(self, inner: Any, rows: int) -> None:
        self._inner, self._rows = inner, rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def pack(self, data: Any) -> Any:
        if data.rows > self._rows:
            raise exceeded("Packing", data.nbytes, 0, 1)
        return self._inner.pack(data)


def staged_in_little_room(rows: int) -> tuple[list[int], list[int]]:
    workspace = current().workspace
    data = workspace.backend.from_frame(pd.DataFrame({"a": np.arange(100), "s": ["x"] * 100}))
    workspace.backend = _LittleRoom(workspace.backend, rows)  # type: ignore[assignment]
    chunks = list(stage_slices(workspace, workspace.spill.new_file(), data, 2))
    return [chunk.rows for chunk in chunks], [n for chunk in chunks for n in chunk.read(workspace).arrays[0].tolist()]


def test_rows_without_room_to_be_packed_at_once_are_staged_in_halves() -> None:
    assert run_threads(1, staged_in_little_room, 25) == [([25] * 4, list(range(100)))]
    assert run_threads(1, staged_in_little_room, 1) == [([1] * 100, list(range(100)))]
    with pytest.raises(BudgetExceeded, match="Packing"):
        run_threads(1, staged_in_little_room, 0)
