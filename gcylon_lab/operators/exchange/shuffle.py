"""Shuffle: rows with equal keys meet on one rank."""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.protocol.schema import Label
from ...engine.exchange.exchange import exchange_table
from ...engine.exchange.routes import HashRoute
from ...engine.exec.invocation import AUTO, Request, RunOptions
from ...engine.exec.keys import check_keys, listed
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.plan.plan import Plan
from ...engine.store.part import Part, Partitioning
from ...engine.store.workspace import Workspace


def shuffle(
    workspace: Workspace,
    part: Part,
    on: Label | Sequence[Label],
    *,
    keep_order: bool = False,
    options: RunOptions = AUTO,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Spread rows over the ranks by the hash form of their keys.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    on : label or sequence of labels
        Key columns.
    keep_order : bool, default False
        Keep (source rank, row) order inside each rank.
    options : RunOptions

    Returns
    -------
    Part, Plan

    Raises
    ------
    ColumnMissing
        If a key is no column, on any rank.
    """
    keys = listed(on)
    arguments = {"on": keys, "keep_order": keep_order}
    request = Request("shuffle", arguments, part, options, lambda: check_keys(part, keys, "on"))

    def body(operation: Operation) -> Part:
        route = HashRoute(keys, operation.size, keep_order=keep_order)
        partitioning = Partitioning(tuple(keys), operation.size)
        return exchange_table(operation, part, route, operation.stats(), partitioning)

    return run_operation(workspace, request, body)
