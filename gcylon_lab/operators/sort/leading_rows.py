"""The rows of each rank that may be among the first ones of a sort, found without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ...backends.arrow.interop import to_frame as pandas_frame
from ...backends.protocol.data import Data
from ...backends.protocol.expressions import Expression, col
from ...backends.protocol.schema import Label
from ...backends.protocol.sorting import SortKey
from ...engine.exchange.exchange import local_plan
from ...engine.exec.invocation import AUTO, Request, check_keys
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_operation
from ...engine.plan.plan import Plan
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from .sort import require_order

_REASON = "because no rank has more than so many of the first rows"
_COMPARED = ("int", "float")
_MOST_TIMES = 4  # as many rows as are wanted are kept, before they are looked through again


def leading_rows(
    workspace: Workspace,
    part: Part,
    n: int,
    by: Sequence[Label],
    *,
    ascending: bool,
) -> tuple[Part, Plan]:
    """Collective: all ranks call it. Of this rank's rows the first ``n`` by their keys, or a few more, in any order;
    equal ones are in theirs."""

    def check() -> None:
        check_keys(part.schema, by, "by")

    def body(operation: Operation) -> Part:
        keys = [SortKey(name, ascending, False) for name in by]
        require_order(operation, keys)
        result = _Leading(operation, keys, n).of(part)
        operation.plan = local_plan(operation, part, result, _REASON)
        return result

    arguments = {"n": n, "by": list(by), "ascending": ascending}
    return run_operation(workspace, Request("leading_rows", arguments, part, AUTO, check), body)


class _Leading:
    def __init__(self, operation: Operation, keys: Sequence[SortKey], n: int) -> None:
        self._work = LocalExecutor(operation, "Finding the first rows")
        self._schema, self._keys, self._n = operation.schema, keys, n
        self._least: Expression | None = None  # what holds of all rows that may still be among the first

    def of(self, part: Part) -> Part:
        """The rows, in a part that may be evicted."""
        work, row_bytes = self._work, part.nbytes / max(part.rows, 1)
        rows = work.piece_rows(row_bytes, row_bytes + self._scratch(1000) / 1000)
        work.make_room(row_bytes, min(part.rows, self._n))
        work.expect(min(rows, part.rows) * 2 * row_bytes + self._scratch(min(rows, part.rows)))
        found = work.new_part(self._schema)
        fewer = rows >= 2 * self._n  # else what fits into memory at once has about as many rows as are wanted
        for piece in work.pieces(part, self._schema, rows):
            self._add(piece, found)
            del piece  # before the next one is read back
            if fewer and found.rows > max(_MOST_TIMES * self._n, rows):
                found = self._again(found)
        return self._again(found) if fewer and len(found.chunks) > 1 else found

    def _again(self, found: Part) -> Part:
        """The first ones of what was found in several pieces."""
        less = self._work.new_part(self._schema)
        for piece in self._work.pieces(found, self._schema, found.rows, using_up=True):
            self._add(piece, less)
            del piece
        return less

    def _add(self, piece: Data, found: Part) -> None:
        work = self._work
        for made, claim in work.apply(piece, lambda data: 2 * data.nbytes + self._scratch(data.rows), self._first):
            self._see(made)
            work.keep(found, made, claim)
            del made

    def _see(self, made: Data) -> None:
        """Rows whose first key is beyond that of the last of so many found ones are not looked at any more."""
        key, column = self._keys[0], self._schema[self._keys[0].name]
        if made.rows < self._n or not self._n or column.kind not in _COMPARED:
            return
        backend = self._work.backend
        last = backend.select(backend.slice(made, self._n - 1, self._n), [key.name])
        value: Any = pandas_frame(backend.to_host(last)).iloc[0, 0]
        if not pd.isna(value):  # missing ones come last: there is none among these rows
            bound = col(key.name)
            self._least = bound <= value if key.ascending else bound >= value

    def _first(self, data: Data) -> Data:
        backend = self._work.backend
        if self._least is not None:
            data = backend.filter(data, self._least)
        order = backend.sort_order(backend.select(data, [key.name for key in self._keys]), self._keys)
        return backend.take(data, order[: self._n])

    def _scratch(self, rows: int) -> int:
        return self._work.backend.sort_scratch_bytes(rows, 0)
