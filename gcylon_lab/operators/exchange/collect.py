"""Allgather, gather and broadcast: whole parts go to all ranks, or to one, or from one. In global order."""

from __future__ import annotations

from ...engine.exchange.exchange import exchange_table
from ...engine.exchange.routes import RangeRoute
from ...engine.exec.invocation import AUTO, Request, RunOptions
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.plan.estimate import check_root
from ...engine.plan.plan import Plan
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace


def allgather(
    workspace: Workspace,
    part: Part,
    *,
    options: RunOptions = AUTO,
    quiet: bool = False,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Every rank gets all rows, in (rank, row) order.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    options : RunOptions
    quiet : bool, default False
        Leave it out of the profile: for a few rows that are looked at.

    Returns
    -------
    Part, Plan
    """
    request = Request("allgather", {}, part, options)
    return run_operation(workspace, request, lambda op: _collect(op, part, None, None), quiet=quiet)


def gather(
    workspace: Workspace,
    part: Part,
    root: int = 0,
    *,
    options: RunOptions = AUTO,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. The root gets all rows in (rank, row) order, the others none.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    root : int, default 0
        In [0, world size).
    options : RunOptions

    Returns
    -------
    Part, Plan

    Raises
    ------
    ArgumentError
        If the root is no rank.
    """
    request = _rooted("gather", workspace, part, root, options)
    return run_operation(workspace, request, lambda op: _collect(op, part, root, None))


def broadcast(
    workspace: Workspace,
    part: Part,
    root: int = 0,
    *,
    options: RunOptions = AUTO,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Every rank gets the root's rows.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    root : int, default 0
        In [0, world size).
    options : RunOptions

    Returns
    -------
    Part, Plan

    Raises
    ------
    ArgumentError
        If the root is no rank.
    """
    request = _rooted("broadcast", workspace, part, root, options)
    return run_operation(workspace, request, lambda op: _collect(op, part, None, root))


def _rooted(
    verb: str,
    workspace: Workspace,
    part: Part,
    root: int,
    options: RunOptions,
) -> Request:
    size = workspace.transport.size
    return Request(verb, {"root": root}, part, options, lambda: check_root(root, size))


def _collect(operation: Operation, part: Part, to: int | None, source: int | None) -> Part:
    """Send this rank's rows to one rank or all; where there is a source, only its rows."""
    rows = operation.rows
    if source is not None:
        rows = tuple(count * (rank == source) for rank, count in enumerate(rows))
        part = part if operation.rank == source else Part(operation.workspace, part.schema, ())
    stats = operation.stats(root=to if to is not None else source or 0)
    route = RangeRoute.whole(rows, operation.rank, stats.variable_row_bytes, to)
    return exchange_table(operation, part, route, stats)
