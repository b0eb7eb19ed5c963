"""What a join in passes, and a shuffle of rounds, cost by themselves: in calls, since times differ from day to day."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from calls import calls_of
from worlds import World

import gcylon_lab as gl
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.store import workspace
from gcylon_lab.operators.join import passes as join_passes
from gcylon_lab.operators.join.passes import JoinCosts, JoinSizes, peaks_of, plan_passes
from gcylon_lab.runtime.context import current


def side(name: str) -> list[pd.DataFrame]:
    """Eight chunks of one side."""
    keys = np.random.default_rng(0).permutation(4000)
    return [pd.DataFrame({"k": k, name: k / 3, name * 2: k / 7}) for k in np.split(keys, 8)]


def joining() -> tuple[int, int, int]:
    left, right = (gl.from_local(iter(side(name))) for name in "az")
    limit = 4 * (left._live().nbytes + right._live().nbytes)
    config = GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=64, allow_cpu_staging=False)
    plan = left.join(right, on="k", config=config).last_plan
    calls = calls_of(lambda: left.join(right, on="k", config=config).release())
    return calls, plan.passes, current().recorder.operations[-1].rounds_done


def shuffling() -> tuple[int, int]:
    table, config = gl.from_local(iter(side("a"))), GcylonConfig(chunk_size_bytes=12_000, min_chunk_rows=64)
    calls = calls_of(lambda: table.shuffle("k", config=config).release())
    return calls, current().recorder.operations[-1].rounds_done


@pytest.mark.cpu_alone("calls are counted of CPU engines, in passes and rounds of theirs")
def test_calls_of_a_join_in_passes() -> None:
    ((calls, passes, rounds),) = World("single", 1).run(joining)
    assert (passes, rounds) == (3, 6)
    assert calls <= 10_050, calls  # 13,247 before equal schemas shared columns, and plans were kept


@pytest.mark.cpu_alone("calls are counted of CPU engines, in passes and rounds of theirs")
def test_calls_of_a_shuffle_of_rounds() -> None:
    ((calls, rounds),) = World("single", 1).run(shuffling)
    assert rounds == 8
    assert calls <= 3300, calls  # 4,277 before


def looks_for_scattering(monkeypatch: pytest.MonkeyPatch) -> int:
    """How often it is looked for in a join."""
    looks = []

    class ProbeBatch:
        def __instancecheck__(self, one: object) -> bool:
            looks.append(one)
            return False

    left, right = (gl.from_local(iter(side(name))) for name in "az")
    current().workspace.backend = PandasBackend()
    with monkeypatch.context() as patch:
        patch.setattr(workspace, "WritableWindows", ProbeBatch())
        left.join(right, on="k").release()
    return len(looks)


def test_what_a_backend_can_do_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert World("single", 1).run(looks_for_scattering, monkeypatch) == [1]


def test_peaks_are_reckoned_of_passes_that_are_done_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordering rows to be sent is reckoned for each side on each rank: of three passes, not of all that were tried."""
    reckoned = []
    monkeypatch.setattr(join_passes, "partition_scratch_bytes", lambda rows, size: reckoned.append(rows) or 0)
    rows = np.full((16, 2), 10.0)
    sizes = JoinSizes(rows, rows / 10, rows / 10, rows, np.full((16, 2, 2), 5.0), np.full((2, 1), 8.0))
    costs, limits = JoinCosts(1.0, 1.0, 1.0, 1.0, 1, 1), np.array([300.0, 260.0])
    passes = plan_passes(sizes, costs, np.zeros(2), limits)
    assert passes is not None and not reckoned
    assert (peaks_of(sizes, costs, limits, passes) <= limits).all() and len(reckoned) == 4 * len(passes)
