"""The sink of a result whose planes, texts among them, are written by the kernels of their senders."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends.host.column_buffers import planes_of
from ...backends.protocol.scattering import Writes
from ...backends.protocol.schema import Schema
from ...comm.transport import Receive, Window
from ..exec.remote_write import RemoteWrite
from ..store.chunk import Chunk
from ..store.workspace import Workspace
from .placement import Int64s, RecvBatch


class RemoteWriteSink:
    """An output that was allocated once, in which each rank knows the place of every row of its own.

    Parameters
    ----------
    workspace : Workspace
        Whose budget pays.
    schema : Schema
        Of the result.
    rows : ndarray of int64, shape (size, size)
        Rows that go from each rank (first axis) to each in all rounds.
    rank : int
        This one.
    written : RemoteWrite

    Raises
    ------
    BudgetExceeded
        If the result does not fit.
    """

    def __init__(self, workspace: Workspace, schema: Schema, rows: Int64s, rank: int, written: RemoteWrite) -> None:
        assert isinstance(workspace.backend, Writes)
        mine = int(rows[:, rank].sum())
        self._schema, self._first_chars = schema, written.before(rank)
        nbytes = written.result_bytes(schema, mine, rank)
        self._reservation, self.coming_bytes = workspace.budget.reserve(nbytes, "The result"), nbytes
        chars = [int(n) for n in written.chars[:, rank].sum(axis=0)]
        self._output = workspace.backend.allocate_written(schema, mine, written.nulls, chars)
        # Where this rank's next row belongs in each rank's result: after those of the ranks before it.
        self._there = rows[:rank].sum(axis=0)
        self._transport = workspace.transport
        self._window = Window(())
        plane_bytes = sum(plane.width for plane in planes_of(schema, written.nulls))
        self.received_row_bytes = nbytes / max(mine, 1)
        sent = written.chars[rank].sum(axis=1) / np.maximum(rows[rank], 1)
        self.sent_row_bytes: Any = plane_bytes + sent

    def announce(self) -> Int64s:
        """Where the planes are, and the texts."""
        self._window = self._transport.expose(self._output.buffers)
        return self._transport.places(self._window)

    def meet(self, announced: Int64s) -> None:
        """Learn where the results of others are."""
        self._window = self._transport.open_window(self._window, announced)

    @property
    def addressed(self) -> bool:
        """All is."""
        return self._window.addresses is not None

    def needs(self, rows: Int64s, message_bytes: Int64s) -> Int64s:
        """Nothing: all has its place already."""
        return np.zeros(len(rows), np.int64)

    def window(self, sent_rows: Int64s, messages: bool) -> tuple[Window | None, Int64s]:
        """The result itself."""
        places = self._there.copy()
        self._there += sent_rows
        return self._window, places

    def open(self, arrivals: RecvBatch) -> list[Receive]:
        """Nothing: others write by address."""
        return []

    def aim(self, scattering: Any, first: Int64s) -> None:
        """Say where this rank's kernels write: its first row is row ``first`` of what each rank gets; shape (size,)."""
        assert self._window.addresses is not None
        planes = self._output.planes
        by_row = self._window.addresses[:, : len(planes)]
        widths = np.array([plane.width for plane in planes], dtype=np.int64)
        chars = self._window.addresses[:, len(planes) :]
        scattering.aim_at(planes, by_row + first[:, None] * widths, chars, self._first_chars)

    @property
    def settling_bytes(self) -> int:
        """0: the result stays on the device tier."""
        return 0

    def settle(self) -> None:
        """Nothing is on its way."""

    @property
    def in_place(self) -> bool:
        """All rows are."""
        return True

    def close(self) -> None:
        """Nothing waits."""

    def finish(self) -> list[Chunk]:
        """One chunk that holds all rows."""
        data = self._output.finish()
        del self._output, self._window
        size = data.nbytes
        self._reservation.resize(size)  # bytes that say whether rows hold values have become bits
        return [Chunk(self._schema, data.rows, size, data=data, reservation=self._reservation)]
