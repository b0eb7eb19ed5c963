"""Several contexts in one process, and ranks that leave while others go on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from worlds import MPI_ENVIRONMENT, World

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, CommError, RankLost
from gcylon_lab.profiling import current_recorder
from gcylon_lab.runtime.context import Context, initialize

PATHS = os.pathsep.join(p for p in sys.path if p)


@pytest.fixture
def two() -> Iterator[tuple[Context, gl.Table, Context, gl.Table]]:
    """Two contexts of this process, the second one current, with a table in each."""
    frame = pd.DataFrame({"k": [1, 2], "x": [3, 4]})
    with initialize(sample_hz=0) as first:
        t = gl.from_local(frame)
        second = initialize(sample_hz=0)
        try:
            yield first, t, second, gl.from_local(frame)
        finally:
            second.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda t, u: t.join(u, on="k"),
        lambda t, u: t.plan_join(u, on="k"),
        lambda t, u: t.concat([t, u]),
        lambda t, u: t.plan_concat(u),
        lambda t, u: t.union(u),
        lambda t, u: t.equals(u),
    ],
)
def test_tables_of_two_contexts_do_not_meet(two: Any, call: Callable[[Any, Any], Any]) -> None:
    _, t, _, u = two
    with pytest.raises(ArgumentError, match="table of another context"):
        call(t, u)
    assert call(t, t) is not None


def test_after_one_is_closed_spans_belong_to_the_other(two: Any) -> None:
    first, _, second, _ = two
    second.close()
    assert gl.current() is first
    with gl.span("later"):
        pass
    assert "later" in str(first.snapshot()["spans"])


def leave_at_once(rank: int) -> int:
    from gcylon_lab.comm import mpi

    context = gl.current()
    table = gl.from_local(pd.DataFrame({"k": [context.rank]}))
    rows = table.count_rows()
    if context.rank == rank:
        context.close()
        return rows
    before, mpi._GRACE_S = mpi._GRACE_S, 0.1
    try:
        with pytest.raises(RankLost, match="of a context that rank .*1.* left"):
            table.count_rows()
        context.recover()
    finally:
        mpi._GRACE_S = before
    return rows


@pytest.mark.mpi
def test_a_rank_that_closes_its_context_is_named_by_those_that_wait_for_it() -> None:
    outcomes = World("mpi", 4).outcomes(leave_at_once, 1)
    assert outcomes[1].value == 4
    for outcome in (outcomes[0], *outcomes[2:]):
        assert isinstance(outcome.error, RankLost)
        assert "left, by close()" in str(outcome.error)
        assert 1 in outcome.error.numbers["lost_ranks"]  # others may have had their error and closed by now


ENDS_EARLY = """
import sys
import pandas as pd
import gcylon_lab as gl
from gcylon_lab.comm import mpi
mpi._GRACE_S = 0.1
context = gl.initialize(sample_hz=0)
table = gl.from_local(pd.DataFrame({"k": [context.rank]}))
if context.rank == 1:
    sys.exit(3)
table.shuffle("k")
"""


@pytest.mark.mpi
def test_a_program_that_ends_on_one_rank_alone_ends_on_all() -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    done = subprocess.run(
        [str(mpiexec), "-n", "2", sys.executable, "-c", ENDS_EARLY],
        env=os.environ | MPI_ENVIRONMENT | {"PYTHONPATH": PATHS},
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode not in (0, None)
    assert "a context that rank 1 left" in done.stderr


def refusals() -> list[str]:
    from mpi4py import MPI

    world, said = MPI.COMM_WORLD, []
    half = world.Split(world.rank % 2, world.rank)
    between = half.Create_intercomm(0, world, 1 - world.rank % 2)
    for comm in (MPI.COMM_NULL, between):
        try:
            initialize(comm=comm, sample_hz=0)
        except ArgumentError as error:
            said.append(str(error))
    between.Free()
    half.Free()
    return said


@pytest.mark.mpi
def test_communicators_that_are_none_are_refused() -> None:
    for said in World("mpi", 2).run(refusals):
        assert len(said) == 2
        assert "COMM_NULL" in said[0]
        assert "intercommunicator" in said[1]


BEFORE_AND_AFTER = """
import threading
import mpi4py
mpi4py.rc.initialize = False
mpi4py.rc.thread_level = "single"
from mpi4py import MPI
from gcylon_lab.comm.mpi import MpiTransport
from gcylon_lab.errors import CommError
def refused(call):
    try:
        call()
    except CommError as error:
        print(error)
refused(MpiTransport)
MPI.Init()
transport = MpiTransport()
transport.set_deadline(0)
print(*[thread.name for thread in threading.enumerate()])
refused(transport.check)
MPI.Finalize()
refused(lambda: transport.share(b""))
refused(MpiTransport)
transport.close()
"""


@pytest.mark.mpi
def test_without_mpi_an_error_is_raised_where_mpi_would_end_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEFORE_AND_AFTER],
        env=os.environ | MPI_ENVIRONMENT | {"PYTHONPATH": PATHS},
        timeout=60,
        check=True,
        capture_output=True,
        text=True,
    )
    before, threads, deadline, *after = (line.split(". ")[0] for line in done.stdout.splitlines())
    assert before == "MPI is not initialized"
    assert after == ["MPI is finalized", "MPI is finalized"]
    assert threads == "MainThread"  # MPI may be called from this one only
    assert "past the operation's deadline" in deadline


def go_on_after_a_deadline() -> tuple[str, int]:
    context = gl.current()
    table = gl.from_local(pd.DataFrame({"k": [context.rank]}))
    context.transport.revoke()
    try:
        table.count_rows()
    except CommError as error:
        said = str(error)
    context.recover()
    return said, table.count_rows()


@pytest.mark.mpi
def test_the_error_after_an_interrupt_says_how_to_go_on() -> None:
    for said, rows in World("mpi", 2).run(go_on_after_a_deadline):
        assert "gl.current().recover()" in said
        assert rows == 2


def free_it_at_once() -> tuple[int, bool]:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD.Split(0, MPI.COMM_WORLD.rank)
    hook = sys.excepthook
    context = initialize(comm=comm, sample_hz=0)
    comm.Free()
    try:
        table = gl.from_local(pd.DataFrame({"k": [context.rank]}))
        context.transport.revoke()
        with pytest.raises(CommError):
            table.count_rows()
        context.recover()
        return table.count_rows(), sys.excepthook is hook
    finally:
        context.close()


@pytest.mark.mpi
def test_a_communicator_stays_the_callers_to_free() -> None:
    """And its context wraps what ends all ranks not once more."""
    assert World("mpi", 2).run(free_it_at_once) == [(2, True), (2, True)]


def test_what_an_interrupt_left_claimed_is_free_after_recovery() -> None:
    with initialize(sample_hz=0) as context:
        table, budget = gl.from_local(pd.DataFrame({"k": range(100)})), context.budget
        before, give = budget.used_bytes, budget._give

        def interrupted(*unused: object) -> None:
            budget._give = give  # type: ignore[method-assign]
            raise KeyboardInterrupt

        budget._give = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            table.sort_values("k", strategy="staged")
        assert budget.used_bytes > before
        context.recover()
        assert budget.used_bytes == before
        assert table.sort_values("k").count_rows() == 100


def test_contexts_that_are_closed_in_turn_leave_no_recorder() -> None:
    before = current_recorder()  # None, but where a test before has left a context
    with initialize(engine="cpu", sample_hz=0):
        initialize(engine="cpu", sample_hz=0).close()
    assert current_recorder() is before
