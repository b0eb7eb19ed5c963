"""Where received rows go, and the sink that takes them straight into the result's final place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from ...backends.protocol.backend import Output
from ...backends.protocol.schema import Schema
from ...comm.transport import Receive, Window
from ...memory.budget import Reservation
from ..store.chunk import Chunk
from ..store.workspace import Workspace

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecvBatch:
    """What comes to this rank in a round: rows and packed variable bytes, by source rank."""

    rows: Int64s
    message_bytes: Int64s


class Sink(Protocol):
    """Takes in the rows of one rank's result."""

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
        ...

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
        ...

    def open(self, arrivals: RecvBatch) -> list[Receive]:
        """Make room for a round, in the order in which each source sends: fixed columns, then the message."""
        ...

    @property
    def settling_bytes(self) -> int:
        """Device bytes that `settle` will give back."""
        ...

    def settle(self) -> None:
        """Wait until what was taken in before the last `close` has left the device tier."""
        ...

    @property
    def in_place(self) -> bool:
        """Whether rows need nothing more once they have arrived: the same on all ranks."""
        ...

    def close(self) -> None:
        """Take in what the round has filled; nothing where it was done already."""
        ...

    @property
    def received_row_bytes(self) -> float:
        """Mean bytes of a row that comes to this rank, beside messages."""
        ...

    @property
    def sent_row_bytes(self) -> Any:
        """The same of rows that this rank sends; perhaps for each rank, of shape (size,)."""
        ...

    def finish(self) -> list[Chunk]:
        """The chunks of the result, in row order."""
        ...


@runtime_checkable
class WritableSink(Sink, Protocol):
    """A sink of which all ranks know where its rows belong."""

    def announce(self) -> Int64s:
        """What the others have to know to write into the result, once there is memory for it; as many on each rank."""
        ...

    def meet(self, announced: Int64s) -> None:
        """Learn where the results of others are, from what all have announced; shape (size, n)."""
        ...

    @property
    def addressed(self) -> bool:
        """Whether all that comes is written by address by those it comes from: the same on all ranks, once they met."""
        ...

    @property
    def coming_bytes(self) -> int:
        """Bytes that come to this rank in all rounds."""
        ...

    def aim(self, scattering: Any, first: Int64s) -> None:
        """Say where this rank's kernels write: its first row is row ``first`` of what each rank gets; shape (size,)."""
        ...


class PreallocatedSink:
    """Receives into an output that was allocated once, source after source, so that order does not depend on rounds.

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

    Raises
    ------
    BudgetExceeded
        If the fixed columns do not fit.
    """

    def __init__(self, workspace: Workspace, schema: Schema, rows: Int64s, rank: int) -> None:
        rows_from = rows[:, rank]
        self._rows = int(rows_from.sum())
        self._schema = schema
        self._next = np.concatenate(([0], np.cumsum(rows_from)[:-1])).astype(np.int64)
        self._reservation: Reservation = workspace.budget.reserve(self._rows * schema.row_bytes, "The result")
        self._output: Output = workspace.backend.allocate(schema, self._rows)
        self._messages: list[tuple[int, int, Any]] = []
        self._new_message, self._expose = workspace.backend.new_message, workspace.transport.expose
        self._widths = [column.dtype.itemsize for column in schema.fixed if column.dtype is not None]
        # Where this rank's next row belongs in each rank's result: after those of the ranks before it.
        self._there = rows[:rank].sum(axis=0)
        self._transport = workspace.transport
        self._window = Window(())

    def announce(self) -> Int64s:
        """Where the fixed columns are."""
        self._window = self._transport.expose(self._output.fixed_views(0, self._rows))
        return self._transport.places(self._window)

    def meet(self, announced: Int64s) -> None:
        """Learn where the results of others are."""
        self._window = self._transport.open_window(self._window, announced)

    @property
    def addressed(self) -> bool:
        """Fixed columns are, where the transport writes by address; messages are not."""
        return self._window.addresses is not None and self.in_place

    @property
    def coming_bytes(self) -> int:
        """The fixed columns'."""
        return self._rows * self._schema.row_bytes

    def needs(self, rows: Int64s, message_bytes: Int64s) -> Int64s:
        """Only the messages: the fixed columns have their place already."""
        needed: Int64s = message_bytes.sum(axis=0)
        return needed

    def window(self, sent_rows: Int64s, messages: bool) -> tuple[Window | None, Int64s]:
        """The result itself, unless messages come in, whose places nobody else knows."""
        places = self._there.copy()
        self._there += sent_rows
        return (None if messages else self._window), places

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
                message = self._new_message(int(arrivals.message_bytes[source]))
                self._messages.append((start, count, message))
                messages.append(message)
                receives.append(Receive(int(source), message))
        if messages:
            self._expose(messages)
        return receives

    def aim(self, scattering: Any, first: Int64s) -> None:
        """Say where this rank's kernels write: its first row is row ``first`` of what each rank gets; shape (size,)."""
        assert self._window.addresses is not None
        widths = np.array(self._widths, dtype=np.int64)
        scattering.aim(self._window.addresses + first[:, None] * widths, self._widths)

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
        """Fixed columns are; messages have to be handed on."""
        return not self._schema.variable

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
