"""What ranks tell each other before rows travel: how many go where, where the result is, or that it does not fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...backends.host.column_buffers import MOST_CHARS, string_places
from ...errors import BudgetExceeded, CommError
from ..exec.agreement import AgreementKind, agreement_room
from ..exec.operation import Int64s, Operation
from ..exec.remote_write import RemoteWrite
from ..store.part import Part
from .placement import Sink, WritableSink
from .rounds import Route
from .routes import HashRoute


def count_rows(operation: Operation, part: Part, route: Route, chunk_rows: int) -> tuple[Int64s, Int64s]:
    """Collective: all ranks call it. Rows, and bytes of variable columns, from each rank (first axis) to each.

    Returns
    -------
    ndarray of int64, ndarray of int64
        Each of shape (size, size).
    """
    rows_to, variable_to = route.count(operation, part, chunk_rows)
    if rows_to.ndim == 2:  # of all ranks: all know it
        return rows_to, variable_to
    answers = operation.agree(AgreementKind.COUNT, np.concatenate((rows_to, variable_to)))
    return answers[:, : operation.size], answers[:, operation.size : 2 * operation.size]


def written_chars(part: Part, route: HashRoute, operation: Operation) -> Int64s | None:
    """Characters that go from this rank to each; without rows none, and then this rank is in nobody's way."""
    if part.rows:
        return route.chars
    return np.zeros((operation.size, len(string_places(operation.schema))), np.int64)


def agree_on_remote_write(operation: Operation, chars: Int64s | None) -> RemoteWrite | None:
    """Collective: all ranks call it. What all ranks know where all can write their rows; None on all where one cannot.

    Parameters
    ----------
    operation : Operation
    chars : ndarray of int64, shape (size, texts), optional
        Bytes of the characters that go to each rank; None where this rank cannot write.
    """
    if not operation.agree(AgreementKind.COUNT, (chars is not None,))[:, 0].all():
        return None
    assert chars is not None
    lacking = operation.lacking or [False] * len(operation.schema.columns)  # without rows nothing is lacking
    mine = np.concatenate((lacking, chars.reshape(-1))).astype(np.int64)  # more numbers than an agreement has room for
    every = np.array([np.frombuffer(text, np.int64) for text in operation.workspace.transport.share(mine.tobytes())])
    sent = every[:, len(lacking) :].reshape(operation.size, *chars.shape)
    if (sent.sum(axis=0) > MOST_CHARS).any():
        return None
    return RemoteWrite(tuple(every[:, : len(lacking)].max(axis=0) > 0), sent)


def meet(operation: Operation, sinks: Sequence[Sink]) -> None:
    """Collective: all ranks call it. Let ranks know where the results of others are, by agreements: where a rank has no
    memory for its result, no other waits for the place of it."""
    writable = [sink for sink in sinks if isinstance(sink, WritableSink)]
    if not writable:
        return
    told = [sink.announce() for sink in writable]
    ends = np.cumsum([0, *map(len, told)]).tolist()
    every = (
        _announced(operation, np.concatenate(told)) if operation.overlaps else np.zeros((operation.size, 0), np.int64)
    )
    for sink, start, stop in zip(writable, ends, ends[1:], strict=False):
        sink.meet(every[:, start:stop])


def _announced(operation: Operation, numbers: Int64s) -> Int64s:
    """Collective: all ranks call it. Numbers of all ranks, as many on each; shape (size, numbers)."""
    room, found = agreement_room(operation.size), []
    for start in range(0, max(len(numbers), 1), room):
        some = numbers[start : start + room]
        # What was exposed for it shall be kept: nothing is complete yet.
        found.append(operation.agree(AgreementKind.COUNT, some, completes=False)[:, : len(some)])
    return np.concatenate(found, axis=1)


def go_on(operation: Operation, error: BudgetExceeded) -> BudgetExceeded:
    """Collective: all ranks call it. Let no rank go on alone where only some ran out of memory: each learns of it.

    Returns
    -------
    BudgetExceeded
        The same on all ranks, for one that cannot go on.

    Raises
    ------
    BudgetExceeded
        The same error, where the others have ended the exchange already, or cannot be told: they do not go on with it.
    """
    if operation.exchanged and not error.agreed:
        raise error
    try:
        told = error if error.agreed else operation.tell(error)
    except CommError as revoked:
        raise error from revoked
    if not isinstance(told, BudgetExceeded):
        raise told from None
    return told.with_traceback(None)  # whose frames would hold what the failed work has made
