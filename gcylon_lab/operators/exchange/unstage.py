"""Unstage: a part's staged chunks back on the device tier, on all ranks or on none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...backends.protocol.data import Data
from ...engine.exec.agreement import AgreementKind, agreed
from ...engine.exec.invocation import AUTO, Request, RunOptions
from ...engine.exec.operation import Int64s, Operation
from ...engine.exec.running import run_verb
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part
from ...engine.store.views import ChunkView
from ...engine.store.workspace import Workspace
from ...memory.budget import Reservation, exceeded

_WHAT = "Bringing staged rows back"
_WORTH = 2  # what is read whole, and of which less than one in so many bytes is wanted, is copied out


def unstage(workspace: Workspace, part: Part, options: RunOptions = AUTO) -> None:
    """Collective: all ranks call it. Bring back into the budget what of a part was staged; nothing is evicted for it.

    Parameters
    ----------
    workspace, part
        This rank's means and rows. Where the chunks lie is all that changes of the part.
    options : RunOptions
        Without a strategy.

    Raises
    ------
    BudgetExceeded
        On all ranks, with nothing changed, if it does not fit beside what is held on one.
    SpillError
        If it cannot be read, with nothing changed either.
    """
    request = Request("unstage", {}, part, options)
    result, _ = run_verb(workspace, request, lambda operation: _unstaged(operation, part))
    part.chunks = result.chunks  # after the closing agreement: on all ranks or on none


def _unstaged(operation: Operation, part: Part) -> Part:
    workspace, budget, record = operation.workspace, operation.workspace.budget, operation.record
    workspace.spill.flush()  # what is on its way down still holds memory
    budget.renew_limit()
    used = record.used_before_bytes = budget.used_bytes
    least, most = (needed_for(part.chunks, bound) for bound in (0, 1))
    answers = operation.agree(AgreementKind.COUNT, (budget.limit_bytes, used, least, most))
    would_do = int((answers[:, 1] + answers[:, 3]).max())  # on every rank, so that it is asked for once
    _check(answers, would_do)
    record.predict(used + least)
    try:
        chunks = [chunk if chunk.tier == "device" else on_device(workspace, chunk) for chunk in part.chunks]
    except workspace.out_of_memory:
        limit = budget.limit_bytes
        if used + most <= limit:
            raise
        raise exceeded(_WHAT, most, used, limit, rank=operation.rank, would_do=would_do, staged=True) from None
    return Part(workspace, part.schema, chunks, part.partitioning)


def _check(answers: Int64s, would_do: int) -> None:
    """Refuse, on all ranks alike, before anything is read; with a limit that does on every rank."""
    limits, used, least, most = answers[:, :4].T
    missing = np.where(least > 0, used + least - limits, 0)
    worst = int(np.argmax(missing))
    if missing[worst] > 0:
        needed, held, limit = (int(column[worst]) for column in (most, used, limits))
        raise agreed(exceeded(_WHAT, needed, held, limit, rank=worst, would_do=would_do, staged=True))


def on_device(workspace: Workspace, chunk: Chunk) -> Chunk:
    """A staged chunk read back, with a claim of its own; its place below is kept while there is room."""
    held = workspace.budget.reserve(chunk.nbytes, _WHAT)
    data = chunk.read(workspace)
    if isinstance(chunk, ChunkView) and data.nbytes * _WORTH < chunk.nbytes:
        data, held = _copied_out(workspace, data) or (data, held)
    return Chunk(chunk.schema, chunk.rows, data.nbytes, data=data, reservation=held).keep(workspace, [chunk])


def _copied_out(workspace: Workspace, data: Data) -> tuple[Data, Reservation] | None:
    """The rows in memory of their own; None where they do not fit beside what was read: that is kept as it is."""
    try:
        held = workspace.budget.reserve(data.nbytes, _WHAT)
        return workspace.backend.concat([data]), held
    except workspace.out_of_memory:
        return None


def needed_for(chunks: Sequence[Chunk], bound: int) -> int:
    """Bytes beside what is in use that staged chunks take, one after the other: at least (0), or at the most (1)."""
    held = needed = 0
    for chunk in chunks:
        if chunk.tier != "device":
            kept = _kept_bytes(chunk)[bound]
            # Texts are copied out where that fits, and kept whole otherwise.
            copied = kept if kept < chunk.nbytes and not chunk.schema.variable else 0
            needed = max(needed, held + chunk.nbytes + copied)
            held += kept
    return needed


def _kept_bytes(chunk: Chunk) -> tuple[int, int]:
    """What a staged chunk will hold on the device tier, at least and at the most: apart where texts are cut out."""
    fixed = chunk.rows * chunk.schema.row_bytes
    if not isinstance(chunk, ChunkView) or fixed * _WORTH >= chunk.nbytes:
        return chunk.nbytes, chunk.nbytes
    if chunk.schema.variable and not chunk.leaves_texts:  # all that is read is wanted
        return chunk.nbytes, chunk.nbytes
    return fixed, chunk.nbytes if chunk.schema.variable else fixed
