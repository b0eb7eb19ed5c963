"""``%px`` beside handles: one order on all ranks, one error for a cell, live answers while a cell runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ipyparallel.error import AlreadyDisplayedError, CompositeError
from IPython.core.interactiveshell import InteractiveShell

import gcylon_lab as gl
from gcylon_lab.cluster.channel import stall_detector
from gcylon_lab.cluster.channel.views import activate
from gcylon_lab.errors import RankError

pytestmark = pytest.mark.mpi

# Every collective carries a number: where two of them met, the numbers differ.
NUMBERED = """
import numpy as np
import gcylon_lab as gl
seen = gl.current().transport.agree(np.array([{number}], dtype=np.int64))
mixed = globals().get("mixed", 0) + int((seen != {number}).any())
"""


@pytest.fixture
def shell(lab: gl.Cluster) -> Iterator[InteractiveShell]:
    """A shell in which the cluster's view is active."""
    shell = InteractiveShell.instance()
    activate(lab.view)
    yield shell
    InteractiveShell.clear_instance()


def agree_on(number: int) -> bool:
    seen = gl.current().transport.agree(np.array([number], dtype=np.int64))
    return bool((seen == number).all())


def test_cells_and_handles_of_two_threads_never_mix(lab: gl.Cluster) -> None:
    lab.view.execute("mixed = 0", silent=False)
    wrong: list[object] = []

    def cells() -> None:
        for number in range(100):
            lab.view.execute(NUMBERED.format(number=number), silent=False, block=False)

    def handles() -> None:
        for number in range(1000, 1100):
            try:
                if lab.run(agree_on, number) != [True, True]:
                    wrong.append(number)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=cells), threading.Thread(target=handles)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert lab.view["mixed"] == [0, 0]


def test_px_and_handles_see_the_same_tables(shell: InteractiveShell, lab: gl.Cluster, frame: pd.DataFrame) -> None:
    lab.from_pandas(frame).bind("orders")
    shell.run_line_magic("px", "u = orders.shuffle('k'); rows = len(u.local())")
    assert sum(lab.view["rows"]) == 1000
    assert lab.table("u").num_rows == 1000


def test_results_of_px_stand_in_the_order_of_ranks(lab: gl.Cluster) -> None:
    lab.view.execute("where = gl.current().rank", silent=False)
    assert lab.view["where"] == [0, 1]


def test_an_error_in_a_cell_on_one_rank_frees_the_other(lab: gl.Cluster) -> None:
    code = "import gcylon_lab as gl\nif gl.current().rank == 1: 1 / 0\n" + NUMBERED.format(number=5)
    start = time.monotonic()
    with pytest.raises(CompositeError) as caught:
        lab.view.execute(code, silent=False)
    assert time.monotonic() - start < stall_detector.IDLE_S
    assert [entry[0] for entry in caught.value.elist] == ["ZeroDivisionError"]
    assert "Rank 0 left with Revoked" in str(caught.value)
    assert lab.run(agree_on, 6) == [True, True]


def test_a_cells_error_is_shown_once(
    shell: InteractiveShell, lab: gl.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AlreadyDisplayedError, match="1 errors"):
        shell.run_cell_magic("px", "--stream", "raise KeyError('only once')")
    shown = capsys.readouterr().err
    assert shown.count("Traceback (most recent call last)") == 1
    assert "Ranks 0-1 raised the same KeyError." in shown
    assert lab.run(agree_on, 7) == [True, True]


def test_an_error_that_came_before_anybody_listened_is_shown_too(
    lab: gl.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = lab.view.execute("raise KeyError('too fast')", silent=False, block=False)
    assert sent.wait_for_output(20)
    with sent.stream_output(), pytest.raises(CompositeError):
        sent.get()
    shown = capsys.readouterr().err
    assert shown.count("Traceback (most recent call last)") == 1
    assert "'too fast'" in shown and "Ranks 0-1 raised the same KeyError." in shown


ONLY_THERE = """
import sys, types
sys.modules["only_there"] = types.ModuleType("only_there")
exec("class Value: pass", sys.modules["only_there"].__dict__)
value = sys.modules["only_there"].Value()
"""


def value_of_ranks() -> Any:
    """What ranks alone can unpickle."""
    import only_there

    return only_there.Value()


def test_a_value_that_the_notebook_cannot_read_is_an_error(lab: gl.Cluster) -> None:
    lab.view.execute(ONLY_THERE, silent=False)
    told = "cannot be read in the notebook: ModuleNotFoundError: No module named 'only_there'.*plain values"
    with pytest.raises(CompositeError, match=told) as caught:  # it waited for ever
        lab.view["value"]
    assert "rank 0" in str(caught.value) and "rank 1" in str(caught.value)
    with pytest.raises(RankError, match=told):
        lab.run(value_of_ranks)
    assert lab.run(len, "four") == [4] * lab.n


def test_an_error_that_one_rank_catches_alone_frees_the_other(lab: gl.Cluster) -> None:
    lab.from_pandas(pd.DataFrame({"k": [1, 2, 3]})).bind("caught")
    code = """
import gcylon_lab as gl
try:
    caught.shuffle("no such column")
except gl.GcylonError:
    if gl.current().rank == 1:
        raise
    caught.shuffle("k")
"""
    start = time.monotonic()
    with pytest.raises(CompositeError) as caught:
        lab.view.execute(code, silent=False)
    assert time.monotonic() - start < stall_detector.IDLE_S
    assert [entry[0] for entry in caught.value.elist] == ["ColumnMissing"]
    assert lab.run(agree_on, 8) == [True, True]


def test_ranks_answer_while_a_cell_runs(lab: gl.Cluster) -> None:
    old = lab.config
    cell = """
import time
until = time.monotonic() + 30
while gl.current().config.min_chunk_rows != 77 and time.monotonic() < until:
    time.sleep(0.01)
after = gl.current().config.min_chunk_rows
"""
    sent = lab.view.execute(cell, block=False)
    while [row["state"] for row in lab.status()] != ["busy", "busy"]:
        assert not sent.ready()
    assert len(lab.snapshots()) == 2
    assert not sent.ready(), "an answer queued behind the cell"
    lab.config = old.with_values(min_chunk_rows=77)
    sent.get()
    assert lab.view["after"] == [77, 77], "the config queued behind the cell"
    lab.config = old


def test_the_feed_tells_while_work_runs_and_is_still_when_nobody_looks(lab: gl.Cluster, frame: pd.DataFrame) -> None:
    told: list[tuple[float, int]] = []
    stop = lab.feed.subscribe(lambda snapshots: told.append((time.monotonic(), len(snapshots))))
    lab.run(lambda: __import__("time").sleep(1.5))
    during = list(told)
    stop()
    gaps = sorted(after[0] - before[0] for before, after in pairwise(during))
    assert len(gaps) >= 2 and gaps[1] < 0.4, "less often than a busy machine explains"
    assert {ranks for _, ranks in told} == {2}
    until = time.monotonic() + 20
    while lab.feed._thread is not None and time.monotonic() < until:  # it may be at it, and ends with the next look
        time.sleep(0.05)
    count = len(told)
    lab.run(lambda: __import__("time").sleep(0.5))
    assert len(told) == count


def test_progress_is_told_while_a_request_runs(lab: gl.Cluster) -> None:
    seen: list[str] = []
    lab.on_progress(lambda states: seen.append(states[0]["running"]))
    lab.run(lambda: __import__("time").sleep(2))
    assert "run" in seen
