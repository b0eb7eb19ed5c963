"""Sort: rows go to the rank between whose splitters they fall, and are brought into order there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from ...backends.host.partition import deal_rows
from ...backends.protocol.data import Columns, Data, Ids
from ...backends.protocol.scalars import check_choice
from ...backends.protocol.schema import Label
from ...backends.protocol.sorting import SortKey, require_sortable
from ...engine.exchange.exchange import exchange_table
from ...engine.exchange.rounds import SendBatch
from ...engine.exchange.routes import HashRoute
from ...engine.exec.agreement import agreed
from ...engine.exec.invocation import AUTO, Request, RunOptions, check_keys, listed
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.plan.plan import Plan
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError, GcylonError
from ...profiling import span
from .merge import Sorter
from .splitters import Splitters, find_splitters


def sort_values(
    workspace: Workspace,
    part: Part,
    by: Label | Sequence[Label],
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str = "last",
    options: RunOptions = AUTO,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Bring rows into global order; rows with equal keys keep theirs.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    by : label or sequence of labels
        Key columns.
    ascending : bool or sequence of bool, default True
        One for all keys, or one for each.
    na_position : {"last", "first"}
        Where missing values go, whatever the direction.
    options : RunOptions

    Returns
    -------
    Part, Plan

    Raises
    ------
    ArgumentError
        If the arguments do not fit each other.
    ColumnMissing
        If a key is no column, on any rank.
    UnsupportedDtype
        If a key has no order.
    """
    names = listed(by)
    directions = each_direction(names, ascending)
    arguments = {"by": names, "ascending": directions, "na_position": na_position}

    def check() -> None:
        check_directions(names, directions, na_position)
        check_keys(part.schema, names, "by")

    def body(operation: Operation) -> Part:
        keys = [SortKey(n, bool(up), na_position == "first") for n, up in zip(names, directions, strict=True)]
        require_order(operation, keys)
        return _sort(operation, part, keys)

    return run_operation(workspace, Request("sort_values", arguments, part, options, check), body)


def require_order(operation: Operation, keys: Sequence[SortKey]) -> None:
    """Refuse keys whose values have no order; the schema is the same on all ranks, so all raise it."""
    try:
        require_sortable(operation.schema, keys)
    except GcylonError as error:
        raise agreed(error) from None


def each_direction(names: Sequence[Label], ascending: Any) -> list[bool]:
    """Directions of keys, as they were given: one for each, if they were given right."""
    given: Any = [ascending] * len(names) if isinstance(ascending, (bool, np.bool_)) else ascending
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


def check_directions(names: Sequence[Label], directions: Sequence[bool], na_position: str) -> None:
    """Refuse directions that do not fit the keys, and what is no place of missing values.

    Raises
    ------
    ArgumentError
    """
    if len(directions) != len(names) or not all(isinstance(up, (bool, np.bool_)) for up in directions):
        raise ArgumentError(
            f"ascending={directions!r} does not fit by={list(names)!r}.",
            advice="Give True or False, or a list with one of them for each key.",
        )
    check_choice("na_position", na_position, ("first", "last"))


def _sort(operation: Operation, part: Part, keys: Sequence[SortKey]) -> Part:
    workspace = operation.workspace
    stats = operation.stats()
    operation.make_plan(stats)  # what does not fit is refused before rows are read
    splitters = find_splitters(operation, part, keys, stats)
    route = SortRoute(keys, splitters, sum(stats.rows[: operation.rank]), operation.size)
    arrived = exchange_table(operation, part, route, stats)
    sorter = Sorter(workspace, operation.schema, keys)
    may_stage = operation.options.strategy == "auto" and operation.may_stage
    with span("sort", "algorithm", bytes=arrived.nbytes):
        if operation.plan is not None and operation.plan.strategy == "staged":
            chunks = sorter.sort_staged(arrived, splitters.share)
        else:
            chunks = sorter.sort_here(arrived, may_stage=may_stage)
    return Part(workspace, operation.schema, chunks)


class SortRoute(HashRoute):
    """Each row goes to the rank between whose splitters it falls.

    Where that makes the receiver's work much smaller, pieces are sorted before they are sent: what a rank receives
    of each is then a sorted run.

    Parameters
    ----------
    keys : sequence of SortKey
    splitters : Splitters
    first : int
        This rank's first row in the global order of the input.
    """

    def __init__(self, keys: Sequence[SortKey], splitters: Splitters, first: int, size: int) -> None:
        super().__init__([], size, keep_order=True)
        self._sort_keys = keys
        self._splitters = splitters
        self._first = first

    @property
    def columns(self) -> list[Label]:
        """What the ids are made of."""
        return [key.name for key in self._sort_keys]

    def ids_of(self, workspace: Workspace, piece: Data, first_row: int, into: Ids | None = None) -> Ids:
        """The rank of each row, by its keys and its place in the global order."""
        splitters = self._splitters
        cuts = splitters.cuts(self._first + first_row)
        return workspace.backend.split_ids(piece, self._sort_keys, splitters.keys, cuts)

    def split(self, workspace: Workspace, piece: Data, first_row: int) -> SendBatch:
        """Sort a piece, in a copy of its own, or only reorder it by rank."""
        backend = workspace.backend
        if not backend.sorts_before_sending:
            return super().split(workspace, piece, first_row)
        variable = max(0, piece.nbytes - piece.rows * piece.schema.row_bytes)
        scratch = backend.sort_scratch_bytes(piece.rows, variable)
        reservation = workspace.budget.reserve(piece.nbytes + scratch + variable, "Sorting a chunk")
        with span("sort", "algorithm", bytes=piece.nbytes):
            counts = backend.count_ids(self._ids_at(workspace, piece, first_row), self._size)
            order, offsets = backend.sort_order(piece, self._sort_keys), np.concatenate(([0], np.cumsum(counts)))
            if self.deals:
                data: Any = deal_rows(cast("Columns", piece), order, offsets)
            else:
                data = backend.take(piece, order)
        if data.nbytes <= reservation.nbytes:
            reservation.resize(data.nbytes)
        return SendBatch(data, offsets[:-1], offsets[1:], reservation)

    def _ids_at(self, workspace: Workspace, piece: Data, first_row: int) -> Ids:
        if self._ids is None:
            return self.ids_of(workspace, piece, first_row)
        return self._ids[first_row : first_row + piece.rows]
