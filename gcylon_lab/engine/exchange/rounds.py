"""The one exchange loop: agree, exchange, take in, until no rank has rows left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...backends.protocol.data import Data, Dealt
from ...backends.protocol.scattering import Scattering
from ...comm.transport import Receive, Send, WritableWindows
from ...errors import BudgetExceeded, CommError
from ...memory.budget import Reservation, exceeded
from ...profiling import span
from ..exec.agreement import AgreementKind, agreed, agreement_room
from ..exec.operation import Operation
from ..exec.running import let_go
from ..store.part import Part
from ..store.workspace import Workspace
from .sinks import RecvBatch, RemoteWriteSink, Sink, WritableSink

Int64s = npt.NDArray[np.int64]

# Where nothing has to be done between rounds they are queued ahead of the GPU, so many at the most: what has been
# queued cannot be called back by a revoke.
_ROUNDS_AHEAD = 16
_NOTHING = memoryview(b"")
_MOST_PARTS = 64  # a round is split into so many at the most, and each of them again where that is not enough


@dataclass
class SendBatch:
    """Rows that leave in a round: for each rank, rows [starts[rank], stops[rank]) of ``data``.

    ``stays`` says that they are a part's own, and so longer there than the operation. With a ``scattering``
    there are ``views``, some of its pieces from ``piece`` on, as they are: rows are not in the order of ranks, and only
    their numbers count.
    """

    data: Data | None
    starts: Int64s
    stops: Int64s
    reservation: Reservation | None = None
    stays: bool = False
    scattering: Scattering | None = None
    views: tuple[Data, ...] = ()
    piece: int = 0

    @property
    def rows(self) -> Int64s:
        """Rows for each rank."""
        return self.stops - self.starts

    @property
    def sends(self) -> bool:
        """Whether there is anything: ranks without rows join rounds too."""
        return self.data is not None or bool(self.views)

    def split(self, parts: int) -> list[SendBatch]:
        """Cut into consecutive rounds; rows for each rank stay in order."""
        edges = [self.starts + self.rows * i // parts for i in range(parts + 1)]
        return [SendBatch(self.data, edges[i], edges[i + 1], self.reservation, self.stays) for i in range(parts)]


class Route(Protocol):
    """Says which rows of this rank's part go where."""

    keep_order: bool

    def count(self, operation: Operation, part: Part, chunk_rows: int) -> tuple[Int64s, Int64s]:
        """Rows and bytes of variable columns for each rank, of the whole part; each of shape (size,). Where all ranks
        know those of all parts, of shape (size, size)."""
        ...

    def scattered(self, operation: Operation, part: Part, chunk_rows: int) -> Iterator[SendBatch] | None:
        """What leaves in each round, where that is known without making pieces."""
        ...

    def split(self, workspace: Workspace, piece: Data, first_row: int) -> SendBatch:
        """Where the rows of a piece go, which begins at ``first_row`` of this rank's part."""
        ...

    def prepare(self, operation: Operation, part: Part, chunk_rows: int) -> None:
        """Get ready for rounds of chunks of so many rows, after counting."""
        ...

    def deal(self, operation: Operation) -> bool:
        """Let all fixed columns of what a rank gets of a piece be together, if they can be: the same on all ranks."""
        ...

    def forget(self) -> None:
        """Give back what was kept from counting."""
        ...


