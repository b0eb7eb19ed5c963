"""The last step of a sort: a rank's share of the rows has arrived and is brought into order, inside the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt

from ...backends.host.sorting import sort_order, take_rows
from ...backends.protocol.data import Columns, Data
from ...backends.protocol.schema import Schema
from ...backends.protocol.sorting import SortKey
from ...engine.plan.table_stats import fan_out
from ...engine.store.async_stager import AsyncStager
from ...engine.store.chunk import Chunk, fill_together, filled
from ...engine.store.part import Part
from ...engine.store.runs import Runs, RunsChunk, as_one
from ...engine.store.workspace import Workspace
from ...memory.budget import Reservation
from ...memory.tiers.disk_tier import SpillFile
from ...memory.tiers.staging_tier import StagingFile
from ...profiling import span
from .costs import ALL_SHARE, ORDER_BYTES, RUN_SHARE, SAMPLED, bucket_count, largest_bucket, share_of
from .splitters import Buckets, make_buckets, sample_positions, take_sample

Edges = npt.NDArray[np.int64]

_LEAST_SLICE_BYTES = 2048
_LEAST_BUCKETS = 4


class Sorter:
    """Sorts rows that are on this rank. Nothing in it is collective.

    Rows that do not fit into memory are made into sorted runs, which are
    staged cut at the same keys; what lies between two of these keys is a
    bucket, which is read from all runs and merged.

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
        self._key_schema = schema.select([key.name for key in keys])
        self._widest = max((column.dtype.itemsize for column in schema.fixed if column.dtype is not None), default=0)
        self._file: StagingFile | None = None
        self._merges = workspace.backend.sorts_before_sending
        self._leaving = AsyncStager(workspace, schema)
        # Where parts of what was staged can be read: each bucket of a run, and rows straight into one array a column.
        self._reads_parts = not workspace.backend.on_gpu
        # What ordering takes however few the rows are, on GPUs: smaller buckets and runs do not make that smaller.
        self._fixed = workspace.backend.sort_scratch_bytes(0, 0)

    def sort_here(self, part: Part, *, may_stage: bool) -> list[Chunk]:
        """Sort a part on the device tier, which is given up; where that does not fit, its rows are staged for it.

        Raises
        ------
        BudgetExceeded
            If it does not fit and may not be staged.
        """
        if not part.chunks:
            return []
        workspace, nbytes = self._workspace, self._sorting_bytes(part.rows, part.nbytes)
        several = len(part.chunks) > 1
        if nbytes + (part.nbytes if several else 0) > workspace.budget.remaining_bytes and may_stage:
            part.stage(workspace, part.nbytes, workspace.slice_bytes(workspace.budget.limit_bytes))
            return self.sort_staged(part)
        chunk = self._joined(part) if several else part.chunks[0]
        part.release()
        with workspace.budget.reserve(nbytes, "Sorting the result"):
            data, claim = chunk.give_up()
            held = [data]
            del data
            data = self._ordered(held)
        if isinstance(claim, Reservation):
            claim.resize(data.nbytes)
        return [Chunk(data.schema, data.rows, data.nbytes, data=data, reservation=claim)]

    def _joined(self, part: Part) -> Chunk:
        claim = self._workspace.budget.reserve(part.nbytes, "Joining the result")
        data = self._workspace.backend.concat([chunk.data for chunk in part.chunks])
        return Chunk(data.schema, data.rows, data.nbytes, data=data, reservation=claim)

    def sort_staged(self, part: Part, sample: Columns | None = None) -> list[Chunk]:
        """Sort a staged part, which is given up, into staged chunks; a sample of its keys, sorted, saves reading it."""
        pieces = part.chunks
        part.release()
        if pieces and self._fits(joining := self._joining_bytes(pieces)):
            self._expect(joining)
        chunks = self._sort(pieces, sample)
        self._workspace.spill.flush()
        return chunks

    def _sort(self, pieces: list[Chunk], sample: Columns | None = None) -> list[Chunk]:
        """Sort staged chunks, which are consumed: in memory where that fits, else in buckets."""
        if not pieces:
            return []
        workspace, single = self._workspace, sum(piece.rows for piece in pieces) == 1
        if single or self._fits(self._joining_bytes(pieces)):
            try:
                with self._sorted(pieces) as (data, claim):
                    return self._staged(data, claim)
            except workspace.out_of_memory:
                if single:
                    raise
        return self._sort_in_buckets(pieces, sample)

    def _sort_in_buckets(self, pieces: list[Chunk], sample: Columns | None) -> list[Chunk]:
        workspace = self._workspace
        workspace.spill.flush()
        count = self._bucket_count(pieces)
        buckets = make_buckets(
            self._sample(pieces, count) if sample is None else sample, self._keys, count, apart=sample is None
        )
        if sample is not None:  # not of buckets that are cut again
            self._expect_buckets(pieces, buckets, sample)
        parts = (
            _Parts(workspace, self._schema, buckets)
            if self._reads_parts
            else _Slices(self._leaving, workspace, buckets)
        )
        for run in self._runs(pieces):
            self._add_run(run, buckets, parts)
        chunks: list[Chunk] = []
        for same, part in zip(buckets.equal, parts.chunks(), strict=True):
            chunks += self._kept(part) if same else self._sort(part)
        return chunks

    def _kept(self, part: list[Chunk]) -> list[Chunk]:
        """Rows with one key as chunks of their own: what is part of a run keeps all of it on the disk."""
        if not self._reads_parts:
            return part
        chunks: list[Chunk] = []
        for chunk in part:
            with self._together([chunk]) as (box, claim):
                chunks += self._staged(box[0], claim)
            del box, claim  # else they are held until the next ones are there
        return chunks

    def _expect_buckets(self, pieces: list[Chunk], buckets: Buckets, sample: Columns) -> None:
        """Predict what the largest run takes, and the largest bucket, as far as the sample tells."""
        beside = self._leaving.beside
        runs = max(self._joining_bytes(r) + beside * sum(p.nbytes for p in r) for r in self._runs(list(pieces)))
        joining, remaining, fixed = self._joining_bytes(pieces), self._workspace.budget.remaining_bytes, self._fixed
        wanted = bucket_count(joining, remaining, fixed)
        if self._reads_parts and fan_out(wanted, variable=bool(self._schema.variable)) < wanted:
            bucket = largest_bucket(joining, 1 / wanted, SAMPLED * wanted)  # they are cut again
        else:
            share = buckets.largest_share(sample, self._keys)
            bucket = fixed + largest_bucket(joining - fixed, share, sample.rows)
        self._expect(min(max(runs, bucket), share_of(remaining, ALL_SHARE, fixed)))

    def _expect(self, nbytes: float) -> None:
        """Predict that sorting takes so many bytes beside what is in use."""
        used, record = self._workspace.budget.used_bytes, self._workspace.recorder.active
        if record is not None:
            record.predict(used + int(nbytes))

    def _add_run(self, run: list[Chunk], buckets: Buckets, parts: _Parts | _Slices) -> None:
        """Sort chunks together into the buckets; where that takes more than was expected, half of them at a time."""
        workspace = self._workspace
        try:
            with self._sorted(run) as (data, claim):
                parts.add(data, buckets.edges(workspace, data, self._keys), claim)
            del data, claim
        except workspace.out_of_memory:
            if len(run) == 1:
                raise
        else:
            return
        workspace.spill.flush()
        half = len(run) // 2
        self._add_run(run[:half], buckets, parts)
        self._add_run(run[half:], buckets, parts)

    def _bucket_count(self, pieces: list[Chunk]) -> int:
        """So many that each can be sorted, but no more than leave slices of runs large enough to be worth reading."""
        needed, remaining = self._joining_bytes(pieces), self._workspace.budget.remaining_bytes
        if self._reads_parts:
            return max(2, fan_out(bucket_count(needed, remaining), variable=bool(self._schema.variable)))
        run_share = RUN_SHARE * max(0, remaining - self._fixed) / max(1, needed - self._fixed)
        run_bytes = sum(piece.nbytes for piece in pieces) * min(1.0, run_share)
        most = max(_LEAST_BUCKETS, int(run_bytes) // _LEAST_SLICE_BYTES)
        return max(2, min(bucket_count(needed, remaining, self._fixed), most))

    def _sample(self, pieces: list[Chunk], count: int) -> Columns:
        rows = sum(piece.rows for piece in pieces)
        positions = sample_positions(0, rows, min(rows, SAMPLED * count))
        sample = take_sample(self._workspace, pieces, self._key_schema, positions)
        return take_rows(sample, sort_order(sample, self._keys))

    def _runs(self, pieces: list[Chunk]) -> Iterator[list[Chunk]]:
        """As many chunks together as can be sorted in memory, at least one; they are consumed."""
        most = share_of(self._workspace.budget.remaining_bytes, RUN_SHARE, self._fixed)
        while pieces:
            count, rows, nbytes = 0, 0, 0
            for piece in pieces:
                rows, nbytes = rows + piece.rows, nbytes + piece.nbytes
                if count and self._run_bytes(piece, rows, nbytes) > most:
                    break
                count += 1
            run, pieces[:count] = pieces[:count], []
            yield run

    @contextmanager
    def _sorted(self, pieces: list[Chunk]) -> Iterator[tuple[Data, Reservation]]:
        """The rows of staged chunks together, sorted, and the claim on them: it ends with whoever keeps it longest."""
        self._fits(self._joining_bytes(pieces))
        with self._together(pieces) as (box, claim):
            with self._workspace.budget.reserve(self._sorting_bytes(box[0].rows, box[0].nbytes), "Sorting rows"):
                yield self._ordered(box), claim

    @contextmanager
    def _together(self, pieces: Sequence[Chunk]) -> Iterator[tuple[list[Data], Reservation]]:
        """The rows of staged chunks together, alone in a list, and the claim on them, which is kept."""
        workspace, pieces = self._workspace, as_one(pieces)
        once = self._reads_once(pieces[0])
        nbytes = sum(piece.loaded_bytes() if once else piece.nbytes for piece in pieces)
        self._fits(nbytes)
        claim = workspace.budget.reserve(nbytes, "Joining sorted rows")
        try:
            if once and fill_together(pieces, self._schema.names):
                box = [filled(workspace, pieces, self._schema.names)]
            elif once and len(pieces) == 1:
                box = [pieces[0].read(workspace)]
            else:
                with ExitStack() as loaded:
                    box = [workspace.backend.concat([loaded.enter_context(piece.load(workspace)) for piece in pieces])]
            claim.resize(box[0].nbytes)
            yield box, claim
        except BaseException:
            claim.release()
            raise

    def _reads_once(self, piece: Chunk) -> bool:
        """Whether rows are read together at once, of chunks like this one, so that none is in memory twice."""
        return isinstance(piece, RunsChunk) or (self._reads_parts and not self._schema.variable)

    def _fits(self, nbytes: int) -> bool:
        """Whether so much is free, if need be once all that is on its way has left."""
        workspace = self._workspace
        if nbytes > workspace.budget.remaining_bytes:
            workspace.spill.flush()
        return nbytes <= workspace.budget.remaining_bytes

    def _ordered(self, held: list[Data]) -> Data:
        backend = self._workspace.backend
        with span("merge", "algorithm", bytes=held[0].nbytes):
            return backend.reorder(held, backend.sort_order(held[0], self._keys, runs=self._merges))

    def _staged(self, data: Data, claim: Reservation) -> list[Chunk]:
        """Stage rows, whose memory is free once they have left."""
        self._file = self._file or self._workspace.spill.new_file()
        return self._leaving.stage(self._file, data, claim)

    def _joining_bytes(self, pieces: Sequence[Chunk]) -> int:
        """Bytes of reading chunks, joining and sorting them."""
        rows, nbytes = sum([piece.rows for piece in pieces]), sum([piece.nbytes for piece in pieces])
        return self._joined_bytes(pieces[0], rows, nbytes)

    def _joined_bytes(self, piece: Chunk, rows: int, nbytes: int) -> int:
        """The same of so many rows and bytes of chunks like this one."""
        sorting = self._sorting_bytes(rows, nbytes)
        return nbytes + (sorting if self._reads_once(piece) else max(nbytes, sorting))

    def _run_bytes(self, piece: Chunk, rows: int, nbytes: int) -> int:
        """The same beside a run of that size which is still leaving."""
        return self._joined_bytes(piece, rows, nbytes) + self._leaving.beside * nbytes

    def _sorting_bytes(self, rows: int, nbytes: int) -> int:
        """Temporary bytes of sorting rows, beside the rows."""
        return self._ordering_bytes(rows, max(0, nbytes - rows * self._schema.row_bytes))

    def _ordering_bytes(self, rows: int, variable: int) -> int:
        """Of finding the order, then of that and one column; text is joined, and taken out of that."""
        scratch = self._workspace.backend.sort_scratch_bytes(rows, variable)
        return max(scratch, rows * (ORDER_BYTES + self._widest), rows * ORDER_BYTES + 2 * variable)


class _Slices:
    """Sorted runs cut into buckets, each slice a staged chunk."""

    def __init__(self, leaving: AsyncStager, workspace: Workspace, buckets: Buckets) -> None:
        self._leaving, self._backend = leaving, workspace.backend
        self._file = workspace.spill.new_file()
        self._parts: list[list[Chunk]] = [[] for _ in buckets.equal]

    def add(self, data: Data, edges: Edges, claim: Reservation) -> None:
        """Stage a run; what was staged of one that fails is dropped."""
        slices = [self._backend.slice(data, *pair) for pair in pairwise(edges.tolist())]
        made = [self._leaving.stage(self._file, some, claim) for some in slices]
        for part, new in zip(self._parts, made, strict=True):
            part += new

    def chunks(self) -> list[list[Chunk]]:
        """The rows of each bucket."""
        return self._parts


class _Parts:
    """The same in regions that have the buckets of a run one after the other, where parts of a region can be read."""

    def __init__(self, workspace: Workspace, schema: Schema, buckets: Buckets) -> None:
        file = cast("SpillFile", workspace.spill.new_file())
        self._runs = Runs(workspace, file, schema, len(buckets.equal))
        self._most = workspace.slice_bytes(workspace.budget.limit_bytes)

    def add(self, data: Data, edges: Edges, claim: Reservation) -> None:
        """Write a run."""
        self._runs.add(cast("Columns", data), edges)

    def chunks(self) -> list[list[Chunk]]:
        """The rows of each bucket, in chunks that are small parts of the budget."""
        return self._runs.chunks(self._most)
