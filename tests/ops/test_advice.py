"""The limit that an error advises is enough at the next try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.engine.exec.invocation import Request
from gcylon_lab.engine.exec.operation import Operation
from gcylon_lab.engine.exec.running import run_verb
from gcylon_lab.engine.store.part import Part
from gcylon_lab.errors import BudgetExceeded
from gcylon_lab.memory.budget import exceeded
from gcylon_lab.runtime.context import current, run_threads

FRAMES = {
    # Staged in slices of two rows, each buffer of which is padded to four times its size.
    "wide": lambda: pd.DataFrame({f"c{i}": np.arange(50) for i in range(200)}),
    "narrow": lambda: pd.DataFrame({"c0": np.arange(1000), "v": 0.5}),
    "few": lambda: pd.DataFrame({"c0": [1]}),
    "text": lambda: pd.DataFrame({"c0": np.arange(1000), "s": [f"abc{i}" for i in range(1000)]}),
    "one_long_row": lambda: pd.DataFrame({"c0": [1, 2], "s": ["x" * 300_000, ""]}),
}


def follow_the_advice(kind: str, verb: str, strategy: str, disk: bool) -> tuple[int, int]:
    table = gl.from_local(FRAMES[kind]())
    how: dict[str, Any] = {"on": "c0"} if verb == "shuffle" else {}
    config = gl.GcylonConfig(gpu_memory_limit=1, allow_disk_spill=disk, min_chunk_rows=1)
    with pytest.raises(BudgetExceeded) as caught:
        getattr(table, verb)(**how, strategy=strategy, config=config)
    limit = caught.value.numbers["would_do"]
    caught.value.__traceback__ = None  # it holds tables
    getattr(table, verb)(**how, strategy=strategy, config=config.with_values(gpu_memory_limit=limit))
    peak = list(current().recorder.operations)[-1].measured_peak_bytes
    return peak, limit


@pytest.mark.parametrize(
    ("strategy", "size"), [("auto", 1), *((strategy, 2) for strategy in ("auto", "direct", "chunked", "staged"))]
)
@pytest.mark.parametrize("verb", ["shuffle", "allgather", "repartition"])
@pytest.mark.parametrize("kind", FRAMES)
def test_the_advised_limit_does(kind: str, verb: str, strategy: str, size: int) -> None:
    for disk in (True, False) if strategy != "staged" else (True,):
        for peak, limit in run_threads(size, follow_the_advice, kind, verb, strategy, disk):
            assert peak <= limit


def refuse_and_follow(verb: str, strategy: str) -> tuple[bool, int, dict[str, list[int]], int, int]:
    """Whether a refusal moved anything, what it staged, what the plan and the run said, and the next try's peak."""
    context = current()
    table, beside = (gl.from_local(pd.DataFrame({"c0": np.arange(20_000), "v": 0.5})) for _ in range(2))
    how: dict[str, Any] = {"shuffle": {"on": "c0"}, "sort_values": {"by": "c0"}, "gather": {"root": 1}}.get(verb, {})
    config = gl.GcylonConfig(gpu_memory_limit=100_000, chunk_size_bytes=16_384)
    before = (table.tiers, len(table._part.chunks), beside.tiers, context.budget.used_bytes)
    said: dict[str, list[int]] = {"needed_bytes": [], "used_bytes": [], "would_do": []}
    for call in (f"plan_{verb}", verb):
        with pytest.raises(BudgetExceeded, match="even if all tables were evicted") as caught:
            getattr(table, call)(**how, strategy=strategy, config=config)
        for name, numbers in said.items():
            numbers.append(caught.value.numbers[name])
        caught.value.__traceback__ = None
    staged = list(context.recorder.operations)[-1].staged_bytes + context.spill.used_bytes
    stayed = before == (table.tiers, len(table._part.chunks), beside.tiers, context.budget.used_bytes)
    limit = said["would_do"][1]
    getattr(table, verb)(**how, strategy=strategy, config=config.with_values(gpu_memory_limit=limit))
    return stayed, staged, said, list(context.recorder.operations)[-1].measured_peak_bytes, limit


@pytest.mark.parametrize("strategy", ["direct", "chunked"])
@pytest.mark.parametrize("verb", ["allgather", "gather", "shuffle", "repartition", "sort_values"])
def test_what_can_never_fit_leaves_tables_where_they_are(verb: str, strategy: str) -> None:
    for stayed, staged, said, peak, limit in run_threads(2, refuse_and_follow, verb, strategy):
        assert stayed and not staged
        # A plan takes keys to be spread evenly; they are counted before a shuffle is refused.
        near = 0.01 if verb == "shuffle" else 0
        assert all(plan == pytest.approx(run, rel=near, abs=0) for plan, run in said.values()), said
        assert peak <= limit < 2_500_000


def each_misses() -> int:
    """All ranks miss their limit in the middle of an operation, the second one by most."""
    context = current()
    table = gl.from_local(pd.DataFrame({"k": [1, 2, 3]}))

    def body(operation: Operation) -> Part:
        raise exceeded("Work", (200, 300, 100)[context.rank], 0, 50)

    with pytest.raises(BudgetExceeded, match=r"^\[rank 1\] Work needs 300 B .* \(Ranks 0, 1, 2 failed.\)") as caught:
        run_verb(context.workspace, Request("shuffle", {}, table._live()), body)
    return caught.value.numbers["would_do"]


def test_where_several_ranks_miss_their_limit_the_one_that_needs_most_is_told() -> None:
    assert run_threads(3, each_misses) == [300] * 3