def exchange_rounds(
    operation: Operation, part: Part, route: Route, sink: Sink, chunk_rows: int, *, last: bool = True
) -> None:
    """Collective: all ranks call it. Move all rows of all parts along their route into the sinks.

    A rank without rows left joins every round. Where a round does not fit on
    some rank, all ranks split it alike, as the agreements let each of them compute.
    Where every row has its place already, and senders write there by address,
    no rank has to make room for a round, and none is agreed on.
    Unless it is the last exchange of several that follow each other, rows may
    still be on their way when it returns.

    Raises
    ------
    BudgetExceeded
        If a round of one row from each rank does not fit, on all ranks.
    """
    every = _outgoing(operation, part, route, chunk_rows)
    addressed = sink if operation.overlaps and isinstance(sink, WritableSink) and sink.addressed else None
    copied = _run_rounds(operation, sink, every) if addressed is None else _send_all(operation, addressed, every)
    if operation.overlaps and not last and sink.in_place:
        if copied:  # by this rank: the copies it sends take memory that the next exchange may need
            operation.settle()
    elif operation.overlaps:
        operation.settle()
        answers = operation.agree(
            AgreementKind.ROUND, (operation.record.rounds_done,)
        )  # the last round is complete only now
        if addressed is not None:  # each has done its own
            operation.record.rounds = operation.record.rounds_done = int(answers[:, 0].max())
        operation.exchanged = True
        sink.close()


def _run_rounds(operation: Operation, sink: Sink, every: Iterator[tuple[SendBatch, int]]) -> bool:
    """Collective: all ranks call it. Agree on each round and run it; whether this rank has sent copies."""
    copied = False
    for outgoing, remaining in _with_empty_rounds(every, operation.size):
        copied |= outgoing.reservation is not None
        pending = [outgoing]
        del outgoing
        while pending:
            pending = _round(operation, sink, pending, remaining)
        if operation.rounds_left == 0:
            operation.record.rounds = operation.record.rounds_done  # fewer than planned where chunks were joined
            break
    return copied


def _send_all(operation: Operation, sink: WritableSink, every: Iterator[tuple[SendBatch, int]]) -> bool:
    """Send all rows of this rank to their places, in rounds of its own; whether it has sent copies.

    What goes wrong is told by the next agreement, as nobody waits for this rank before.
    """
    copied = False
    operation.count_bytes(np.zeros(operation.size, np.int64), sink.coming_bytes)
    for outgoing, operation.rounds_left in every:
        copied |= outgoing.reservation is not None
        if operation.in_flight or operation.record.rounds_done % _ROUNDS_AHEAD == 0:
            operation.settle()
        _exchange(operation, sink, outgoing, [_NOTHING] * operation.size, None, False)
        if outgoing.reservation is None and not outgoing.stays:
            operation.settle()  # what was sent is not held beyond this round
        del outgoing  # before the next piece is read back
        operation.count_round()
    return copied


def _outgoing(operation: Operation, part: Part, route: Route, chunk_rows: int) -> Iterator[tuple[SendBatch, int]]:
    """Give what leaves in each round, and about how many rounds come after it (0 for the last one only)."""
    workspace, first_row = operation.workspace, 0
    ready = route.scattered(operation, part, chunk_rows)
    if ready is not None:
        rounds = len(part.edges(chunk_rows)) - 1
        for done, outgoing in enumerate(ready, 1):
            yield outgoing, rounds - done
        return
    left, views = len(part.edges(chunk_rows)) - 1, part.gives_views(chunk_rows)
    for piece in part.pieces(workspace, chunk_rows):
        left -= 1
        casting = operation.casts(piece)
        del piece
        for data in casting:
            rows = data.rows
            first_row += rows
            # Where joining chunks did not fit, there are more pieces than were counted.
            after = max(left, 1) if first_row < part.rows else 0
            stays = views and data.schema == part.schema
            for outgoing, remaining in _halving(operation, route, data, first_row - rows, after):
                outgoing.stays = stays and outgoing.reservation is None
                yield outgoing, remaining
            del data, outgoing  # before the next piece is read back


def _halving(
    operation: Operation, route: Route, data: Data, first_row: int, left: int
) -> Iterator[tuple[SendBatch, int]]:
    """Split a piece along the route; where that does not fit in memory, its halves one after the other."""
    backend = operation.workspace.backend
    outgoing = _split(operation, route, data, first_row)
    if outgoing is not None:
        yield outgoing, left
        if outgoing.reservation is not None:
            operation.release_when_sent(outgoing.reservation)
        return
    half = data.rows // 2
    yield from _halving(operation, route, backend.slice(data, 0, half), first_row, left + 1)
    yield from _halving(operation, route, backend.slice(data, half, data.rows), first_row + half, left)


