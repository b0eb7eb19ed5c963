"""A result that neither memory nor the disk could hold is refused before any of it is made, on all ranks alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joins import answer, check, join
from worlds import Outcome, World

import gcylon_lab as gl
from gcylon_lab.errors import SpillError
from gcylon_lab.memory.tiers import free_space
from gcylon_lab.runtime.context import current

MIB = 1024**2
TIGHT = gl.GcylonConfig(gpu_memory_limit=4 * MIB)


def sides(rows: int, size: int, *, keys: int = 0, last: int = 0) -> tuple[list[pd.DataFrame], list[pd.DataFrame]]:
    """Both sides of a join, as many rows on each rank but ``last`` on the last one."""

    def side(names: tuple[str, str]) -> list[pd.DataFrame]:
        counts = [rows] * (size - 1) + [last or rows]
        return [pd.DataFrame({names[0]: np.arange(n) % (keys or n), names[1]: np.arange(n) / 4}) for n in counts]

    return side(("k", "x")), side(("k" if keys else "l", "y"))


def refused(lefts: list[pd.DataFrame], rights: list[pd.DataFrame], arguments: dict[str, Any], strategy: str) -> Any:
    """Join, which is an error; give it, its time, what it wrote, and whether tables and the next join are right."""
    context = current()
    left, right = gl.from_local(lefts[context.rank]), gl.from_local(rights[context.rank])
    begun, written = time.perf_counter(), context.spill.written_bytes
    error: BaseException | None = None
    try:
        left.join(right, **arguments, strategy=strategy, config=TIGHT)
    except gl.GcylonError as caught:
        error = caught.with_traceback(None)
    took = time.perf_counter() - begun
    wrote = context.spill.written_bytes - written
    same = left.local().equals(lefts[context.rank]) and right.local().equals(rights[context.rank])
    few = left.filter(gl.col("x") < 1).join(right.filter(gl.col("y") < 1), **arguments)
    return {"error": error, "took": took, "wrote": wrote, "same": same, "next": few.count_rows()}


def check_refused(results: list[Any], inputs: tuple[list[pd.DataFrame], list[pd.DataFrame]]) -> dict[str, Any]:
    """All ranks raise one error, which comes before anything but the inputs is staged; its numbers."""
    errors = [found["error"] for found in results]
    assert all(isinstance(error, SpillError) for error in errors), errors
    assert len({str(error) for error in errors}) == 1 and errors[0].rank is None
    assert "Nothing of it was made" in str(errors[0]) and "set spill_dir to a disk with at least " in errors[0].advice
    for found, *frames in zip(results, *inputs, strict=True):
        assert found["same"] and found["next"] == results[0]["next"] > 0 and found["took"] < 10
        assert found["wrote"] <= 1.1 * sum(frame.memory_usage(deep=True).sum() for frame in frames) + MIB
    return dict(errors[0].numbers)


def disk_of(monkeypatch: pytest.MonkeyPatch, free: Callable[[], int] | int, kind: str = "ext4") -> None:
    def statvfs(folder: str) -> Any:
        return SimpleNamespace(f_bavail=free if isinstance(free, int) else free(), f_frsize=1)

    monkeypatch.setattr(free_space, "os", SimpleNamespace(statvfs=statvfs, stat=os.stat))
    monkeypatch.setattr(free_space, "file_system", lambda folder: kind)


@pytest.mark.parametrize("strategy", ["auto", "staged"])
@pytest.mark.parametrize("world", [World("single", 1), World("threads", 3)], ids=str)
def test_a_cross_join(world: World, strategy: str) -> None:
    """Of some millions of rows on each side; real disks are smaller."""
    inputs = sides(3_000_000 // world.size, world.size)
    found = check_refused(world.run(refused, *inputs, {"how": "cross"}, strategy), inputs)
    assert found["needed_bytes"] == 32 * 3_000_000**2
    assert found["limit_bytes"] == 4 * MIB * world.size


def test_texts_and_empty_ranks() -> None:
    """Texts count with what tells where they begin; a rank without rows raises like the others."""
    (left, *_), (right, *_) = sides(1_500_000, 3)
    right = right.assign(s="long enough")
    inputs = [left[:0], left, left], [right, right[:0], right]
    found = check_refused(World("threads", 3).run(refused, *inputs, {"how": "cross"}, "auto"), inputs)
    assert found["needed_bytes"] == 36 * 3_000_000**2


def test_pairs_that_were_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here of one key in all rows: the first piece of work says how many pairs there are, before it makes them."""
    disk_of(monkeypatch, 64 * MIB)
    inputs = sides(8_000, 2, keys=1)
    found = check_refused(World("threads", 2).run(refused, *inputs, {"how": "inner", "on": "k"}, "auto"), inputs)
    assert 72 * MIB < found["needed_bytes"] <= 24 * 16_000**2
    assert found["free_disk_bytes"] == 64 * MIB


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_what_fits_is_made(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A disk that just holds the result; and one that seems too small, but may compress what is written."""
    tables = sides(500, 3)  # 69 MiB
    disk_of(monkeypatch, 60 * MIB if kind == "ext4" else 8 * MIB, kind)
    results = World("threads", 3).run(join, *tables, {"how": "cross"}, "auto", TIGHT)
    check(results, answer(*tables, how="cross"))
    disk_of(monkeypatch, 50 * MIB if kind == "ext4" else 1 * MIB, kind)
    outcomes: list[Outcome] = World("threads", 3).outcomes(join, *tables, {"how": "cross"}, "auto", TIGHT)
    assert {type(outcome.error) for outcome in outcomes} == {SpillError}


def test_ranks_that_read_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk is shared, and read by each rank at another moment: the largest number counts, for all alike."""
    seen = cycle([40 * MIB, 90 * MIB, 41 * MIB])
    disk_of(monkeypatch, lambda: next(seen))
    tables = sides(500, 3)
    check(World("threads", 3).run(join, *tables, {"how": "cross"}, "auto", TIGHT), answer(*tables, how="cross"))


@pytest.mark.cpu_alone("GPU ranks stage in page-locked memory, and on disk only where that is full")
def test_a_disk_that_cannot_be_asked() -> None:
    config = TIGHT.with_spill_dir("/nowhere")
    outcomes = World("threads", 2).outcomes(join, *sides(1_000_000, 2), {"how": "cross"}, "auto", config)
    assert all("does not exist" in str(outcome.error) for outcome in outcomes)
