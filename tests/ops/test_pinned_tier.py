"""Staging to host memory where no disk is allowed, as GPU engines do it: without a GPU, in ordinary memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import attempt

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.store.workspace import Workspace
from gcylon_lab.errors import ArgumentError, BudgetExceeded, SpillError
from gcylon_lab.memory.tiers.device_tiers import DeviceTiers
from gcylon_lab.memory.tiers.pinned_pool import Pageable, PinnedPool
from gcylon_lab.operators.estimate import estimate_verb
from gcylon_lab.runtime.context import current, run_threads
from gcylon_lab.units import MIB

sys.path.insert(0, str(Path(__file__).parents[1] / "memory"))
from fake_cuda import FakeCuda, FakeCupy, FakeStream  # noqa: E402

RANKS, ROWS = 3, 40_000
# A rank's rows take 0.9 MiB.
NO_DISK = GcylonConfig(gpu_memory_limit="1MiB", chunk_size_bytes="64KiB", min_chunk_rows=1, allow_disk_spill=False)


class Work(list[Any]):
    """Runs what is put on a stream at once."""

    def __init__(self, stream: FakeStream) -> None:
        super().__init__()
        self.stream = stream

    def append(self, work: Any) -> None:
        super().append(work)
        self.stream.synchronize()


class EagerStream(FakeStream):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.work = Work(self)


class EagerCuda(FakeCuda):
    Stream = EagerStream

    def __init__(self) -> None:
        super().__init__()
        self.current = EagerStream()


@pytest.fixture(autouse=True)
def host_memory_as_a_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy()
    cupy.cuda = EagerCuda()
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # type: ignore[arg-type]
    monkeypatch.setattr(Workspace, "has_pinned_tier", True)


def with_tiers(host_bytes: int, folder: str, body: Any, *more: Any, config: GcylonConfig = NO_DISK) -> list[Any]:
    """Run a body on ranks that have host memory as a tier; outcomes."""

    def rank() -> Any:
        context = current()
        pool = PinnedPool(host_bytes, block_bytes=MIB // 4, memory=Pageable())
        context.workspace.spill = context.spill = DeviceTiers(pool, folder)
        context.workspace.backend.unpack = unpack_views(context.workspace.backend.unpack)
        try:
            return attempt(body, more)
        finally:
            del context.workspace.backend.unpack
            context.spill.close()

    return run_threads(RANKS, rank, config=config)


def unpack_views(unpack: Any) -> Any:
    """What the fake device gives back, for a library that reads host memory."""
    return lambda schema, rows, views: unpack(schema, rows, [memoryview(np.ndarray.__array__(v)) for v in views])


def frame_of(rank: int) -> pd.DataFrame:
    numbers = np.arange(ROWS)
    return pd.DataFrame({"k": numbers % 101, "v": numbers + rank * ROWS, "w": numbers * 0.5})


def shuffled(strategy: str, config: GcylonConfig | None) -> tuple[str, dict[str, int], list[int], int]:
    table = gl.from_local(frame_of(current().rank))
    result = table.shuffle("k", strategy=strategy, config=config)
    planned = table.plan_shuffle("k", strategy=strategy, config=config)
    assert planned.strategy == result.last_plan.strategy
    values = sorted(result.local()["v"])
    return result.last_plan.strategy, result.tiers, values, current().spill.disk_bytes


@pytest.mark.parametrize("strategy", ["auto", "staged"])
def test_it_stages_without_a_disk(tmp_path: Path, strategy: str) -> None:
    outcomes = with_tiers(64 * MIB, str(tmp_path / "there is none"), shuffled, strategy, None)
    for outcome in outcomes:
        assert outcome.error is None, outcome.error
    assert all(outcome.value[1]["pinned"] > 0 for outcome in outcomes)
    assert all(outcome.value[3] == 0 for outcome in outcomes)
    assert sorted(v for outcome in outcomes for v in outcome.value[2]) == list(range(RANKS * ROWS))


def too_much(config: GcylonConfig | None) -> str:
    table = gl.from_local(frame_of(current().rank))
    try:
        table.shuffle("k", strategy="staged", config=config)
    finally:
        table.release()
        current().spill.flush()
    return "nothing was raised"


def test_where_host_memory_ends_all_ranks_say_so_and_what_to_change(tmp_path: Path) -> None:
    for outcome in with_tiers(MIB, str(tmp_path), too_much, None):
        error = outcome.error
        assert isinstance(error, SpillError), outcome.value
        assert error.numbers["knob"] == "host_memory_limit" and error.numbers["limit_bytes"] == MIB
        assert error.numbers["would_do"] > MIB >= error.numbers["used_bytes"]
        assert "host_memory_limit is 1 MiB now" in str(error) and "allow_disk_spill is off" in str(error)


def one_rank_less(limits: list[int]) -> str:
    current().spill.pool.set_cap(limits[current().rank])
    current().spill._own_cap = limits[current().rank]
    return too_much(None)


def test_where_it_ends_on_one_rank_all_raise_its_error(tmp_path: Path) -> None:
    for outcome in with_tiers(64 * MIB, str(tmp_path), one_rank_less, [64 * MIB, MIB, 64 * MIB]):
        assert isinstance(outcome.error, SpillError), outcome.value
        assert outcome.error.rank == 1 and outcome.error.numbers["limit_bytes"] == MIB


def again_with(config: GcylonConfig) -> tuple[str, int, int, bool]:
    failed = isinstance(attempt(too_much, (None,)).error, SpillError)
    result = shuffled("staged", config)
    return result[0], current().spill.pool.cap_bytes, len(result[2]), failed


@pytest.mark.filterwarnings("ignore:Staging uses ordinary memory")  # the way to disk, beside a pool that is full
@pytest.mark.parametrize("change", [{"host_memory_limit": "64MiB"}, {"allow_disk_spill": True}], ids=["limit", "disk"])
def test_what_the_error_says_to_change_helps_the_next_operation(tmp_path: Path, change: dict[str, Any]) -> None:
    outcomes = with_tiers(MIB, str(tmp_path), again_with, NO_DISK.with_values(spill_dir=str(tmp_path), **change))
    for outcome in outcomes:
        assert outcome.error is None, outcome.error
    assert {outcome.value[0] for outcome in outcomes} == {"staged"}
    assert sum(outcome.value[2] for outcome in outcomes) == RANKS * ROWS
    assert all(outcome.value[3] for outcome in outcomes)
    assert {outcome.value[1] for outcome in outcomes} == {64 * MIB if "host_memory_limit" in change else MIB}


def test_where_nothing_may_leave_the_device_it_says_which_option(tmp_path: Path) -> None:
    config = NO_DISK.with_values(allow_cpu_staging=False)
    for strategy, kind in (("staged", ArgumentError), ("auto", BudgetExceeded)):
        for outcome in with_tiers(64 * MIB, str(tmp_path), shuffled, strategy, config):
            assert isinstance(outcome.error, kind)
            if strategy == "staged":
                assert "allow_cpu_staging=False has" in str(outcome.error)


def test_a_plan_of_cpu_engines_needs_the_disk() -> None:
    info = {
        "columns": ["k"], "rows": 10**6, "nbytes": 32 * 10**6, "row_bytes": 32, "chunks": 8,
        "tiers": {"device": 32 * 10**6, "disk": 0}, "largest_staged_bytes": 0,
        "device_chunk_bytes": [4 * 10**6] * 8, "used_bytes": 32 * 10**6,
        "ceiling_bytes": 40 * 10**6, "free_at_start_bytes": 40 * 10**6,
    }  # fmt: skip
    config = GcylonConfig(gpu_memory_limit=40 * 10**6, allow_disk_spill=False)
    assert estimate_verb("shuffle", [[info | {"pinned_tier": True}] * 2], config, on=["k"]).strategy == "staged"
    for told in ({"pinned_tier": False}, {}):
        with pytest.raises(BudgetExceeded):
            estimate_verb("shuffle", [[info | told] * 2], config, on=["k"])


def kept_in_little_host_memory() -> dict[str, Any]:
    """Two tables, one after the other, in host memory that holds one of them."""
    context = current()
    table, other = (gl.from_local(frame_of(context.rank)) for _ in range(2))
    frame = table.local()
    table._part.stage(context.workspace, 2**40, MIB)
    table.unstage(config=NO_DISK.with_values(gpu_memory_limit="4MiB"))
    seen = {"kept": table.tiers, "held": context.spill.pool.used_bytes}
    written = context.spill.written_bytes
    table._part.stage(context.workspace, 2**40, MIB)
    seen["again"] = (table.tiers, context.spill.written_bytes - written)
    table.unstage(config=NO_DISK.with_values(gpu_memory_limit="4MiB"))
    other._part.stage(context.workspace, 2**40, MIB)
    assert table.local().equals(frame) and other.local().equals(frame)
    return seen | {"gone": table.tiers, "other": other.tiers}


def test_what_is_kept_in_host_memory_goes_where_it_ends(tmp_path: Path) -> None:
    config = GcylonConfig(gpu_memory_limit="4MiB", chunk_size_bytes="64KiB", allow_disk_spill=False)
    for outcome in with_tiers(
        MIB + MIB // 2, str(tmp_path / "there is none"), kept_in_little_host_memory, config=config
    ):
        assert outcome.error is None, outcome.error
        seen = outcome.value
        nbytes = seen["kept"]["also pinned"]
        assert nbytes > MIB // 2 and seen["held"] >= nbytes and seen["again"][1] == 0
        assert seen["again"][0]["pinned"] == nbytes == seen["other"]["pinned"] and "also pinned" not in seen["gone"]
