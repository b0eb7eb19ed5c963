"""Rows that come to a rank in several messages, and are a table once the last one has come."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...config import GcylonConfig
from ...engine.exec.invocation import Request
from ...engine.exec.operation import Operation
from ...engine.exec.running import run_verb
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...profiling import span
from .ingest import Ingest, empty_part, finished, make_room
from .streams import stream_data


class Incoming:
    """What one rank has taken in so far. Its bytes are claimed as they come; dropping it gives them back.

    Parameters
    ----------
    workspace : Workspace
        This rank's means.
    config : GcylonConfig, optional
        Of the whole transfer; the live one by default.
    """

    def __init__(self, workspace: Workspace, config: GcylonConfig | None) -> None:
        self._workspace, self._config = workspace, config
        self._used = config or workspace.config
        self._ingest = Ingest(workspace, may_stage=self._used.may_stage(pinned_tier=workspace.has_pinned_tier))
        self._error: Exception | None = None

    def add(self, message: Any) -> bool:
        """Take in a message: an Arrow IPC stream. What goes wrong is told to all ranks by `finish`.

        Returns
        -------
        bool
            Whether more makes sense.
        """
        if self._error is not None:
            return False
        workspace, may_stage = self._workspace, self._ingest.may_stage
        try:
            with (
                workspace.budget.limited(workspace.limit_for(self._used)),
                span("receive", "io", bytes=len(message)),
                pa.ipc.open_stream(message) as reader,
            ):
                if may_stage:
                    make_room(workspace, empty_part(workspace))
                # Small ones together, and in memory of their own: a view would keep the whole message.
                whole = reader.read_all().combine_chunks().to_reader()
                for data in stream_data(workspace, whole, "a message", may_stage=may_stage, share=False):
                    self._ingest.add(data)
        except Exception as error:
            self._error = error.with_traceback(None)  # whose frames would hold what they had made
        return self._error is None

    def finish(self) -> Part:
        """Collective: all ranks call it. The part of what has come.

        Raises
        ------
        GcylonError
            What some rank could not take in, on all ranks.
        SchemaMismatch
            If messages to several ranks, or to one, have no common dtype.
        """

        def body(operation: Operation) -> Part:
            if self._error is not None:
                raise self._error
            return finished(operation, self._ingest)

        request = Request("from_arrow", {}, empty_part(self._workspace), config=self._config)
        return run_verb(self._workspace, request, body)[0]
