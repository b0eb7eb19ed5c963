"""How many times ranks wait for each other to agree: what is known to all is not asked again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.exec.agreement import Agreements

TIGHT = GcylonConfig(gpu_memory_limit="48KiB")

# Those of the opening and the closing among them; one a round, and one where rows of each rank are counted.
MOST = {
    "shuffle": (lambda t, u: t.shuffle("k"), 4),
    "allgather": (lambda t, u: t.allgather(), 3),
    "gather": (lambda t, u: t.gather(1), 3),
    "repartition": (lambda t, u: t.repartition([len_of(t), 0]), 3),
    "sort": (lambda t, u: t.sort_values("x"), 5),
    "broadcast join": (lambda t, u: t.join(u, on="k"), 7),
    "outer join": (lambda t, u: t.join(t, on="k", how="outer"), 12),
    "groupby": (lambda t, u: t.groupby("k").agg({"x": "sum"}), 6),
    "sum": (lambda t, u: t.sum("x"), 4),
    "concat": (lambda t, u: t.concat(t), 6),
}


def len_of(table: Any) -> int:
    return 2 * table.num_rows


def tables(rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(gl.current().rank)
    few = pd.DataFrame({"k": np.arange(20) + 20 * gl.current().rank, "w": 0.5})
    return gl.from_local(pd.DataFrame({"k": rng.integers(0, 40, rows), "x": rng.random(rows)})), gl.from_local(few)


def agreements(monkeypatch: pytest.MonkeyPatch, body: Any) -> list[int]:
    """How many each rank makes while it runs a verb once more."""
    made: Counter[int] = Counter()
    plain = Agreements.agree

    def counted(self: Agreements, *args: Any, **how: Any) -> Any:
        made[self._transport.rank] += 1
        return plain(self, *args, **how)

    def run() -> int:
        given = tables(500)
        before = made[gl.current().rank]
        body(*given)
        return made[gl.current().rank] - before

    monkeypatch.setattr(Agreements, "agree", counted)
    return World("threads", 2).run(run)


@pytest.mark.parametrize("verb", MOST)
def test_what_all_ranks_know_is_not_agreed_on(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, most = MOST[verb]
    assert agreements(monkeypatch, body) == [most, most]


def test_where_memory_is_short_ranks_agree_on_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made = agreements(monkeypatch, lambda t, u: t.shuffle("k", config=TIGHT))
    assert made[0] == made[1] > 4


def with_different_settings() -> tuple[list[int], list[int]]:
    context = gl.current()
    table, _ = tables(20_000)
    context.set_config(TIGHT if context.rank == 0 else GcylonConfig())  # rank 0's holds
    made = table.shuffle("k")
    return [made.num_rows, made.last_plan.budget_bytes], [table.num_rows, context.rank]


def test_limits_are_those_of_the_settings_that_hold() -> None:
    results = World("threads", 2).run(with_different_settings)
    assert sum(made[0] for made, _ in results) == sum(given[0] for _, given in results)
    assert {made[1] for made, _ in results} == {48 * 1024}
