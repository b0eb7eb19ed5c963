"""A setting of one operation ends with it: what its own limit staged comes back when it is next used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab import GcylonConfig, col
from gcylon_lab.errors import BudgetExceeded

TIGHT = GcylonConfig(gpu_memory_limit="64KiB")
ROWS = 10_000


def made(seed: int = 0) -> Any:
    rank = gl.current().rank
    rng = np.random.default_rng([seed, rank])
    return gl.from_local(pd.DataFrame({"k": rng.integers(0, 99, ROWS), "x": rng.random(ROWS), "s": ["text"] * ROWS}))


USES = {
    "shuffle": lambda t: t.shuffle("k"),
    "sort_values": lambda t: t.sort_values("x"),
    "filter": lambda t: t.filter(col("x") > 0.5),
    "select": lambda t: t.select("k"),
    "sum": lambda t: t.sum("x"),
    "groupby": lambda t: t.groupby("k").agg({"x": "sum"}),
    "join": lambda t: t.join(made(5).drop_duplicates("k"), on="k"),
    "joined": lambda t: made(5).drop_duplicates("k").join(t, on="k"),
    "concat": lambda t: made(5).concat(t),
    "local": lambda t: t.local(),
    "to_pandas": lambda t: t.to_pandas(limit=None),
}


def used_after(use: str) -> dict[str, Any]:
    other, one = made(1), made(2)
    before, used = other.tiers, gl.current().budget.used_bytes
    expected = pd.util.hash_pandas_object(other.local()).sum()
    shuffled = one.shuffle("k", config=TIGHT)
    staged = other.tiers
    told = [note for note in shuffled.last_plan.notes if note.startswith("other tables")]
    shuffled.release()
    one.release()
    result = USES[use](other)
    if isinstance(result, gl.Table):
        result._live()  # a row-wise verb uses it when rows are needed
    found = {
        "before": before,
        "staged": staged,
        "after": other._live().tiers,
        "kept": sum(other._live().kept.values()),
        "told": told,
        "chunks": len(other._live().chunks),
    }
    if hasattr(result, "release"):
        result.release()
    found["used"] = gl.current().budget.used_bytes, used // 2
    found["same"] = pd.util.hash_pandas_object(other.local()).sum() == expected
    return found


@pytest.mark.parametrize("use", USES)
def test_an_unrelated_table_is_back_when_it_is_next_used(use: str) -> None:
    for found in World("threads", 2).run(used_after, use):
        assert found["before"]["device"] and not found["before"]["disk"]
        assert found["staged"]["device"] == 0  # it gave way to the operation
        assert found["after"] == found["before"] and found["kept"] == found["staged"]["disk"]
        assert found["chunks"] == 1  # not the slices that it was staged in
        assert found["used"][0] == found["used"][1]  # what was claimed for it on the way is given back
        assert found["same"]
        assert "come back when next used" in found["told"][0]


def on_every_world() -> tuple[Any, ...]:
    found = used_after("shuffle")
    return found["before"], found["after"], found["same"]


def test_on_every_world(world: World) -> None:
    for before, after, same in world.run(on_every_world):
        assert before == after and same


def planned() -> tuple[Any, ...]:
    table, other = made(1), made(2)

    def plans() -> Any:
        return table.plan_join(other, on="k"), table.plan_union(other), table.plan_concat(other)

    fresh = plans()
    other.shuffle("k", config=TIGHT).release()
    later, held = plans(), table.tiers["device"]
    other.release()
    alone = table.plan_shuffle("k")
    table.shuffle("k").release()
    return fresh, later, held, table.plan_shuffle("k"), alone


def test_plans_count_with_what_comes_back_and_change_nothing() -> None:
    for fresh, later, held, back, alone in World("threads", 2).run(planned):
        assert held == 0
        for usual, plan in zip((*fresh, back), (*later, alone), strict=True):
            assert (plan.strategy, plan.rounds) == (usual.strategy, usual.rounds)
            assert plan.predicted_peaks == pytest.approx(usual.predicted_peaks, rel=0.1)


def input_of_one() -> tuple[Any, ...]:
    table = made()
    before = table.tiers
    staged = table.shuffle("k", config=TIGHT)
    tiers, kept = table.tiers, staged.tiers
    again = table.shuffle("k", config=TIGHT).tiers  # the same limit again brings nothing back
    between = table.tiers
    table.shuffle("k")
    return before, tiers, between, table.tiers, kept, again


def test_the_input_comes_back_too_and_results_stay_where_they_were_made() -> None:
    for before, tiers, between, after, kept, again in World("threads", 2).run(input_of_one):
        assert tiers["device"] < before["device"] and between["device"] <= tiers["device"]
        assert after == before | {"also on disk": between["disk"]}
        assert kept["device"] == again["device"] == 0 < kept["disk"]


def no_room() -> tuple[Any, ...]:
    table, limit = made(), 3 * made().nbytes
    workspace = gl.current().workspace
    workspace.config = workspace.config.with_values(gpu_memory_limit=limit)
    table.sum("x", config=TIGHT)
    made(2).shuffle("k", config=TIGHT).release()
    here = table.tiers["device"]
    blocks = [made(7) for _ in range(2)]
    gl.current().budget.start_window()
    total = table.sum("x")
    peak, still = gl.current().budget.window_peak_bytes, table.tiers["device"]
    for block in blocks:
        block.release()
    del blocks
    assert table.sum("x") == total
    return here, still, peak, limit, table.tiers["device"], table.nbytes


def test_nothing_comes_back_where_there_is_no_room() -> None:
    for here, still, peak, limit, back, nbytes in World("threads", 2).run(no_room):
        assert here == 0 and peak <= limit
        assert still < nbytes == back


def live() -> tuple[Any, ...]:
    table, workspace = made(), gl.current().workspace
    usual, workspace.config = workspace.config, TIGHT
    made(2).shuffle("k").release()
    workspace.config = usual
    table.sum("x")
    return table.tiers["device"], table.unstage().tiers["device"]


def test_what_the_live_limit_staged_stays_until_unstage() -> None:
    for kept, back in World("threads", 2).run(live):
        assert kept == 0 < back


ROWWISE = {
    "filter": lambda t, **how: t.filter(col("x") >= 0, **how),
    "assign": lambda t, **how: t.assign(z=col("x") * 2, x=col("x") + 1, **how),
    "astype": lambda t, **how: t.select(["k", "x"]).astype("float64", **how),
    "fillna": lambda t, **how: t.fillna({"x": 0.0}, **how),
    "dropna": lambda t, **how: t.dropna(**how),
    "sample": lambda t, **how: t.sample(frac=0.9, **how),
}


def named(verb: str, strategy: str, limit: int) -> Any:
    table = made()
    config = GcylonConfig(gpu_memory_limit=limit)
    try:
        result = ROWWISE[verb](table, strategy=strategy, config=config)
    except BudgetExceeded as error:
        would_do = error.numbers["would_do"]
        again = ROWWISE[verb](table, strategy=strategy, config=config.with_values(gpu_memory_limit=would_do))
        return "refused", strategy, again.last_plan.strategy, again.tiers
    return "honoured", strategy, result.last_plan.strategy, result.tiers


@pytest.mark.parametrize("verb", ROWWISE)
@pytest.mark.parametrize("strategy", ["direct", "chunked", "staged"])
def test_a_named_strategy_is_honoured_or_refused(verb: str, strategy: str) -> None:
    seen = set()
    for limit in (100_000, 8 * 2**20):
        for what, asked, ran, tiers in World("threads", 2).run(named, verb, strategy, limit):
            assert ran == asked
            below = tiers["disk"] if strategy != "staged" else tiers["device"]
            assert below == 0  # after its own advice too
            seen.add(what)
    assert seen == ({"refused", "honoured"} if strategy != "staged" else {"honoured"})


APPENDING = {
    "union": lambda t, o, **how: t.union(o, all=True, **how),
    "concat": lambda t, o, **how: t.concat(o, order="local", **how),
    "lacking": lambda t, o, **how: t.concat(o, order="local", **how),
}
PLANNED = {
    "union": lambda t, o, **how: t.plan_union(o, all=True, **how),
    "concat": lambda t, o, **how: t.plan_concat(o, order="local", **how),
    "lacking": lambda t, o, **how: t.plan_concat(o, order="local", **how),
}


def advised(error: BudgetExceeded) -> int:
    return int(error.numbers["would_do"])


def appended(verb: str, strategy: str, limit: float, kept: bool) -> Any:
    """What is appended of tables that are staged, under a limit that is a multiple of both."""
    rank, workspace = gl.current().rank, gl.current().workspace
    table, whole = made(), made(1)
    other = whole.select(["x"]) if verb == "lacking" else whole
    expected = pd.concat([table.local(), other.local()])
    config = GcylonConfig(gpu_memory_limit=int(limit * 2 * table.nbytes))
    if kept:  # by the user: it stays staged
        for one in (table, whole) if rank == 0 else (whole,):
            one._live().stage(workspace, 2**40, 2**14)
    else:
        made(2).shuffle("k", config=TIGHT).release()
    how, refused = {"strategy": strategy, "config": config}, None
    tiers, used = [table.tiers, other.tiers], workspace.budget.used_bytes
    estimated: Any = None
    try:
        estimated = PLANNED[verb](table, other, **how)
    except BudgetExceeded as error:
        estimated = error
        PLANNED[verb](table, other, strategy=strategy, config=config.with_values(gpu_memory_limit=advised(error)))
    try:
        result = APPENDING[verb](table, other, **how)
    except BudgetExceeded as error:
        refused = error
        back = sum(one.tiers["device"] - before["device"] for one, before in zip((table, other), tiers, strict=True))
        assert workspace.budget.used_bytes <= used + max(0, back)  # of the tables, nothing of the result
        how["config"] = config.with_values(gpu_memory_limit=advised(error))
        PLANNED[verb](table, other, **how)
        result = APPENDING[verb](table, other, **how)
    record = gl.current().recorder.operations[-1]
    rows = result.local().reset_index(drop=True)
    same = rows.equals(expected.reset_index(drop=True)[list(rows.columns)].astype(rows.dtypes.to_dict()))
    return {
        "refused": refused is not None, "estimated refused": isinstance(estimated, BudgetExceeded), "same": same,
        "ran": (result.last_plan.strategy, result.tiers["disk"]), "tiers": (tiers, [table.tiers, other.tiers]),
        "peak": (record.measured_peak_bytes, how["config"].gpu_memory_limit, record.predicted_peak_bytes),
        "estimated": 0 if refused or estimated is None else estimated.predicted_peaks[rank],
    }  # fmt: skip


@pytest.mark.parametrize("verb", APPENDING)
@pytest.mark.parametrize("strategy", ["direct", "chunked"])
@pytest.mark.parametrize("kept", [False, True], ids=["for one operation", "before"])
def test_what_is_appended_is_held_where_the_strategy_says_so(verb: str, strategy: str, kept: bool) -> None:
    near = 0.2 if verb == "lacking" else 0.1  # integers beside missing values are looked through
    for limit in (0.4, 1.5, 6.0):
        for found in World("threads", 2).run(appended, verb, strategy, limit, kept):
            assert found["refused"] == found["estimated refused"] == (limit < 1), limit
            assert found["ran"] == (strategy, 0) and found["same"]  # after its own advice too
            peak, most, predicted = found["peak"]
            assert peak <= most and predicted == pytest.approx(peak, rel=near)
            if limit > 1:
                assert found["estimated"] == pytest.approx(peak, rel=near)
            if kept and limit > 2:
                before, after = found["tiers"]
                assert before == after  # the result alone holds what was brought back


def in_many_ways(strategy: str) -> Any:
    table = made()
    calls = (
        lambda: table.union(table, all=True, strategy=strategy),
        lambda: table.concat(table, order="local", strategy=strategy),
    )
    results = [call() for call in calls]
    return [(r.last_plan.strategy, r.tiers["device"], r.num_rows) for r in results], table.tiers["device"]


def test_what_copies_nothing_is_staged_apart_where_that_is_asked_for() -> None:
    for said, held in World("threads", 2).run(in_many_ways, "staged"):
        assert said == [("staged", 0, 2 * ROWS)] * 2
        assert held  # the tables stay where they are
