"""Rows of a rank split by the hash of their keys, so that each bucket is worked on, or sent, alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from ...backends.protocol.data import Columns, Data, Ids
from ...backends.protocol.scattering import Scattering, Scatters, scatter_bytes
from ...backends.protocol.schema import Label, Schema
from ...memory.budget import Reservation
from ...memory.tiers.disk_tier import SpillFile
from ...profiling import span
from ..exec.local_executor import LocalExecutor, pieces_ahead
from ..exec.operation import Operation
from ..plan.table_stats import id_bytes
from ..store.part import Part
from ..store.runs import Runs
from ..store.workspace import Workspace
from .rounds import SendBatch
from .routes import HashRoute, Int64s, key_pieces

_RUN_SHARE = 0.8  # of what is free, for a piece that is written in order of its buckets
RUN_ROW_BYTES = 8 + 64  # ids, and beside them hashing keys, or ordering rows
# A chunk of fewer bytes takes far longer to be written and read back than to be joined to others before.
LEAST_CHUNK_BYTES = 64 * 1024
MASK_ROW_BYTES = 3  # of rows among which some are chosen: two masks and what they give


def split_in_buckets(
    work: LocalExecutor,
    part: Part,
    keys: Sequence[Label],
    buckets: int,
    *,
    apart: int,
    using_up: bool,
    schema: Schema | None = None,
) -> list[Part]:
    """Split a part; rows with equal keys are in the bucket of one number, whatever the widths of their dtypes.

    Parameters
    ----------
    work : LocalExecutor
    part : Part
    keys : sequence of labels
    buckets : int
    apart : int
        Into how many the hash has been divided already: the world size, times the buckets of splits before. Divided
        finer it tells the new buckets apart.
    using_up : bool
        Whether chunks are dropped from the part as they are split.
    schema : Schema, optional
        Of the buckets: some of the part's columns, perhaps of wider dtypes. The part's own by default.

    Returns
    -------
    list of Part
        One a bucket.
    """
    backend, schema = work.backend, part.schema if schema is None else schema
    if writes_runs(work):
        return _split_in_runs(work, part, schema, keys, buckets, apart, using_up=using_up)
    parts = [Part(work.workspace, schema, ()) for _ in range(buckets)]  # nothing of them is left to be evicted
    dtype = backend.new_ids(0, buckets).dtype
    row_bytes = part.nbytes / max(part.rows, 1)
    scratch = backend.partition_scratch_bytes(1024, buckets) / 1024 + 24
    # As large as fits: the smaller a piece, the more and smaller the chunks of a bucket are.
    wished = work.piece_rows(row_bytes, 0)
    rows = max(1, min(8 * wished, int(work.room() / 3 / (4 * row_bytes + scratch))))
    work_row_bytes = 2 * max(row_bytes, schema.row_bytes) + scratch
    waiting = _waiting_bytes(work, part, schema, rows, work_row_bytes, buckets)
    leaving = min(rows, part.rows) * schema.row_bytes if work.workspace.stages_beside(schema) else 0
    work.expect_pieces(part, schema, rows, work_row_bytes, beside=waiting + leaving)
    with _Waiting(work, parts, waiting) as together:
        for piece in work.pieces(part, schema, rows, using_up=using_up):
            needed = 2 * piece.nbytes + 24 * piece.rows + backend.partition_scratch_bytes(piece.rows, buckets)
            together.make_room(needed)
            with work.claim(needed) as claim:
                ids = backend.partition_ids(piece, keys, apart * buckets) % buckets
                data, offsets = backend.partition(piece, ids.astype(dtype), buckets)
                together.add(data, offsets, claim)
            del piece, ids, data  # before the next one is read back
        together.put_down()
    return parts


def writes_runs(work: LocalExecutor) -> bool:
    """Whether pieces are written in order of their buckets, many at once: to a disk, of which parts can be read."""
    return work.operation.may_stage and not work.backend.on_gpu


def runs_row_bytes(schema: Schema, row_bytes: float) -> float:
    """What splitting takes of a row beside the row, where pieces are written in order of their buckets.

    That is its copy in that order, ids and the order, and once more what is packed.
    """
    return row_bytes + max(0.0, row_bytes - schema.row_bytes) + RUN_ROW_BYTES


def run_rows(room: float, rows: int, buckets: int, loaded_row_bytes: float, work_row_bytes: float) -> int:
    """Rows of a piece: the larger it is, the longer are the parts of it that are read later, up to what is worth it."""
    worth = int(buckets * LEAST_CHUNK_BYTES / max(loaded_row_bytes, 1.0))
    return max(1, min(rows, int(room * _RUN_SHARE / (loaded_row_bytes + work_row_bytes)), worth))


def _split_in_runs(
    work: LocalExecutor, part: Part, schema: Schema, keys: Sequence[Label], buckets: int, apart: int, *, using_up: bool
) -> list[Part]:
    """Split a part whose pieces are written in order of their buckets; of these each reads its own rows."""
    backend, workspace = work.backend, work.workspace
    row_bytes = max(1.0, part.nbytes / max(part.rows, 1))
    work_row_bytes = runs_row_bytes(schema, max(row_bytes, schema.row_bytes))
    rows = run_rows(work.room(), max(part.rows, 1), buckets, row_bytes, work_row_bytes)
    work.expect_pieces(part, schema, rows, work_row_bytes)
    dtype = backend.new_ids(0, buckets).dtype
    runs = Runs(workspace, cast("SpillFile", workspace.spill.new_file()), schema, buckets)

    def needed(data: Data) -> int:
        packed = max(0, data.nbytes - data.rows * schema.row_bytes)
        return data.nbytes + packed + 8 * data.rows + backend.partition_scratch_bytes(data.rows, buckets)

    def written(data: Data) -> Data:
        ids = backend.partition_ids(data, keys, apart * buckets) % buckets
        ordered, offsets = (backend.deal if schema.blocks else backend.partition)(data, ids.astype(dtype), buckets)
        runs.add(cast("Columns", ordered), offsets)
        return data

    for piece in work.pieces(part, schema, rows, using_up=using_up):
        for _, claim in work.apply(piece, needed, written):
            claim.release()
        del piece  # before the next one is read back
    most = workspace.slice_bytes(workspace.budget.limit_bytes)
    return [Part(workspace, schema, chunks) for chunks in runs.chunks(most)]


def _waiting_bytes(
    work: LocalExecutor, part: Part, schema: Schema, rows: int, work_row_bytes: float, buckets: int
) -> int:
    """How many bytes of pieces wait to be put down together, beside the work on one: none where slices are large."""
    row_bytes = part.nbytes / max(part.rows, 1)
    piece_rows = max((ahead.rows for ahead in pieces_ahead(part, schema, rows)), default=0)
    wished = min(part.nbytes, buckets * LEAST_CHUNK_BYTES)
    if wished < 2 * piece_rows * row_bytes or not work.operation.may_stage:
        return 0
    left = work.room() - max(work.pieces_bytes(part, schema, rows, work_row_bytes))
    return max(0, int(min(wished, left / 2)))  # the other half for one bucket's slices, while they are joined


class _Waiting:
    """Pieces in order of their buckets, until the slices of several are worth being put down as one chunk a bucket.

    Parameters
    ----------
    work : LocalExecutor
    parts : list of Part
        The buckets.
    most_bytes : int
        That wait; with 0 each piece is put down at once.
    """

    def __init__(self, work: LocalExecutor, parts: list[Part], most_bytes: int) -> None:
        self._work, self._parts, self._most = work, parts, most_bytes
        self._pieces: list[tuple[Data, list[int], Reservation]] = []

    def __enter__(self) -> _Waiting:
        return self

    def __exit__(self, *error: object) -> None:
        self._pieces.clear()

    def make_room(self, nbytes: int) -> None:
        """Put down what waits where so many bytes would not be free beside it."""
        if self._pieces and nbytes > self._work.room():
            self.put_down()

    def add(self, data: Data, offsets: Int64s, claim: Reservation) -> None:
        """Take a piece, which is in memory under a claim that ends with the caller's work."""
        edges = offsets.tolist()
        if sum(held.nbytes for _, _, held in self._pieces) + data.nbytes > self._most:
            self.put_down()
        piece = (data, edges, claim.split(data.nbytes))
        if data.nbytes > self._most:
            self._down([piece])
        else:
            self._pieces.append(piece)

    def put_down(self) -> None:
        """Put down all that waits."""
        pieces, self._pieces = self._pieces, []
        self._down(pieces)

    def _down(self, pieces: list[tuple[Data, list[int], Reservation]]) -> None:
        backend, work = self._work.backend, self._work
        for place, bucket in enumerate(self._parts):
            slices = [
                (backend.slice(data, edges[place], edges[place + 1]), claim)
                for data, edges, claim in pieces
                if edges[place + 1] > edges[place]
            ]
            nbytes = sum(one.nbytes for one, _ in slices)
            if len(slices) > 1 and nbytes <= work.room():
                joined = work.claim(nbytes)
                work.put_down(bucket, backend.concat([one for one, _ in slices]), joined)
                del joined  # it ends once they have left, before the next bucket's is made
                continue
            for one, claim in slices:
                work.put_down(bucket, one, claim)


