"""Chunks of a part: which are joined, how they are staged, and rows of very different length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import rows_of
from hypothesis import given
from hypothesis import strategies as st
from worlds import World

import gcylon_lab as gl
from gcylon_lab.api.table import Table
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.plan.table_stats import VERBS
from gcylon_lab.engine.store.part import group_chunks
from gcylon_lab.runtime.context import current


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 500), st.booleans()), max_size=30),
    st.integers(1, 100),
    st.integers(1, 1000),
)
def test_neighbours_are_joined_as_long_as_they_fit(
    chunks: list[tuple[int, int, bool]], most_rows: int, most_bytes: int
) -> None:
    rows, sizes, joinable = ([c[i] for c in chunks] for i in range(3))
    groups = group_chunks(rows, sizes, joinable, most_rows, most_bytes)
    assert [i for group in groups for i in group] == list(range(len(chunks)))
    for group in groups:
        assert len(group) == 1 or sum(rows[i] for i in group) <= most_rows
        assert len(group) == 1 or sum(sizes[i] for i in group) <= most_bytes
        assert all(joinable[i] for i in group[1:])


def pieces_of(chunk_rows: int, room: int) -> list[int]:
    """Rows of the pieces of a staged table, with so much of the budget free."""
    context = current()
    frames = (pd.DataFrame({"g": np.arange(100 * i, 100 * (i + 1))}) for i in range(10))
    table = gl.from_local(frames, config=GcylonConfig(gpu_memory_limit=900))  # all staged
    part = table._part
    sizes, at = [], 0
    with context.budget.limited(room):
        for piece in part.pieces(context.workspace, chunk_rows):
            values = piece.array("g")
            assert values.tolist() == list(range(at, at + piece.rows))
            at += piece.rows
            sizes.append(piece.rows)
        assert context.budget.used_bytes <= room
    assert at == 1000
    assert context.budget.used_bytes == 0
    return sizes


def test_joining_gives_way_where_memory_does_not_suffice() -> None:
    world = World("single", 1)
    (plenty,) = world.run(pieces_of, 500, 100_000)
    assert plenty == [500, 500]
    (tight,) = world.run(pieces_of, 500, 4200)
    assert max(tight) <= 100  # one by one: together they need twice 500 rows of 8 bytes


def below_the_input(verb: str, limit: int) -> dict[str, Any]:
    """Work under a limit far below the input, which lies on the device in one piece."""
    context = current()
    n = 20_000
    g = np.arange(n) + n * context.rank
    table = gl.from_local(pd.DataFrame({"g": g, "k": g % 97, "s": [f"text {i}" for i in g]}))
    arguments: dict[str, Any] = {"shuffle": {"on": "k"}, "gather": {"root": 1}, "broadcast": {"root": 1}}.get(verb, {})
    config = GcylonConfig(gpu_memory_limit=limit)
    result: Table = getattr(table, verb)(**arguments, config=config)
    again = result.shuffle("g", config=config)
    records = list(context.recorder.operations)[-2:]
    return {
        "peaks": [record.measured_peak_bytes for record in records],
        "strategies": [record.strategy for record in records],
        "rows": result.num_rows, "again": again.num_rows, "tiers": table.tiers, "same": (table.local()["g"] == g).all(),
    }  # fmt: skip


@pytest.mark.parametrize("limit", [60_000, 200_000])
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "sort_values"])  # test_sort.py has it
def test_inputs_larger_than_the_limit_are_staged_in_usable_slices(verb: str, limit: int) -> None:
    results = World("threads", 2).run(below_the_input, verb, limit)
    total = {"allgather": 80_000}.get(verb, 40_000)
    assert sum(seen["rows"] for seen in results) == sum(seen["again"] for seen in results) == total
    for seen in results:
        assert seen["strategies"][0] == "staged"
        assert max(seen["peaks"]) <= limit
        assert seen["tiers"]["device"] == 0
        assert seen["same"]


def long_texts_at_the_end(strategy: str, spare: int, staged_input: bool) -> dict[str, Any]:
    """A few rows of one rank are a thousand times longer than the others, so no chunk is like the mean."""
    context = current()
    n = 4000
    texts = ["x" * (20_000 if i >= n - 60 and context.rank == 1 else 5) for i in range(n)]
    table = gl.from_local(pd.DataFrame({"k": np.arange(n) % 97, "s": texts}))
    sizes = context.transport.agree(np.array([table.nbytes]))[:, 0]
    limit = int(sizes.max() + sizes.sum() // 2 + spare)
    config = GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=1)
    if staged_input:
        staged = table.repartition([n, n], strategy="staged", config=config)
        table.release()
        table = staged
    given_rows = rows_of(table.local())
    result = table.shuffle("k", strategy=strategy, config=config, timeout_s=60)
    record = context.recorder.operations[-1]
    return {"given": given_rows, "got": rows_of(result.local()), "peak": record.measured_peak_bytes, "limit": limit}


@pytest.mark.parametrize("staged_input", [False, True], ids=["device input", "staged input"])
@pytest.mark.parametrize("spare", [200_000, 900_000])
@pytest.mark.parametrize("strategy", ["auto", "chunked", "staged"])
def test_a_few_very_long_texts(strategy: str, spare: int, staged_input: bool) -> None:
    results = World("threads", 2).run(long_texts_at_the_end, strategy, spare, staged_input)
    assert sorted(r for seen in results for r in seen["got"]) == sorted(r for seen in results for r in seen["given"])
    for seen in results:
        assert seen["peak"] <= seen["limit"]
