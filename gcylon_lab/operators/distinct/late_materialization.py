"""Distinct rows of tables larger than the budget: which rows stay is found from keys and positions alone; only these
are then copied, sent and staged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...backends.host.keys.order_preserving import from_bits
from ...backends.protocol.aggregation import whole_rows
from ...backends.protocol.data import Data, Ids
from ...backends.protocol.promotion import fixed_column
from ...backends.protocol.schema import Column, Label, Schema
from ...engine.exchange.exchange import Step, exchange_table, is_together, local_plan, partitioned_by
from ...engine.exchange.routes import HashRoute
from ...engine.exec.agreement import AgreementKind
from ...engine.exec.align_schemas import new_label
from ...engine.exec.local_executor import LocalExecutor, pieces_ahead
from ...engine.exec.operation import Operation
from ...engine.store.part import Part, keys_row_bytes
from ...engine.store.views import view_of
from ...engine.store.workspace import Workspace
from ...memory.budget import Reservation
from ...profiling import span
from ..group.groupby import group_rows, together_note

Int64s = npt.NDArray[np.int64]

POSITION_BYTES = 8
_WORTH = 2  # a row is at least so many times as large as its keys and its position
_BITS_IN_LIMIT = 8  # what says which rows stay takes at most so much of the budget
HELD_IN_LIMIT = 4  # keys and positions are held up to such a part of the budget: they are grouped next
_FEW_EQUAL = 0.9  # where more of the rows before were all different, looking at more of them is in vain
PIECE_IN_LIMIT = 3  # nothing else is in memory meanwhile: a piece with its work takes such a part of the budget
PLACE_BYTES = 16  # a row: masks, and the numbers of rows
_MARKING_BYTES = 64
_WAITING_IN_ROOM = 4  # rows that are picked wait while they take less than such a part of what is free
NOTE = "the rows that stay were found by their keys and positions first; only these are copied"


def materializes_late(operation: Operation, part: Part, keys: Sequence[Label]) -> bool:
    """Collective: all ranks call it. Whether it is worth it to find out first which rows stay.

    That is so where whole rows would be staged, and are much larger than their keys.
    """
    workspace = operation.workspace
    limit = workspace.limit_for(operation.config)
    narrow = keys_row_bytes(workspace, part, keys)
    answers = operation.agree(
        AgreementKind.COUNT, worth_finding_first(operation.options.strategy, part.rows, part.nbytes, narrow, limit)
    )
    if workspace.backend.on_gpu or not operation.may_stage:
        return False
    return bool(answers[:, 0].any() and answers[:, 1:3].all())


def worth_finding_first(
    strategy: str, rows: int, nbytes: int, keys_row_bytes: float, limit: int
) -> tuple[int, int, int]:
    """What a rank says to it: whether its whole rows would be staged, which is enough on one; and on all, whether what
    says which rows stay fits, and whether rows are much larger than their keys."""
    overfull = strategy == "staged" or (strategy == "auto" and 2 * nbytes > limit)
    fits = rows // 8 * _BITS_IN_LIMIT <= limit
    worth = not rows or nbytes / rows >= _WORTH * (keys_row_bytes + POSITION_BYTES)
    return int(overfull), int(fits), int(worth)


def materialize_late(operation: Operation, part: Part, keys: Sequence[Label], keep: str) -> Part:
    """Collective: all ranks call it. Of rows with equal keys the first or last, whole, where their keys belong.

    Each rank sends the keys that it has, each once, with the position of its first (last) row. Whoever gets them
    tells the ranks which of these positions stay.

    Parameters
    ----------
    operation : Operation
        Opened.
    part : Part
        This rank's rows.
    keys : sequence of labels
    keep : {"first", "last"}

    Returns
    -------
    Part
        In no particular order, each key on the rank where it would be after a shuffle.
    """
    work = LocalExecutor(operation, "Finding the rows that stay")
    record, budget = operation.record, operation.workspace.budget
    together = is_together(part, keys, operation.size)
    edges = np.cumsum([0, *operation.rows])
    position = fixed_column(new_label(operation.schema.names, "position"), pa.int64())
    work.make_room(0.0, 0)
    limit = budget.limit_bytes
    work.kept_free_bytes = limit - limit // HELD_IN_LIMIT
    narrow = _narrowed(work, part, keys, keep, position, int(edges[operation.rank]))
    record.measured_peak_bytes = max(record.measured_peak_bytes, budget.window_peak_bytes)  # grouping looks anew
    steps = whole_rows(narrow.schema, keys, keep)
    found = group_rows(operation, narrow, steps, dropna=False, schema=narrow.schema, in_one_go=True)
    work.forget(narrow)
    where = work.adopt(found)
    if not together:
        where = work.adopt(_sent_home(operation, view_of(operation.workspace, found, [position.name]), edges))
        work.forget(found)
    with _RowBitmap(work, part.rows, int(edges[operation.rank])) as marks:
        marks.use_up(where, position.name)
        work.forget(where)
        if together:
            work.kept_free_bytes = None  # it is the result
        rows = _picked(work, part, marks)
    spread = partitioned_by(part, keys, operation.size)
    if together:
        rows.partitioning = spread
        operation.plan = local_plan(operation, part, rows, "because rows with equal keys are on one rank already")
        operation.notes[:] = [together_note(part, keys), NOTE]
        return rows
    step = Step(operation, rows)
    route = HashRoute(keys, step.size, keep_order=False)
    result = exchange_table(step, rows, route, step.stats(), spread)
    step.done()
    work.forget(rows)
    operation.notes[:] = [NOTE]
    return result


def _narrowed(work: LocalExecutor, part: Part, keys: Sequence[Label], keep: str, position: Column, begins: int) -> Part:
    """Keys and positions of a rank's rows; of those with equal keys in one piece only one."""
    backend, seen = work.backend, work.operation.schema.select(keys)
    schema = Schema([*seen, position])
    made = work.new_part(schema)
    made.partitioning = part.partitioning
    view = view_of(work.workspace, part, list(keys))
    row_bytes, scratch = keys_row_bytes(work.workspace, part, keys) + POSITION_BYTES, backend.grouping_row_bytes([])
    work_row_bytes = 2 * row_bytes + scratch
    rows = work.piece_rows(view.nbytes / max(part.rows, 1), work_row_bytes, share=PIECE_IN_LIMIT)
    work.expect_pieces(view, seen, rows, work_row_bytes)

    def distinct(data: Data) -> Data:
        if made.rows > _FEW_EQUAL * done:
            return backend.concat([data])
        return backend.distinct(data, keys, keep=keep)

    done = 0
    for piece in work.pieces(view, seen, rows):
        places = np.arange(begins + done, begins + done + piece.rows)
        placed = backend.unpack(Schema([position]), piece.rows, [places.view(np.uint8).data])
        both = backend.beside([piece, placed], schema)
        for some, claim in work.apply(both, lambda data: 2 * data.nbytes + data.rows * scratch, distinct):
            work.keep(made, some, claim)
            del some
        if not done:  # now it is known how many are equal
            held = work.kept_bytes(part.rows * row_bytes * made.rows / piece.rows)
            work.expect_now(piece.rows * work_row_bytes + held)
        done += piece.rows
        del piece, placed, both  # before the next one is read back
    return made


