"""The last step of a sort: a rank's share of the rows has arrived and is brought into order, inside the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise

from ..memory.budget import Reservation
from ..memory.lower import LowerFile, LowerRegion
from ..profiling import span
from ..tables.backend import Data
from ..tables.pandas_sorting import sort_order, take_rows
from ..tables.schema import Schema
from ..tables.sorting import SortKey
from .part import Chunk, Part, stage
from .placement import StagedSink
from .shapes import stage_slice_bytes
from .sort_costs import ORDER_BYTES, bucket_count
from .splitters import Buckets, make_buckets, sample_positions, take_sample
from .workspace import Workspace

_SAMPLED = 64  # rows looked at for each bucket, where a bucket has to be cut again


class SortedSink(StagedSink):
    """Takes in sorted pieces and stages them cut into buckets.

    Parameters
    ----------
    workspace : Workspace
        Whose budget and tiers are used.
    schema : Schema
        Of the result.
    keys : sequence of SortKey
    buckets : Buckets
    """

    def __init__(self, workspace: Workspace, schema: Schema, keys: Sequence[SortKey], buckets: Buckets) -> None:
        super().__init__(workspace, schema, keep_order=True)
        self._keys = keys
        self._buckets = buckets
        self._pieces: list[list[tuple[int, int, Chunk]]] = [[] for _ in buckets.equal]

    def _take_in(
        self, source: int, data: Data, reservation: Reservation | None, file: LowerFile
    ) -> list[LowerRegion]:
        regions = []
        for bucket, piece in zip(self._pieces, self._buckets.split(self._workspace, data, self._keys), strict=True):
            if piece.rows:
                chunk = stage(self._workspace, file, piece, reservation)
                bucket.append((source, self._round, chunk))
                regions.append(chunk.region)
        return regions

    def finish(self) -> list[Chunk]:
        """Nothing yet: the buckets are to be sorted."""
        self._workspace.spill.flush()
        return []

    def take_buckets(self) -> Iterator[tuple[bool, list[Chunk]]]:
        """Whether all rows of a bucket are equal, and its chunks by source rank and row, which are handed on."""
        for number, same in enumerate(self._buckets.equal):
            pieces, self._pieces[number] = self._pieces[number], []
            yield same, [chunk for _, _, chunk in sorted(pieces, key=lambda piece: piece[:2])]


class Sorter:
    """Sorts rows that are on this rank. Nothing in it is collective.

    Parameters
    ----------
    workspace : Workspace
    schema : Schema
        Of all rows.
    keys : sequence of SortKey
    """

    def __init__(self, workspace: Workspace, schema: Schema, keys: Sequence[SortKey]) -> None:
        self._workspace = workspace
        self._schema = schema
        self._keys = keys
        self._file: LowerFile | None = None

    def sort_here(self, part: Part, *, may_stage: bool) -> list[Chunk]:
        """Sort a part on the device tier, which is given up; where that does not fit, its rows are staged for it.

        Raises
        ------
        BudgetExceeded
            If it does not fit and may not be staged.
        """
        if not part.chunks:
            return []
        (chunk,) = part.chunks
        part.release()
        workspace, nbytes = self._workspace, self._sorting_bytes(chunk.data)
        if nbytes > workspace.budget.remaining_bytes and may_stage:
            return self.sort_bucket(self._staged_runs(chunk))
        with workspace.budget.reserve(nbytes, "Sorting the result"):
            data, claim = chunk.give_up()
            held = [data]
            order = workspace.backend.sort_order(data, self._keys, runs=workspace.backend.sorts_before_sending)
            del data
            data = workspace.backend.reorder(held, order)
            del order
        if claim is not None:
            claim.resize(data.nbytes)
        return [Chunk(data.schema, data.rows, data.nbytes, data=data, reservation=claim)]

    def sort_staged(self, sink: SortedSink) -> list[Chunk]:
        """Sort what a sink has taken in, bucket by bucket; the result is staged."""
        chunks: list[Chunk] = []
        for same, pieces in sink.take_buckets():
            chunks += pieces if same else self.sort_bucket(pieces)
        return chunks

    def sort_bucket(self, pieces: list[Chunk]) -> list[Chunk]:
        """Sort staged chunks, each of them sorted, into staged chunks: in memory where that fits, else in parts."""
        rows, nbytes = sum(piece.rows for piece in pieces), sum(piece.nbytes for piece in pieces)
        if not rows:
            return []
        scratch = self._workspace.backend.sort_scratch_bytes(rows, nbytes - rows * self._schema.row_bytes)
        if rows > 1 and nbytes + max(nbytes, scratch) > self._workspace.budget.remaining_bytes:
            return self._sort_in_parts(pieces, nbytes)
        try:
            return self._sort_whole(pieces)
        except self._workspace.out_of_memory:
            if rows == 1:
                raise
        return self._sort_in_parts(pieces, nbytes)

    def _sort_whole(self, pieces: list[Chunk]) -> list[Chunk]:
        workspace, backend = self._workspace, self._workspace.backend
        with ExitStack() as held:
            claim = held.enter_context(workspace.budget.reserve(sum(p.nbytes for p in pieces), "Joining a bucket"))
            with ExitStack() as loaded, span("unstage", "io"):
                data = backend.concat([loaded.enter_context(piece.load(workspace)) for piece in pieces])
            claim.resize(data.nbytes)
            held.enter_context(workspace.budget.reserve(self._sorting_bytes(data), "Sorting a bucket"))
            with span("merge", "algorithm", bytes=data.nbytes):
                order = backend.sort_order(data, self._keys, runs=True)
                box = [data]
                del data
                data = backend.reorder(box, order)
            return self._staged(data)

    def _sort_in_parts(self, pieces: list[Chunk], nbytes: int) -> list[Chunk]:
        workspace, rows = self._workspace, sum(piece.rows for piece in pieces)
        count = max(2, bucket_count(nbytes, workspace.budget.remaining_bytes))
        schema = self._schema.select([key.name for key in self._keys])
        positions = sample_positions(0, rows, min(rows, _SAMPLED * count))
        sample = take_sample(workspace, pieces, schema, positions)
        buckets = make_buckets(take_rows(sample, sort_order(sample, self._keys)), self._keys, count, apart=True)
        parts: list[list[Chunk]] = [[] for _ in buckets.equal]
        file = workspace.spill.new_file()
        while pieces:
            piece = pieces.pop(0)
            with piece.load(workspace) as data:
                for part, some in zip(parts, buckets.split(workspace, data, self._keys), strict=True):
                    if some.rows:
                        part.append(stage(workspace, file, some))
                workspace.spill.flush()  # the memory is free only once all of it has left
        chunks: list[Chunk] = []
        for same, part in zip(buckets.equal, parts, strict=True):
            chunks += part if same else self.sort_bucket(part)
        return chunks

    def _staged(self, data: Data) -> list[Chunk]:
        """Stage rows in slices, so that reading one back takes little of the budget."""
        workspace = self._workspace
        self._file = self._file or workspace.spill.new_file()
        count = max(1, min(-(-data.nbytes // stage_slice_bytes(workspace.budget.limit_bytes)), data.rows))
        edges = [data.rows * i // count for i in range(count + 1)]
        slices = [workspace.backend.slice(data, *pair) for pair in pairwise(edges)]
        chunks = [stage(workspace, self._file, some) for some in slices]
        workspace.spill.flush()
        return chunks

    def _staged_runs(self, chunk: Chunk) -> list[Chunk]:
        """Stage rows that are on the device tier, in sorted slices that can be made in what is free."""
        workspace, data = self._workspace, chunk.data
        backend, file = workspace.backend, workspace.spill.new_file()
        room = max(1, workspace.budget.remaining_bytes // 2)
        count = min(data.rows, -(-(data.nbytes + self._sorting_bytes(data)) // room))
        runs: list[Chunk] = []
        for start, stop in pairwise([data.rows * i // count for i in range(count + 1)]):
            some = backend.slice(data, start, stop)
            with workspace.budget.reserve(some.nbytes + self._sorting_bytes(some), "Sorting a slice"):
                ordered = backend.take(some, backend.sort_order(some, self._keys))
                runs.append(stage(workspace, file, ordered))
                workspace.spill.flush()
        chunk.give_up()
        return runs

    def _sorting_bytes(self, data: Data) -> int:
        """Temporary bytes of sorting rows column by column: the order, then that and one column."""
        variable = data.nbytes - data.rows * self._schema.row_bytes
        widest = max((column.dtype.itemsize for column in self._schema.fixed if column.dtype is not None), default=0)
        scratch = self._workspace.backend.sort_scratch_bytes(data.rows, variable)
        return max(scratch, data.rows * (ORDER_BYTES + widest), data.rows * ORDER_BYTES + 2 * variable)
