"""Routes: which rows of a rank's part go to which rank."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt

from ...backends.host.column_buffers import MOST_CHARS, held_row_bytes
from ...backends.host.partition import cut_planes, is_dealt
from ...backends.protocol.data import Columns, Data, Ids
from ...backends.protocol.scattering import (
    MOST_SCATTERED,
    Scattering,
    Scatters,
    Writes,
    scatter_bytes,
)
from ...backends.protocol.schema import Label
from ...errors import BudgetExceeded
from ...memory.budget import Reservation
from ...profiling import span
from ..exec.agreement import AgreementKind
from ..exec.operation import Operation
from ..exec.remote_write import RemoteWrite
from ..plan.table_stats import id_bytes
from ..store.part import Part
from ..store.views import view_of
from ..store.workspace import Workspace
from .rounds import SendBatch

Int64s = npt.NDArray[np.int64]


class HashRoute:
    """Each row goes to the rank that the hash form of its keys names.

    Parameters
    ----------
    keys : sequence of labels
        Key columns.
    size : int
        World size.
    keep_order : bool
        Whether the result is in (source rank, row) order.
    """

    def __init__(self, keys: Sequence[Label], size: int, *, keep_order: bool) -> None:
        self.keep_order = keep_order
        self._keys = list(keys)
        self._size = size
        self._ids: Ids | None = None
        self._held: Reservation | None = None
        self._edges: list[int] = []
        self._scattering: Scattering | None = None
        self._packs = False
        self.deals = False
        self.chars: Int64s | None = None  # that go to each rank, of each text, where all columns are written

    @property
    def columns(self) -> list[Label]:
        """What the ids are made of."""
        return self._keys

    def count(self, operation: Operation, part: Part, chunk_rows: int) -> tuple[Int64s, Int64s]:
        """Hash the keys of all pieces once; the ids are kept for the rounds where memory allows."""
        backend, size = operation.workspace.backend, self._size
        rows, variable = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._keep(operation, part)
        with span("partition", "algorithm", bytes=part.nbytes):
            self._count_pieces(operation, part, chunk_rows, rows, variable)
        if self._ids is not None:  # counted at once: on a GPU each count is a wait
            self.prepare(operation, part, chunk_rows)
            scattering = self._scattering
            rows = backend.count_ids(self._ids, size) if scattering is None else scattering.rows.sum(axis=0)
            if self.chars is not None:
                variable = self._written_bytes(operation, rows, self.chars)
        return rows, variable

    def _count_pieces(self, operation: Operation, part: Part, chunk_rows: int, rows: Int64s, variable: Int64s) -> None:
        """Hash the keys of all pieces; add what each rank gets of those whose ids are not kept."""
        backend, size, first = operation.workspace.backend, self._size, 0
        # Where rows are written their places are found once for all of them, as they are.
        written = operation.is_ready and (self._scatters(operation) or self._writes(operation))
        for data in key_pieces(operation, part, chunk_rows, self.columns, joined=not written):
            kept = None if self._ids is None else self._ids[first : first + data.rows]
            ids = self.ids_of(operation.workspace, data, first, kept)
            if kept is None:
                rows += backend.count_ids(ids, size)
            if operation.schema.variable and (kept is None or not self._writes(operation)):
                variable += backend.variable_bytes(data, ids, size)
            if kept is not None and ids is not kept:
                kept[:] = ids
            first += data.rows
            del data, ids

    def prepare(self, operation: Operation, part: Part, chunk_rows: int) -> None:
        """Where this rank's kernels write into the others' results, find the place of every row."""
        backend, joined = operation.workspace.backend, not operation.is_ready
        edges = part.edges(chunk_rows) if joined else part.view_edges(chunk_rows)
        if edges == self._edges or self._ids is None or not part.rows:
            return
        if self._writes(operation):
            self._scattering, self._edges = None, edges
            self._weigh(operation, part, chunk_rows)
        elif self._scatters(operation):
            assert isinstance(backend, Scatters)
            self._scattering, self._edges = None, edges
            self._scattering = self._find_places(backend, self._ids)

    def _find_places(self, backend: Scatters, ids: Ids) -> Scattering:
        """Where each row that travels goes."""
        return backend.scattering(ids, self._size, self._edges)

    def _weigh(self, operation: Operation, part: Part, chunk_rows: int) -> None:
        """Find the place of every row, and how many characters go where."""
        backend = operation.workspace.backend
        assert isinstance(backend, Writes) and self._ids is not None
        writing = backend.writing(self._ids, self._size, self._edges, operation.schema)
        for place, data in enumerate(each_piece(operation, part, chunk_rows, joined=False)):
            writing.weigh(place, data)
        self._scattering, self.chars = writing, writing.chars().sum(axis=0)

    def _written_bytes(self, operation: Operation, rows: Int64s, chars: Int64s) -> Int64s:
        """What the variable columns of so many rows take once they are written."""
        assert operation.lacking is not None
        each = held_row_bytes(operation.schema, operation.lacking) - operation.schema.row_bytes
        variable: Int64s = np.ceil(rows * each).astype(np.int64) + chars.sum(axis=1)
        return variable

    def agree_on_writing(self, operation: Operation, part: Part) -> RemoteWrite | None:
        """Collective: all ranks call it. What all ranks know where all can write their rows; None on all where one
        cannot. A rank without rows is in nobody's way."""
        chars = self.chars if part.rows else np.zeros((self._size, len(operation.schema.texts)), np.int64)
        if not operation.agree(AgreementKind.COUNT, (chars is not None,))[:, 0].all():
            return None
        assert chars is not None
        lacking = operation.lacking or [False] * len(operation.schema.columns)  # without rows nothing is lacking
        mine = np.concatenate((lacking, chars.reshape(-1))).astype(np.int64)  # more than an agreement has room for
        texts = operation.workspace.transport.share(mine.tobytes())
        every = np.array([np.frombuffer(text, np.int64) for text in texts])
        sent = every[:, len(lacking) :].reshape(self._size, *chars.shape)
        if (sent.sum(axis=0) > MOST_CHARS).any():
            return None
        return RemoteWrite(tuple(every[:, : len(lacking)].max(axis=0) > 0), sent)

    def again(self) -> HashRoute:
        """The same for other rows: nothing is kept yet."""
        return HashRoute(self._keys, self._size, keep_order=self.keep_order)

    def pack(self) -> None:
        """Let variable columns be packed, as some rank cannot write them."""
        self._packs, self.chars, self._scattering, self._edges = True, None, None, []

    def scattered(self, operation: Operation, part: Part, chunk_rows: int) -> Iterator[SendBatch] | None:
        """What leaves in each round, in views of the part's chunks; None where pieces have to be made for it."""
        if self._scattering is None or not operation.is_ready or self._edges != part.view_edges(chunk_rows):
            return None
        return self._rounds(operation, part, chunk_rows, self._scattering)

    def _rounds(self, operation: Operation, part: Part, chunk_rows: int, scattering: Scattering) -> Iterator[SendBatch]:
        first, none = 0, np.zeros(self._size, np.int64)
        for views in part.views(operation.workspace, chunk_rows):
            rows = scattering.rows[first : first + len(views)].sum(axis=0)
            yield SendBatch(None, none, rows, stays=True, scattering=scattering, views=tuple(views), piece=first)
            first += len(views)

    def split(self, workspace: Workspace, piece: Data, first_row: int) -> SendBatch:
        """Reorder a piece by rank, in a copy of its own."""
        backend, size = workspace.backend, self._size
        if size == 1:
            return SendBatch(piece, np.zeros(1, np.int64), np.full(1, piece.rows, np.int64))
        scattered = self._scattered(piece, first_row)
        if scattered is not None:
            return scattered
        scratch = backend.partition_scratch_bytes(piece.rows, size)
        # Its variable columns are packed next: a copy that leaves no room for that would be of no use.
        packed = max(0, piece.nbytes - piece.rows * piece.schema.row_bytes)
        reservation = workspace.budget.reserve(piece.nbytes + scratch + packed, "Partitioning a chunk")
        with span("partition", "algorithm", bytes=piece.nbytes):
            if self._ids is None:
                ids = self.ids_of(workspace, piece, first_row)
            else:
                ids = self._ids[first_row : first_row + piece.rows]
            data, offsets = (backend.deal if self.deals else backend.partition)(piece, ids, size)
        if data.nbytes <= reservation.nbytes:
            reservation.resize(data.nbytes)
        return SendBatch(data, offsets[:-1], offsets[1:], reservation)

    def _scattered(self, piece: Data, first_row: int) -> SendBatch | None:
        """A piece whose rows a kernel writes to where they belong; None where their places were not found before."""
        if self._scattering is None:
            return None
        place = bisect_left(self._edges, first_row)
        if self._edges[place : place + 2] != [first_row, first_row + piece.rows]:
            return None
        rows = self._scattering.rows[place]
        return SendBatch(None, np.zeros_like(rows), rows, scattering=self._scattering, views=(piece,), piece=place)

    def ids_of(self, workspace: Workspace, piece: Data, first_row: int, into: Ids | None = None) -> Ids:
        """The rank of each row of a piece, which begins at ``first_row`` of this rank's part; it may be put ``into``
        an array that is given."""
        return workspace.backend.partition_ids(piece, self._keys, self._size, into)

    def deal(self, operation: Operation) -> bool:
        """Whether what a rank gets of a piece of each block of columns is together, from now on: the same on all
        ranks."""
        on_gpu = operation.workspace.backend.on_gpu
        self.deals = bool(operation.schema.blocks) and not on_gpu and self._size > 1
        return self.deals

    def forget(self) -> None:
        """Give back the kept ids."""
        self._ids = self._scattering = self.chars = None
        self._edges = []
        if self._held is not None:
            self._held.release()
            self._held = None

    def _keep(self, operation: Operation, part: Part) -> None:
        workspace, size, rows = operation.workspace, self._size, part.rows
        chunks = len(part.chunks) if operation.is_ready else 0
        counted = 1 + len(operation.schema.texts) if self._writes(operation) else self._scatters(operation)
        counts = scatter_bytes(rows, size * counted, chunks) if counted else 0
        try:
            self._held = workspace.budget.reserve(rows * id_bytes(size) + counts, "Partition ids")
        except BudgetExceeded:
            return  # they are computed again in each round
        self._ids = workspace.backend.new_ids(rows, size)

    def _writes(self, operation: Operation) -> bool:
        """Whether texts and missing values are written too: the same on all ranks."""
        return not self._packs and operation.writes_variable

    def _scatters(self, operation: Operation) -> bool:
        return operation.workspace.scatters and not operation.schema.variable and 1 < self._size <= MOST_SCATTERED


