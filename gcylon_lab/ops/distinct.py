"""Distinct rows: of rows with equal keys the first or the last one, in the order of the whole table."""

from __future__ import annotations

from collections.abc import Sequence

from ..config import GcylonConfig
from ..errors import ArgumentError
from ..tables.aggregation import whole_rows
from ..tables.schema import Label
from .groupby import group_rows, shared_checks
from .keys import check_keys, require_columns
from .operation import Operation, Request
from .part import Part
from .plan import Plan
from .running import run_operation
from .survivors import finds_survivors_first, survivors
from .views import ChunkView
from .workspace import Workspace


def drop_duplicates(
    workspace: Workspace,
    part: Part,
    verb: str,
    subset: Sequence[Label] | None,
    *,
    keep: str = "first",
    only: bool = False,
    strategy: str = "auto",
    config: GcylonConfig | None = None,
    timeout_s: float | None = None,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Keep one row of those with equal keys.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    verb : str
        What it is called for.
    subset : sequence of labels, optional
        The columns that must be equal; all by default.
    keep : {"first", "last"}
        Which row stays, in (rank, row) order.
    only : bool
        Whether the other columns are left out.
    strategy, config, timeout_s
        See `Request`.

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
            check_keys(part, keys, "subset")
        if keep not in ("first", "last"):
            raise ArgumentError(f"keep={keep!r} is none.", advice="It is 'first' or 'last'.")

    def body(operation: Operation) -> Part:
        names = list(operation.schema.names) if keys is None else keys
        with shared_checks():
            require_columns(operation.schema)
            seen = operation.schema.select(names) if only else operation.schema
            steps = whole_rows(seen, names, keep)
        if not only and finds_survivors_first(operation, part, names):
            return survivors(operation, part, names, keep)
        rows = group_rows(operation, part, steps, dropna=False)
        return rows if only else in_order_of(workspace, rows, operation.schema.names)

    arguments = {"subset": keys, "keep": keep}
    return run_operation(workspace, Request(verb, arguments, part, strategy, config, timeout_s, check=check), body)


def in_order_of(workspace: Workspace, part: Part, names: Sequence[Label]) -> Part:
    """The same rows with their columns in another order, without a copy."""
    same = {name: name for name in names}
    chunks = [ChunkView(chunk, same, workspace) for chunk in part.chunks]
    return Part(workspace, part.schema.select(names), chunks, part.partitioning)
