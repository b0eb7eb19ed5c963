"""``t.plan``: every verb that has a plan is planned with the verb's own arguments, and answers to its old name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
import worlds
from odd_arguments import FRAME
from worlds import World

import gcylon_lab as gl
from gcylon_lab.api.verbs.group import GroupBy
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.plan.plan import Plan
from gcylon_lab.errors import ArgumentError, ColumnMissing, SchemaMismatch, UnsupportedDtype
from gcylon_lab.operators.estimate import OF_ONE_TABLE, PLANNED
from gcylon_lab.units import MIB

TABLE = object()  # stands for the table itself, where a verb takes another one
CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "shuffle": (("k",), {"keep_order": True}),
    "allgather": ((), {}),
    "gather": ((0,), {}),
    "broadcast": ((), {"root": 0}),
    "repartition": ((), {}),
    "sort_values": (("k",), {"ascending": False, "na_position": "first"}),
    "drop_duplicates": (("k",), {"keep": False}),
    "unique": ((["k"],), {}),
    "join": ((TABLE, "left", "k"), {"suffixes": ("_a", "_b"), "indicator": True}),
    "union": ((TABLE,), {"all": True}),
    "intersect": ((TABLE,), {}),
    "difference": ((TABLE,), {}),
    "concat": (([TABLE, TABLE],), {"join": "inner"}),
}


@pytest.fixture(autouse=True)
def _one_rank() -> Iterator[None]:
    """A context for the tables of a test, in this process."""
    with gl.initialize(sample_hz=0):
        yield


def arguments(verb: str, table: Any) -> tuple[list[Any], dict[str, Any]]:
    args, named = CALLS[verb]
    return [[table] * len(one) if one == [TABLE, TABLE] else table if one is TABLE else one for one in args], named


@pytest.mark.parametrize("verb", PLANNED)
def test_a_plan_takes_what_its_verb_takes(verb: str) -> None:
    one = PLANNED[verb]
    method = inspect.signature(getattr(gl.Table, one.method or verb))
    taken = list(inspect.signature(one.estimate).parameters.values())[3:]
    taken = [argument for argument in taken if argument.name != "computed"]  # of `GroupBy`
    assert {argument.name for argument in taken} <= set(method.parameters)
    for argument in taken:
        usual = method.parameters[argument.name].default
        assert argument.default == usual or usual is inspect.Parameter.empty, argument
    assert not one.keys or one.keys in one.takes
    assert not one.tables or one.tables in method.parameters
    table = gl.from_local(FRAME)
    signature = inspect.signature(getattr(table.plan, one.method or verb))
    assert list(signature.parameters) == list(method.parameters)[1:]
    assert {"strategy", "config", "timeout_s"} <= set(signature.parameters)


def planned_and_ran(verb: str) -> list[Any]:
    table = gl.from_local(FRAME)
    args, named = arguments(verb, table)
    plan = getattr(table.plan, verb)(*args, **named, timeout_s=60.0)
    of_old_name = getattr(table, f"plan_{verb}")(*args, **named)
    return [(plan, of_old_name, getattr(table, verb)(*args, **named).last_plan.verb)]


@pytest.mark.parametrize("verb", CALLS)
def test_a_plan_is_asked_for_as_its_verb_is_called(verb: str) -> None:
    for ((plan, of_old_name, ran),) in World("threads", 2).run(planned_and_ran, verb):
        assert isinstance(plan, Plan) and plan.verb == ran == verb
        assert plan == of_old_name


def plans_of_groups() -> list[Any]:
    table = gl.from_local(FRAME)
    groups = table.groupby("k", sort=True)
    config = GcylonConfig(gpu_memory_limit=worlds.scaled(MIB))  # else a GPU rank has no room to sort its groups
    planned = table.plan.groupby("k", sort=True)
    return [
        (planned.agg({"x": "sum"}, config=config), groups.plan({"x": "sum"}, config=config)),
        (planned.agg("mean", deterministic=True, timeout_s=60.0), groups.plan({"x": "mean"})),
        (planned.size(strategy="staged"), groups.plan({"k": "size"}, strategy="staged")),
        (groups.plan(), table.plan_groupby("k", sort=True)),
    ]


def test_groups_are_planned_with_the_arguments_of_agg_and_size() -> None:
    for rank_saw in World("threads", 2).run(plans_of_groups):
        for plan, same in rank_saw:
            assert plan == same and plan.verb == "groupby" and plan.then.verb == "sort_values"
    assert inspect.signature(GroupBy.plan).parameters.keys() == inspect.signature(GroupBy.agg).parameters.keys()


def test_a_plan_asks_for_functions_as_agg_does() -> None:
    groups = gl.from_local(FRAME).plan.groupby("k")
    for asked in ({}, {"strategy": "staged"}):
        with pytest.raises(ArgumentError, match=r"agg\(\) asks for nothing"):
            groups.agg(**asked)
    assert groups.agg(total=("x", "sum")).verb == "groupby"


def plans_of_computed_keys() -> list[Any]:
    rows = 40_000
    frame = pd.DataFrame({"x": range(rows), "t": pd.date_range("2020", periods=rows, freq="s"), "y": 1.5})
    table = gl.from_local(frame)
    asked = {"sort": True, "by": [gl.col("x") % 97, gl.col("t").dt.floor("h")]}
    plan = table.groupby(**asked).plan({"y": ["sum", "median"]})
    ran = [one.verb for one in gl.current().recorder.operations]
    with pytest.raises(ColumnMissing, match="no column 'z'"):
        table.plan.groupby(gl.col("z") + 1).size()
    groups = table.groupby(**asked)
    groups.agg({"y": ["sum", "median"]}).release()
    return [plan, groups.plan({"y": ["sum", "median"]}), ran]


def test_keys_are_not_computed_for_a_plan() -> None:
    for before, with_keys, ran in World("threads", 2).run(plans_of_computed_keys):
        assert "assign" not in ran
        assert before.predicted_peak_bytes == pytest.approx(with_keys.predicted_peak_bytes, rel=0.02)
        assert before.result_bytes == with_keys.result_bytes and before.strategy == with_keys.strategy
        assert before.then.predicted_peak_bytes == pytest.approx(with_keys.then.predicted_peak_bytes, rel=0.02)


def test_what_has_no_plan_says_what_has() -> None:
    plans = gl.from_local(FRAME).plan
    with pytest.raises(
        AttributeError, match=r"^filter has no plan that is known before it runs. These have: allgather"
    ):
        _ = plans.filter
    assert {"shuffle", "join", "merge", "groupby", "concat"} <= set(dir(plans)) and not hasattr(plans, "nothing")
    assert "Bring rows with equal keys to one rank" in (plans.shuffle.__doc__ or "")
    assert plans.merge(gl.from_local(FRAME), on="k").verb == "join"
    assert not hasattr(gl.from_local(FRAME), "plan_filter")


def test_a_column_may_be_called_as_plans_were() -> None:
    table = gl.from_local(pd.DataFrame({"plan_shuffle": [1, 2], "plan": [3, 4]}))
    assert table.plan_shuffle.sum() == 3 and table["plan"].sum() == 7
    assert table.plan.shuffle("plan").verb == "shuffle"


def test_arguments_that_do_not_fit_are_refused_as_the_verb_refuses_them() -> None:
    table = gl.from_local(FRAME)
    for verb, args, named in (
        ("sort_values", ("k",), {"ascending": [True, False]}),
        ("repartition", ([1],), {}),
        ("join", (table,), {"how": "cross", "validate": "1:1"}),
        ("join", (table, "semi", "k"), {"indicator": True}),
        ("shuffle", ("k",), {"timeout_s": "soon"}),
        ("shuffle", ("k",), {"keep_order": 1}),
        ("shuffle", (), {"keys": "k"}),
        ("concat", (table,), {"order": "any"}),
        ("drop_duplicates", ("z",), {}),
    ):
        said = []
        for call in (getattr(table, verb), getattr(table.plan, verb)):
            with pytest.raises((ArgumentError, ColumnMissing, TypeError)) as refused:
                call(*args, **named)
            said.append((refused.type, str(refused.value).removeprefix("[rank 0] ")))  # all know it, or one tells it
        assert said[0] == said[1]


def refused_dtypes() -> list[tuple[str, str]]:
    table = gl.from_local(pd.DataFrame({"k": [[1], [2]], "x": [1, 2], "s": ["a", "b"]}))
    other = table.rename({"x": "s", "s": "x"})
    narrow = table.select(["x", "s"])
    calls: list[Any] = [
        lambda t: t.shuffle("k"), lambda t: t.sort_values(["x", "k"]), lambda t: t.unique("k"),
        lambda t: t.drop_duplicates(), lambda t: t.join(table, on="k"), lambda t: t.union(table),
        lambda t: t.intersect(table, all=True), lambda t: t.groupby("k").agg({"x": "sum"}),
        lambda t: t.groupby("x").agg({"s": "mean"}), lambda t: t.join(other, on="x"), lambda t: t.difference(other),
        lambda t: t.union(other, all=True), lambda t: t.concat(other), lambda t: t.concat([table, other], join="inner"),
    ]  # fmt: skip
    said = []
    for call in calls:
        pair = []
        for asked in (table, table.plan):
            with pytest.raises((UnsupportedDtype, SchemaMismatch)) as refused:
                call(asked)
            pair.append(f"{refused.type.__name__}: {refused.value}".replace("[rank 0] ", "").partition(" (in ")[0])
        said.append((pair[0], pair[1]))
    assert narrow.plan.union(narrow).verb == "union" and table.plan.union(table, all=True).verb == "union"
    return said


def test_dtypes_that_a_verb_cannot_take_are_refused_by_its_plan() -> None:
    for rank_saw in World("threads", 2).run(refused_dtypes):
        for ran, planned in rank_saw:
            assert ran == planned
    with pytest.raises(UnsupportedDtype, match="cannot be a key"):
        gl.estimate(pa.schema([("k", pa.list_(pa.int64()))]), 10, nbytes=320, on="k")


@pytest.mark.parametrize("verb", OF_ONE_TABLE)
def test_every_verb_of_one_table_is_estimated_before_a_table_is_there(verb: str) -> None:
    keys = "k" if PLANNED[verb].keys else ()
    config = GcylonConfig(gpu_memory_limit=8 * MIB)
    plan = gl.estimate({"k": "int64", "v": "float64"}, 10_000, verb=verb, on=keys, ranks=2, config=config)
    assert plan.verb == verb and plan.budget_bytes == 8 * MIB
    table = gl.from_local(FRAME)
    most = table.max_rows(verb, on=keys or None, config=config)
    assert most is None if verb in ("groupby", "drop_duplicates", "unique") else most > 1000  # these stage as they go
    with pytest.raises(ArgumentError, match="verb='join' is invalid. Expected 'shuffle'"):
        gl.estimate({"k": "int64"}, 10, verb="join")