class RangeRoute:
    """Each rank takes consecutive rows; a row may go to several ranks.

    Parameters
    ----------
    starts, stops : ndarray of int64, shape (size,)
        Rows of this rank's part that each rank takes.
    variable_row_bytes : float
        Mean bytes of a row in the variable columns, the same on all ranks.
    rows : ndarray of int64, shape (size, size)
        That each rank (first axis) sends to each: known to all, so that nobody has to tell it.
    """

    keep_order = True

    def __init__(self, starts: Int64s, stops: Int64s, variable_row_bytes: float, rows: Int64s) -> None:
        self._starts = starts
        self._stops = np.maximum(starts, stops)
        self._variable_row_bytes = variable_row_bytes
        self._rows = rows
        self.deals = False

    @classmethod
    def between(cls, edges: Int64s, rows: Sequence[int], rank: int, variable_row_bytes: float) -> RangeRoute:
        """Each rank takes the rows between two edges, in global order, of ranks with so many rows each."""
        firsts = np.cumsum([0, *rows[:-1]])[:, None]
        cuts = np.clip(edges - firsts, 0, np.array(rows)[:, None])
        return cls(cuts[rank, :-1], cuts[rank, 1:], variable_row_bytes, np.diff(cuts))

    @classmethod
    def whole(cls, rows: Sequence[int], rank: int, variable_row_bytes: float, to: int | None = None) -> RangeRoute:
        """All rows of ranks that have so many each go to one rank, or to all."""
        every = np.zeros((len(rows), len(rows)), np.int64)
        every[:, slice(None) if to is None else to] = np.reshape(rows, (-1, *[1] * (to is None)))
        return cls(np.zeros_like(every[rank]), every[rank], variable_row_bytes, every)

    def count(self, operation: Operation, part: Part, chunk_rows: int) -> tuple[Int64s, Int64s]:
        """Known without reading, and without an agreement; bytes of variable columns by their mean."""
        return self._rows, np.ceil(self._rows * self._variable_row_bytes).astype(np.int64)

    def prepare(self, operation: Operation, part: Part, chunk_rows: int) -> None:
        """Nothing depends on rounds."""

    def scattered(self, operation: Operation, part: Part, chunk_rows: int) -> None:
        """Rows are sent, not written."""

    def split(self, workspace: Workspace, piece: Data, first_row: int) -> SendBatch:
        """Views of the piece; where it is dealt perhaps of a copy, in which what a rank gets is together."""
        starts = np.clip(self._starts - first_row, 0, piece.rows)
        stops = np.clip(self._stops - first_row, 0, piece.rows)
        if not self.deals:
            return SendBatch(piece, starts, stops)
        sent = {(start, stop) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True) if stop > start}
        edges = sorted({0, piece.rows, *(edge for one in sent for edge in one)})
        copied = piece.rows
        if not sent <= set(pairwise(edges)):  # they overlap: each is copied when it is sent
            edges, copied = [0, piece.rows], piece.rows + sum(stop - start for start, stop in sent)
        claim, data = None, cast("Columns", piece)
        if len(edges) > 2 or copied > piece.rows or not is_dealt(data):
            claim = workspace.budget.reserve(copied * piece.schema.row_bytes, "Copying a chunk by ranks")
        return SendBatch(cut_planes(data, np.array(edges, np.int64)), starts, stops, claim)

    def deal(self, operation: Operation) -> bool:
        """Whether what a rank gets of a piece of each block of columns is together, from now on: the same on all
        ranks."""
        on_gpu = operation.workspace.backend.on_gpu
        self.deals = bool(operation.schema.blocks) and not on_gpu and len(self._starts) > 1
        return self.deals

    def forget(self) -> None:
        """Nothing is kept."""


def each_piece(operation: Operation, part: Part, chunk_rows: int, *, joined: bool) -> Iterator[Data]:
    """The rows of a part, of the agreed dtypes: in pieces, or where these are not joined in views of chunks.

    Nobody keeps what it gives.
    """
    if not joined:
        for views in part.views(operation.workspace, chunk_rows):
            yield from views
        return
    for piece in part.pieces(operation.workspace, chunk_rows):
        yield from operation.casts(piece)
        del piece


def key_pieces(
    operation: Operation, part: Part, chunk_rows: int, names: Sequence[Label], *, joined: bool
) -> Iterator[Data]:
    """As `each_piece`; where chunks are staged, and nobody asks how many bytes the others take, of some columns alone:
    only these are read back."""
    if joined and not operation.schema.variable and part.staged_bytes:
        keys = operation.schema.select(names)
        if all(chunk.schema.select(names) == keys for chunk in part.chunks):
            yield from view_of(operation.workspace, part, names).pieces(operation.workspace, chunk_rows)
            return
    yield from each_piece(operation, part, chunk_rows, joined=joined)
