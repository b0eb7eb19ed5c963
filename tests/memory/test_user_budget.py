"""gl.budget: claims, arrays and who holds what, in code of the user's own; and the log of claims."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, BudgetExceeded, ConfigError
from gcylon_lab.memory.allocation_log import AllocationLog
from gcylon_lab.memory.budget import MemoryBudget
from gcylon_lab.memory.device import why_unavailable
from gcylon_lab.runtime.context import current, run_threads
from gcylon_lab.units import MIB

LIMIT = GcylonConfig(gpu_memory_limit=MIB)


def claimed() -> dict[str, Any]:
    budget, own = gl.budget, current().budget
    table = gl.from_local(pd.DataFrame({"k": np.arange(1000), "v": np.arange(1000) / 3}))
    view = table.select(["k"])
    seen: dict[str, Any] = {"before": budget.by_use(), "own": budget.limit_bytes == own.limit_bytes == MIB}
    with budget.reserve("64KiB", "my buffer") as claim, budget.reserve(8, "my buffer"):
        seen["held"], seen["used"] = budget.by_use(), budget.used_bytes
        claim.resize(2**17)
        seen["fits"] = budget.fits(budget.remaining_bytes), budget.fits(budget.remaining_bytes + 1), budget.fits("2MiB")
        try:
            budget.reserve(MIB, "far more")
        except BudgetExceeded as error:
            seen["error"] = error
    seen["after"], seen["peak"], seen["count"] = budget.by_use(), budget.peak_bytes, budget.allocation_count
    budget.reset_peak()
    budget.reset_allocation_count()
    seen["reset"] = budget.peak_bytes == budget.used_bytes and budget.allocation_count == 0
    seen["said"] = repr(budget)
    view.release()
    table.release()
    return seen | {"end": budget.by_use()}


def test_claims_of_the_users_own_stand_beside_tables() -> None:
    for seen in World("threads", 2).run(claimed, config=LIMIT):
        tables = {"tables": 16_000}
        assert seen["own"] and seen["before"] == tables == seen["after"] and seen["end"] == {}, "a view holds nothing"
        assert seen["held"] == {"my buffer": 2**16 + 8, **tables} and seen["used"] == sum(seen["held"].values())
        assert list(seen["held"]) == ["my buffer", "tables"] and seen["fits"] == (True, False, False)
        assert str(seen["error"]).startswith("far more needs 1 MiB") and seen["error"].numbers["limit_bytes"] == MIB
        assert seen["peak"] == 16_000 + 2**17 + 8 and seen["count"] >= 4 and seen["reset"]
        assert "15.6 KiB of 1 MiB in use" in seen["said"]


def made() -> list[int]:
    budget, used = gl.budget, []
    array = budget.array((100, 10), "int32", "a matrix")
    array[:] = 7
    column = array.T[3]
    used.append(budget.by_use()["a matrix"])
    del array
    assert int(column.sum()) == 700 and column.dtype == np.int32
    used.append(budget.used_bytes)  # a view holds it
    del column
    gc.collect()
    used += [budget.used_bytes, budget.array(0).nbytes, budget.array([3]).nbytes]
    with pytest.raises(BudgetExceeded, match=r"a matrix needs 8 MiB .* is enough\. Or release tables\.$"):
        budget.array(MIB, float, "a matrix")
    return [*used, budget.used_bytes]


def test_an_array_is_claimed_as_long_as_it_or_a_view_lives() -> None:
    assert World("single", 1).run(made, config=LIMIT) == [[4000, 4000, 0, 0, 24, 0]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gl.budget.reserve(-1), "nbytes=-1 is negative"),
        (lambda: gl.budget.fits("plenty"), "nbytes='plenty' is invalid"),
        (lambda: gl.budget.reserve(1.5), "nbytes=1.5 is invalid"),
        (lambda: gl.budget.array((3, -1)), r"shape=\(3, -1\) is invalid"),
        (lambda: gl.budget.array("3"), "shape='3' is invalid"),
        (lambda: gl.budget.array(3, object), "no size of their own"),
        (lambda: gl.budget.array(3, "nothing"), "dtype='nothing' is invalid"),
    ],
)  # fmt: skip
def test_what_is_no_size_is_refused(call: Any, said: str) -> None:
    def refused() -> None:
        with pytest.raises(ArgumentError, match=said):
            call()

    run_threads(1, refused)


# ---- the log


def test_claims_are_written_down_in_order_with_what_they_are_for(tmp_path: Path) -> None:
    # What another user has put there: it would be theirs, or another file of ours.
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "log.csv").hardlink_to(tmp_path / "kept")
    log = AllocationLog(str(tmp_path / "log.csv"))
    assert (tmp_path / "kept").read_text() == "kept"
    budget = MemoryBudget(1000, log=log)
    claim = budget.reserve(100, 'so-called "rows", and more')
    claim.resize(150)
    claim.split(50).release()
    with pytest.raises(BudgetExceeded):
        budget.reserve(2000, "too much")
    claim.release()
    log.close()
    budget.reserve(1, "after the end").release()
    found = pd.read_csv(tmp_path / "log.csv")
    assert list(found.columns[:6]) == ["Thread", "Time", "Action", "Pointer", "Size", "Stream"], "as RMM's"
    assert list(zip(found.Action, found.Size, strict=True)) == [
        ("allocate", 100), ("allocate", 50), ("free", 50), ("free", 100)
    ]  # fmt: skip
    assert set(found.What) == {'so-called "rows", and more'} and found.Time.is_monotonic_increasing
    assert os.stat(tmp_path / "log.csv").st_mode & 0o777 == 0o600


def logged() -> int:
    with gl.budget.reserve(1000 + current().rank, "mine"):
        gl.from_local(pd.DataFrame({"k": np.arange(1000)})).shuffle("k").release()
    gc.collect()
    return current().rank


def test_each_rank_writes_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCYLON_LOG_ALLOCATIONS", str(tmp_path / "log.csv"))
    for rank in run_threads(2, logged):
        found = pd.read_csv(tmp_path / f"log.rank{rank}.csv")
        sizes = found.Size.where(found.Action == "allocate", -found.Size)
        assert sizes.sum() == 0 <= sizes.cumsum().min() and sizes.cumsum().max() > 8000
        assert found[found.What == "mine"].Size.tolist() == [1000 + rank] * 2
    monkeypatch.setenv("GCYLON_LOG_ALLOCATIONS", str(tmp_path / "missing" / "log.csv"))
    with pytest.raises(ConfigError, match=r"GCYLON_LOG_ALLOCATIONS='.*log.csv': .*cannot be written: No such file"):
        run_threads(2, logged)


def on_a_gpu() -> tuple[Any, ...]:
    import cupy

    gl.budget.array(1).fill(0)
    gc.collect()
    before, claims = current().budget.allocated_bytes, gl.budget.used_bytes
    array = gl.budget.array((1000, 256), "float32", "a matrix")
    assert isinstance(array, cupy.ndarray)
    array[:] = 2
    view = array[5:10]
    held = gl.budget.by_use()["a matrix"], current().budget.allocated_bytes - before
    del array
    gc.collect()
    total, still = float(view.sum()), gl.budget.used_bytes - claims
    del view
    gc.collect()
    return held, total, still, gl.budget.used_bytes - claims, current().budget.allocated_bytes - before


@pytest.mark.gpu
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_an_array_on_a_gpu_is_in_the_slab() -> None:
    with gl.initialize(GcylonConfig(gpu_memory_limit="64MiB"), sample_hz=0, engine="gpu"):
        assert on_a_gpu() == ((1_024_000, 1_024_000), 2560.0, 1_024_000, 0, 0)
