"""Splitters: keys between which sorted rows are cut, found in a sample of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...backends.host import packing
from ...backends.host.sorting import (
    sort_order,
    sort_scratch_bytes,
    split_ids,
    starts_of_equal_rows,
    take_rows,
)
from ...backends.protocol.data import Columns, Data, concat_columns, empty_columns
from ...backends.protocol.schema import Schema
from ...backends.protocol.sorting import SortKey
from ...engine.exec.agreement import AgreementKind
from ...engine.exec.operation import Operation
from ...engine.plan.table_stats import TableStats
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part
from ...engine.store.workspace import Workspace
from ...profiling import span
from .costs import sample_rows

Int64s = npt.NDArray[np.int64]

_SEED = 7919  # the same on all ranks: each knows the positions of the others
_EVERY = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Splitters:
    """Where the ranks' shares of the result begin: (key, rank, row) triples, the same on all ranks.

    Attributes
    ----------
    keys : Columns
        The keys of the splitters, sorted; one fewer than ranks where there are rows.
    positions : ndarray of int64
        Of the same rows in the global order of the input, which says their rank and row.
    share : Columns
        The keys of the sample that fall into this rank's share, sorted.
    """

    keys: Columns
    positions: Int64s
    share: Columns

    def cuts(self, first: int) -> Int64s:
        """The splitters' rows, counted from row ``first`` of the global order."""
        return np.maximum(self.positions - first, 0)


def sample_positions(rank: int, rows: int, count: int) -> Int64s:
    """The rows of a rank that are looked at: one of each stretch of equal length, so that no period can hide."""
    edges = np.arange(count + 1) * rows // max(count, 1)
    within = np.random.default_rng((_SEED, rank)).random(count)
    return edges[:-1] + (within * np.diff(edges)).astype(np.int64)


def find_splitters(operation: Operation, part: Part, keys: Sequence[SortKey], stats: TableStats) -> Splitters:
    """Collective: all ranks call it. Share a sample of the keys, and cut it into equal shares.

    Parameters
    ----------
    operation : Operation
        Opened.
    part : Part
        The rows of this rank.
    keys : sequence of SortKey
    stats : TableStats
        As all ranks know them.

    Raises
    ------
    BudgetExceeded
        If the sample does not fit.
    """
    workspace, rank, size = operation.workspace, operation.rank, operation.size
    schema = operation.schema.select([key.name for key in keys])
    counts = sample_rows(stats)
    with span("sample", "algorithm"):
        rows = sample_positions(rank, part.rows, counts[rank])
        mine = take_sample(workspace, part.chunks, schema, rows)
        text = b"".join([*packing.fixed_views(mine, 0, mine.rows), packing.pack_variable(mine, 0, mine.rows)])
        shared = sum(counts) * schema.row_bytes
        if schema.variable:
            shared = int(operation.agree(AgreementKind.COUNT, (len(text),)).sum())
        needed = 0 if workspace.backend.on_gpu else 2 * shared + sort_scratch_bytes(sum(counts), shared)
        operation.expect_before(needed)
        with workspace.budget.reserve(needed, "The sample"):
            operation.agree(AgreementKind.COUNT)  # a rank that failed so far tells it here: no agreement is shared
            texts = workspace.transport.share(text)
            parts = [_unpacked(schema, count, text) for count, text in zip(counts, texts, strict=True)]
            every = concat_columns(parts)
            order = sort_order(every, keys)
            bases = np.concatenate(([0], np.cumsum(stats.rows)[:-1]))
            positions = np.concatenate(
                [bases[r] + sample_positions(r, stats.rows[r], counts[r]) for r in range(size)]
            ).astype(np.int64)
            edges = len(order) * np.arange(1, size) // size
            chosen = order[edges] if len(order) else order
            share = order[len(order) * rank // size : len(order) * (rank + 1) // size]
            return Splitters(take_rows(every, chosen), positions[chosen], take_rows(every, share))


def take_sample(workspace: Workspace, chunks: Sequence[Chunk], schema: Schema, rows: Int64s) -> Columns:
    """Key columns of some rows, in host memory; row numbers ascend and count over all chunks."""
    backend, first, taken = workspace.backend, 0, []
    for chunk in chunks:
        here = rows[np.searchsorted(rows, first) : np.searchsorted(rows, first + chunk.rows)] - first
        first += chunk.rows
        if len(here):
            with chunk.load(workspace, schema.names) as keys:
                some = backend.take(keys, here)
            del keys  # before the next chunk is read back
            taken.append(backend.to_host(backend.cast(some, schema)))
    return concat_columns(taken) if taken else empty_columns(schema)


def _unpacked(schema: Schema, rows: int, text: bytes) -> Columns:
    buffers, start, view = [], 0, memoryview(text)
    for column in schema.fixed:
        assert column.dtype is not None
        stop = start + rows * column.dtype.itemsize
        buffers.append(view[start:stop])
        start = stop
    return packing.unpack(schema, rows, [*buffers, view[start:]] if schema.variable else buffers)


@dataclass(frozen=True, slots=True)
class Buckets:
    """A rank's share of the result, cut into pieces that fit into memory.

    Rows with one key that alone fills a bucket have a bucket of their own: they need no sorting.

    Attributes
    ----------
    keys : Columns
        Of the splitters, some of them twice.
    cuts : ndarray of int64
        For each splitter 0 where rows with its key come after it, and more than any row number where they come before.
    equal : tuple of bool
        For each bucket whether all its rows have the same key.
    """

    keys: Columns
    cuts: Int64s
    equal: tuple[bool, ...]

    def largest_share(self, sample: Columns, keys: Sequence[SortKey]) -> float:
        """The share of a sample, which is sorted, that falls into the largest bucket that has to be sorted."""
        counts = np.bincount(split_ids(sample, keys, self.keys, self.cuts), minlength=len(self.equal))
        return float(counts[~np.array(self.equal)].max(initial=0)) / max(sample.rows, 1)

    def edges(self, workspace: Workspace, data: Data, keys: Sequence[SortKey]) -> Int64s:
        """Where the rows of each bucket begin among sorted rows, and where the last one ends."""
        backend = workspace.backend
        ids = backend.split_ids(data, keys, self.keys, self.cuts)
        return np.concatenate(([0], np.cumsum(backend.count_ids(ids, len(self.equal)))))


def make_buckets(sample: Columns, keys: Sequence[SortKey], count: int, *, apart: bool = False) -> Buckets:
    """Cut a sample, which is sorted, into about so many equal buckets.

    With ``apart`` each splitter's key has a bucket of its own, so that the others are smaller than the whole.
    """
    chosen = take_rows(sample, sample.rows * np.arange(1, count) // count if sample.rows else np.empty(0, np.int64))
    starts = starts_of_equal_rows(chosen, keys)
    rows: list[int] = []
    cuts: list[int] = []
    equal = [False]
    for start, stop in pairwise([*starts.tolist(), chosen.rows]):
        rows.append(start)
        cuts.append(0)
        heavy = apart or stop - start > 1
        equal.append(heavy)
        if heavy:
            rows.append(start)
            cuts.append(_EVERY)
            equal.append(False)
    return Buckets(take_rows(chosen, np.array(rows, np.int64)), np.array(cuts, np.int64), tuple(equal))