def _split(operation: Operation, route: Route, data: Data, first_row: int) -> SendBatch | None:
    """Split a piece along the route; None where its halves may fit, but it does not."""
    try:
        return route.split(operation.workspace, data, first_row)
    except operation.workspace.out_of_memory:
        if operation.in_flight:
            operation.settle()  # what the last round sent may be in the way
            return _split(operation, route, data, first_row)
        if data.rows <= 1:
            raise
        return None


def _with_empty_rounds(real: Iterator[tuple[SendBatch, int]], size: int) -> Iterator[tuple[SendBatch, int]]:
    yield from real
    none = np.zeros(size, dtype=np.int64)
    while True:
        yield SendBatch(None, none, none), 0


def _round(operation: Operation, sink: Sink, pending: list[SendBatch], remaining: int) -> list[SendBatch]:
    """Agree on the first pending round and run it, or split it; returns what is pending then."""
    outgoing, size, rank = pending[0], operation.size, operation.rank
    ahead = operation.overlaps and sink.in_place
    if operation.overlaps and (not ahead or operation.in_flight or operation.record.rounds_done % _ROUNDS_AHEAD == 0):
        operation.settle()  # what the last round sent takes none of this round's room
    budget = operation.workspace.budget
    with budget.reserve(0, "Packing variable columns") as claim:
        messages, message_bytes, lacking = _pack(operation.workspace, outgoing, claim)
        packed_bytes = claim.nbytes
        free = (-lacking or budget.allocatable_bytes) + (sink.settling_bytes if operation.overlaps else 0)
        numbers = np.concatenate(([remaining, free], outgoing.rows, message_bytes, [operation.largest_piece_percent]))
        answers = operation.agree(AgreementKind.ROUND, numbers, completes=not ahead)
        failure = _take_in(sink) if operation.overlaps and not ahead else None
        rows, message_matrix = answers[:, 2 : 2 + size], answers[:, 2 + size : 2 + 2 * size]
        operation.rounds_left = int(answers[:, 0].max())
        needs = sink.needs(rows, message_matrix)
        if (needs > answers[:, 1]).any():
            if failure is not None:
                raise failure
            return [*outgoing.split(_parts(operation, needs, answers[:, 1], rows)), *pending[1:]]
        if not operation.record.rounds_done:
            growing = np.maximum(answers[:, 2 + 2 * size, None], 100) / 100
            operation.see_needs(
                sink.needs(np.ceil(rows * growing).astype(np.int64), np.ceil(message_matrix * growing).astype(np.int64))
            )
        else:
            operation.see_needs(needs)
        arrivals = RecvBatch(rows[:, rank], message_matrix[:, rank])
        _exchange(operation, sink, outgoing, messages, arrivals, bool(message_matrix.any()))
        if failure is not None:
            raise failure
        if packed_bytes or (outgoing.sends and outgoing.reservation is None and not outgoing.stays):
            operation.settle()  # what was sent is not held beyond this round
    if not operation.overlaps:
        operation.exchanged = operation.rounds_left == 0 and len(pending) == 1
        sink.close()
        operation.workspace.spill.flush()  # what is leaving would be in the next round's way, which plans do not count
    operation.count_round()
    return pending[1:]


def _take_in(sink: Sink) -> Exception | None:
    """Take in the round before, which is complete; returns what goes wrong with that.

    The others are on their way into the exchange of the round that was just agreed on: a rank that left now would
    let them wait. It takes part, in the room that was agreed on, and tells its error in the next agreement.
    """
    failure: Exception | None = None
    for step in (sink.close, sink.settle):
        try:
            step()
        except CommError:
            raise
        except Exception as error:
            let_go(error)  # of what came, in whose room the next round comes
            failure = failure or error
    return failure


