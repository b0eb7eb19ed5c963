"""Repartition: the same rows in the same global order, cut anew over the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...engine.exchange.exchange import exchange_table
from ...engine.exchange.routes import RangeRoute
from ...engine.exec.agreement import agreed
from ...engine.exec.invocation import AUTO, Request, RunOptions
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.plan.estimate import check_rows_per_rank, listed_rows, target_rows
from ...engine.plan.plan import Plan
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError


def repartition(
    workspace: Workspace,
    part: Part,
    rows_per_rank: Sequence[int] | None = None,
    *,
    options: RunOptions = AUTO,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Cut the table anew, keeping the global order.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    rows_per_rank : sequence of int, optional
        Rows that each rank will hold; evenly by default. Their sum is the table's rows.
    options : RunOptions

    Returns
    -------
    Part, Plan

    Raises
    ------
    ArgumentError
        If there is not one number a rank, one is negative, or the sum is another.
    """
    wanted = listed_rows(rows_per_rank)
    size = workspace.transport.size
    request = Request(
        "repartition", {"rows_per_rank": wanted}, part, options, lambda: check_rows_per_rank(wanted, size)
    )

    def body(operation: Operation) -> Part:
        rows = operation.rows
        try:
            target = np.array(target_rows(rows, wanted), dtype=np.int64)
        except ArgumentError as error:
            raise agreed(error) from None  # of numbers that all ranks share: all raise it
        edges = np.concatenate(([0], np.cumsum(target)))
        stats = operation.stats(target_rows=tuple(int(n) for n in target))
        route = RangeRoute.between(edges, rows, operation.rank, stats.variable_row_bytes)
        return exchange_table(operation, part, route, stats)

    return run_operation(workspace, request, body)
