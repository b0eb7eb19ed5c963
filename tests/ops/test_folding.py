"""Groups of all rows in one table, where a backend has one: used where it fits, left where what was added is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from grouped import Grouped, by_pandas
from relations import assert_same_rows, check_clean, on_ranks, together
from worlds import run_over

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.aggregation import Kernel
from gcylon_lab.backends.protocol.data import Data
from gcylon_lab.backends.protocol.schema import Label, Schema
from gcylon_lab.config import GcylonConfig
from gcylon_lab.runtime.context import current

NAMED = {"sx": ("x", "sum"), "mx": ("x", "mean"), "sg": ("g", "sum"), "n": ("g", "size")}
ROWS, KEYS = 4000, 50
SMALL = {"chunk_size_bytes": 8192, "min_chunk_rows": 1}
ROOMY, TIGHT = GcylonConfig(**SMALL), GcylonConfig(gpu_memory_limit="300 KiB", **SMALL)


class KeptRows:
    """A table that keeps rows as they come, and groups them when it is read."""

    most = KEYS
    room = 16 * KEYS

    def __init__(self, keys: Sequence[Label], kernels: Sequence[Kernel]) -> None:
        self.backend, self.keys, self.kernels = PandasBackend(), keys, kernels
        self.nbytes = self.room
        self.pieces: list[Data] | None = None
        self.looks = 0
        current().begun = [*getattr(current(), "begun", []), self]  # type: ignore[attr-defined]

    def reading_bytes(self, groups: float) -> int:
        return int(groups * 100)

    def begin(self) -> None:
        self.pieces = []

    def add(self, data: Data) -> None:
        self.pieces = [*(self.pieces or []), self.backend.concat([data])]

    def groups(self) -> int | None:
        self.looks += 1
        found = self.backend.count_distinct(self.backend.concat(self.pieces or []), self.keys)
        return found if found <= self.most else None

    def made(self, groups: int, *, in_order: bool = True) -> Data:
        whole = self.backend.concat(self.pieces or [])
        made = self.backend.aggregate(whole, self.keys, self.kernels, dropna=True)
        assert made.rows == groups
        return made


class OneTable(PandasBackend):
    table: type[KeptRows] = KeptRows

    def folding(
        self, schema: Schema, keys: Sequence[Label], kernels: Sequence[Kernel], rows: int, groups: float
    ) -> KeptRows | None:
        assert rows and groups <= rows
        return self.table(keys, kernels) if list(keys) == ["k"] else None


class Full(KeptRows):
    most = KEYS - 1


class Wide(KeptRows):
    room = 40_000  # more than an eighth of a tight budget


class FullTable(OneTable):
    table = Full


class WideTable(OneTable):
    table = Wide


def frames_of(size: int, rows: int = ROWS) -> list[pd.DataFrame]:
    random = np.random.default_rng(5)
    made = [pd.DataFrame({"k": random.integers(0, KEYS, rows), "x": random.random(rows)}) for _ in range(size)]
    return [frame.assign(g=np.arange(rows) * 2**40) for frame in made]


def grouped(frames: list[pd.DataFrame], config: GcylonConfig, staged: bool) -> dict[str, Any]:
    found = on_ranks(Grouped(["k"], NAMED, config=config), frames, staged)
    tables = getattr(current(), "begun", [])
    found["begun"] = [table.pieces is not None for table in tables]
    found["pieces"] = [len(table.pieces or []) for table in tables]
    found["looks"] = [table.looks for table in tables]
    return found


def run(size: int, backend: type[OneTable], *args: Any) -> list[dict[str, Any]]:
    return run_over(size, lambda base: base, grouped, *args, backend=backend)


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("size", [1, 2])
def test_pieces_go_into_one_table(size: int, staged: bool) -> None:
    frames = frames_of(size)
    results = run(size, OneTable, frames, ROOMY, staged)
    assert_same_rows(together(results), by_pandas(pd.concat(frames), ["k"], NAMED), ["k"], rtol=1e-12)
    check_clean(results)
    for result in results:
        assert result["begun"] == [True]
        (pieces,) = result["pieces"]
        assert pieces >= 10 and result["looks"] == [pieces + 1 if staged else 1]
        assert 0.9 < result["predicted"] / result["peak"] < 1.1


@pytest.mark.parametrize("staged", [False, True])
def test_one_that_is_full_is_left(staged: bool) -> None:
    frames = frames_of(2)
    results = run(2, FullTable, frames, ROOMY, staged)
    assert_same_rows(together(results), by_pandas(pd.concat(frames), ["k"], NAMED), ["k"], rtol=1e-12)
    check_clean(results)
    for result in results:
        assert result["begun"] == [True]
        assert result["looks"] == result["pieces"] if staged else result["looks"] == [1]
        if staged:  # the first piece that it has no place for is the last
            assert result["pieces"][0] < 5


def test_ranks_decide_for_themselves() -> None:
    """A rank without rows has no table, and one that has little memory does without."""
    frames = [frames_of(1)[0], frames_of(1, 0)[0], frames_of(1, 1)[0]]
    expected = by_pandas(pd.concat(frames), ["k"], NAMED)
    results = run(3, OneTable, frames, ROOMY, False)
    assert [result["begun"] for result in results] == [[True], [], [True]]
    assert_same_rows(together(results), expected, ["k"], rtol=1e-12)
    for staged in (False, True):
        results = run(3, WideTable, frames, TIGHT, staged)
        assert not any(sum(result["begun"]) for result in results)
        assert_same_rows(together(results), expected, ["k"], rtol=1e-12)
        check_clean(results)
