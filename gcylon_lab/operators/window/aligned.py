"""Tables whose rows are those of another one, in its order: numbers of rows, columns beside others, rows by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ...backends.protocol.data import Columns, Data
from ...backends.protocol.promotion import fixed_column
from ...backends.protocol.schema import Label, Schema
from ...engine.exec.agreement import AgreementKind
from ...engine.exec.invocation import Request, RunOptions
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation, run_verb
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part
from ...engine.store.views import view_of
from ...engine.store.workspace import Workspace
from ..rowwise.rowwise import each_piece

_NUMBER_ROW_BYTES = 16


def numbered(
    workspace: Workspace,
    part: Part,
    name: Label,
    options: RunOptions,
    look: Callable[[Operation, Part], bool] = lambda operation, part: False,
) -> tuple[Part, list[int], bool]:
    """Collective: all ranks call it. A part with the number of each row in global order, how many rows each rank has,
    and what ranks agreed on of the part's sizes by ``look``."""
    rows: list[int] = []
    found: list[bool] = []
    column = fixed_column(name, pa.int64())

    def body(operation: Operation) -> Part:
        rows.extend(operation.rows)
        found.append(look(operation, part))
        at = sum(operation.rows[: operation.rank])
        schema = Schema([*operation.schema, column])

        def work(data: Data) -> Data:
            nonlocal at
            numbers = Columns(Schema([column]), data.rows, (np.arange(at, at + data.rows, dtype=np.int64),))
            made = workspace.backend.beside([data, workspace.backend.from_host(numbers)], schema)
            at += data.rows
            return made

        return each_piece(operation, part, _NUMBER_ROW_BYTES, 8, work, schema, part.partitioning, shared={name})

    made, _ = run_operation(workspace, Request("row_numbers", {"name": name}, part, options), body)
    return made, rows, found[0]


def rows_in_place(workspace: Workspace, part: Part, name: Label, rows: Sequence[int], options: RunOptions) -> bool:
    """Collective: all ranks call it. Whether rows are where `numbered` gave them the numbers in a column, and in that
    order, ``rows`` on each rank."""
    found: list[bool] = []

    def body(operation: Operation) -> Part:
        rank, work = operation.rank, LocalExecutor(operation, "Looking at the order of rows")
        schema, at, same = operation.schema.select([name]), sum(rows[: operation.rank]), part.rows == rows[rank]
        count = work.piece_rows(schema.row_bytes, _NUMBER_ROW_BYTES)
        work.make_room(0, 0)
        if same:
            for piece in work.pieces(view_of(workspace, part, [name]), schema, count):
                with work.claim(_NUMBER_ROW_BYTES * piece.rows):
                    numbers = workspace.backend.to_host(piece).array(name)
                    same = np.array_equal(numbers, np.arange(at, at + piece.rows))
                    del numbers
                at += piece.rows
                del piece  # before the next one is read back
                if not same:
                    break
        found.append(bool(operation.agree(AgreementKind.COUNT, (int(same),))[:, 0].all()))
        return part

    run_verb(workspace, Request("row_order", {"name": name}, part, options), body)
    return found[0]


def beside(workspace: Workspace, part: Part, other: Part, options: RunOptions) -> Part:
    """Collective: all ranks call it. The columns of two parts that have the same rows on each rank."""

    def body(operation: Operation) -> Part:
        schema = Schema([*operation.schema, *other.schema])
        reader, at = Rows(operation, [], other, [], other.schema), 0

        def work(data: Data) -> Data:
            nonlocal at
            more = workspace.backend.concat([reader.read(at, at + data.rows)])
            at += data.rows
            return workspace.backend.beside([data, more], schema)

        bytes_each = other.nbytes // max(other.rows, 1) + 1
        names = set(other.schema.names)
        return each_piece(operation, part, 2 * bytes_each, bytes_each, work, schema, part.partitioning, shared=names)

    request = Request("beside", {"columns": list(other.schema.names)}, part, options, others=(other,))
    return run_operation(workspace, request, body)[0]


class Rows:
    """Rows of a part by their numbers on this rank; before and after them perhaps some of other ranks.

    Parameters
    ----------
    operation : Operation
    before, after : sequence of Data
        Of other ranks, in order.
    part : Part
    schema : Schema
        Of what is read.
    """

    def __init__(
        self, operation: Operation, before: Sequence[Data], part: Part, after: Sequence[Data], schema: Schema
    ) -> None:
        self._workspace, self._schema = operation.workspace, schema
        self._before, self._chunks, self._after = list(before), list(part.chunks), list(after)
        self._first = -sum(data.rows for data in before)

    def read(self, start: int, stop: int) -> Data:
        """Rows [start, stop), as far as there are so many; what is before this rank's own has negative numbers."""
        backend, at = self._workspace.backend, self._first
        pieces: list[Data] = []
        every: list[Data | Chunk] = [*self._before, *self._chunks, *self._after]
        for one in every:
            low, high = max(start - at, 0), min(stop - at, one.rows)
            at += one.rows
            if low >= high:
                continue
            if isinstance(one, Chunk):
                with one.load(self._workspace) as data:
                    piece = backend.slice(data, low, high)
                    piece = piece if one.tier == "device" else backend.concat([piece])
                    pieces.append(backend.cast(piece, self._schema))
            else:
                pieces.append(backend.cast(backend.slice(one, low, high), self._schema))
        if not pieces:
            return backend.empty(self._schema)
        return pieces[0] if len(pieces) == 1 else backend.concat(pieces)