def _sent_home(operation: Operation, where: Part, edges: Int64s) -> Part:
    """Collective: all ranks call it. Send positions to the ranks whose rows they are."""
    step = Step(operation, where)
    result = exchange_table(step, where, _PositionRoute(where.schema.names[0], edges), step.stats())
    step.done()
    return result


class _PositionRoute(HashRoute):
    """Each position goes to the rank that has the row.

    Parameters
    ----------
    name : label
        Of the column of positions.
    edges : ndarray of int64, shape (size + 1,)
        The positions between which the rows of a rank are.
    """

    def __init__(self, name: Label, edges: Int64s) -> None:
        super().__init__([name], len(edges) - 1, keep_order=False)
        self._name, self._between = name, edges[1:-1]

    def ids_of(self, workspace: Workspace, piece: Data, first_row: int, into: Ids | None = None) -> Ids:
        """The rank of each position of a piece."""
        ranks = np.searchsorted(self._between, _positions(workspace, piece, self._name), side="right")
        return ranks.astype(workspace.backend.new_ids(0, self._size).dtype)


def _positions(workspace: Workspace, data: Data, name: Label) -> Int64s:
    return from_bits(workspace.backend.order_words(data, name), "i")


class _RowBitmap:
    """A bit for each of a rank's rows: whether it stays."""

    def __init__(self, work: LocalExecutor, rows: int, first: int) -> None:
        self._work, self._first = work, first
        self._held: Reservation = work.claim(-(-rows // 8))
        self._bits = np.zeros(-(-rows // 8), np.uint8)

    def __enter__(self) -> _RowBitmap:
        return self

    def __exit__(self, *error: object) -> None:
        self._held.release()

    def use_up(self, where: Part, name: Label) -> None:
        """Mark the rows at the positions in a column, none twice; each chunk is free once it has been read, with all
        that it holds beside them."""
        work, schema = self._work, where.schema.select([name])
        limit = work.workspace.budget.limit_bytes
        largest = max((chunk.nbytes for chunk in where.chunks if chunk.tier == "device"), default=0)
        if largest > limit // HELD_IN_LIMIT:  # what is read could not be evicted
            where.stage(work.workspace, where.nbytes, work.workspace.slice_bytes(limit))
        rows = work.piece_rows(where.nbytes / max(where.rows, 1), _MARKING_BYTES)
        work.expect_pieces(where, schema, rows, _MARKING_BYTES)

        def mark(data: Data) -> Data:
            places = _positions(work.workspace, data, name) - self._first
            for bit in range(8):  # of one bit each byte is met once
                self._bits[places[places & 7 == bit] >> 3] |= 1 << bit
            return data

        for piece in work.pieces(where, schema, rows, using_up=True):
            for _, claim in work.apply(piece, lambda data: _MARKING_BYTES * data.rows, mark):
                claim.release()
            del piece  # before the next one is read back

    def count(self, start: int, stop: int) -> int:
        """How many of rows [start, stop) stay."""
        return int(self.of(start, stop).sum())

    def of(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Whether rows [start, stop) stay."""
        bits = np.unpackbits(self._bits[start // 8 : -(-stop // 8)], bitorder="little")
        return bits[start % 8 : start % 8 + stop - start].view(np.bool_)


def _picked(work: LocalExecutor, part: Part, marks: _RowBitmap) -> Part:
    """Copies of the rows that are marked, in order."""
    schema, row_bytes = work.operation.schema, part.nbytes / max(part.rows, 1)
    picking = _GatherBuffer(work)
    rows = work.piece_rows(row_bytes, row_bytes + PLACE_BYTES, share=PIECE_IN_LIMIT)
    work.expect_now(_picking_bytes(work, part, rows, marks))
    start = 0
    for piece in work.pieces(part, schema, rows):
        picking.add(piece, marks.of(start, start + piece.rows))
        start += piece.rows
        del piece  # before the next one is read back
    picking.put_down()
    return picking.made


def _picking_bytes(work: LocalExecutor, part: Part, rows: int, marks: _RowBitmap) -> float:
    """What it takes to copy the rows that are marked, from pieces of so many rows: beside each piece and what is copied
    of it stands what was copied before, as far as it is held."""
    schema, row_bytes = work.operation.schema, part.nbytes / max(part.rows, 1)
    variable = max(0.0, row_bytes - schema.row_bytes)
    held = max(work.kept_bytes(marks.count(0, part.rows) * row_bytes), work.room() // _WAITING_IN_ROOM)
    most, picked, start = 0.0, 0.0, 0
    for ahead in pieces_ahead(part, schema, rows):
        most = max(most, ahead.joining + min(picked, held))
        for _ in range(ahead.pieces):
            count = marks.count(start, start + ahead.rows)
            copied = count * schema.row_bytes + (ahead.rows * (variable + PLACE_BYTES) if count else 0.0)
            most = max(most, ahead.kept + copied + min(picked, held))
            picked, start = picked + count * row_bytes, start + ahead.rows
    return most


class _GatherBuffer:
    """Rows that are picked from pieces; few of them wait until they are worth a chunk."""

    def __init__(self, work: LocalExecutor) -> None:
        self._work = work
        self.made = work.new_part(work.operation.schema)
        self._waiting: list[tuple[Data, Reservation]] = []
        self._most = work.workspace.slice_bytes(work.workspace.budget.limit_bytes)

    def add(self, piece: Data, mask: npt.NDArray[np.bool_]) -> None:
        """Copy some rows; where they do not fit, those of its halves one after the other."""
        count = int(mask.sum())
        if not count:
            return
        try:
            self._copy(piece, mask, count)
            return
        except self._work.workspace.out_of_memory:
            if piece.rows <= 1:
                raise
        half, backend = piece.rows // 2, self._work.backend
        self.put_down()
        self.add(backend.slice(piece, 0, half), mask[:half])
        self.add(backend.slice(piece, half, piece.rows), mask[half:])

    def _copy(self, piece: Data, mask: npt.NDArray[np.bool_], count: int) -> None:
        backend, work, names = self._work.backend, self._work, piece.schema.names
        fixed = piece.schema.row_bytes
        needed = count * fixed + max(0, piece.nbytes - piece.rows * fixed) + PLACE_BYTES * piece.rows
        claim = work.claim(needed)
        try:
            with span("pick", "algorithm", bytes=piece.nbytes):
                data = backend.gather(piece, names, backend.places(mask), piece.schema, complete=True)
            claim.resize(data.nbytes)
        except BaseException:
            claim.release()
            raise
        self._waiting.append((data, claim))
        nbytes = sum(data.nbytes for data, _ in self._waiting)
        if nbytes >= self._most or nbytes > work.room() // _WAITING_IN_ROOM:
            self.put_down()

    def put_down(self) -> None:
        """Make a chunk of what waits."""
        work, waiting = self._work, self._waiting
        nbytes = sum(data.nbytes for data, _ in waiting)
        if len(waiting) > 1 and nbytes <= work.room():
            claim = work.claim(nbytes)
            data = work.backend.concat([data for data, _ in waiting])
            for _, held in waiting:
                held.release()
            waiting[:] = [(data, claim)]
        while waiting:
            work.keep(self.made, *waiting.pop(0))
