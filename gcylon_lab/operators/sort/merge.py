"""The last step of a sort: a rank's share of the rows has arrived and is brought into order, inside the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ...backends.host.sorting import sort_order, take_rows
from ...backends.protocol.data import Columns, Data
from ...backends.protocol.schema import Schema
from ...backends.protocol.sorting import SortKey
from ...engine.store.async_stager import AsyncStager
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...memory.budget import Reservation
from ...memory.tiers.staging_tier import StagingFile
from ...profiling import span
from .costs import ALL_SHARE, ORDER_BYTES, RUN_SHARE, bucket_count, largest_bucket
from .splitters import Buckets, make_buckets, sample_positions, take_sample

_LEAST_SLICE_BYTES = 2048
_LEAST_BUCKETS = 4
_SAMPLED = 64  # rows looked at for each bucket, where a bucket has to be cut again


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
        self._file: StagingFile | None = None
        self._merges = workspace.backend.sorts_before_sending
        self._leaving = AsyncStager(workspace, schema)

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
            part.stage(workspace, part.nbytes, workspace.slice_bytes(workspace.budget.limit_bytes, self._schema))
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
        parts: list[list[Chunk]] = [[] for _ in buckets.equal]
        file = workspace.spill.new_file()
        for run in self._runs(pieces):
            self._add_run(run, buckets, parts, file)
        chunks: list[Chunk] = []
        for same, part in zip(buckets.equal, parts, strict=True):
            chunks += part if same else self._sort(part)
        return chunks

    def _expect_buckets(self, pieces: list[Chunk], buckets: Buckets, sample: Columns) -> None:
        """Predict what the largest run takes, and the largest bucket, as far as the sample tells."""
        runs = max(self._run_bytes(run) for run in self._runs(list(pieces)))
        share = buckets.largest_share(sample, self._keys)
        bucket = largest_bucket(self._joining_bytes(pieces), share, sample.rows)
        self._expect(min(max(runs, bucket), ALL_SHARE * self._workspace.budget.remaining_bytes))

    def _expect(self, nbytes: float) -> None:
        """Predict that sorting takes so many bytes beside what is in use."""
        used, record = self._workspace.budget.used_bytes, self._workspace.recorder.active
        if record is not None:
            record.predicted_peak_bytes = max(record.predicted_peak_bytes, used + int(nbytes))

    def _add_run(self, run: list[Chunk], buckets: Buckets, parts: list[list[Chunk]], file: StagingFile) -> None:
        """Sort chunks together into the buckets; where that takes more than was expected, half of them at a time."""
        workspace = self._workspace
        try:
            with self._sorted(run) as (data, claim):
                made = [self._leaving.stage(file, some, claim) for some in buckets.split(workspace, data, self._keys)]
            del data, claim
        except workspace.out_of_memory:
            if len(run) == 1:
                raise
        else:
            for part, new in zip(parts, made, strict=True):
                part += new
            return
        workspace.spill.flush()
        half = len(run) // 2
        self._add_run(run[:half], buckets, parts, file)
        self._add_run(run[half:], buckets, parts, file)

    def _bucket_count(self, pieces: list[Chunk]) -> int:
        """So many that each can be sorted, but no more than leave slices of runs large enough to be worth reading."""
        needed, remaining = self._joining_bytes(pieces), self._workspace.budget.remaining_bytes
        run_bytes = sum(piece.nbytes for piece in pieces) * min(1.0, RUN_SHARE * remaining / needed)
        most = max(_LEAST_BUCKETS, int(run_bytes) // _LEAST_SLICE_BYTES)
        return max(2, min(bucket_count(needed, remaining), most))

    def _sample(self, pieces: list[Chunk], count: int) -> Columns:
        rows = sum(piece.rows for piece in pieces)
        positions = sample_positions(0, rows, min(rows, _SAMPLED * count))
        sample = take_sample(self._workspace, pieces, self._key_schema, positions)
        return take_rows(sample, sort_order(sample, self._keys))

    def _runs(self, pieces: list[Chunk]) -> Iterator[list[Chunk]]:
        """As many chunks together as can be sorted in memory, at least one; they are consumed."""
        most = self._workspace.budget.remaining_bytes * RUN_SHARE
        while pieces:
            count = 1
            while count < len(pieces) and self._run_bytes(pieces[: count + 1]) <= most:
                count += 1
            run, pieces[:count] = pieces[:count], []
            yield run

    @contextmanager
    def _sorted(self, pieces: list[Chunk]) -> Iterator[tuple[Data, Reservation]]:
        """The rows of staged chunks together, sorted, and the claim on them: it ends with whoever keeps it longest."""
        workspace = self._workspace
        self._fits(self._joining_bytes(pieces))
        claim = workspace.budget.reserve(sum(p.nbytes for p in pieces), "Joining sorted rows")
        try:
            with ExitStack() as loaded:
                box = [workspace.backend.concat([loaded.enter_context(piece.load(workspace)) for piece in pieces])]
            claim.resize(box[0].nbytes)
            with workspace.budget.reserve(self._sorting_bytes(box[0].rows, box[0].nbytes), "Sorting rows"):
                yield self._ordered(box), claim
        except BaseException:
            claim.release()
            raise

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
        rows, nbytes = sum(piece.rows for piece in pieces), sum(piece.nbytes for piece in pieces)
        return nbytes + max(nbytes, self._sorting_bytes(rows, nbytes))

    def _run_bytes(self, pieces: Sequence[Chunk]) -> int:
        """The same beside a run of that size which is still leaving."""
        return self._joining_bytes(pieces) + self._leaving.beside * sum(piece.nbytes for piece in pieces)

    def _sorting_bytes(self, rows: int, nbytes: int) -> int:
        """Temporary bytes of sorting rows, beside the rows."""
        return self._ordering_bytes(rows, max(0, nbytes - rows * self._schema.row_bytes))

    def _ordering_bytes(self, rows: int, variable: int) -> int:
        """Of finding the order, then of that and one column; text is joined, and taken out of that."""
        widest = max((column.dtype.itemsize for column in self._schema.fixed if column.dtype is not None), default=0)
        scratch = self._workspace.backend.sort_scratch_bytes(rows, variable)
        return max(scratch, rows * (ORDER_BYTES + widest), rows * ORDER_BYTES + 2 * variable)
