"""Running a verb: open, body, close; told errors; and nothing kept alive by one that failed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from ...config import records_literals
from ...errors import BudgetExceeded, CommError, GcylonError, SpillError, describe_context, notes_of
from ...memory.budget import exceeded
from ...memory.out_of_memory import as_budget_exceeded, is_out_of_memory
from ...memory.tiers.disk_tier import FULL_DISK
from ...profiling import OperationRecord
from ...profiling import operation as recorded
from ...urls import without_secrets
from ..plan.plan import UNCOUNTED, Plan, eviction_notes
from ..store.aliasing import by_use
from ..store.part import Part
from ..store.views import ShownPart
from ..store.workspace import Workspace
from .agreement import AgreementKind
from .invocation import Request
from .operation import Operation


def run_operation(
    workspace: Workspace, request: Request, body: Callable[[Operation], Part], *, quiet: bool = False
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Run an exchanging verb's body; see `run_verb`."""
    result, plan = run_verb(workspace, request, body, quiet=quiet)
    assert plan is not None
    return result, plan


def run_verb(
    workspace: Workspace, request: Request, body: Callable[[Operation], Part], *, quiet: bool = False
) -> tuple[Part, Plan | None]:
    """Collective: all ranks call it. Run a verb's body between an opening and a closing agreement.

    Parameters
    ----------
    workspace : Workspace
        This rank's means.
    request : Request
        The call.
    body : callable
        Takes the opened operation and returns this rank's part of the result.
    quiet : bool, default False
        Leave it out of the profile: for verbs that move no rows, or a few that are looked at.

    Returns
    -------
    Part, Plan or None
        None where the body made no plan.

    Raises
    ------
    GcylonError
        The same on all ranks where one rank failed, naming it.
    CommError
        If the exchange was revoked or a rank is gone; the transport then needs `recover`.
    """
    workspace.operation_number += 1
    workspace.budget.start_window()
    request.part.last_used = next(workspace.uses)
    number = workspace.operation_number
    unrecorded = nullcontext(OperationRecord(number, request.verb))
    with unrecorded if quiet else recorded(request.verb, number, workspace.recorder) as record:
        record.arguments = without_secrets(request.text(literals=records_literals()))
        record.rows_in, record.bytes_in = request.part.rows, request.part.nbytes
        operation = Operation(workspace, request, record)
        eviction = EvictionCount(workspace, (request.part, *request.others))
        try:
            result = _run(operation, body, eviction)
        except BaseException:
            # The frames of functions inside functions refer to what they share even when they are cleared.
            eviction.let_go_of_made()
            operation.release_sent()
            raise
        finally:
            record.measured_peak_bytes = max(record.measured_peak_bytes, workspace.budget.window_peak_bytes)
            workspace.transport.set_deadline(None)
        record.rows_out, record.bytes_out = result.rows, result.nbytes
    return result, _as_it_ran(operation)


def _as_it_ran(operation: Operation) -> Plan | None:
    """The plan to explain a result with: nothing in it is still to come."""
    plan = operation.plan
    if plan is None:
        return None
    assumption = UNCOUNTED if plan.assumption else ""
    return replace(plan, reason=operation.record.reason, assumption=assumption, notes=tuple(operation.notes))


def _run(operation: Operation, body: Callable[[Operation], Part], eviction: EvictionCount) -> Part:
    try:
        return _steps(operation, body, eviction)
    except CommError as error:
        give_context(error, operation.workspace, operation.record, error)
        let_go(error)
        raise  # nobody can agree any more
    except Exception as error:
        if isinstance(error, GcylonError) and error.agreed:
            give_context(error, operation.workspace, operation.record, error)
            let_go(error)
            _empty_full_disk(operation, error)
            raise
        mine = _named(operation, error)  # with what is in use now, before it is let go of
        give_context(mine, operation.workspace, operation.record, error)
        let_go(error)
        try:
            told = operation.tell(mine)
            give_context(told, operation.workspace, operation.record, mine)
        except CommError as revoked:
            let_go(revoked)  # its frames hold this rank's own error
            try:
                raise mine from revoked  # nobody can be told; this rank's own error says more than that
            finally:
                del mine
        _empty_full_disk(operation, told)
        try:
            raise told from (None if isinstance(mine, GcylonError) else mine)
        finally:
            del told, mine  # a frame and an error that hold each other keep the caller's tables until the next gc
    except BaseException as error:
        # An interrupt cannot reach an agreement in time: free the others.
        operation.workspace.transport.revoke()
        let_go(error)
        raise


