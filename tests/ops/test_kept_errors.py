"""A failed operation holds no memory, even while its traceback is kept, as IPython keeps the last one."""

from __future__ import annotations

import gc
import sys
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest
import worlds
from exchanges import held, make_frame, more_held
from faults import SCALARS_OF_CUDF, Fault, broken
from mapped import Mapped
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import GcylonError, RankError
from gcylon_lab.memory.budget import exceeded
from gcylon_lab.runtime.context import current


def fail_in_a_round(strategy: str, fault: Fault) -> tuple[int, int]:
    context = current()
    table = gl.from_local(make_frame("even", context.rank, context.size))
    before = held(context)
    config = gl.GcylonConfig(chunk_size_bytes=4096, min_chunk_rows=1)
    with (
        broken(context, 1, fault),
        pytest.raises(RankError, match=r"\[rank 1\] ValueError: injected") as caught,
    ):
        table.shuffle("k", strategy=strategy, config=config)
    sys.last_value = caught.value
    assert caught.value.__traceback__ is not None
    return more_held(context, before, SCALARS_OF_CUDF)


@pytest.mark.parametrize("strategy", ["direct", "staged"])
def test_memory_goes_although_the_error_is_kept(strategy: str) -> None:
    assert World("threads", 3).run(fail_in_a_round, strategy, Fault("pack_variable", 5)) == [(0, 0)] * 3
    if worlds.ENGINE == "cpu":
        in_flight = Fault("partition_ids" if strategy == "staged" else "partition", 3)
        assert worlds.run_over(3, Mapped, fail_in_a_round, strategy, in_flight) == [(0, 0)] * 3


def fail_again_and_again(what: str) -> list[int]:
    """Verbs that fail for each reason, the collector off: the caller's table goes with the caller."""
    context = current()

    def once() -> None:
        table = gl.from_local(make_frame("even", context.rank, context.size))
        fault = Fault("fixed_views", 1 if what == "an exchange cut short" else 10**9)
        with broken(context, 1, fault), pytest.raises((GcylonError, ValueError)):
            if what == "no such column":
                table.shuffle("nope")
            elif what == "different arguments":
                table.shuffle("k", keep_order=context.rank == 0)
            elif what == "a sum that does not fit":
                table.repartition([1] * context.size)
            elif what == "a limit":
                table.shuffle("k", strategy="direct", config=gl.GcylonConfig(gpu_memory_limit=1))
            elif what == "an exchange cut short":  # nobody can be told of it
                table.shuffle("k")
        if what == "an exchange cut short":
            context.recover()

    before = _used(context)
    once()
    seen = [_used(context) - before]
    once()
    return [*seen, _used(context) - before]


def _used(context: Any) -> int:
    """In use now: on a GPU rank all that is allocated, without a look for what only the collector frees."""
    if context.workspace.backend.on_gpu:
        context.spill.flush()
        context.budget.start_window()
    return int(context.budget.used_bytes)


@pytest.mark.parametrize(
    "what",
    ["no such column", "different arguments", "a sum that does not fit", "a limit", "an exchange cut short"],
    ids=lambda what: what,
)
def test_a_failed_verb_keeps_no_table_until_the_collector_runs(what: str) -> None:
    gc.collect()
    gc.disable()
    try:
        found = World("threads", 2).run(fail_again_and_again, what)
    finally:
        gc.enable()
    if worlds.ENGINE == "cpu":
        assert found == [[0, 0], [0, 0]]
    for first, second in found:  # cuDF keeps some scalars of a first call, and no more of a second one
        assert first <= SCALARS_OF_CUDF and second <= first, found


def release_after(verb: str) -> tuple[int, int]:
    """A verb that fails, its error kept, and its inputs released: what is in use then."""
    context = current()
    table = gl.from_local(make_frame("one key", context.rank, context.size))
    other = table.select(["k"])
    calls = {
        "groupby": lambda: table.groupby("k").agg(x=("x", "list"), config=gl.GcylonConfig(gpu_memory_limit=3000)),
        "join": lambda: table.join(other, on="k", config=gl.GcylonConfig(gpu_memory_limit=3000)),
        "shuffle": lambda: table.shuffle("k", strategy="direct", config=gl.GcylonConfig(gpu_memory_limit=1)),
    }
    with pytest.raises(GcylonError) as caught:
        calls[verb]()
    kept = caught.value
    table.release()
    other.release()
    assert kept.__traceback__ is not None
    return more_held(context, (0, 0), SCALARS_OF_CUDF)


@pytest.mark.parametrize("verb", ["groupby", "join", "shuffle"])
def test_what_is_released_goes_although_the_error_of_a_verb_on_it_is_kept(verb: str) -> None:
    assert World("threads", 2).run(release_after, verb) == [(0, 0)] * 2


