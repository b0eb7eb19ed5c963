"""Rows that come from, or go to, whoever is not a rank: piece by piece, within the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from ...backends.protocol.data import Columns, Data
from ...engine.exec.invocation import Request
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import GcylonError
from ...memory.budget import MemoryBudget, exceeded
from .ingest import agreed, piece_bytes, reserved, taken_in

_LEAST_SPARE_BYTES = 256 * 1024


class Incoming(Protocol):
    """Rows that this rank is sent."""

    def __call__(self, window_bytes: int, piece_bytes: int) -> Iterator[Columns]:
        """Give them, with so many bytes on their way, in pieces of about so many."""
        ...

    def leave(self) -> None:
        """Tell whoever sends them that this rank wants none, if it has not asked for any."""
        ...


@contextmanager
def leaving(incoming: Incoming) -> Iterator[None]:
    """Where it fails inside, the sender is told: it may have rows for others only once this rank has had its own."""
    try:
        yield
    except Exception:
        with suppress(GcylonError):
            incoming.leave()
        raise


def window_bytes(limit_bytes: int) -> int:
    """Bytes of rows that may be on their way to or from a rank with such a limit."""
    return max(1, piece_bytes(limit_bytes) // 2)


def receive_rows(workspace: Workspace, request: Request, incoming: Incoming, expected_bytes: int = 0) -> Part:
    """Collective: all ranks call it. Make a table of the rows that each rank is sent.

    Parameters
    ----------
    workspace : Workspace
        This rank's means.
    request : Request
        The call; its part is an empty one.
    incoming : Incoming
        The rows.
    expected_bytes : int, default 0
        About what the rows take; 0 where that is not known.

    Raises
    ------
    BudgetExceeded
        If the rows do not fit and staging is not allowed: before any is sent, where it is known what they take.
    SchemaMismatch
        If rows cannot be brought to one schema.
    """

    def body(operation: Operation) -> Part:
        fits = None if operation.may_stage or not expected_bytes else expected_bytes
        with leaving(incoming):
            pieces = taken_in(operation, lambda: received(workspace, incoming, fits))
        return agreed(operation, pieces)

    return run_verb(workspace, request, body)[0]


def received(workspace: Workspace, incoming: Incoming, beside_bytes: int | None = None) -> Iterator[Data]:
    """Rows that this rank is sent, piece by piece, beside so many bytes that they take in all, if those must fit."""
    budget, backend = workspace.budget, workspace.backend
    size = piece_bytes(budget.limit_bytes)
    if beside_bytes is not None:
        size = min(size, _size_beside(budget, beside_bytes))
    window = max(1, size // 2)
    # What is on its way, and what becomes the next piece; `reserved` claims the piece itself.
    with budget.reserve(min(window + size, budget.remaining_bytes), "Rows on their way"):
        yield from reserved(workspace, (backend.from_host(piece) for piece in incoming(window, size)), size)


def _size_beside(budget: MemoryBudget, expected_bytes: int) -> int:
    """How large pieces may be beside all rows of a table."""
    used = budget.used_bytes
    spare = budget.limit_bytes - used - expected_bytes
    if spare < _LEAST_SPARE_BYTES:
        would_do = used + expected_bytes + _LEAST_SPARE_BYTES
        raise exceeded("A table", expected_bytes, used, budget.limit_bytes, would_do=would_do)
    return max(1, spare // 3)


def send_rows(
    workspace: Workspace, request: Request, start: int, stop: int, send: Callable[[int, Iterator[Columns]], None]
) -> None:
    """Collective: all ranks call it. Send this rank's rows of [start, stop) in global order.

    Parameters
    ----------
    workspace : Workspace
        This rank's means.
    request : Request
        The call; its part has the rows.
    start, stop : int
        Of the whole table.
    send : callable
        Takes the pieces in order, with so many bytes on their way.
    """

    def body(operation: Operation) -> Part:
        first = sum(operation.rows[: operation.rank])
        window = window_bytes(workspace.budget.limit_bytes)
        send(window, _pieces(operation, max(0, start - first), stop - first, window))
        return request.part

    run_verb(workspace, request, body, quiet=True)


def _pieces(operation: Operation, start: int, stop: int, most_bytes: int) -> Iterator[Columns]:
    """Rows [start, stop) of this rank's part on the host; chunks without any of them are not read."""
    workspace, part = operation.workspace, operation.request.part
    budget, backend = workspace.budget, workspace.backend
    first = 0
    for chunk in list(part.chunks):
        begin, end = max(start - first, 0), min(stop - first, chunk.rows)
        first += chunk.rows
        if begin >= end:
            continue
        rows = max(1, int(chunk.rows * most_bytes / max(1, chunk.nbytes)))
        with chunk.load(workspace) as data:
            for at in range(begin, end, rows):
                piece = backend.slice(data, at, min(at + rows, end))
                with (
                    operation.cast(piece) as cast,
                    budget.reserve(min(cast.nbytes, budget.remaining_bytes), "Sending a piece"),
                ):
                    yield backend.to_host(cast)
