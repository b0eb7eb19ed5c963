"""Rows that another library hands over as Arrow: views where a batch fits as it is, copies piece by piece otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...backends.arrow.foreign import (
    is_of_pyarrow,
    name_of,
    open_stream,
    plain_bytes,
    read_batches,
    shared_bytes,
    without_rows,
)
from ...backends.arrow.tables import from_arrow, owned_array, table_of
from ...backends.protocol.data import Data
from ...engine.exec.invocation import Request
from ...engine.exec.running import run_verb
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...formats.file_columns import ipc_dtypes
from .ingest import has_room, piece_bytes, recorded, taken


def ingest_stream(workspace: Workspace, request: Request, source: Any) -> Part:
    """Collective: all ranks call it. Make a table of what each rank was handed as Arrow; see `stream_data`.

    Raises
    ------
    ArgumentError
        On all ranks, if some rank was handed nothing that can be read.
    """

    def make(*, may_stage: bool) -> Iterator[Data]:
        backend = workspace.backend
        if backend.on_gpu and hasattr(source, "__arrow_c_device_array__") and not is_of_pyarrow(source):
            yield backend.from_device_arrow(source)
            return
        yield from stream_data(workspace, open_stream(source), name_of(source), may_stage=may_stage)

    return run_verb(workspace, request, lambda op: taken(op, lambda: make(may_stage=op.may_stage)))[0]


def stream_data(workspace: Workspace, reader: Any, name: str, *, may_stage: bool) -> Iterator[Data]:
    """The rows of a stream of record batches, each piece made under a reservation; at least one, perhaps without rows.

    Parameters
    ----------
    workspace : Workspace
        Whose budget pays.
    reader : pyarrow.RecordBatchReader
    name : str
        What an error calls it.
    may_stage : bool
        Whether what does not fit may go below the device tier. A batch that fits whole stays in its own memory, as far
        as its types allow. All else is copied: a piece that was a view would keep the whole batch.

    Raises
    ------
    UnsupportedDtype, DuplicateColumns
        Before a row is read, naming the column.
    ReadError
        If the stream fails; with the batch and the rows before it.
    """
    schema = reader.schema
    dtypes = ipc_dtypes(schema)
    backend, budget = workspace.backend, workspace.budget
    yield backend.from_host(without_rows(schema, dtypes))
    for batch in recorded(read_batches(reader, name)):
        rows, (nbytes, labels) = batch.num_rows, plain_bytes(batch)
        nbytes += labels
        whole = not backend.on_gpu and has_room(budget, nbytes, may_stage=may_stage)
        count = 1 if whole else min(rows, -(-nbytes // piece_bytes(budget.limit_bytes)) or 1)
        for i in range(count):
            start, stop = rows * i // count, rows * (i + 1) // count
            with budget.reserve(min(nbytes // count, budget.remaining_bytes), "Reading a piece"):
                part = batch if whole else _owned(batch, start, stop)
                made = from_arrow(part, dtypes, nullable=True, share=True)
                if whole:
                    made.external_bytes = shared_bytes(made, batch)
                data = backend.from_host(made)
                del part, made
            yield data
            del data
        del batch


def _owned(batch: Any, start: int, stop: int) -> Any:
    arrays = [owned_array(column.slice(start, stop - start)) for column in batch.columns]
    return table_of(arrays, batch.schema.names, stop - start)
