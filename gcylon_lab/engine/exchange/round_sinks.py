"""Sinks that take in a round at a time: what has come stays as chunks of its own, on the device tier or below."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends.host.packing import unpack_messages
from ...backends.protocol.backend import Output
from ...backends.protocol.data import Data, new_planes, over_planes, view_of_planes
from ...backends.protocol.schema import Schema
from ...comm.transport import Receive, Window
from ...memory.budget import Reservation
from ...memory.tiers.staging_tier import StagingFile, StagingRegion
from ..store.chunk import Chunk, stage
from ..store.workspace import Workspace
from .placement import Int64s, RecvBatch


class ChunkSink:
    """Keeps what each source sends in a round as a chunk, so that no message is copied once it has come.

    For backends that would copy all messages together into one column: then the result would be in memory twice.
    Where strings are short there are many such chunks; later operations join small ones.

    Parameters
    ----------
    workspace : Workspace
        Whose budget pays.
    schema : Schema
        Of the result.
    """

    def __init__(self, workspace: Workspace, schema: Schema) -> None:
        self._workspace = workspace
        self._schema = schema
        self._round = 0
        self._open: list[tuple[int, int, Output, Any, Reservation]] = []
        self._chunks: list[tuple[int, int, Chunk]] = []

    def needs(self, rows: Int64s, message_bytes: Int64s) -> Int64s:
        """Rows as received, with their messages."""
        needed: Int64s = rows.sum(axis=0) * self._schema.row_bytes + message_bytes.sum(axis=0)
        return needed

    def open(self, arrivals: RecvBatch) -> list[Receive]:
        """Make room for one round, for each source by itself."""
        backend, row_bytes = self._workspace.backend, self._schema.row_bytes
        receives: list[Receive] = []
        for source in map(int, np.flatnonzero(arrivals.rows)):
            rows, extra = int(arrivals.rows[source]), int(arrivals.message_bytes[source])
            reservation = self._workspace.budget.reserve(rows * row_bytes + extra, "The result")
            output, message = backend.allocate(self._schema, rows), None
            receives += [Receive(source, view) for view in output.fixed_views(0, rows)]
            if extra:
                message = backend.new_message(extra)
                receives.append(Receive(source, message))
            self._open.append((source, rows, output, message, reservation))
        if receives:
            self._workspace.transport.expose([receive.view for receive in receives])
        return receives

    @property
    def settling_bytes(self) -> int:
        """0: the result stays on the device tier."""
        return 0

    def settle(self) -> None:
        """Nothing is on its way."""

    @property
    def received_row_bytes(self) -> float:
        """The fixed columns'."""
        return self._schema.row_bytes

    sent_row_bytes = received_row_bytes

    @property
    def in_place(self) -> bool:
        """False: a round becomes chunks once it has arrived."""
        return False

    def window(self, sent_rows: Int64s, messages: bool) -> tuple[Window | None, Int64s]:
        """None: each round has room of its own."""
        return None, np.zeros(len(sent_rows), np.int64)

    def close(self) -> None:
        """Make chunks of what has come."""
        for source, rows, output, message, reservation in self._open:
            if message is not None:
                output.put_variable(0, rows, message)
            data = output.finish()
            chunk = Chunk(self._schema, data.rows, max(data.nbytes, 0), data=data, reservation=reservation)
            self._chunks.append((source, self._round, chunk))
        self._open.clear()
        self._round += 1

    def finish(self) -> list[Chunk]:
        """The chunks by source, then round."""
        return [chunk for _, _, chunk in sorted(self._chunks, key=lambda item: item[:2])]


