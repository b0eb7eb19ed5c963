"""Functions of rows at some distance from each: shift, and rolling sums, means and the like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...backends.expressions.windows import windowed
from ...backends.protocol.data import Data
from ...backends.protocol.schema import Label
from ...engine.exec.invocation import Request, RunOptions
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ..rowwise.rowwise import computed, each_piece
from .aligned import Rows
from .scan import GROUP_ROW_BYTES
from .steps import frame_of, rows_of, shared_rows

_COPIES = 6  # of the rows around a piece, while it is worked on


def neighbours(
    workspace: Workspace,
    part: Part,
    keys: Sequence[Label],
    value: Label,
    function: str,
    settings: Mapping[str, Any],
    *,
    dropna: bool,
    options: RunOptions,
    what: str,
) -> Part:
    """Collective: all ranks call it. A column of what a function of rows nearby gives, in the order of rows.

    Parameters
    ----------
    workspace, part
        This rank's means and rows: keys, whose equal ones are one after the other over all ranks, and values.
    keys : sequence of labels
    value : label
        Also of the result's column.
    function : {"shift", "rolling"}
    settings : mapping
        See `gcylon_lab.backends.expressions.windows.windowed`.
    dropna : bool
        Whether rows with a missing key have no answer.
    options : RunOptions
    what : str
        What was asked for, in the words of an error.

    Notes
    -----
    Each rank tells the others its first and last rows, as many as are looked at.
    """
    periods = settings["window"] - 1 if function == "rolling" else settings["periods"]
    before, after = max(periods, 0), max(-periods, 0)

    def body(operation: Operation) -> Part:
        backend, budget = workspace.backend, workspace.budget
        row_bytes = part.nbytes // max(part.rows, 1) + 1
        around = (before + after) * row_bytes * _COPIES
        with budget.reserve((before + after) * row_bytes * operation.size, "The rows at the edges of all ranks"):
            rows, at = _with_edges(operation, part, before, after), 0

            def work(data: Data) -> Data:
                nonlocal at
                with budget.reserve(around, "The rows around a piece"):
                    first, last = rows.read(at - before, at), rows.read(at + data.rows, at + data.rows + after)
                    frame = frame_of(backend, backend.concat([first, data, last]))

                    def shifted() -> Data:
                        made = windowed(frame, keys, value, function, settings, dropna=dropna)
                        made = made.iloc[first.rows : first.rows + data.rows]
                        return rows_of(backend, made.rename(value).to_frame())

                    found = computed(shifted, lambda: what)
                at += data.rows
                return found

            return each_piece(operation, part, 4 * row_bytes + GROUP_ROW_BYTES, 16, work, None, None)

    arguments = {"keys": list(keys), "value": value, "function": function, "dropna": dropna, **settings, "of": function}
    return run_operation(workspace, Request("window", arguments, part, options), body)[0]


def _with_edges(operation: Operation, part: Part, before: int, after: int) -> Rows:
    """Collective: all ranks call it. This rank's rows, with those of other ranks that are looked at from there."""
    rank, schema = operation.rank, operation.schema
    own = Rows(operation, [], part, [], schema)
    earlier: list[Data] = []
    later: list[Data] = []
    backend = operation.workspace.backend
    if before and operation.size > 1:
        earlier = shared_rows(operation, own.read(part.rows - before, part.rows), schema)[:rank]
        earlier = _last(backend, earlier, before)
    if after and operation.size > 1:
        later = shared_rows(operation, own.read(0, after), schema)[rank + 1 :]
    return Rows(operation, earlier, part, later, schema)


def _last(backend: Any, pieces: Sequence[Data], rows: int) -> list[Data]:
    """The last rows of some pieces."""
    found: list[Data] = []
    for piece in reversed(pieces):
        take = min(rows, piece.rows)
        rows -= take
        if take:
            found.insert(0, backend.slice(piece, piece.rows - take, piece.rows))
    return found
