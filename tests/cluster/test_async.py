"""Verbs that are asked for and come later: in order, beside a loop that goes on, and cancelled."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import inspect
import logging
import os
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

import gcylon_lab as gl
from gcylon_lab.api.table import Table
from gcylon_lab.cluster.channel.request_queue import RequestQueue
from gcylon_lab.cluster.client.cluster import _NOT_LATER
from gcylon_lab.cluster.handles.async_verbs import _documented
from gcylon_lab.cluster.handles.futures import VerbFuture
from gcylon_lab.errors import ColumnMissing, HandleReleased


def nap(seconds: float) -> int:
    time.sleep(seconds)
    return gl.current().rank


def wait_for(file: str) -> int:
    """Until a test makes a file."""
    until = time.monotonic() + 30
    while not os.path.exists(file) and time.monotonic() < until:
        time.sleep(0.01)
    return gl.current().rank


def numbered(number: int) -> int:
    """A collective, and when it ran."""
    import numpy as np

    seen = gl.current().transport.agree(np.array([number], dtype=np.int64))
    assert (seen == number).all()
    order = gl.__dict__.setdefault("_order_of_tests", [])
    order.append(number)
    return number


def stuck() -> None:
    """Rank 0 waits in a collective that rank 1 never joins."""
    import numpy as np

    if gl.current().rank:
        time.sleep(60)
    gl.current().transport.agree(np.zeros(1, dtype=np.int64))


def test_every_verb_and_reader_has_one() -> None:
    asks_nobody = {"info", "explain", "release", "groupby", "group_by", "resample", "to_batches", "max_rows"}
    asks_nobody |= {"get", "copy", "pipe", "duplicated", "eval"}
    verbs = {name for name in dir(Table) if inspect.isfunction(getattr(Table, name)) and not name.startswith("_")}
    verbs = {name for name in verbs if not name.startswith("plan_")} - asks_nobody
    assert {"shuffle", "join", "sort_values", "sum", "to_pandas", "head", "write_parquet"} <= verbs
    assert {f"{name}_async" for name in verbs} <= set(dir(gl.DistTable))
    readers = {"read_parquet", "read_csv", "read_json", "read_ipc", "table", "memory", "run"}
    readers |= {"from_pandas", "from_arrow", "from_columns", "scatter", "empty", "memory_info", "pools", "trim"}
    assert {name.removesuffix("_async") for name in dir(gl.Cluster) if name.endswith("_async")} == readers
    assert not readers & set(_NOT_LATER)


@pytest.mark.parametrize("kind", [gl.DistTable, gl.Cluster])
def test_they_take_what_the_verb_takes_and_are_documented(kind: type) -> None:
    for name in [name for name in dir(kind) if name.endswith("_async")]:
        method, verb = getattr(kind, name), getattr(kind, name.removesuffix("_async"))
        assert list(inspect.signature(method).parameters) == list(inspect.signature(verb).parameters), name
        text = inspect.getdoc(method) or ""
        assert text.startswith(f"Begin `{name.removesuffix('_async')}` and return at once"), name
        assert text.count("\nReturns\n-------\nVerbFuture\n") == 1 == text.count("\nReturns\n"), name
        assert method.__name__ == name and method.__qualname__.endswith(f".{name}")


def test_sections_of_a_docstring_keep_their_order() -> None:
    parts = ["Do it.", "Parameters\n----------\na : int", "Returns\n-------\nint\n    X.", "Raises\n------\nE"]
    text = _documented("v", "\n\n".join(parts))
    heads = [line for line in text.splitlines() if line in ("Parameters", "Returns", "Raises")]
    assert heads == ["Parameters", "Returns", "Raises"] and "    X." not in text


def test_who_comes_later_waits_for_those_with_a_number() -> None:
    turns = RequestQueue()
    turns.wait()
    first, second = turns.take(), turns.take()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waits = pool.submit(turns.wait)
        until = time.monotonic() + 20
        while not turns._changed._waiters and time.monotonic() < until:  # type: ignore[attr-defined]
            time.sleep(0.001)
        turns.leave(first)
        assert not concurrent.futures.wait([waits], 0.05).done
        third = turns.take()
        turns.leave(second)
        waits.result(20)  # one that took its number later is not waited for
    with turns.lock:
        turns.wait()  # who has the lock waits for nobody
    turns.leave(third)
    assert not turns.anybody_waits


@pytest.mark.mpi
def test_awaiting_leaves_the_loop_alive(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    async def main() -> tuple[int, int, list[int]]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.02)
                ticks += 1

        ticker = asyncio.create_task(tick())
        ranks = await lab.run_async(nap, 1.0)
        during = ticks
        table = await lab.from_pandas_async(frame)
        shuffled = await table.shuffle_async("k")
        ticker.cancel()
        return during, shuffled.num_rows, ranks

    during, rows, ranks = asyncio.run(main())
    assert (rows, ranks) == (1000, [0, 1])
    assert during >= 15, "the loop stood still while the ranks worked"


@pytest.mark.mpi
def test_all_requests_run_in_the_order_in_which_they_were_asked_for(lab: gl.Cluster) -> None:
    lab.run(lambda: gl.__dict__.pop("_order_of_tests", None))
    first = lab.run_async(nap, 0.3)
    second = [lab.run_async(numbered, number) for number in (1, 2)]
    assert lab.run(numbered, 3) == [3, 3]
    assert all(future.done() for future in [first, *second])
    third = lab.run_async(numbered, 4)
    lab.view.execute("import gcylon_lab as gl; gl._order_of_tests.append(5)", silent=False)
    assert lab.run(lambda: gl._order_of_tests) == [[1, 2, 3, 4, 5]] * 2
    assert third.result() == [4, 4] and second[1].result(0) == [2, 2]


@pytest.mark.mpi
def test_futures_are_results_errors_and_words(lab: gl.Cluster, frame: pd.DataFrame, tmp_path: Path) -> None:
    table = lab.from_pandas(frame)
    future = table.shuffle_async("k", strategy="staged")
    assert isinstance(future, VerbFuture) and "shuffle('k', strategy='staged')" in repr(future)
    assert future.result(20).num_rows == 1000 and future.done() and not future.cancel() and not future.cancelled()
    assert "done in" in repr(future) and future.exception() is None
    with pytest.raises(ColumnMissing, match="zz") as caught:
        table.shuffle_async("zz").result()
    assert caught.value.ranks == (0, 1)
    with pytest.raises(TypeError, match="missing"):
        table.shuffle_async()
    slow = lab.run_async(wait_for, str(tmp_path / "go"))
    assert "running" in repr(slow) or "waits" in repr(slow)
    with pytest.raises(TimeoutError, match="goes on"):
        slow.result(0.1)
    (tmp_path / "go").touch()
    assert slow.result() == [0, 1]
    assert table.groupby("k").agg_async({"v": "sum"}).result().num_rows == frame["k"].nunique()

    async def several() -> list[object]:
        return await asyncio.gather(table.sum_async("v"), table.head_async(2), table.count_rows_async())

    total, head, rows = asyncio.run(several())
    assert total == pytest.approx(frame["v"].sum()) and len(head) == 2 and rows == 1000
    table.release()
    assert isinstance(table.sum_async("v").exception(), HandleReleased)


@pytest.mark.mpi
def test_an_error_that_nobody_asked_for_is_told(
    lab: gl.Cluster, frame: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    future = lab.from_pandas(frame).shuffle_async("zz")
    while not future.done():
        time.sleep(0.02)
    with caplog.at_level(logging.ERROR):
        del future
        until = time.monotonic() + 10
        while not caplog.text and time.monotonic() < until:
            gc.collect()  # the thread in which it ran has it a moment longer
            time.sleep(0.02)
    assert "nobody asked for its result: ColumnMissing" in caplog.text


@pytest.mark.mpi
def test_what_has_not_begun_is_dropped(lab: gl.Cluster, tmp_path: Path) -> None:
    lab.run(lambda: gl.__dict__.pop("_order_of_tests", None))

    async def main() -> None:
        slow = lab.run_async(wait_for, str(tmp_path / "go"))
        task = asyncio.ensure_future(lab.run_async(numbered, 7))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        dropped = lab.run_async(numbered, 8)
        assert dropped.cancel() and dropped.cancelled() and "cancelled" in repr(dropped)
        with pytest.raises(concurrent.futures.CancelledError):
            dropped.result()
        (tmp_path / "go").touch()
        assert await slow == [0, 1], "the one before was struck"

    asyncio.run(main())
    assert lab.run(numbered, 9) == [9, 9]
    assert lab.run(lambda: gl._order_of_tests) == [[9]] * 2


@pytest.mark.mpi
def test_what_is_cancelled_before_it_is_sent_is_not_sent(lab: gl.Cluster) -> None:
    lab.run(lambda: gl.__dict__.pop("_order_of_tests", None))
    going, go = threading.Event(), threading.Event()

    def slowly() -> None:
        going.set()
        go.wait(10)
        lab.run(numbered, 1)

    future = lab._session.later("slowly", slowly)
    going.wait(10)
    assert future.cancel()
    go.set()
    assert lab.run(numbered, 2) == [2, 2]
    assert lab.run(lambda: gl._order_of_tests) == [[2]] * 2


@pytest.mark.mpi
def test_cancelling_what_runs_frees_all_ranks(hurt: gl.Cluster, frame: pd.DataFrame) -> None:
    table = hurt.from_pandas(frame)
    start = time.monotonic()

    async def main() -> None:
        future = hurt.run_async(stuck)
        task = asyncio.ensure_future(future)
        while not future.running():
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        after = table.shuffle_async("k")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert future.cancelled()
        assert (await after).num_rows == 1000, "the next one was struck too"

    asyncio.run(main())
    assert sum(len(part) for part in table.shuffle("k").local()) == 1000
    assert time.monotonic() - start < 20
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(_awaited(hurt.run_async(stuck)), 0.5))
    assert hurt.run(numbered, 1) == [1, 1]


async def _awaited(future: VerbFuture[object]) -> object:
    return await future