def _empty_full_disk(operation: Operation, error: Exception) -> None:
    """A rank that finds its disk full gives up the copies that it kept there; so do the others, which may share it."""
    if isinstance(error, SpillError) and error.numbers.get("errno") in FULL_DISK:
        operation.workspace.spill.kept.drop("disk")


def _named(operation: Operation, error: Exception) -> Exception:
    """Give an error of a library that ran out of memory the numbers and the option to change."""
    on_gpu = operation.workspace.backend.on_gpu  # elsewhere a MemoryError is the machine's limit, not the budget's
    if on_gpu and not isinstance(error, GcylonError) and is_out_of_memory(error):
        limit = operation.record.budget_bytes  # a lower one, of this operation, holds no longer
        error = as_budget_exceeded(error, operation.workspace.budget, operation.verb, limit_bytes=limit)
    if isinstance(error, BudgetExceeded):
        operation.advise(error)
    return error


def _steps(operation: Operation, body: Callable[[Operation], Part], eviction: EvictionCount) -> Part:
    """All of a verb that can fail, in a frame of its own: what it holds goes with it."""
    operation.open()
    limit = operation.workspace.limit_for(operation.config)
    operation.record.budget_bytes = limit
    with operation.workspace.budget.limited(limit):
        result = body(operation)
        _check_held(operation, result)
    evicted = eviction.count()
    one_limit = any(evicted) and limit < operation.workspace.live_limit_bytes
    numbers = (*evicted, operation.record.predicted_peak_bytes, int(one_limit))
    answers = operation.agree(AgreementKind.CLOSING, numbers)
    own, others = answers[:, :2].max(axis=0)
    if operation.plan is not None and answers[:, 2].all():  # of all steps, not of an exchange among them alone
        peaks = tuple(answers[:, 2].tolist())
        operation.plan = replace(operation.plan, predicted_peaks=peaks)
    operation.notes += eviction_notes(
        int(own), int(others), inputs=eviction.inputs, ran=True, come_back=bool(answers[:, 3].any())
    )
    operation.workspace.spill.poll()  # copies that are done are counted in the operation that they belong to
    return result


def _check_held(operation: Operation, result: Part) -> None:
    """A strategy that was named is honoured, or refused: one that holds the result, which gave way, is not another."""
    request = operation.request
    if request.options.strategy not in ("direct", "chunked") or result is request.part or not result.staged_bytes:
        return
    result.return_staged(operation.workspace)  # what gave way to the work may have room now
    staged = result.staged_bytes
    if not staged:
        return
    budget, limit = operation.workspace.budget, operation.workspace.limit_for(operation.config)
    what = f"Holding the result of {operation.verb} with strategy={request.options.strategy!r}"
    raise exceeded(what, staged, budget.used_bytes, limit, would_do=limit + 2 * staged)


def let_go(error: BaseException | None) -> None:
    """Clear our own frames behind an error, so that a kept traceback keeps no chunk, reservation or spill file.

    IPython keeps the last one, which would hold the memory of an operation that failed until the next error.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals.get("__name__", "").startswith("gcylon_lab."):
                try:
                    trace.tb_frame.clear()
                except RuntimeError:
                    pass  # still running: the frames that handle the error
            trace = trace.tb_next
        error = error.__cause__ or error.__context__


class EvictionCount:
    """The bytes of tables that leave this rank's device tier from now on; of tables that are there by now.

    Parameters
    ----------
    workspace : Workspace
        Whose tables they are.
    inputs : sequence of Part
        Those that the operation takes.
    """

    def __init__(self, workspace: Workspace, inputs: Sequence[Part]) -> None:
        behind = (part.behind if isinstance(part, ShownPart) else (part,) for part in inputs)
        self._workspace = workspace
        self._inputs = {id(part) for parts in behind for part in parts}
        self.inputs = len(self._inputs)
        self._before = weakref.WeakKeyDictionary({part: part.evicted_bytes for part in workspace.parts})

    def let_go_of_made(self) -> None:
        """Empty the parts that were made since: those of an operation that failed, whoever still refers to them."""
        for part in list(self._workspace.parts):
            if part not in self._before:
                part.release()

    def count(self) -> tuple[int, int]:
        """Bytes so far: of inputs, and of other tables."""
        own = others = 0
        for part, before in list(self._before.items()):
            if id(part) in self._inputs:
                own += part.evicted_bytes - before
            else:
                others += part.evicted_bytes - before
        return own, others


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
