"""Verbs that move whole rows between ranks: shuffle, allgather, gather, broadcast and repartition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...backends.protocol.schema import Label
from ...engine.exchange.exchange import exchange_table
from ...engine.exchange.routes import HashRoute, RangeRoute
from ...engine.exec.agreement import agreed
from ...engine.exec.invocation import AUTO, Request, RunOptions, check_keys, listed
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.plan.estimate import check_root, check_rows_per_rank, listed_rows, target_rows
from ...engine.plan.plan import Plan
from ...engine.store.part import Part, Partitioning
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError


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
    request = Request("shuffle", arguments, part, options, lambda: check_keys(part.schema, keys, "on"))

    def body(operation: Operation) -> Part:
        route = HashRoute(keys, operation.size, keep_order=keep_order)
        partitioning = Partitioning(tuple(keys), operation.size)
        return exchange_table(operation, part, route, operation.stats(), partitioning)

    return run_operation(workspace, request, body)


def collect(
    workspace: Workspace,
    part: Part,
    verb: str,
    root: int = 0,
    *,
    options: RunOptions = AUTO,
    quiet: bool = False,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. All rows go to every rank, or to the root, or the root's to every rank, in
    (rank, row) order.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    verb : {"allgather", "gather", "broadcast"}
    root : int, default 0
        In [0, world size); nothing to an allgather.
    options : RunOptions
    quiet : bool, default False
        Leave it out of the profile: for a few rows that are looked at.

    Returns
    -------
    Part, Plan

    Raises
    ------
    ArgumentError
        If the root is no rank.
    """
    size, to = workspace.transport.size, root if verb == "gather" else None
    arguments = {} if verb == "allgather" else {"root": root}
    request = Request(verb, arguments, part, options, lambda: check_root(root, size))

    def body(operation: Operation) -> Part:
        rows, sent = operation.rows, part
        if verb == "broadcast":
            rows = tuple(count * (rank == root) for rank, count in enumerate(rows))
            sent = part if operation.rank == root else Part(workspace, part.schema, ())
        stats = operation.stats(root=root)
        return exchange_table(
            operation, sent, RangeRoute.whole(rows, operation.rank, stats.variable_row_bytes, to), stats
        )

    return run_operation(workspace, request, body, quiet=quiet)


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
