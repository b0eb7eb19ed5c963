"""What ranks tell each other before rows travel: how many go where, where the result is, or that it does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from ..errors import BudgetExceeded
from ..memory.out_of_memory import memory_errors
from ..tables.planes import text_places
from .operation import Int64s, Operation
from .part import Part
from .partition import HashRoute
from .placement import Sink, WritableSink
from .rounds import Route
from .votes import VoteKind


def count_rows(operation: Operation, part: Part, route: Route, chunk_rows: int) -> tuple[Int64s, Int64s]:
    """Collective: all ranks call it. Rows, and bytes of variable columns, from each rank (first axis) to each.

    Returns
    -------
    ndarray of int64, ndarray of int64
        Each of shape (size, size).
    """
    rows_to, variable_to = route.count(operation, part, chunk_rows)
    votes = operation.vote(VoteKind.COUNT, np.concatenate((rows_to, variable_to)))
    return votes[:, : operation.size], votes[:, operation.size : 2 * operation.size]


def written_chars(part: Part, route: HashRoute, operation: Operation) -> Int64s | None:
    """Characters that go from this rank to each; without rows none, and then this rank is in nobody's way."""
    if part.rows:
        return route.chars
    return np.zeros((operation.size, len(text_places(operation.schema))), np.int64)


def meet(operation: Operation, sinks: Sequence[Sink]) -> None:
    """Collective: all ranks call it. Let ranks know where the results of others are."""
    writable = [sink for sink in sinks if isinstance(sink, WritableSink)]
    if writable and operation.overlaps:  # no rank waits for the place of a result that another has no memory for
        operation.vote(VoteKind.COUNT)
    for sink in writable:
        sink.meet()


def memory_named(operation: Operation) -> AbstractContextManager[None]:
    """On GPUs the allocator says what does not fit; elsewhere a MemoryError is the machine's, not the budget's."""
    on_gpu = operation.workspace.backend.on_gpu
    return memory_errors(operation.workspace.budget, operation.verb) if on_gpu else nullcontext()


def go_on(operation: Operation, error: BudgetExceeded) -> BudgetExceeded:
    """Collective: all ranks call it. Let no rank go on alone where only some ran out of memory: each learns of it.

    Returns
    -------
    BudgetExceeded
        The same on all ranks, for one that cannot go on.
    """
    told = error if error.agreed else operation.tell(error)
    if not isinstance(told, BudgetExceeded):
        raise told from None
    return told.with_traceback(None)  # whose frames would hold what the failed work has made