def _pack(workspace: Workspace, outgoing: SendBatch, claim: Reservation) -> tuple[list[Any], Int64s, int]:
    """Pack the variable columns for each rank under a claim; the same rows for several ranks are packed once.

    Gives the messages, their sizes, and how many bytes are lacking: then there are no messages, and all ranks will
    split the round.
    """
    sizes = np.zeros(len(outgoing.starts), np.int64)
    backend, data, budget = workspace.backend, outgoing.data, workspace.budget
    if outgoing.scattering is not None or data is None or not data.schema.variable:  # nothing of its rows is packed
        return [_NOTHING] * len(sizes), sizes, 0
    ranges = list(zip(outgoing.starts.tolist(), outgoing.stops.tolist(), strict=True))
    nbytes = {one: backend.packed_bytes(data, *one) for one in set(ranges)}
    lacking = sum(nbytes.values()) - budget.remaining_bytes
    if lacking <= 0:
        claim.resize(sum(nbytes.values()))
        packed = {one: backend.pack_variable(data, *one) for one in nbytes}
        nbytes = {one: message.nbytes for one, message in packed.items()}
        lacking = sum(nbytes.values()) - claim.nbytes - budget.remaining_bytes  # where only now it is known
    sizes[:] = [nbytes[one] for one in ranges]
    if lacking > 0:
        claim.resize(0)
        return [], sizes, lacking
    claim.resize(sum(nbytes.values()))
    return [packed[one] for one in ranges], sizes, 0


def _parts(operation: Operation, needs: Int64s, free: Int64s, rows: Int64s) -> int:
    """Into how many rounds to split: the same on all ranks, for it comes of the agreements alone."""
    if rows.max() <= 1:
        worst = int(np.argmax(needs - free))
        limit = operation.limits[worst]
        # Made elsewhere: an error that its own frame holds is there until the next gc, with all that was exchanged.
        raise agreed(_no_room(operation, int(needs[worst]), limit - int(free[worst]), limit, worst))
    # Where nothing is free, or less than nothing once the messages are packed, halving finds what fits.
    wanted = int(np.ceil(np.where(free > 0, needs / np.maximum(free, 1), 2).max()))
    return max(2, min(wanted, int(rows.max()), _MOST_PARTS))


def _no_room(operation: Operation, needed: int, used: int, limit: int, rank: int) -> BudgetExceeded:
    error = exceeded(f"A round of {operation.verb}", needed, used, limit, rank=rank)
    operation.advise(error)
    return error


def _exchange(
    operation: Operation, sink: Sink, outgoing: SendBatch, messages: list[Any], arrivals: RecvBatch | None, packed: bool
) -> None:
    """Move what leaves; without ``arrivals`` others do not wait for it, and what comes is no concern of the round."""
    transport = operation.workspace.transport
    try:
        window, places = sink.window(outgoing.rows, packed)
        message_bytes = np.array([message.nbytes for message in messages], dtype=np.int64)
        sent, received = (outgoing.rows * sink.sent_row_bytes).astype(np.int64) + message_bytes, 0
        receives: list[Receive] = []
        if arrivals is not None:
            receives = sink.open(arrivals)
            received = int(arrivals.rows.sum() * sink.received_row_bytes) + int(arrivals.message_bytes.sum())
        operation.count_bytes(sent, received)
        with span("exchange", "transfer", bytes=int(sent.sum()) if arrivals is None else received):
            if outgoing.scattering is not None:
                _scatter(operation, sink, outgoing, outgoing.scattering, places)
            else:
                assert outgoing.data is None or not isinstance(
                    sink, RemoteWriteSink
                )  # it has no place for what is packed
                transport.exchange(window, _sends(operation, outgoing, messages, places), receives)
    except CommError:
        raise
    except BaseException:
        # The others are in the exchange already, or on their way into it: no agreement can tell them.
        if arrivals is not None:
            transport.revoke()
        raise


