"""Rows that leave the device tier only once they are waited for, as copies from GPUs may: nothing is refused for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.store.async_stager import AsyncStager
from gcylon_lab.engine.store.workspace import Workspace
from gcylon_lab.memory.tiers.disk_tier import SpillFile, SpillRegion, SpillStore
from gcylon_lab.runtime.context import current

ROWS = 20_000
MOST_IN_FLIGHT = 16


class LateStore(SpillStore):
    """Keeps what is staged, and the claim on it, until it is waited for, or too many are on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.leaving: dict[int, Any] = {}

    def new_file(self) -> SpillFile:
        return LateFile(self)

    def flush(self) -> None:
        self.leaving.clear()


class LateFile(SpillFile):
    def append(self, buffers: Sequence[memoryview], held: object = None) -> SpillRegion:
        region = super().append(buffers)
        leaving = self.store.leaving  # type: ignore[attr-defined]
        leaving[id(region)] = (list(buffers), held)
        while len(leaving) > MOST_IN_FLIGHT:
            del leaving[next(iter(leaving))]
        return region


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workspace, "has_pinned_tier", True)

    def wait(region: SpillRegion) -> None:
        region._file.store.leaving.pop(id(region), None)  # type: ignore[attr-defined]

    monkeypatch.setattr(SpillRegion, "wait", wait)


def pieces_after_each_other(text: bool) -> list[int]:
    """How many regions are still leaving after a piece, another part of it, and a second piece."""
    context = current()
    context.workspace.spill = context.spill = store = LateStore()
    frame = pd.DataFrame({"k": range(100), "s": ["text"] * 100} if text else {"k": range(100)})
    (chunk,) = gl.from_local(frame)._part.chunks
    leaving, file = AsyncStager(context.workspace, chunk.schema), store.new_file()
    first, second = (context.budget.reserve(1000, "A piece") for _ in range(2))
    seen = []
    for claim in (first, first, second):
        assert sum(one.rows for one in leaving.stage(file, chunk.data, claim)) == 100
        seen.append(len(store.leaving))
    empty = context.workspace.backend.slice(chunk.data, 0, 0)
    assert leaving.stage(file, empty, second) == []
    return seen


@pytest.mark.parametrize(("text", "wanted"), [(False, [1, 2, 1]), (True, [0, 0, 0])], ids=["fixed", "texts"])
def test_one_piece_leaves_while_the_next_is_made(text: bool, wanted: list[int]) -> None:
    assert World("threads", 2).run(pieces_after_each_other, text) == [wanted] * 2


def verb_in_a_quarter(verb: str) -> tuple[list[int], int, int, int]:
    """Values in the end, rounds that were planned and done, and bytes that are still claimed."""
    context = current()
    context.workspace.spill = context.spill = LateStore()
    numbers = np.random.default_rng(context.rank).permutation(ROWS)
    table = gl.from_local(pd.DataFrame({"k": numbers, "v": numbers + context.rank * ROWS, "w": numbers / 3}))
    config = GcylonConfig(gpu_memory_limit=table.nbytes // 4, min_chunk_rows=64)
    if verb == "sort":
        result = table.sort_values("k", config=config)
    elif verb == "join":
        result = table.join(table.select(["k"]), on="k", config=config)
    else:
        result = getattr(table, verb)(*(["k"] if verb == "shuffle" else []), strategy="staged", config=config)
    plan, record = result.last_plan, context.recorder.operations[-1]
    assert record.measured_peak_bytes <= config.gpu_memory_limit
    values = [int(v) for v in result.local()["v"]]
    context.spill.flush()
    used = context.budget.used_bytes
    table.release()
    result.release()
    return values, plan.rounds, record.rounds_done, used


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("verb", ["shuffle", "repartition", "sort", "join"])
def test_what_is_leaving_is_in_nobodys_way(verb: str, size: int) -> None:
    found = World("threads", size).run(verb_in_a_quarter, verb)
    every = sorted(v for values, *_ in found for v in values)
    rows = 1 if verb != "join" else size  # each key stands there once on each rank
    assert every == sorted(v for v in range(size * ROWS) for _ in range(rows))
    for _, planned, done, _ in found:
        assert done <= 2 * planned + 2, (planned, done)
