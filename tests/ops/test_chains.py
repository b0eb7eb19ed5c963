"""Chains of row-wise verbs: done in one pass once rows are needed, and with the answers of each verb done at once."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import held, make_frame, more_held, whole
from relations import FEW, TIGHT
from same_frames import assert_frames_equal
from worlds import World, claimed_bytes, in_turn, marked

import gcylon_lab as gl
from gcylon_lab import col
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, ColumnMissing, RanksDisagree
from gcylon_lab.runtime.context import current

AT_ONCE = {"timeout_s": 100}  # a setting of an operation of its own


def operations() -> list[str]:
    return [record.verb for record in current().recorder.operations]


def own_table(layout: str = "even") -> gl.Table:
    return gl.from_local(make_frame(layout, current().rank, current().size))


# ---- the same rows as verb by verb

CONDITIONS = [
    col("g") % 3 != 0, col("x") > 20, col("n") < 250, col("s").str.startswith("p"), col("c") == "mid", col("b"),
    col("m") > 3, col("o") >= dt.date(2000, 1, 9), col("t").dt.hour < 12, col("l").notna(), gl.lit(True), col("g") < 0,
]  # fmt: skip
COLUMNS = [
    ("y", col("x") * 2 + col("g")), ("x", col("x").fillna(0.5)), ("g", -col("g")), ("k", col("k").astype("int64")),
    ("m", col("m") * 2 - 1), ("late", col("o") > dt.date(2000, 1, 14)), ("up", col("s").str.slice(0, 2)),
    ("h", col("t").dt.hour), ("q", col("g") // 7), ("w", col("x").where(col("b"), 0.0)),
    ("z", col("m").astype("float64") / 3),
    ("v", np.sqrt(col("x"))), ("there", col("n").isna() & ~col("b")), ("n", col("n") + 1), ("seven", 7), ("s", "text"),
    ("e", col("g").isin([4, 5])), ("r", col("x").round(1)), ("a", (col("x") - 7).abs()), ("o", col("o")),
]  # fmt: skip


def some_steps(seed: int) -> list[tuple[str, tuple[Any, ...]]]:
    """Verbs with arguments, on the columns that there are by then."""
    choose, there = random.Random(seed), list(make_frame("even", 0, 1, 1).columns)
    steps: list[tuple[str, tuple[Any, ...]]] = []
    for _ in range(choose.randint(2, 6)):
        verb = choose.choice(("filter", "filter", "assign", "assign", "select", "drop", "rename", "fillna", "dropna"))
        if verb == "filter":
            fit = [one for one in CONDITIONS if set(one.columns()) <= set(there)]
            steps.append((verb, (choose.choice(fit),)))
        elif verb == "assign":
            fit = [(name, one) for name, one in COLUMNS if set(getattr(one, "columns", dict)()) <= set(there)]
            new = dict(choose.sample(fit, min(len(fit), choose.randint(1, 3))))
            steps.append((verb, (new,)))
            there += [name for name in new if name not in there]
        elif verb == "select" and len(there) > 3:
            there = choose.sample(there, choose.randint(max(2, len(there) // 2), len(there)))
            steps.append((verb, (list(there),)))
        elif verb == "drop" and len(there) > 3:
            gone = choose.sample(there, 2)
            there = [name for name in there if name not in gone]
            steps.append((verb, (gone,)))
        elif verb == "rename":
            old, new = choose.choice(there), choose.choice("ABCD")
            if new not in there:
                steps.append((verb, ({old: new},)))
                there[there.index(old)] = new
        elif verb == "fillna" and "x" in there:
            steps.append((verb, ({"x": -1.0},)))
        elif verb == "dropna":
            steps.append((verb, (choose.sample(there, 1),)))
    return steps


def both_ways(seeds: range, layout: str, staged: bool) -> list[tuple[Any, ...]]:
    found = []
    for seed in seeds:
        table = own_table(layout)
        if staged:
            table._part.stage(current().workspace, 2**40, 4096)
        steps = some_steps(seed)
        slow = fast = table
        for verb, arguments in steps:
            slow = getattr(slow, verb)(*arguments, **AT_ONCE)
        for verb, arguments in steps:
            fast = getattr(fast, verb)(*arguments)
        said = [(one.columns, one.dtypes, one.partitioning) for one in (fast, slow)]
        asked_first = fast.local() if seed % 2 else None  # by each rank alone, before they agree
        rows = fast.count_rows()
        found.append((steps, said, asked_first, fast.local(), slow.local(), rows, slow.count_rows()))
    return found


@pytest.mark.parametrize(
    ("staged", "world", "layout"),
    marked(
        in_turn(
            ["held", "staged"],
            [World("threads", 2), World("threads", 4), World("mpi", 2)],
            ["even", "one rank empty", "all empty"],
        )
    ),
)
def test_a_chain_gives_what_its_verbs_give_one_by_one(staged: str, world: World, layout: str) -> None:
    for config in (None, TIGHT) if layout == "even" else (None,):
        for told in world.run(both_ways, range(20), layout, staged == "staged", config=config):
            for steps, (fast, slow), first, ours, theirs, rows, expected in told:
                assert fast == slow, steps
                assert rows == expected, steps
                assert_frames_equal(ours, theirs)
                if first is not None:
                    assert_frames_equal(first, theirs)


# ---- one operation, which reads what is needed


def one_pass() -> dict[str, Any]:
    table = own_table()
    begun = len(operations())
    made = (
        table.filter(col("x") > 10)
        .assign(y=col("x") * 2, unused=col("m") + 1)
        .rename({"g": "row"})
        .select(["row", "y"])
    )
    before = operations()[begun:]
    total = made.sum("y")
    record = current().recorder.operations[begun]
    return {
        "before": before, "verbs": operations()[begun:], "arguments": record.arguments, "explained": made.explain(),
        "rows": (record.rows_in, record.rows_out), "frame": made.local(), "total": total,
        "moved": record.bytes_out,
    }  # fmt: skip


@pytest.mark.parametrize("world", FEW, ids=str)
def test_a_chain_is_one_operation(world: World) -> None:
    for rank, told in enumerate(world.run(one_pass)):
        frame = make_frame("even", rank, world.size)
        kept = frame[frame["x"] > 10]
        expected = pd.DataFrame({"row": kept["g"], "y": kept["x"] * 2}).reset_index(drop=True)
        assert told["before"] == []
        assert told["verbs"] == ["filter.assign.rename.select", "sum"]
        assert "filter(condition=(col('x') > …)).assign(columns=[('y', (col('x') * …))" in told["arguments"]
        assert told["arguments"].endswith(".rename(columns={'g': 'row'}).select(columns=['row', 'y'])")
        assert told["rows"] == (len(frame), len(kept)) and told["moved"] == 16 * len(kept)
        assert (
            "filter, assign, rename and select in one pass over the rows, which read 2 of 12 columns"
            in told["explained"]
        )
        assert_frames_equal(told["frame"], expected)


def used_twice() -> list[list[str]]:
    table = own_table()
    few = table.filter(col("x") > 10)
    seen = [operations()]
    first = few.assign(y=col("x") + 1)
    seen.append(operations())
    second = few.select(["x"])  # two tables need the rows of `few`
    seen.append(operations())
    values = first.sum("y"), second.sum("x"), few.count_rows()
    seen.append(operations())
    assert values[0] == pytest.approx(values[1] + values[2])
    return seen


def test_rows_that_two_tables_need_are_made_once() -> None:
    for begun, one, two, end in World("threads", 2).run(used_twice):
        assert begun == one == ["from_local"]
        assert two == [*begun, "filter"]
        assert end == [*two, "filter.assign", "sum", "sum"]  # what shows columns or counts rows is not recorded


# ---- one rank alone


def looked_at_alone(which: str) -> tuple[Any, ...]:
    """One rank looks at its rows before any other needs them."""
    table = own_table()
    made = table.filter(col("x") > 10).assign(y=col("x") * 2).select(["g", "y"])
    looks = {
        "len": len, "repr": repr, "local": lambda one: len(one.local()), "info": lambda one: one.info()["rows"],
        "tensor": lambda one: one.tensor("y").sum(), "batches": lambda one: sum(b.num_rows for b in one.to_batches()),
        "arrow": lambda one: len(pd.DataFrame.from_arrow(one)) if hasattr(pd.DataFrame, "from_arrow") else 0,
        "explain": lambda one: one.explain(), "tiers": lambda one: one.tiers, "nothing": lambda one: None,
    }  # fmt: skip
    if current().rank == 1:
        looks[which](made)
    expected = made.assign(z=col("y") + 1).sum("z")
    gone = table.filter(col("g") < 50)
    if current().rank == 0:
        gone.release()  # one that nobody needs
    again = made.count_rows()
    return expected, again, made.local(), operations()


@pytest.mark.parametrize("world", FEW, ids=str)
@pytest.mark.parametrize("which", ["len", "repr", "local", "info", "tensor", "batches", "arrow", "explain", "tiers"])
def test_a_rank_may_look_at_its_rows_alone(world: World, which: str) -> None:
    plain = world.run(looked_at_alone, "nothing")
    looked = world.run(looked_at_alone, which)
    for one, other in zip(plain, looked, strict=True):
        assert one[:2] == other[:2] and one[3] == other[3]
        assert_frames_equal(one[2], other[2])


def different() -> None:
    made = own_table().filter(col("x") > current().rank).select(["x"])
    assert len(made) > 0  # each for itself
    made.sum("x")


@pytest.mark.parametrize("world", FEW, ids=str)
def test_ranks_with_different_steps_are_told(world: World) -> None:
    for outcome in world.outcomes(different):
        assert isinstance(outcome.error, RanksDisagree)
        assert "filter(condition=(col('x') > 1)).select(columns=['x'])" in str(outcome.error)


# ---- errors


def errors_of(table: gl.Table) -> list[tuple[type, str]]:
    found = []
    for verb, argument in (
        ("select", ["g", "nope"]), ("drop", "nope"), ("rename", {"x": "g"}), ("filter", col("nope") > 1),
        ("filter", col("x") + 1), ("filter", col("s") > 1), ("assign", {"z": col("s") + col("x")}),
        ("filter", col("x") & col("x")), ("assign", {"z": col("nope")}), ("astype", {"s": "int64"}),
        ("filter", "x > 1"),
    ):  # fmt: skip
        with pytest.raises(gl.GcylonError) as caught:
            getattr(table, verb)(argument)
        found.append((type(caught.value), caught.value.message))
    return found


def errors_of_both() -> list[list[tuple[type, str]]]:
    table = own_table()
    made = table.assign(y=col("x") * 2, **AT_ONCE)
    return [errors_of(made), errors_of(table.assign(y=col("x") * 2))]


@pytest.mark.parametrize("world", FEW, ids=str)
def test_errors_are_those_of_each_verb_where_it_is_called(world: World) -> None:
    for at_once, remembered in world.run(errors_of_both):
        assert remembered == at_once


def fails_for_values() -> tuple[Any, ...]:
    rank, size = current().rank, current().size
    table = gl.from_local(pd.DataFrame({"x": [1.0, 2.0, float(rank)], "s": ["1", "2", "3" if rank else "?"]}))
    renamed = table.rename({"x": "y"})
    with pytest.raises(ArgumentError) as caught:  # where it is asked for, not where its rows are needed
        renamed.filter(col("s").astype("int64") > 1)
    again = table.filter(col("x") >= 0).count_rows() == 3 * size  # and what it was made of is as before
    return caught.value.message, again, caught.value.rank


@pytest.mark.parametrize("world", FEW, ids=str)
def test_what_only_values_show_is_told_with_its_verb(world: World) -> None:
    for message, again, rank in world.run(fails_for_values):
        assert again and rank == 0
        assert "filter((col('s').astype('int64') > 1)) cannot be computed: ValueError" in message


# ---- memory


def in_a_budget() -> dict[str, Any]:
    context = current()
    n = 60_000
    table = gl.from_local(pd.DataFrame({name: np.arange(n) + place for place, name in enumerate("abcdefgh")}))
    before, begun = held(context), len(context.recorder.operations)
    chain = table.filter(col("a") % 2 == 0).assign(z=col("b") * 2, y=col("c") + col("d")).filter(col("z") > 10)
    made = chain.select(["z", "y"])
    count = made.count_rows()
    record = context.recorder.operations[begun]
    frame = made.local()
    made.release()
    del chain, made
    return {
        "peak": record.measured_peak_bytes, "limit": record.budget_bytes, "predicted": record.predicted_peak_bytes,
        "count": count, "frame": frame, "left": more_held(context, before), "staged": record.staged_bytes,
    }  # fmt: skip


@pytest.mark.parametrize("limit", ["32 MiB", "5 MiB", "3 MiB"])
def test_a_chain_keeps_within_a_budget(limit: str) -> None:
    results = World("threads", 2).run(in_a_budget, config=GcylonConfig(gpu_memory_limit=limit))
    a = np.arange(60_000)
    kept = a[(a % 2 == 0) & ((a + 1) * 2 > 10)]
    expected = pd.DataFrame({"z": (kept + 1) * 2, "y": 2 * kept + 5})
    for told in results:
        assert told["peak"] <= told["limit"] and told["peak"] <= 1.1 * told["predicted"]
        assert told["count"] == 2 * len(expected)
        assert told["left"][0] <= 0
        assert_frames_equal(told["frame"], expected)


def bytes_held() -> list[int]:
    context = current()
    table = own_table()
    used = [claimed_bytes(context)]
    few = table.filter(col("g") < 10)
    used.append(claimed_bytes(context))  # nothing is made yet
    table.release()
    used.append(claimed_bytes(context))  # the rows that it is to be made of stay
    assert few.count_rows() == 10
    del table
    used.append(claimed_bytes(context))  # and go when it is made
    few.release()
    return [*used, claimed_bytes(context)]


def test_what_a_table_is_to_be_made_of_stays_until_then() -> None:
    ((table, pending, released, made, none),) = World("threads", 1).run(bytes_held)
    assert table == pending == released
    assert 0 == none < made < table / 10


def given_up_unmade() -> tuple[int, Any]:
    table = own_table()
    few = table.filter(col("g") < 10)
    held_by_an_error = few._part  # as the frames of a failed verb hold it
    del table
    few.release()
    return current().budget.used_bytes, held_by_an_error


def test_what_nobody_can_use_any_more_is_freed_though_an_error_refers_to_it() -> None:
    assert [used for used, _ in World("threads", 2).run(given_up_unmade)] == [0, 0]


def looks_alone_in_vain() -> tuple[int, int | None]:
    few, backend = own_table().filter(col("g") < 10), current().workspace.backend

    def fails(*_: Any) -> Any:
        raise ArgumentError("planted")

    backend.filter = fails  # type: ignore[method-assign]
    with pytest.raises(ArgumentError, match="planted") as caught:
        len(few)
    del backend.filter
    return current().rank, caught.value.rank


@pytest.mark.parametrize("world", FEW, ids=str)
def test_a_rank_that_looks_alone_is_named(world: World) -> None:
    for rank, named in world.run(looks_alone_in_vain):
        assert named == rank


def shown_by_another() -> tuple[int, int]:
    table, other = own_table(), own_table()
    both = table.concat(other)
    few = table.filter(col("g") < 10)
    del table
    few.release()  # it held what `both` shows
    return both.count_rows(), 2 * len(whole("even", current().size))


def test_what_is_released_before_it_is_made_takes_nothing_from_others() -> None:
    for ours, expected in World("threads", 2).run(shown_by_another):
        assert ours == expected


def missing() -> str:
    released = own_table().filter(col("x") > 1)
    released.release()
    with pytest.raises(ArgumentError) as caught:
        released.select(["x"])
    with pytest.raises(ColumnMissing):
        own_table().filter(col("x") > 1).select(["nope"])
    return caught.value.message


def test_a_released_table_takes_no_more_steps() -> None:
    assert set(World("threads", 2).run(missing)) == {"This table was released."}
