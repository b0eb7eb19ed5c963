"""What the steps of a window function share: columns that are chosen, and rows that all ranks tell each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.host.backend import PandasBackend
from ...backends.protocol.backend import Backend
from ...backends.protocol.data import Data
from ...backends.protocol.schema import Label, Schema
from ...engine.exec.agreement import AgreementKind
from ...engine.exec.invocation import RunOptions
from ...engine.exec.operation import Operation
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ..rowwise.rowwise import relabelled

_HOST = PandasBackend()


def frame_of(backend: Backend, data: Data) -> Any:
    """Rows as a frame of pandas, on GPU engines too: cuDF sees missing values among rows in another way."""
    return _HOST.to_frame(backend.to_host(data))


def rows_of(backend: Backend, frame: Any) -> Data:
    """The rows of such a frame."""
    return backend.from_host(_HOST.from_frame(frame))


def chosen(workspace: Workspace, part: Part, names: dict[Label, Label], options: RunOptions) -> Part:
    """Collective: all ranks call it. Some columns of a part under new names, without a copy."""
    return relabelled(workspace, part, "select", {"columns": list(names)}, lambda schema: names, options)


def shared_rows(operation: Operation, mine: Data, schema: Schema) -> list[Data]:
    """Collective: all ranks call it. Some rows of each rank, on every rank, in rank order; all as a schema has them."""
    backend = operation.workspace.backend
    rows = _HOST.concat([backend.to_host(backend.cast(mine, schema))])
    buffers = [one for given in _HOST.pack(rows) for one in (given if isinstance(given, list) else [given])]
    sizes = [memoryview(one).nbytes for one in buffers]
    payload = np.array([rows.rows, len(sizes), *sizes], np.int64).tobytes() + b"".join(bytes(one) for one in buffers)
    operation.agree(AgreementKind.COUNT, (len(payload),))  # a rank that failed tells here: what follows cannot fail
    texts = operation.workspace.transport.share(payload)
    return [backend.from_host(_read(text, schema)) for text in texts]


def _read(text: bytes, schema: Schema) -> Any:
    count, buffers = np.frombuffer(text, np.int64, 2).tolist()
    sizes = np.frombuffer(text, np.int64, buffers, 16).tolist()
    at, views = 16 + 8 * buffers, []
    for size in sizes:
        views.append(memoryview(text)[at : at + size])
        at += size
    return _HOST.unpack(schema, count, views) if count else _HOST.empty(schema)
