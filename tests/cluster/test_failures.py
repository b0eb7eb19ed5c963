"""What N ranks report becomes one error."""

from __future__ import annotations

import time
import traceback

import pytest

import gcylon_lab as gl
from gcylon_lab.cluster.channel.px_errors import fold_entries
from gcylon_lab.cluster.failures import fold, freed, name_ranks
from gcylon_lab.cluster.messages import Reply
from gcylon_lab.cluster.tracebacks import shorten
from gcylon_lab.comm.transport import INTERRUPTED
from gcylon_lab.errors import (
    BudgetExceeded,
    ColumnMissing,
    DeadlineExceeded,
    RankError,
    Revoked,
    to_message,
)


def failed(rank: int, error: BaseException) -> Reply:
    return Reply(rank, error=to_message(error, rank), traceback=f"traceback of rank {rank}")


def test_no_failure_is_no_error() -> None:
    assert fold([Reply(0), Reply(1)]) is None


def test_the_same_error_on_all_ranks_is_one_error_that_blames_none() -> None:
    error = fold([failed(r, ColumnMissing("There is no 'z'.", advice="Use 'k'.", column="z")) for r in range(3)])
    assert type(error) is ColumnMissing
    assert error.rank is None
    assert error.ranks == (0, 1, 2)
    assert error.remote_traceback == "traceback of rank 0"
    assert error.advice == "Use 'k'."
    assert error.numbers["column"] == "z"


def test_the_cause_stands_before_its_echoes() -> None:
    replies = [
        failed(0, Revoked("Interrupted.")),
        failed(1, ValueError("bad value")),
        failed(2, Revoked("Interrupted.")),
    ]
    error = fold(replies)
    assert type(error) is RankError
    assert error.rank == 1
    assert "bad value" in error.message
    assert error.remote_traceback == "traceback of rank 1"
    assert any(note.startswith("Ranks 0, 2 left with Revoked") for note in error.__notes__)


def test_of_ranks_that_were_interrupted_the_one_that_knows_is_named() -> None:
    replies = [failed(0, Revoked(INTERRUPTED, rank=0)), failed(1, Revoked("Rank 1 was interrupted in 'run'.", rank=1))]
    error = fold(replies)
    assert error is not None and error.rank == 1 and error.message == "Rank 1 was interrupted in 'run'."
    told = fold([freed(failed(0, Revoked("Rank 0 was interrupted in 'run'.", rank=0))), replies[1]])
    assert told is not None and told.rank == 1


def test_messages_that_differ_by_their_rank_are_the_same() -> None:
    error = fold([failed(r, DeadlineExceeded(f"Rank {r} waited too long.", rank=r)) for r in range(4)])
    assert error is not None
    assert error.ranks == (0, 1, 2, 3)


def test_ranks_without_an_error_are_told() -> None:
    error = fold([Reply(0), failed(1, BudgetExceeded("No room.", rank=1))])
    assert type(error) is BudgetExceeded
    assert any("1 of 2 ranks had no error" in note for note in error.__notes__)


def test_ranks_are_named_in_runs() -> None:
    assert name_ranks([2]) == "rank 2"
    assert name_ranks([0, 1, 2, 5]) == "ranks 0-2, 5"


def test_a_cells_errors_are_folded() -> None:
    entries = [
        ("Revoked", "[rank 0] The operation was interrupted.", "tb0", {"engine_id": 10}),
        ("ZeroDivisionError", "division by zero", "tb1", {"engine_id": 11}),
        ("ZeroDivisionError", "division by zero", "tb2", {"engine_id": 12}),
    ]
    kept, note = fold_entries(entries, [10, 11, 12])
    assert [entry[0] for entry in kept] == ["ZeroDivisionError"]
    assert "Rank 0 left with Revoked." in note
    assert "Ranks 1-2 raised the same ZeroDivisionError." in note


def test_a_very_long_traceback_is_shown_by_its_ends() -> None:
    def goes_on(n: int) -> int:
        return goes_on(n + 1)

    with pytest.raises(RecursionError) as caught:
        goes_on(0)
    shorten(caught.value)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert len(names) < 50
    assert names[0] == "test_a_very_long_traceback_is_shown_by_its_ends" and names[-1] == "goes_on"
    with pytest.raises(ZeroDivisionError) as short:
        print(1 // 0)
    shorten(short.value)
    assert len(traceback.extract_tb(short.value.__traceback__)) == 1


@pytest.mark.mpi
def test_a_recursion_without_end_on_one_rank_is_an_error_soon(lab: gl.Cluster) -> None:
    code = """
import numpy
def goes_on(n): return goes_on(n + 1)
if gl.current().rank == 1: goes_on(0)
gl.current().transport.agree(numpy.zeros(1, dtype=int))
"""
    spent = lab.run(time.process_time)
    with pytest.raises(Exception, match="RecursionError"):
        lab.view.execute(code, block=True)
    # Not by the clock: what a rank does to show a traceback is what took long.
    assert lab.run(time.process_time)[1] - spent[1] < 1.5


def test_an_errors_context_comes_to_the_notebook_and_stands_on_its_card(lab: gl.Cluster) -> None:
    code = """
import gcylon_lab as gl
def odd(frame):
    with gl.span("my step"):
        raise ValueError("odd")
"""
    lab.view.execute(code, block=True)
    lab.view.execute("t = gl.from_local(__import__('pandas').DataFrame({'k': range(9)}))", block=True)

    def fails() -> None:
        import __main__

        __main__.t.map_parts(__main__.odd)

    with pytest.raises(RankError) as caught:
        lab.run(fails)
    error = caught.value
    assert error.context["phase"] == "my step" and error.context["operation"].startswith("map_parts #")
    assert set(error.context["tiers"]) == {"device", "pinned", "disk"} and error.context["budget"]["used_bytes"] > 0
    assert f"in {error.context['operation']}; phase my step" in str(error)
    assert f"\n  Where: in {error.context['operation']}; phase my step" in error._render_traceback_()[0]
