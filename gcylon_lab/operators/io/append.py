"""Rows that are appended to what will be a table, as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

from ...backends.protocol.data import Data
from ...backends.protocol.promotion import agree_schemas
from ...backends.protocol.schema import Column, Schema, shown_labels
from ...engine.exec.invocation import AUTO, Request, RunOptions
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...errors import ArgumentError, ColumnMissing
from ...units import MIB
from .ingest import Ingest, check_values, make_room

_SMALL_BYTES = MIB  # pieces up to it become one


class Growing:
    """This rank's rows so far: a part, whose chunks other operations may stage, and a claim on rows to come.

    Parameters
    ----------
    workspace : Workspace
    schema : Schema
    capacity_rows : int
        Rows for whose fixed columns memory is claimed before they come.
    options : RunOptions
        Of all that is appended.

    Raises
    ------
    BudgetExceeded
        If there is no room for the rows to come.
    """

    def __init__(self, workspace: Workspace, schema: Schema, capacity_rows: int, options: RunOptions = AUTO) -> None:
        self._workspace, self._options = workspace, options
        self.schema = schema
        self.capacity_rows = capacity_rows
        self._part: Part | None = Part(workspace, schema, ())
        claims = []

        def body(operation: Operation) -> Part:
            claims.append(workspace.budget.reserve(capacity_rows * schema.row_bytes, "Rows to come"))
            return request.part

        request = Request("empty", {}, self._part, options)
        run_verb(workspace, request, body)
        self._claim = claims[0]

    @property
    def part(self) -> Part:
        """The rows.

        Raises
        ------
        ArgumentError
            If they are a table by now.
        """
        if self._part is None:
            raise ArgumentError("The rows that were appended are a table by now.", advice="Begin anew with empty().")
        return self._part

    def append(
        self, make: Callable[[], Iterable[Data]], inside: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """Collective: all ranks call it. Take in rows that each rank makes for itself; all of them, or none.

        Raises
        ------
        BudgetExceeded
            If they do not fit and staging is not allowed.
        SchemaMismatch, ColumnMissing
            If they do not have the columns, or values that their dtypes do not hold.
        """
        part, workspace = self.part, self._workspace
        before = self._claim.nbytes

        def body(operation: Operation) -> Part:
            ingest = Ingest(workspace, may_stage=operation.may_stage)
            with inside():
                if operation.may_stage:
                    make_room(workspace, request.part)
                for data in make():
                    piece = self._cast(data)
                    self._claim.resize(max(0, self._claim.nbytes - piece.nbytes))
                    ingest.add(piece)
                    del data, piece  # before the next rows are made
            return Part(workspace, part.schema, ingest.chunks)

        request = Request("append", {}, Part(workspace, part.schema, ()), self._options)
        try:
            made = run_verb(workspace, request, body)[0]
        except BaseException:
            self._claim.resize(min(before, self._claim.nbytes + max(0, workspace.budget.remaining_bytes)))
            raise
        chunks, made.chunks = made.chunks, []
        for chunk in chunks:
            joined = self._joined(part.chunks[-1], chunk) if part.chunks else None
            part.chunks[len(part.chunks) - (joined is not None) :] = [joined or chunk]

    def finish(self) -> Part:
        """Collective: all ranks call it. The part of all rows; nothing is appended afterwards."""
        part, workspace = self.part, self._workspace

        def body(operation: Operation) -> Part:
            schemas = [part.schema, *dict.fromkeys(chunk.schema for chunk in part.chunks)]
            schema = operation.agree_result_schema(agree_schemas(schemas), part.rows)
            check_values(workspace, part.chunks, schema)
            return Part(workspace, schema, part.chunks)

        made = run_verb(workspace, Request("table", {}, Part(workspace, part.schema, ()), self._options), body)[0]
        self._part = None
        self._claim.release()
        return made

    def release(self) -> None:
        """Give the rows up. Idempotent."""
        part, self._part = self._part, None
        if part is not None:
            part.release()
        self._claim.release()

    def _joined(self, last: Chunk, chunk: Chunk) -> Chunk | None:
        """Two small chunks as one; None where they are not small, or their copy has no room beside them: all ranks have
        taken the rows in by now, and none may fail alone."""
        workspace, nbytes = self._workspace, last.nbytes + chunk.nbytes
        if nbytes > _SMALL_BYTES or not (last.is_held and chunk.is_held) or last.schema != chunk.schema:
            return None
        try:
            claim = workspace.budget.reserve(nbytes, "Appended rows")
            data = workspace.backend.concat([last.data, chunk.data])
        except MemoryError:  # a budget that is exceeded is one too
            return None
        claim.resize(min(claim.nbytes, data.nbytes))
        return Chunk(data.schema, data.rows, data.nbytes, data=data, reservation=claim)

    def _cast(self, data: Data) -> Data:
        """To the declared dtypes; labels of categories stay, and are brought together at the end."""
        names, given = self.schema.names, data.schema.names
        if set(names) != set(given):
            missing, more = [n for n in names if n not in given], [n for n in given if n not in names]
            what = f"no column {missing[0]!r}" if missing else f"a column {more[0]!r} that was not declared"
            raise ColumnMissing(
                f"the rows to append have {what}; expected {shown_labels(names[:20])}",
                advice="Give the columns that empty() was given.",
                column=(missing or more)[0],
            )
        wanted = [self._wanted(c, data.schema[c.name]) for c in self.schema]
        return self._workspace.backend.cast(data, Schema(wanted))

    def _wanted(self, declared: Column, given: Column) -> Column:
        """What a column is cast to: one of objects, of which no values were declared, to what came first."""
        if declared.kind == "null" and declared.pandas == given.pandas == "object":
            return next(filter(_has_kind, (c.schema[declared.name] for c in self.part.chunks)), given)
        return given if declared.kind == "category" else declared


def _has_kind(column: Column) -> bool:
    return column.kind != "null"
