"""What an error says of the operation that it was raised in: the same on every rank, and in the notebook."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import BudgetExceeded, GcylonError, describe_context, from_message, to_message
from gcylon_lab.profiling.trace import chrome_trace

WORLDS = [World("single", 1), World("threads", 2), pytest.param(World("mpi", 2), marks=pytest.mark.mpi)]


def table() -> gl.Table:
    return gl.from_local(pd.DataFrame({"k": np.arange(20_000), "x": 1.0, "s": "a text of some length"}))


def seen(error: GcylonError) -> dict[str, Any]:
    record = gl.current().recorder.operations[-1]
    assert from_message(to_message(error)).context == pickle.loads(pickle.dumps(error)).context == error.context
    traced = chrome_trace([gl.current().snapshot()])["traceEvents"]
    told = [e["args"]["error_context"] for e in traced if e.get("cat") == "operation"]
    assert told[-1] == record.error_context == describe_context(error)
    return {"text": str(error), "context": error.context, "used": gl.current().budget.used_bytes}


def fails_on_the_last_rank() -> dict[str, Any]:
    t, context = table(), gl.current()
    claim = context.budget.reserve(5000, "my own work") if context.rank == context.size - 1 else None
    real, calls = context.workspace.backend.partition, []

    def partition(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if claim is not None and len(calls) >= 2:  # in halves it fails too
            with context.budget.reserve(1000, "a scratch"):
                raise BudgetExceeded("It was full.", needed_bytes=1, used_bytes=1, limit_bytes=2)
        return real(*args, **kwargs)

    context.workspace.backend.partition = partition  # type: ignore[method-assign]
    try:
        t.shuffle("k", config=GcylonConfig(chunk_size_bytes=100_000))
    except GcylonError as error:
        return seen(error)
    raise AssertionError("it did not fail")


@pytest.mark.cpu_alone("kernels of GPU ranks write rows where they belong without this method")
@pytest.mark.parametrize("world", WORLDS[1:], ids=str)
def test_an_error_of_one_rank_says_on_all_what_that_rank_did_and_held(world: World) -> None:
    results = world.run(fails_on_the_last_rank)
    context, last = results[0]["context"], world.size - 1
    assert all(result["context"] == context and result["text"] == results[0]["text"] for result in results)
    assert context["operation"].startswith("shuffle #") and context["phase"] == "partition"
    assert context["rank"] == last and 1 <= context["round"] <= context["rounds"]
    budget, tables = context["budget"], context["budget"]["by_use"]["tables"]
    assert budget["by_use"]["my own work"] == 5000 and budget["by_use"]["a scratch"] == 1000
    assert sum(budget["by_use"].values()) == budget["used_bytes"] <= budget["limit_bytes"]
    assert tables > 500_000 and context["tiers"]["disk"] == 0
    assert f"phase partition; round {context['round']} of {context['rounds']}; " in results[0]["text"]
    assert "in use: tables" in results[0]["text"]


def is_refused_by_all() -> dict[str, Any]:
    t = table()
    try:
        t.shuffle("k", strategy="direct", config=GcylonConfig(gpu_memory_limit="1MB", allow_cpu_staging=False))
    except BudgetExceeded as error:
        return seen(error)
    raise AssertionError("it did not fail")


@pytest.mark.cpu_alone("what libcudf takes fills a limit of 1 MB")
@pytest.mark.parametrize("world", WORLDS[:2], ids=str)
def test_an_error_of_all_ranks_has_each_ranks_own_context_and_one_text(world: World) -> None:
    results = world.run(is_refused_by_all)
    for result in results:
        assert result["text"] == results[0]["text"] and "rank" not in result["context"]
        # The table alone: the ids of its rows, whose keys were counted before it was refused, are given back.
        assert result["context"]["budget"]["used_bytes"] == result["used"]
        assert result["context"]["budget"]["limit_bytes"] == 1_000_000


def a_function_of_ones_own_fails() -> str:
    def work(frame: pd.DataFrame) -> pd.DataFrame:
        with gl.span("my step"):
            raise ValueError("odd")

    try:
        table().map_parts(work)
    except GcylonError as error:
        assert "by_use" not in error.context["budget"] and error.context["budget"]["used_bytes"] > 0
        assert error.context["phase"] == "my step" and error.context["operation"].startswith("map_parts #")
        return str(error)
    raise AssertionError("it did not fail")


def test_the_phase_is_the_innermost_span_ones_own_too() -> None:
    (text,) = World("single", 1).run(a_function_of_ones_own_fails)
    assert "ValueError: odd" in text and "phase my step" in text


def test_what_is_wrong_before_anything_began_says_no_more_than_that() -> None:
    def body() -> str:
        try:
            table().shuffle("nowhere")
        except GcylonError as error:
            assert error.context["operation"].startswith("shuffle #")
            return str(error)
        raise AssertionError("it did not fail")

    (text,) = World("single", 1).run(body)
    assert "shuffle #" not in text
    assert describe_context(GcylonError("x")) == ""
