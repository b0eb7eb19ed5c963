"""Where received rows go: into the result's final place, or a round at a time, on the device tier or below."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...backends.host.column_buffers import planes_of
from ...backends.host.packing import unpack_messages
from ...backends.protocol.backend import Output
from ...backends.protocol.data import Data, new_planes, over_planes, view_of_planes
from ...backends.protocol.scattering import Writes
from ...backends.protocol.schema import Schema
from ...comm.transport import Receive, Window
from ...memory.budget import Reservation
from ...memory.tiers.staging_tier import StagingFile, StagingRegion
from ..exec.remote_write import RemoteWrite
from ..store.chunk import Chunk, stage
from ..store.workspace import Workspace

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecvBatch:
    """What comes to this rank in a round: rows and packed variable bytes, by source rank."""

    rows: Int64s
    message_bytes: Int64s


class Sink:
    """Takes in the rows of one rank's result: here those that have room of their own in each round.

    Parameters
    ----------
    workspace : Workspace
        Whose budget pays.
    schema : Schema
        Of the result.

    Attributes
    ----------
    in_place : bool
        Whether rows need nothing more once they have arrived: the same on all ranks.
    received_row_bytes : float
        Mean bytes of a row that comes to this rank, beside messages.
    sent_row_bytes : float or ndarray of float64, shape (size,)
        The same of rows that this rank sends, perhaps for each rank.
    """

    def __init__(self, workspace: Workspace, schema: Schema) -> None:
        self._workspace, self._schema = workspace, schema
        self.in_place = False
        self.received_row_bytes: float = schema.row_bytes
        self.sent_row_bytes: Any = schema.row_bytes

    def needs(self, rows: Int64s, message_bytes: Int64s) -> Int64s:
        """Device bytes that each rank must have free for a round: a pure function of the round's agreements.

        Parameters
        ----------
        rows, message_bytes : ndarray of int64, shape (size, size)
            From each rank (first axis) to each.

        Returns
        -------
        ndarray of int64, shape (size,)
        """
        needed: Int64s = rows.sum(axis=0) * self._schema.row_bytes + message_bytes.sum(axis=0)
        return needed

    def window(self, sent_rows: Int64s, messages: bool) -> tuple[Window | None, Int64s]:
        """Where others take this rank's rows in, if that is known to all.

        Parameters
        ----------
        sent_rows : ndarray of int64, shape (size,)
            Rows that this rank sends to each in this round.
        messages : bool
            Whether any rank sends a message to any, the same on all ranks.

        Returns
        -------
        Window or None, ndarray of int64, shape (size,)
            And the row of each rank's window at which these rows begin.
        """
        return None, np.zeros(len(sent_rows), np.int64)

    def open(self, arrivals: RecvBatch) -> list[Receive]:
        """Make room for a round, in the order in which each source sends: fixed columns, then the message."""
        raise NotImplementedError

    @property
    def settling_bytes(self) -> int:
        """Device bytes that `settle` will give back: none of a result that stays on the device tier."""
        return 0

    def settle(self) -> None:
        """Wait until what was taken in before the last `close` has left the device tier."""

    def close(self) -> None:
        """Take in what the round has filled; nothing where it was done already."""

    def finish(self) -> list[Chunk]:
        """The chunks of the result, in row order."""
        raise NotImplementedError


class WritableSink(Sink):
    """A sink of which all ranks know where its rows belong: an output that was allocated once.

    Parameters
    ----------
    workspace, schema
        As of `Sink`.
    rows : ndarray of int64, shape (size, size)
        Rows that go from each rank (first axis) to each in all rounds.
    rank : int
        This one.

    Attributes
    ----------
    coming_bytes : int
        Bytes that come to this rank in all rounds.
    """

    coming_bytes: int

    def __init__(self, workspace: Workspace, schema: Schema, rows: Int64s, rank: int) -> None:
        super().__init__(workspace, schema)
        self._rows = int(rows[:, rank].sum())
        # Where this rank's next row belongs in each rank's result: after those of the ranks before it.
        self._there = rows[:rank].sum(axis=0)
        self._window = Window(())

    def _buffers(self) -> list[Any]:
        """What others write into."""
        raise NotImplementedError

    def announce(self) -> Int64s:
        """What the others have to know to write into the result, once there is memory for it; as many on each rank."""
        transport = self._workspace.transport
        self._window = transport.expose(self._buffers())
        return transport.places(self._window)

    def meet(self, announced: Int64s) -> None:
        """Learn where the results of others are, from what all have announced; shape (size, n)."""
        self._window = self._workspace.transport.open_window(self._window, announced)

    @property
    def addressed(self) -> bool:
        """Whether all that comes is written by address by those it comes from: the same on all ranks, once they met."""
        return self._window.addresses is not None and self.in_place

    def window(self, sent_rows: Int64s, messages: bool) -> tuple[Window | None, Int64s]:
        """The result itself, unless messages come in, whose places nobody else knows."""
        places = self._there.copy()
        self._there += sent_rows
        return (None if messages else self._window), places

    def aim(self, scattering: Any, first: Int64s) -> None:
        """Say where this rank's kernels write: its first row is row ``first`` of what each rank gets; shape (size,)."""
        raise NotImplementedError


