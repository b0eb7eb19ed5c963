"""Faults put into one rank while a real operation runs, and what every rank must show afterwards."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import worlds
from exchanges import held, make_frame, more_held, rows_of
from same_frames import assert_frames_equal

import gcylon_lab as gl
from gcylon_lab.api.table import Table
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.store.chunk import hold
from gcylon_lab.engine.store.part import Part
from gcylon_lab.runtime.context import Context, current, set_current

SCALARS_OF_CUDF = 4096  # what it keeps on the device between calls, at the most


class Fault(NamedTuple):
    """Where a rank fails: at the n-th call of a backend's method, at the n-th write to or read from the disk tier."""

    where: str
    call: int = 1
    kind: type[BaseException] = ValueError

    def __str__(self) -> str:
        return f"{self.where}-{self.call}-{self.kind.__name__}"


class Faulty:
    """Stands before a real object; one of its methods raises at its n-th call."""

    def __init__(self, inner: Any, fault: Fault, method: str) -> None:
        self._inner = inner
        self._fault = fault
        self._method = method
        self._calls = 0

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name == self._method else getattr(self._inner, name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self._calls += 1
        if self._calls != self._fault.call:
            return getattr(self._inner, name)(*args, **kwargs)
        kind = self._fault.kind
        del self, args, kwargs  # this frame is kept with the error, and would keep a GPU's memory
        raise kind(f"injected into {name}")


class FaultyOutputs:
    """A backend whose results fail when they are to be put together, after the last round."""

    def __init__(self, inner: Any, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return (lambda *args: Faulty(found(*args), self._fault, "finish")) if name == "allocate" else found


@contextmanager
def broken(context: Context, rank: int, fault: Fault) -> Iterator[None]:
    """Put a fault into one rank; the others run as they are."""
    if context.rank != rank:
        yield
        return
    if fault.where in ("pwritev", "preadv"):
        with full_disk(fault):
            yield
        return
    workspace = context.workspace
    before = workspace.backend
    made = FaultyOutputs(before, fault) if fault.where == "finish" else Faulty(before, fault, fault.where)
    workspace.backend = made  # type: ignore[assignment]
    try:
        yield
    finally:
        workspace.backend = before


@contextmanager
def full_disk(fault: Fault) -> Iterator[None]:
    """Let this thread's n-th transfer to or from disk go half way, then fail; ranks may be threads of one process."""
    me, real, calls = threading.get_ident(), getattr(os, fault.where), 0

    def transfer(fd: int, vectors: list[Any], offset: int) -> int:
        nonlocal calls
        if threading.get_ident() == me:
            calls += 1
            if calls == fault.call:
                return int(real(fd, [memoryview(vectors[0])[: max(1, len(vectors[0]) // 2)]], offset))
            if calls > fault.call:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(real(fd, vectors, offset))

    setattr(os, fault.where, transfer)
    try:
        yield
    finally:
        setattr(os, fault.where, real)


def state(context: Context) -> tuple[int, int]:
    return worlds.claimed_bytes(context), context.spill.used_bytes


def observe(
    call: Callable[[], Any],
    table: Table | None = None,
    *,
    recover: bool = False,
    again: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Make a call that may fail on this rank; return the error, what it left behind, and whether work goes on.

    The error is kept all the while, as a notebook keeps the last one.
    """
    context = current()
    before = held(context)
    input_before = None if table is None else table.local()
    started, error, result = time.monotonic(), None, None
    try:
        result = call()
    except Exception as caught:
        error = caught
    except KeyboardInterrupt as caught:
        error = RuntimeError(f"interrupted: {caught}")
    waited = time.monotonic() - started
    if isinstance(result, Table):
        result.release()
    on_gpu = context.workspace.backend.on_gpu
    if recover and on_gpu:
        context.recover()  # until then copies on their way keep what they touch
    after = tuple(then + more for then, more in zip(before, more_held(context, before, SCALARS_OF_CUDF), strict=True))
    again()
    if recover and not on_gpu:
        context.recover()
    if table is not None and input_before is not None:
        assert_frames_equal(table.local(), input_before)
    return {"error": error, "waited_s": waited, "left": (before, after), "next": next_operation()}


def next_operation() -> list[tuple[Any, ...]]:
    """One more shuffle in the same context; its rows on this rank."""
    context = current()
    table = gl.from_local(make_frame("even", context.rank, context.size, 40)[["g", "k", "s"]])
    result = table.shuffle("k")
    rows = rows_of(result.local())
    result.release()
    table.release()
    return rows


def expected_next(size: int) -> list[tuple[Any, ...]]:
    return rows_of(pd.concat([make_frame("even", rank, size, 40)[["g", "k", "s"]] for rank in range(size)]))


def looking_at_rows(rank: int, fault: Fault) -> dict[str, Any]:
    """`head` of a staged table, which is read back for it."""
    context = current()
    made = gl.from_local(make_frame("even", context.rank, context.size))
    table = made.repartition(strategy="staged")
    made.release()

    def call() -> pd.DataFrame:
        with broken(context, rank, fault):
            return table.head(10_000)

    return observe(call, table)


def spreading_a_frame(rank: int, fault: Fault) -> dict[str, Any]:
    """`from_pandas`, which takes the root's frame in and then spreads it."""
    context = current()

    def call() -> Table:
        with broken(context, rank, fault):
            return gl.from_pandas(make_frame("even", 0, 1) if context.rank == 0 else None)

    return observe(call)


def bad_frames(frames: dict[int, Any]) -> dict[str, Any]:
    """`from_local` where some ranks hold something else than the others."""
    context = current()
    return observe(lambda: gl.from_local(frames.get(context.rank, make_frame("even", context.rank, context.size))))


def failing_generator(rank: int, after: int, staged: bool) -> dict[str, Any]:
    """`from_local` of frames made one by one; making one fails on a rank."""
    context = current()
    # A GPU's allocator takes 256 bytes for each small buffer, which is most of a few KiB.
    rows, limit = (20_000, "4 MiB") if context.workspace.backend.on_gpu else (300, "64 KiB")

    def frames() -> Iterator[pd.DataFrame]:
        for i in range(4):
            if context.rank == rank and i == after:
                raise LookupError(f"no frame {i}")
            yield make_frame("even", context.rank, context.size, rows)

    config = GcylonConfig(gpu_memory_limit=limit) if staged else None
    return observe(lambda: gl.from_local(frames(), config=config))


def disagreeing(verbs: dict[int, tuple[str, dict[str, Any]]], usual: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Ranks call a verb, or give arguments, of their own."""
    context = current()
    table = gl.from_local(make_frame("even", context.rank, context.size))
    verb, arguments = verbs.get(context.rank, usual)
    return observe(lambda: getattr(table, verb)(**arguments), table)


def other_columns(rank: int, frame: pd.DataFrame, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A table that has another schema on one rank: made alone there, as no reader would make it."""
    context = current()
    workspace = context.workspace
    mine = frame if context.rank == rank else make_frame("even", context.rank, context.size)
    data = workspace.backend.from_frame(mine)
    table = Table(Part(workspace, data.schema, [hold(workspace, data, "A table")]), context)
    return observe(lambda: getattr(table, verb)(**arguments), table)


def lower_ceiling(rank: int, live: bool) -> dict[str, Any]:
    """One rank started with less memory than an operation's config asks for."""
    shared = current()
    ceiling = GcylonConfig(gpu_memory_limit="1 MiB" if shared.rank == rank else "64 MiB")
    config = GcylonConfig(gpu_memory_limit="8 MiB")
    context = Context(shared.transport, ceiling, sample_hz=0)
    set_current(context)
    try:
        context.set_config(GcylonConfig())
        table = gl.from_local(make_frame("even", context.rank, context.size))
        if live and context.rank == 0:
            context.set_config(config)  # within the ceiling of rank 0, which sends it to the others
            observed = observe(lambda: table.shuffle("k"), table, again=lambda: context.set_config(GcylonConfig()))
        else:
            observed = observe(lambda: table.shuffle("k", config=None if live else config), table)
        return observed
    finally:
        context.close()
        set_current(shared)


def interrupted(rank: int, fault: Fault) -> dict[str, Any]:
    return run_with_fault("shuffle", {"on": "k"}, "direct", None, rank, fault, recover=True)


# Where a shuffle of some hundred rows can be made to fail, and at which calls.
PLACES = {
    "auto": [("partition_ids", 1), ("partition", 1), ("pack_variable", 1), ("finish", 1)],
    "direct": [("variable_bytes", 1), ("partition", 1), ("pack_variable", 1), ("allocate", 1)],
    "chunked": [("partition_ids", 3), ("partition", 3), ("pack_variable", 6), ("finish", 1)],
    "staged": [("partition_ids", 3), ("partition", 3), ("pack", 3), ("pwritev", 3), ("allocate", 3)],
}


def fault_after_fault(seed: int, times: int) -> dict[str, Any]:
    """So many faults one after the other, of every kind, on any rank, in one context."""
    from mpi4py import MPI

    context = current()
    random = np.random.default_rng(seed)  # the same draws on every rank
    tight = GcylonConfig(gpu_memory_limit="1 MiB", chunk_size_bytes=1024, min_chunk_rows=1)
    table = gl.from_local(make_frame("even", context.rank, context.size, 100)[["g", "k", "s", "x"]])
    before, failed, recovered = state(context), 0, 0
    while failed < times:
        rank, strategy = int(random.integers(context.size)), str(random.choice(list(PLACES)))
        where, calls = PLACES[strategy][random.integers(len(PLACES[strategy]))]
        kind = (ValueError, MemoryError, KeyboardInterrupt)[int(random.choice(3, p=[0.6, 0.3, 0.1]))]
        fault = Fault(where, int(random.integers(1, calls + 1)), kind)
        config = tight if strategy in ("chunked", "staged") else None
        told = True
        try:
            with broken(context, rank, fault):
                table.shuffle(["k", "s"], strategy=strategy, config=config, timeout_s=30).release()
        except (Exception, KeyboardInterrupt) as error:
            failed += 1
            told = getattr(error, "agreed", False)
        # As a client does: recovery is a request of its own, once every rank has answered.
        if not worlds.RANKS.allreduce(told, MPI.LAND):
            context.recover()
            recovered += 1
        assert state(context) == before
    table.release()
    return {"failed": failed, "recovered": recovered, "next": next_operation()}


def run_with_fault(
    verb: str, arguments: dict[str, Any], strategy: str, config: GcylonConfig | None, rank: int, fault: Fault,
    staged_input: bool = False, recover: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Run a verb in which one rank fails."""
    context = current()
    table = gl.from_local(make_frame("even", context.rank, context.size))
    if staged_input:
        staged = table.repartition(strategy="staged", config=config)
        table.release()
        table = staged

    def call() -> Table:
        with broken(context, rank, fault):
            return getattr(table, verb)(**arguments, strategy=strategy, config=config)

    return observe(call, table, recover=recover)