class BucketRoute(HashRoute):
    """As `HashRoute`, for the rows of some buckets of keys at a time: only these travel.

    Parameters
    ----------
    keys : sequence of labels
        Key columns.
    size : int
        World size.
    buckets : int
        How many there are.
    scatters : bool
        Whether this rank's kernels write into the others' results, where they can. It takes memory for counts.
    """

    def __init__(self, keys: Sequence[Label], size: int, buckets: int, *, scatters: bool) -> None:
        super().__init__(keys, size, keep_order=False)
        self._buckets, self._may_scatter = buckets, scatters
        self._first, self._last = 0, buckets
        self._every: Scattering | None = None  # of all buckets
        self._counted = np.zeros((buckets, size), np.int64)
        self.variable = np.zeros((buckets, size), np.int64)

    def learn(self, operation: Operation, part: Part, chunk_rows: int) -> None:
        """Hash the keys once for all buckets, and count their rows and bytes: `rows` and `variable`, by rank.

        Raises
        ------
        BudgetExceeded
            If the ids, which are kept, do not fit.
        """
        workspace, size, n = operation.workspace, self._size, self._size * self._buckets
        backend, first = workspace.backend, 0
        scatters = self._scatters(operation)
        needed = part.rows * id_bytes(n) + (scatter_bytes(part.rows, n) if scatters else 0)
        self._held = workspace.budget.reserve(needed, "Buckets of keys")
        kept = self._ids = backend.new_ids(part.rows, n)
        counts, variable = np.zeros(n, np.int64), np.zeros(n, np.int64)
        with span("partition", "algorithm", bytes=part.nbytes):
            joined = not (scatters and operation.is_ready)
            for data in key_pieces(operation, part, chunk_rows, self.columns, joined=joined):
                ids = backend.bucket_ids(data, self._keys, size, self._buckets, kept[first : first + data.rows])
                if not scatters:
                    counts += backend.count_ids(ids, n)
                if operation.schema.variable:
                    variable += backend.variable_bytes(data, ids, n)
                first += data.rows
                del data, ids
            if scatters:  # at once, and for all passes: on a GPU each count is a wait
                self.prepare(operation, part, chunk_rows)
        self._counted, self.variable = counts.reshape(-1, size), variable.reshape(-1, size)

    @property
    def rows(self) -> Int64s:
        """How many rows of each bucket each rank gets; shape (buckets, size)."""
        if self._every is not None:
            self._counted = self._every.counts.sum(axis=0)
        return self._counted

    def choose(self, first: int, last: int) -> None:
        """Let rows of buckets [first, last) travel from now on."""
        self._first, self._last = first, last
        self._scattering = None if self._every is None else self._every.chosen(first, last)

    def count(self, operation: Operation, part: Part, chunk_rows: int) -> tuple[Int64s, Int64s]:
        """Known since `learn`."""
        chosen = slice(self._first, self._last)
        return self.rows[chosen].sum(axis=0), self.variable[chosen].sum(axis=0)

    def split(self, workspace: Workspace, piece: Data, first_row: int) -> SendBatch:
        """Copy the rows of a piece that travel, by rank; or say where a kernel will write them."""
        backend, size = workspace.backend, self._size
        scattered = self._scattered(piece, first_row)
        if scattered is not None:
            return scattered
        claim = workspace.budget.reserve(MASK_ROW_BYTES * piece.rows, "Choosing rows of a pass")
        assert self._ids is not None
        ids = self._ids[first_row : first_row + piece.rows]
        low, high = self._first * size, self._last * size - 1
        mask = (ids >= low) & (ids <= high)
        count = int(mask.sum())
        none = np.zeros(size, np.int64)
        if not count:
            return SendBatch(None, none, none, claim)
        row_bytes = piece.nbytes / piece.rows
        scratch = backend.partition_scratch_bytes(count, size)
        claim.resize(claim.nbytes + int(count * (2 * row_bytes + 9)) + scratch + self._packed(piece, count))
        rows = backend.places(mask)
        data = backend.gather(piece, piece.schema.names, rows, piece.schema, complete=True)
        offsets = np.array([0, count], np.int64)
        if size > 1:
            ranks = ((ids[rows] - low) % size).astype(backend.new_ids(0, size).dtype)
            data, offsets = backend.partition(data, ranks, size)
        if data.nbytes <= claim.nbytes:
            claim.resize(data.nbytes)
        return SendBatch(data, offsets[:-1], offsets[1:], claim)

    def _packed(self, piece: Data, count: int) -> int:
        """Its variable columns are packed next: a copy that leaves no room for that would be of no use."""
        variable = max(0, piece.nbytes - piece.rows * piece.schema.row_bytes)
        return int(variable * count / piece.rows)

    def forget(self) -> None:
        """Ids are kept, for other buckets follow; see `drop`."""
        self._scattering, self._every, self._edges = None, None, []

    def _find_places(self, backend: Scatters, ids: Ids) -> Scattering:
        self._every = None  # its counts make room
        every = self._every = backend.scattering(ids, self._size, self._edges, ids_each=self._buckets)
        # While all buckets are chosen nothing is waited for: then both sides' counts are on their way together.
        return every.chosen(self._first, self._last) if self._last - self._first < self._buckets else every

    def _writes(self, operation: Operation) -> bool:
        return False  # only some of the rows travel

    def _scatters(self, operation: Operation) -> bool:
        return self._may_scatter and operation.workspace.scatters and not operation.schema.variable  # one rank's too

    def drop(self) -> None:
        """Give back the kept ids."""
        self._every = None
        super().forget()