class PreallocatedSink(WritableSink):
    """Receives source after source, so that the order of rows does not depend on rounds; see `WritableSink`.

    Raises
    ------
    BudgetExceeded
        If the fixed columns do not fit.
    """

    def __init__(self, workspace: Workspace, schema: Schema, rows: Int64s, rank: int) -> None:
        super().__init__(workspace, schema, rows, rank)
        self.in_place = not schema.variable  # messages have to be handed on
        self.coming_bytes = self._rows * schema.row_bytes
        self._next = np.concatenate(([0], np.cumsum(rows[:, rank])[:-1])).astype(np.int64)
        self._reservation: Reservation = workspace.budget.reserve(self.coming_bytes, "The result")
        self._output: Output = workspace.backend.allocate(schema, self._rows)
        self._messages: list[tuple[int, int, Any]] = []
        self._widths = [column.dtype.itemsize for column in schema.fixed if column.dtype is not None]

    def _buffers(self) -> list[Any]:
        return self._output.fixed_views(0, self._rows)

    def needs(self, rows: Int64s, message_bytes: Int64s) -> Int64s:
        """Only the messages: the fixed columns have their place already."""
        needed: Int64s = message_bytes.sum(axis=0)
        return needed

    def open(self, arrivals: RecvBatch) -> list[Receive]:
        """Give the places of the rows, and new room for the messages."""
        extra = int(arrivals.message_bytes.sum())
        if extra:
            self._reservation.resize(self._reservation.nbytes + extra)
        receives: list[Receive] = []
        messages: list[Any] = []
        if self._window.addresses is not None and not extra:
            self._next += arrivals.rows
            return receives  # others write by address
        for source in np.flatnonzero(arrivals.rows):
            start, count = int(self._next[source]), int(arrivals.rows[source])
            self._next[source] += count
            receives += [Receive(int(source), v) for v in self._output.fixed_views(start, start + count)]
            if arrivals.message_bytes[source]:
                message = self._workspace.backend.new_message(int(arrivals.message_bytes[source]))
                self._messages.append((start, count, message))
                messages.append(message)
                receives.append(Receive(int(source), message))
        if messages:
            self._workspace.transport.expose(messages)
        return receives

    def aim(self, scattering: Any, first: Int64s) -> None:
        """Say where this rank's kernels write: its first row is row ``first`` of what each rank gets; shape (size,)."""
        assert self._window.addresses is not None
        widths = np.array(self._widths, dtype=np.int64)
        scattering.aim(self._window.addresses + first[:, None] * widths, self._widths)

    def close(self) -> None:
        """Hand the filled messages to the output."""
        for start, count, message in self._messages:
            self._output.put_variable(start, count, message)
        self._messages.clear()

    def finish(self) -> list[Chunk]:
        """One chunk that holds all rows."""
        data = self._output.finish()
        # The claim is the chunk's size: what the messages carried beside the values is gone or small.
        size = max(data.nbytes, 0)
        return [Chunk(self._schema, data.rows, size, data=data, reservation=self._reservation)]


class RemoteWriteSink(WritableSink):
    """An output whose planes, texts among them, are written by the kernels of their senders; see `WritableSink`.

    Parameters
    ----------
    workspace, schema, rows, rank
        As of `WritableSink`.
    written : RemoteWrite

    Raises
    ------
    BudgetExceeded
        If the result does not fit.
    """

    def __init__(self, workspace: Workspace, schema: Schema, rows: Int64s, rank: int, written: RemoteWrite) -> None:
        assert isinstance(workspace.backend, Writes)
        super().__init__(workspace, schema, rows, rank)
        self.in_place = True
        self._first_chars = written.before(rank)
        nbytes = self.coming_bytes = written.result_bytes(schema, self._rows, rank)
        self._reservation = workspace.budget.reserve(nbytes, "The result")
        chars = [int(n) for n in written.chars[:, rank].sum(axis=0)]
        self._output = workspace.backend.allocate_written(schema, self._rows, written.nulls, chars)
        plane_bytes = sum(plane.width for plane in planes_of(schema, written.nulls))
        self.received_row_bytes = nbytes / max(self._rows, 1)
        self.sent_row_bytes = plane_bytes + written.chars[rank].sum(axis=1) / np.maximum(rows[rank], 1)

    def _buffers(self) -> list[Any]:
        return self._output.buffers

    def needs(self, rows: Int64s, message_bytes: Int64s) -> Int64s:
        """Nothing: all has its place already."""
        return np.zeros(len(rows), np.int64)

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

    def finish(self) -> list[Chunk]:
        """One chunk that holds all rows."""
        data = self._output.finish()
        del self._output, self._window
        size = data.nbytes
        self._reservation.resize(size)  # bytes that say whether rows hold values have become bits
        return [Chunk(self._schema, data.rows, size, data=data, reservation=self._reservation)]


class ChunkSink(Sink):
    """Keeps what each source sends in a round as a chunk, so that no message is copied once it has come.

    For backends that would copy all messages together into one column: then the result would be in memory twice.
    Where strings are short there are many such chunks; later operations join small ones.
    """

    def __init__(self, workspace: Workspace, schema: Schema) -> None:
        super().__init__(workspace, schema)
        self._round = 0
        self._open: list[tuple[int, int, Output, Any, Reservation]] = []
        self._chunks: list[tuple[int, int, Chunk]] = []

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


class StagingSink(Sink):
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
        super().__init__(workspace, schema)
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
