"""Faults put into one rank while a real operation runs, and what every rank must show afterwards."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pandas as pd
from exchanges import make_frame, rows_of

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.context import Context, current
from gcylon_lab.table import Table


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
        found = getattr(self._inner, name)
        if name != self._method:
            return found

        def call(*args: Any) -> Any:
            self._calls += 1
            if self._calls == self._fault.call:
                raise self._fault.kind(f"injected into {name}")
            return found(*args)

        return call


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
    return context.budget.used_bytes, context.spill.used_bytes


def observe(call: Callable[[], Any], table: Table | None = None, *, recover: bool = False) -> dict[str, Any]:
    """Make a call that may fail on this rank; return the error, what it left behind, and whether work goes on.

    The error is kept all the while, as a notebook keeps the last one.
    """
    context = current()
    before = state(context)
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
    after = state(context)
    if recover:
        context.recover()
    if table is not None and input_before is not None:
        pd.testing.assert_frame_equal(table.local(), input_before)
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
