"""Rows that are appended to what will be a table, as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

from ...backends.protocol.column import shown_labels
from ...backends.protocol.data import Data
from ...backends.protocol.schema import Schema, agree_schemas
from ...config import GcylonConfig
from ...engine.exec.invocation import Request
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.store.chunk import hold
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
    config : GcylonConfig, optional
        Of all that is appended.

    Raises
    ------
    BudgetExceeded
        If there is no room for the rows to come.
    """

    def __init__(
        self, workspace: Workspace, schema: Schema, capacity_rows: int, config: GcylonConfig | None = None
    ) -> None:
        self._workspace, self._config = workspace, config
        self.schema = schema
        self.capacity_rows = capacity_rows
        self._part: Part | None = Part(workspace, schema, ())
        claims = []

        def body(operation: Operation) -> Part:
            claims.append(workspace.budget.reserve(capacity_rows * schema.row_bytes, "Rows to come"))
            return request.part

        request = Request("empty", {}, self._part, config=config)
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
            return Part(workspace, part.schema, ingest.chunks)

        request = Request("append", {}, Part(workspace, part.schema, ()), config=self._config)
        try:
            made = run_verb(workspace, request, body)[0]
        except BaseException:
            self._claim.resize(min(before, self._claim.nbytes + max(0, workspace.budget.remaining_bytes)))
            raise
        chunks, made.chunks = made.chunks, []
        for chunk in chunks:
            last = part.chunks[-1] if part.chunks else None
            small = last is not None and last.is_held and chunk.is_held and last.nbytes + chunk.nbytes <= _SMALL_BYTES
            if last is not None and small and last.schema == chunk.schema:
                data = workspace.backend.concat([last.data, chunk.data])
                part.chunks.pop()
                del last
                chunk = hold(workspace, data, "Appended rows")
            part.chunks.append(chunk)

    def finish(self) -> Part:
        """Collective: all ranks call it. The part of all rows; nothing is appended afterwards."""
        part, workspace = self.part, self._workspace

        def body(operation: Operation) -> Part:
            schemas = [part.schema, *dict.fromkeys(chunk.schema for chunk in part.chunks)]
            schema = operation.agree_result_schema(agree_schemas(schemas), part.rows)
            check_values(workspace, part.chunks, schema)
            return Part(workspace, schema, part.chunks)

        made = run_verb(workspace, Request("table", {}, Part(workspace, part.schema, ()), config=self._config), body)[0]
        self._part = None
        self._claim.release()
        return made

    def release(self) -> None:
        """Give the rows up. Idempotent."""
        part, self._part = self._part, None
        if part is not None:
            part.release()
        self._claim.release()

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
        wanted = [data.schema[c.name] if c.kind == "category" else c for c in self.schema]
        return self._workspace.backend.cast(data, Schema(wanted))
