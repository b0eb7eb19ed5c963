"""Functions of all rows up to each: sums, products, extremes, and the last value that is there."""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.expressions.windows import last_of, windowed
from ...backends.protocol.data import Data
from ...backends.protocol.promotion import agree_schemas
from ...backends.protocol.schema import Label
from ...engine.exec.invocation import Request, RunOptions
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ..rowwise.rowwise import computed, each_piece
from .steps import frame_of, rows_of, shared_rows

GROUP_ROW_BYTES = 96  # what pandas takes for a row of groups


def scan(
    workspace: Workspace,
    part: Part,
    keys: Sequence[Label],
    value: Label,
    function: str,
    *,
    dropna: bool,
    options: RunOptions,
    what: str = "",
) -> Part:
    """Collective: all ranks call it. A column of what a cumulative function gives for each row, in the order of rows.

    Parameters
    ----------
    workspace, part
        This rank's means and rows: keys, whose equal ones are one after the other over all ranks, and values.
    keys : sequence of labels
    value : label
        Also of the result's column.
    function : str
        One of `gcylon_lab.backends.expressions.windows.CUMULATIVE`.
    dropna : bool
        Whether rows with a missing key have no answer.
    options : RunOptions
    what : str
        What was asked for, in the words of an error.

    Notes
    -----
    What all rows before a piece come to is a row before it: the last one that was made, of the same group. Each rank
    finds what its rows come to, all tell it, and each goes through its rows once more with what is before them.
    """

    def body(operation: Operation) -> Part:
        run = _Scan(operation, keys, value, function, dropna=dropna, what=what or function)
        if operation.size > 1:
            run.look_before(part)
        return each_piece(operation, part, run.row_bytes(part), 16, run.step, None, None)

    arguments = {"keys": list(keys), "value": value, "function": function, "dropna": dropna}
    return run_operation(workspace, Request("window", arguments, part, options), body)[0]


class _Scan:
    def __init__(
        self, operation: Operation, keys: Sequence[Label], value: Label, function: str, *, dropna: bool, what: str
    ) -> None:
        self._what = what
        self._operation, self._backend = operation, operation.workspace.backend
        self._keys, self._value, self._function, self._dropna = list(keys), value, function, dropna
        self._before: Data | None = None

    def row_bytes(self, part: Part) -> int:
        """Bytes a row of the work."""
        return 4 * (part.nbytes // max(part.rows, 1)) + GROUP_ROW_BYTES

    def step(self, data: Data) -> Data:
        """The column of some rows; what they come to is before the next ones."""
        backend, before = self._backend, self._before
        if before is not None and before.rows:
            schema = agree_schemas([data.schema, before.schema])
            data = backend.concat([backend.cast(before, schema), backend.cast(data, schema)])
        frame = frame_of(backend, data)
        there = frame[self._value].notna()

        def work() -> Data:
            frame[self._value] = windowed(frame, self._keys, self._value, self._function, {}, dropna=self._dropna)
            skip = 0 if before is None else before.rows
            return rows_of(backend, frame[[self._value]].iloc[skip:])

        made = computed(work, lambda: self._what)
        last = last_of(frame, self._keys, self._value, self._function, there)
        self._before = rows_of(backend, last[[*self._keys, self._value]])
        return made

    def look_before(self, part: Part) -> None:
        """Collective: all ranks call it. Find what the rows of the ranks before come to."""
        operation = self._operation
        work = LocalExecutor(operation, "Looking at rows before")
        row_bytes, temporary = part.nbytes / max(part.rows, 1), self.row_bytes(part)
        rows = work.piece_rows(row_bytes, temporary)
        work.make_room(0, 0)
        work.expect_pieces(part, operation.schema, rows, 2 * row_bytes + temporary)
        if operation.rank < operation.size - 1:
            for piece in work.pieces(part, operation.schema, rows):
                for _, claim in work.apply(piece, lambda data: 2 * data.nbytes + data.rows * temporary, self.step):
                    claim.release()
                del piece  # before the next one is read back
        if self._before is None:
            self.step(self._backend.empty(operation.schema))
        assert self._before is not None
        schema = operation.agree_result_schema(self._before.schema, self._before.rows)
        told = [one for one in shared_rows(operation, self._before, schema)[: operation.rank] if one.rows]
        self._before = None
        if told:
            self.step(self._backend.concat(told))
