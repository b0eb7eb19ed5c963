"""Distinct rows: of rows with equal keys the first or the last one, in the order of the whole table, or none."""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.protocol.aggregation import whole_rows
from ...backends.protocol.expressions import col
from ...backends.protocol.scalars import check_choice
from ...backends.protocol.schema import Label
from ...engine.exec.align_schemas import new_label
from ...engine.exec.invocation import AUTO, Request, RunOptions, check_keys, require_columns
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.plan.plan import Plan
from ...engine.store.part import Part
from ...engine.store.views import ChunkView
from ...engine.store.workspace import Workspace
from ..group.groupby import group_rows, shared_checks
from ..rowwise.rowwise import chosen_rows
from .late_materialization import materialize_late, materializes_late


def drop_duplicates(
    workspace: Workspace,
    part: Part,
    verb: str,
    subset: Sequence[Label] | None,
    *,
    keep: str | bool = "first",
    only: bool = False,
    options: RunOptions = AUTO,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Keep one row of those with equal keys, or none of them.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    verb : str
        What it is called for.
    subset : sequence of labels, optional
        The columns that must be equal; all by default.
    keep : {"first", "last", False}
        Which row stays, in (rank, row) order; False for rows whose key stands there only once.
    only : bool
        Whether the other columns are left out.
    options : RunOptions

    Returns
    -------
    Part, Plan

    Raises
    ------
    ColumnMissing, UnsupportedDtype
        If a key is no column, or cannot be hashed.
    """
    keys = None if subset is None else list(subset)

    def check() -> None:
        if keys is not None:
            check_keys(part.schema, keys, "subset")
        check_keep(keep)

    def body(operation: Operation) -> Part:
        names = list(operation.schema.names) if keys is None else keys
        with shared_checks():
            require_columns(operation.schema)
            seen = operation.schema.select(names) if only else operation.schema
            # Of a key with one row that is the first.
            count = new_label(seen.names, "count") if keep is False else None
            steps = whole_rows(seen, names, "last" if keep == "last" else "first", count)
        if not only and isinstance(keep, str) and materializes_late(operation, part, names):
            return materialize_late(operation, part, names, keep)
        rows = group_rows(operation, part, steps, dropna=False)
        if count is not None:
            return _standing_once(operation, rows, count)
        return rows if only else in_order_of(workspace, rows, operation.schema.names)

    arguments = {"subset": keys, "keep": keep}
    return run_operation(workspace, Request(verb, arguments, part, options, check), body)


def check_keep(keep: str | bool) -> None:
    """Refuse what says of no row whether it stays.

    Raises
    ------
    ArgumentError
        Naming what there is.
    """
    check_choice("keep", keep, ("first", "last", False))


def _standing_once(operation: Operation, part: Part, count: Label) -> Part:
    """The rows of which there is one, with the columns of the operation's input; the part is used up."""
    work = LocalExecutor(operation, "Choosing rows")
    work.adopt(part)
    result = work.new_part(operation.schema)
    for made, claim in chosen_rows(work, part, col(count) == 1, operation.schema):
        work.keep(result, made, claim)
    result.partitioning = part.partitioning
    return result


def in_order_of(workspace: Workspace, part: Part, names: Sequence[Label]) -> Part:
    """The same rows with their columns in another order, without a copy."""
    if part.schema.names == tuple(names):
        return part
    same = {name: name for name in names}
    chunks = [ChunkView(chunk, same, workspace) for chunk in part.chunks]
    return Part(workspace, part.schema.select(names), chunks, part.partitioning)
