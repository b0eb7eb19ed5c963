"""What gave way to an operation stands in its plan, with the bytes of the rank that had most, the same on all ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.runtime.context import current
from gcylon_lab.units import format_bytes

RANKS = World("threads", 2)
BACK = "; {} back when next used, as the limit was this operation's alone"
OTHERS = "other tables were staged first, up to {} a rank, which made room" + BACK.format("they come")
ITSELF = "the table itself was staged first, up to {} a rank, which made room, and was read back piece by piece"
ITSELF += BACK.format("it comes")
BOTH = "the tables themselves were staged first, up to {} a rank, which made room, and were read back piece by piece"
BOTH += BACK.format("they come")


def table_of(rows: int) -> gl.Table:
    return gl.from_local(pd.DataFrame({"k": np.arange(rows) % 50, "v": np.arange(rows) / 7}))


def most(nbytes: int) -> str:
    return format_bytes(max(int(n) for n in current().transport.agree([nbytes])[:, 0]))


def explained(verb: str, limit: int) -> tuple[list[str], list[str]]:
    """What an operation says of what gave way, and what should be said: rank 1 has most of one, rank 0 of the other."""
    context = current()
    table, other = table_of(3000 + 1000 * context.rank), table_of(2000 - 500 * context.rank)
    inputs = {"join": [table, other]}.get(verb, [table])
    before = {id(t): t.tiers["device"] for t in (table, other)}
    config = GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=1)
    calls = {
        "shuffle": lambda: table.shuffle("k", config=config),
        "filter": lambda: table.filter(gl.col("k") >= 0, config=config),
        "join": lambda: table.join(other, on="v", config=config),
    }
    said = calls[verb]().explain().splitlines()
    gave = {id(t): before[id(t)] - t.tiers["device"] for t in (table, other)}
    own = most(sum(gave[id(t)] for t in inputs))
    others = most(gave[id(other)]) if verb != "join" else "0 B"
    expected = [OTHERS.format(others)] * (others != "0 B")
    expected += [(BOTH if verb == "join" else ITSELF).format(own)] * (own != "0 B")
    return [line.strip() for line in said if "staged first" in line], expected


@pytest.mark.parametrize(
    ("verb", "limit", "count"),
    [
        ("shuffle", 2**20, 0), ("shuffle", 150_000, 1), ("shuffle", 40_000, 2), ("filter", 120_000, 1),
        ("filter", 40_000, 2), ("join", 2**20, 0), ("join", 60_000, 1),
    ],
)  # fmt: skip
def test_what_gave_way_is_told_with_its_bytes(verb: str, limit: int, count: int) -> None:
    results = RANKS.run(explained, verb, limit)
    for said, expected in results:
        assert said == expected and len(said) == count
    assert results[0] == results[1]


def counted(normalize: bool, sort: bool) -> list[str]:
    tables = table_of(4000), table_of(3000)
    config = GcylonConfig(gpu_memory_limit=100_000, min_chunk_rows=1)
    return tables[0].value_counts(["k"], normalize=normalize, sort=sort, config=config).explain().splitlines()


def test_what_gave_way_to_the_first_of_several_steps_is_told_too() -> None:
    other = OTHERS.format(format_bytes(48_000))
    for normalize, sort in ((False, False), (True, False), (False, True), (True, True)):
        for said in RANKS.run(counted, normalize, sort):
            assert f"  counting: {other}" in said or not (normalize or sort) and f"  {other}" in said


def twice() -> tuple[str, str]:
    table, config = table_of(4000), GcylonConfig(gpu_memory_limit=40_000, min_chunk_rows=1)
    return table.shuffle("k", config=config).explain(), table.shuffle("k", config=config).explain()


def test_what_had_been_staged_before_is_no_news() -> None:
    for first, second in RANKS.run(twice):
        assert "the table itself was staged first" in first and "staged first" not in second


def beside_views(used: str, limit: int) -> tuple[str, dict[str, bool], int, int]:
    """A shuffle of a table, of a view of it, or of another one: which of them are staged, and what is in use then."""
    context = current()
    tables = {"table": table_of(4000)}
    tables["view"] = tables["table"].select(["k"])
    tables["view"]._live()  # it is one once its rows are made
    tables["other"] = table_of(500)
    before = context.budget.used_bytes
    result = tables[used].shuffle("k", config=GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=1))
    said = result.explain()
    staged = {name: table._live().staged_bytes > 0 for name, table in tables.items()}
    return said, staged, before, context.budget.used_bytes - result.tiers["device"]


@pytest.mark.cpu_alone("GPU ranks copy no rows to send them, so that nothing has to give way under this limit")
def test_a_view_of_a_table_that_is_used_stays_as_it_would_free_nothing() -> None:
    for used in ("table", "view"):
        for said, staged, before, held in RANKS.run(beside_views, used, 200_000):
            assert staged == {"table": False, "view": False, "other": True} and held == before - 8_000
            assert OTHERS.format(format_bytes(8_000)) in said


def test_a_table_and_its_view_give_way_together() -> None:
    for used in ("table", "view"):
        for said, staged, _, held in RANKS.run(beside_views, used, 40_000):
            assert all(staged.values()) and held == 0 and "the table itself was staged first" in said
    for said, staged, _, held in RANKS.run(beside_views, "other", 60_000):
        assert staged == {"table": True, "view": True, "other": False} and held == 8_000, said
