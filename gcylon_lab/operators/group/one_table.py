"""Partial results of all rows of a part, added piece by piece to one table, where a backend has such a table."""

from __future__ import annotations

from typing import Protocol

from ...backends.protocol.aggregation import Aggregations
from ...backends.protocol.data import Data
from ...backends.protocol.relational import Folding
from ...backends.protocol.schema import Schema
from ...engine.exec.local_executor import PIECES_IN_LIMIT, LocalExecutor, pieces_ahead
from ...engine.store.part import Part
from ...memory.budget import Reservation
from ...profiling import span


class Grouped(Protocol):
    """What is grouped, and how; see `HashAggregate`."""

    work: LocalExecutor
    steps: Aggregations
    rows_schema: Schema
    partial_schema: Schema


def fold_in_one_table(grouping: Grouped, part: Part, groups: float, rows: int, *, in_order: bool = True) -> Part | None:
    """Partial results of a part's rows, one row a key.

    Parameters
    ----------
    grouping : Grouped
    part : Part
        Its rows are there afterwards.
    groups : float
        How many keys are expected here.
    rows : int
        Of a piece, at the most.
    in_order : bool, default True
        Whether they are wanted in the order of the keys.

    Returns
    -------
    Part or None
        None where there is no such table, it takes more than a piece may, or what was added to it is lost: more keys
        came than it holds, or a sum may have passed what its column holds.
    """
    work = grouping.work
    schema, steps = grouping.rows_schema, grouping.steps
    if not part.rows:
        return None
    table = work.backend.folding(schema, steps.keys, steps.partial, part.rows, groups)
    if table is None:
        return None
    if table.nbytes + table.reading_bytes(groups) > work.workspace.budget.limit_bytes // PIECES_IN_LIMIT:
        return None
    _expect(grouping, part, table, groups, rows)
    try:
        found = _folded(grouping, part, table, rows, in_order)
        if found is None:
            return None
        made, claim = found
        partial = work.new_part(grouping.partial_schema)
        work.keep(partial, made, claim)
    except work.workspace.out_of_memory:
        return None  # with pieces of their own tables less is needed at once
    return partial


def _expect(grouping: Grouped, part: Part, table: Folding, groups: float, rows: int) -> None:
    """Predict folding: beside the table stands a piece, and at the end what is read out of it."""
    most = float(table.reading_bytes(groups))
    for ahead in pieces_ahead(part, grouping.rows_schema, rows):
        most = max(most, ahead.joining, ahead.kept + ahead.rows * ahead.cast_row_bytes)
    grouping.work.expect_now(table.nbytes + most)


def _folded(
    grouping: Grouped, part: Part, table: Folding, rows: int, in_order: bool
) -> tuple[Data, Reservation] | None:
    work = grouping.work
    with work.claim(table.nbytes):
        table.begin()
        # What is read back stands in memory that is used again, and takes long enough to look at the table in between.
        looks = part.staged_bytes > 0
        for piece in work.pieces(part, grouping.rows_schema, rows):
            with span("group", "algorithm", bytes=piece.nbytes):
                table.add(piece)
                del piece  # before the next one is read back
                if looks and table.groups() is None:
                    return None
        with span("group", "algorithm"):
            groups = table.groups()
            if groups is None:
                return None
            claim = work.claim(table.reading_bytes(groups))
            made = table.made(groups, in_order=in_order)
    claim.resize(made.nbytes)
    return made, claim
