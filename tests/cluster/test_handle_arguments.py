"""Handles refuse what tables refuse, in the same words, and before a rank is asked; so do their plans."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from odd_arguments import FRAME, ODD, PLANNED

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, ConfigError, HandleReleased, SchemaMismatch, UnsupportedDtype

pytestmark = pytest.mark.mpi


def said(call: Any, args: Any, named: Any) -> str:
    with pytest.raises((ArgumentError, ConfigError)) as refused:
        call(*args, **named)
    return str(refused.value)


def is_frame_of_join(verb: str, args: Any) -> bool:
    """Whether a frame is joined, which a handle sends to the ranks."""
    return verb == "join" and args[0] is FRAME


def test_handles_refuse_what_tables_refuse(lab: gl.Cluster) -> None:
    table = lab.from_pandas(FRAME)
    for verb, args, named, words in ODD:
        if not is_frame_of_join(verb, args):
            assert words in said(getattr(table, verb), args, named), verb
        if verb != "groupby":
            refusal = getattr(table, f"{verb}_async")
            if (verb, args) != ("gather", (99,)):  # how many ranks there are is known when it runs
                assert words in said(refusal, args, named), verb


def test_plans_refuse_what_their_verbs_refuse(lab: gl.Cluster) -> None:
    table = lab.from_pandas(FRAME)
    for verb, args, named, _ in [one for one in PLANNED if not is_frame_of_join(*one[:2])]:
        planned = said(getattr(table, f"plan_{verb}"), args, named)
        assert planned == said(getattr(table, verb), args, named), verb


def test_plans_refuse_dtypes_that_their_verbs_refuse_and_compute_no_keys(lab: gl.Cluster) -> None:
    table = lab.from_pandas(pd.DataFrame({"k": [1, 2], "s": ["a", "b"]}))
    gc.collect()
    table.info()  # what tables before this one left to be dropped is dropped
    asked = len(lab.client.history)
    with pytest.raises(UnsupportedDtype, match="there is no mean of column 's'"):
        table.plan.groupby("k").agg({"s": "mean"})
    with pytest.raises(SchemaMismatch, match="Key 'k' of the left side"):
        table.plan.join(table, left_on="k", right_on="s")
    assert table.groupby(gl.col("k") % 2).plan({"s": "first"}).verb == "groupby"
    with pytest.raises(ArgumentError, match="strategy='fast' is invalid"):
        table.plan.groupby(gl.col("k") % 2).size(strategy="fast")
    assert len(lab.client.history) == asked


def test_labels_that_are_ints_are_planned_as_they_run(lab: gl.Cluster) -> None:
    table = lab.from_pandas(pd.DataFrame({0: [1, 2, 3], 1: [4, 5, 6]}))
    for verb in ("shuffle", "sort_values", "drop_duplicates", "unique"):
        for label in (0, [0], np.int64(0), [np.int64(1), 0]):
            plan = getattr(table, f"plan_{verb}")(label)
            assert plan.verb == verb
            assert getattr(table, verb)(label).last_plan.verb == verb
    assert table.plan_join(table, "inner", 0).verb == "join"
    assert table.groupby(0).plan().verb == "groupby"


def test_plans_of_released_handles_are_refused_like_the_verbs(lab: gl.Cluster) -> None:
    table, gone = lab.from_pandas(FRAME), lab.from_pandas(FRAME)
    gone.release()
    calls: dict[str, tuple[Any, ...]] = {
        "shuffle": ("k",), "allgather": (), "gather": (), "broadcast": (), "repartition": (), "sort_values": ("k",),
        "drop_duplicates": (), "unique": (), "join": (table,), "union": (table,), "intersect": (table,),
        "difference": (table,), "concat": (table,),
    }  # fmt: skip
    for verb, args in calls.items():
        for call in (getattr(gone, verb), getattr(gone, f"plan_{verb}")):
            with pytest.raises(HandleReleased, match="it was released"):
                call(*args)
        if args == (table,):
            for call in (getattr(table, verb), getattr(table, f"plan_{verb}")):
                with pytest.raises(HandleReleased, match="it was released"):
                    call(gone)
    with pytest.raises(HandleReleased, match="it was released"):
        gone.groupby("k").plan()
    with pytest.raises(HandleReleased, match="it was released"):
        gone.plan_groupby("k")


def test_a_table_in_the_place_of_a_plain_value_is_refused(lab: gl.Cluster) -> None:
    table = lab.from_pandas(FRAME)
    for call in (table.shuffle, table.plan_shuffle):
        with pytest.raises(ArgumentError, match="on= of shuffle takes no table"):
            call(table)


def test_a_name_that_is_no_text_is_refused(lab: gl.Cluster) -> None:
    with pytest.raises(ArgumentError, match="5 cannot be a variable's name"):
        lab.from_pandas(FRAME).bind(5)  # type: ignore[arg-type]


def test_an_index_with_a_name_is_not_left_out_in_silence(lab: gl.Cluster) -> None:
    frame = pd.DataFrame({"k": [1, 2], "v": [3, 4]})
    with pytest.warns(UserWarning, match=r"\(k\) is left out.* pass frame.reset_index\(\)"):
        lab.from_pandas(frame.set_index("k")).release()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lab.from_pandas(frame.iloc[1:]).release()