def release_one_of_two() -> int:
    """A table that shares its part with another one is released alone."""
    table = gl.from_local(make_frame("even", current().rank, current().size))
    same = table._made(table._live())
    table.release()
    return len(same)


def test_a_part_of_two_tables_goes_with_the_second() -> None:
    assert all(World("threads", 2).run(release_one_of_two))


def made_and_lost(verb: str, fault: Fault) -> tuple[int, int]:
    """A verb fails half way on one rank, and its error is kept: what is in use once its input is released."""
    context = current()
    frame = pd.DataFrame({"k": [(i % 7 + context.rank) for i in range(600)], "s": ["x" * 40] * 600})
    table = gl.from_local(frame)
    config = gl.GcylonConfig(gpu_memory_limit=60_000, chunk_size_bytes=2048, min_chunk_rows=1)
    calls = {
        "groupby": lambda: table.groupby("k").agg(x=("s", "list"), config=config),
        "value_counts": lambda: table.value_counts("k"),
        "normalize": lambda: table.value_counts("k", normalize=True, sort=False),
    }
    with broken(context, 1, fault), pytest.raises(GcylonError) as caught:
        calls[verb]()
    table.release()
    assert caught.value.__traceback__ is not None
    return more_held(context, (0, 0), SCALARS_OF_CUDF)


@pytest.mark.parametrize(
    ("verb", "fault"),
    [("groupby", Fault("unpack")), ("value_counts", Fault("sort_order")), ("normalize", Fault("evaluate"))],
    ids=str,
)
def test_what_a_verb_had_made_goes_although_its_error_is_kept(verb: str, fault: Fault) -> None:
    assert World("threads", 2).run(made_and_lost, verb, fault) == [(0, 0)] * 2


def not_shown() -> tuple[int, int]:
    """Rows that were gathered to be shown cannot be made a frame, and the error is kept."""
    context = current()
    table = gl.from_local(make_frame("even", context.rank, context.size))
    with broken(context, 1, Fault("to_host")), pytest.raises(ValueError) if context.rank else nullcontext() as caught:
        table.head()
    table.release()
    assert context.rank == 0 or caught is not None and caught.value.__traceback__ is not None
    return more_held(context, (0, 0), SCALARS_OF_CUDF)


def test_rows_that_could_not_be_shown_go() -> None:
    assert World("threads", 2).run(not_shown) == [(0, 0)] * 2


def looked_at() -> tuple[Any, tuple[int, int]]:
    """A frame of all rows, for whose copy a GPU has no room; the error, and what is in use once it is raised."""
    context = current()
    table = gl.from_local([pd.DataFrame({"g": np.arange(10**6)})] * 6, config=gl.GcylonConfig(allow_cpu_staging=False))
    before = held(context)
    try:
        assert len(table.local()) == 6 * 10**6
    except GcylonError as caught:
        return caught, more_held(context, before, SCALARS_OF_CUDF)
    return None, (0, 0)


def test_a_frame_that_does_not_fit_is_refused_with_numbers() -> None:
    """CPU engines make it outside their budget."""
    for error, more in World("threads", 2).run(looked_at, config=gl.GcylonConfig(gpu_memory_limit="64 MiB")):
        assert more == (0, 0) and (error is None) == (worlds.ENGINE == "cpu")
        assert error is None or error.numbers["limit_bytes"] == 2**26 and "staging" not in error.advice


def staged_after_all() -> tuple[str, int, int]:
    """Rank 1 has no memory for texts in a round: the result that was begun is let go, and staged instead."""
    context = current()
    table = gl.from_local(make_frame("even", context.rank, context.size)[["k", "x", "s"]])
    before, reserve, kept = context.budget.used_bytes, context.budget.reserve, list[int]()

    def refusing(nbytes: int, what: str = "") -> Any:
        if what == "Packing variable columns" and not kept:
            kept.append(nbytes)
            raise exceeded(what, nbytes, context.budget.used_bytes, context.budget.limit_bytes)
        return reserve(nbytes, what)

    if context.rank == 1:
        context.budget.reserve = refusing  # type: ignore[method-assign]
    result = table.shuffle("k")
    strategy = context.recorder.operations[-1].strategy
    result.release()
    return strategy, len(kept), context.budget.used_bytes - before


@pytest.mark.cpu_alone("kernels of GPU ranks write texts in place, and pack none; see test_written_rounds")
def test_a_result_that_did_not_fit_is_let_go_before_it_is_staged() -> None:
    gc.collect()
    gc.disable()
    try:
        assert World("threads", 2).run(staged_after_all) == [("staged", 0, 0), ("staged", 1, 0)]
    finally:
        gc.enable()