def _scatter(operation: Operation, sink: Sink, outgoing: SendBatch, scattering: Scattering, places: Int64s) -> None:
    """Let this rank's kernels write a piece's rows into the results of all ranks."""
    transport = operation.workspace.transport
    assert isinstance(transport, WritableWindows)
    assert isinstance(sink, WritableSink)
    if not scattering.aimed:
        sink.aim(scattering, places - scattering.rows[: outgoing.piece].sum(axis=0))  # of the part, not of this piece
    with transport.writing():
        scattering.put(outgoing.piece, outgoing.views)


def _widths(operation: Operation) -> list[int]:
    return [column.dtype.itemsize for column in operation.schema.fixed if column.dtype is not None]


def _sends(operation: Operation, outgoing: SendBatch, messages: list[Any], places: Int64s) -> list[Send]:
    sends: list[Send] = []
    if outgoing.data is None:
        return sends
    dealt = isinstance(outgoing.data, Dealt)
    widths = [block.row_bytes for block in operation.schema.blocks] if dealt else _widths(operation)
    for rank, (start, stop) in enumerate(zip(outgoing.starts.tolist(), outgoing.stops.tolist(), strict=True)):
        if start == stop:
            continue
        views = operation.workspace.backend.fixed_views(outgoing.data, start, stop)
        first = int(places[rank])
        sends += [Send(rank, view, i, first * width) for i, (view, width) in enumerate(zip(views, widths, strict=True))]
        if messages[rank].nbytes:
            sends.append(Send(rank, messages[rank]))
    return sends


# ---- what ranks tell each other before: how many rows go where, where results are, or that they do not fit


def count_rows(operation: Operation, part: Part, route: Route, chunk_rows: int) -> tuple[Int64s, Int64s]:
    """Collective: all ranks call it. Rows, and bytes of variable columns, from each rank (first axis) to each.

    Returns
    -------
    ndarray of int64, ndarray of int64
        Each of shape (size, size).
    """
    rows_to, variable_to = route.count(operation, part, chunk_rows)
    if rows_to.ndim == 2:  # of all ranks: all know it
        return rows_to, variable_to
    answers = operation.agree(AgreementKind.COUNT, np.concatenate((rows_to, variable_to)))
    return answers[:, : operation.size], answers[:, operation.size : 2 * operation.size]


def meet(operation: Operation, sinks: Sequence[Sink]) -> None:
    """Collective: all ranks call it. Let ranks know where the results of others are, by agreements: where a rank has no
    memory for its result, no other waits for the place of it."""
    if not operation.overlaps:  # who receives says where, and no other rank writes there
        return
    writable = [sink for sink in sinks if isinstance(sink, WritableSink)]
    if not writable:
        return
    told = [sink.announce() for sink in writable]
    ends = np.cumsum([0, *map(len, told)]).tolist()
    every = _announced(operation, np.concatenate(told))
    for sink, start, stop in zip(writable, ends, ends[1:], strict=False):
        sink.meet(every[:, start:stop])


def _announced(operation: Operation, numbers: Int64s) -> Int64s:
    """Collective: all ranks call it. Numbers of all ranks, as many on each; shape (size, numbers)."""
    room, found = agreement_room(operation.size), []
    for start in range(0, max(len(numbers), 1), room):
        some = numbers[start : start + room]
        # What was exposed for it shall be kept: nothing is complete yet.
        found.append(operation.agree(AgreementKind.COUNT, some, completes=False)[:, : len(some)])
    return np.concatenate(found, axis=1)


def go_on(operation: Operation, error: BudgetExceeded) -> BudgetExceeded:
    """Collective: all ranks call it. Let no rank go on alone where only some ran out of memory: each learns of it.

    Returns
    -------
    BudgetExceeded
        The same on all ranks, for one that cannot go on.

    Raises
    ------
    BudgetExceeded
        The same error, where the others have ended the exchange already, or cannot be told: they do not go on with it.
    """
    if operation.exchanged and not error.agreed:
        raise error
    try:
        told = error if error.agreed else operation.tell(error)
    except CommError as revoked:
        raise error from revoked
    if not isinstance(told, BudgetExceeded):
        raise told from None
    return told.with_traceback(None)  # whose frames would hold what the failed work has made