class StagingSink:
    """Receives a round into new memory and stages it before the one after the next.

    Parameters
    ----------
    workspace : Workspace
        Whose budget and tiers are used.
    schema : Schema
        Of the result.
    keep_order : bool
        Whether the result is in the order of source ranks. Each source then has
        chunks of its own; otherwise a round makes one chunk.
    dealt : bool
        Whether what a source sends of each block of columns is together. Each source has chunks of its own then, too.
    """

    def __init__(self, workspace: Workspace, schema: Schema, *, keep_order: bool, dealt: bool = False) -> None:
        self._workspace = workspace
        self._schema = schema
        self._keep_order, self._dealt = keep_order, dealt
        self._file: StagingFile | None = None
        self._round = 0
        self._open: list[tuple[int, Output, list[tuple[int, int, Any]]]] = []
        self._planes: list[tuple[int, int, list[Any], Any]] = []
        self._reservation: Reservation | None = None
        self._chunks: list[tuple[int, int, Chunk]] = []
        # On their way down: what the last round brought, and what the one before it did.
        self._leaving: list[StagingRegion] = []
        self._left_before: list[StagingRegion] = []
        self._leaving_claim: Callable[[], Reservation | None] = _gone

    def needs(self, rows: Int64s, message_bytes: Int64s) -> Int64s:
        """Rows as received, and the messages a second time, as they are packed to be written."""
        needed: Int64s = rows.sum(axis=0) * self._schema.row_bytes + 2 * message_bytes.sum(axis=0)
        return needed

    def open(self, arrivals: RecvBatch) -> list[Receive]:
        """Make room in memory for one round."""
        rows, messages = arrivals.rows, arrivals.message_bytes
        size = int(rows.sum()) * self._schema.row_bytes + 2 * int(messages.sum())
        self._reservation = self._workspace.budget.reserve(size, "A received chunk")
        sources = [int(source) for source in np.flatnonzero(rows)]
        receives: list[Receive] = []
        for source in sources if self._dealt else ():
            receives += self._open_planes(source, int(rows[source]), int(messages[source]))
        if self._dealt:
            sources = []
        groups = [[source] for source in sources] if self._keep_order else ([sources] if sources else [])
        for group in groups:
            output = self._workspace.backend.allocate(self._schema, int(rows[group].sum()))
            pending: list[tuple[int, int, Any]] = []
            start = 0
            for source in group:
                count = int(rows[source])
                receives += [Receive(source, v) for v in output.fixed_views(start, start + count)]
                if messages[source]:
                    message = self._workspace.backend.new_message(int(messages[source]))
                    pending.append((start, count, message))
                    receives.append(Receive(source, message))
                start += count
            self._open.append((group[0] if self._keep_order else 0, output, pending))
        if receives:
            self._workspace.transport.expose([receive.view for receive in receives])
        return receives

    def _open_planes(self, source: int, rows: int, message_bytes: int) -> list[Receive]:
        """Make room for what a source sends, its fixed columns together."""
        planes = new_planes(self._schema, rows)
        receives = [Receive(source, view_of_planes(some)) for some in planes]
        message = self._workspace.backend.new_message(message_bytes) if message_bytes else memoryview(b"")
        if message_bytes:
            receives.append(Receive(source, message))
        self._planes.append((source, rows, planes, message))
        return receives

    @property
    def settling_bytes(self) -> int:
        """What is on its way down: nothing any more where others have seen it arrive."""
        claim = self._leaving_claim()
        return 0 if claim is None else claim.nbytes

    def settle(self) -> None:
        """Wait for what is on its way down, but for what the last round has brought."""
        for region in self._left_before:
            region.wait()
        self._left_before = []
        self._workspace.spill.poll()

    @property
    def received_row_bytes(self) -> float:
        """The fixed columns'."""
        return self._schema.row_bytes

    sent_row_bytes = received_row_bytes

    @property
    def in_place(self) -> bool:
        """False: a round is staged once it has arrived."""
        return False

    def window(self, sent_rows: Int64s, messages: bool) -> tuple[Window | None, Int64s]:
        """None: each round has room of its own."""
        return None, np.zeros(len(sent_rows), np.int64)

    def close(self) -> None:
        """Stage the round.

        Raises
        ------
        SpillError
            If the disk is full or cannot be written.
        """
        # Released with the last reference: a copy that goes on after this keeps it.
        reservation, self._reservation = self._reservation, None
        regions: list[StagingRegion] = []
        self._left_before, self._leaving = self._leaving, regions
        self._leaving_claim = _gone if reservation is None else weakref.ref(reservation)
        arrived: list[tuple[int, Data]] = []
        planes_of, self._planes = self._planes, []
        while planes_of:
            source, rows, planes, message = planes_of.pop(0)
            variable = unpack_messages(self._schema, rows, iter((message,)))
            arrived.append((source, over_planes(self._schema, rows, planes, variable)))
        opened, self._open = self._open, []
        while opened:
            source, output, pending = opened.pop(0)
            while pending:  # messages of several sources are copied into one: they go before that is packed
                output.put_variable(*pending.pop(0))
            arrived.append((source, output.finish()))
        for source, data in arrived:
            self._file = self._file or self._workspace.spill.new_file()
            chunk = stage(self._workspace, self._file, data, reservation)
            self._chunks.append((source if self._keep_order else 0, self._round, chunk))
            regions.append(chunk.region)
        self._round += 1

    def finish(self) -> list[Chunk]:
        """The staged chunks by source, then round; all of them have arrived."""
        self._workspace.spill.flush()
        return [chunk for _, _, chunk in sorted(self._chunks, key=lambda item: item[:2])]


def _gone() -> None:
    """As a weak reference to a claim that was given back."""
