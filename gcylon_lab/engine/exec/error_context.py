"""What a rank was doing and holding when an error was raised in an operation."""

from __future__ import annotations

from typing import Any

from ...errors import GcylonError, SpillError, describe_context, notes_of
from ...profiling import OperationRecord
from ..store.uses import by_use
from ..store.workspace import Workspace

_OF_MEMORY = (MemoryError, SpillError)


def give_context(error: Exception, workspace: Workspace, record: OperationRecord, cause: Exception) -> None:
    """Let an error say where in an operation it was raised, unless it knows already.

    Parameters
    ----------
    error : Exception
        What will be told; that of a library is told with it too.
    workspace : Workspace
    record : OperationRecord
        Of the operation.
    cause : Exception
        What was caught: it has noted what it left on its way.
    """
    known = error.context if isinstance(error, GcylonError) else notes_of(error).get("context")
    if not known:
        known = _context(workspace, record, cause)
        if isinstance(error, GcylonError):
            error.context = known
        else:
            notes_of(error)["context"] = known
    if isinstance(error, GcylonError):
        record.error_context = describe_context(error)


def _context(workspace: Workspace, record: OperationRecord, cause: Exception) -> dict[str, Any]:
    notes, budget, tiers = notes_of(cause), workspace.budget, workspace.spill
    claims = notes.get("claims", [])  # given back on the error's way out
    left = sum(nbytes for _, nbytes in claims)
    limit = record.budget_bytes or budget.limit_bytes  # a lower one, of this operation, holds no longer
    held: dict[str, Any] = {"used_bytes": budget.used_bytes + left, "limit_bytes": limit}
    if isinstance(cause, _OF_MEMORY):  # of others nobody asks who holds how much
        held["by_use"] = uses = by_use(budget, workspace.parts)
        for what, nbytes in claims:
            uses[what] = uses.get(what, 0) + nbytes
    context: dict[str, Any] = {
        "operation": f"{record.verb} #{record.number}",
        "budget": held,
        "tiers": {
            "device": budget.allocated_bytes, "pinned": tiers.pinned_bytes, "disk": tiers.disk_bytes,
        },
    }  # fmt: skip
    if not getattr(cause, "agreed", False):
        context["rank"] = workspace.transport.rank  # else all ranks raise it, each with what it holds itself
    if notes.get("phase"):
        context["phase"] = notes["phase"]
    if record.rounds:
        context |= {"round": min(record.rounds_done + 1, record.rounds), "rounds": record.rounds}
    return context
