"""Sizes that plans are made of, as all ranks know them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...backends.protocol.scattering import MOST_SCATTERED
from ...backends.protocol.schema import MANY_COLUMNS
from ...config import GcylonConfig

# On 2 cores 2 MiB a round gave 1.2 GB/s, 8 MiB 1.45 and 16 MiB 1.55: what a round costs by itself is spread over
# more rows, while this many rounds still show progress, and their copies stay small beside a budget.
FAST_CHUNK_BYTES = 16 * 1024**2
# Of a small budget a chunk is a small part, down to what stays in the second-level cache with its copy.
LEAST_FAST_CHUNK_BYTES = 2 * 1024**2
CHUNKS_IN_LIMIT = 32
# Of many columns a chunk has so many bytes of each, where that is a small part of the budget: with fewer, what a column
# costs by itself is most of it.
_COLUMN_BYTES = 32 * 1024
# Between GPUs: what a round costs by itself is spread over this much, and a table of a few GB still has rounds that
# can overlap.
DEVICE_CHUNK_BYTES = 512 * 1024**2
# There a round costs far more by itself where columns are packed, each of them for each rank: 20 ms with the 16 of
# TPC-H's lineitem, while 75 MB of them took 1.3. Of what the result leaves free a chunk then takes this share, as its
# copy and that of the next one are there with what is packed, and of the limit this one at the most.
_PACKED_CHUNKS_IN_FREE, _PACKED_CHUNKS_IN_LIMIT = 6, 8
# Of the budget so much stays free beside tables that are taken in, and results that local work holds.
KEPT_FREE_IN_LIMIT = 4
# Chunks that are evicted are staged in slices of at most this size. From a GPU each is a copy of every column, and a
# copy of 1 MB is as soon made as asked for; what is packed first, strings, costs some milliseconds for each slice.
_STAGE_BYTES, _DEVICE_STAGE_BYTES = 4 * 1024**2, 64 * 1024**2
_LEAST_SLICE_BYTES = 4096
# Staged chunks that are a larger part of a limit than this are cut into such slices, which writes them once more.
_LARGEST_IN_LIMIT = 2
# Buckets into which rows are split at once; where parts of pieces are read: ids of one byte.
MOST_BUCKETS, MOST_RUN_BUCKETS = 64, 256
VERBS = ("shuffle", "allgather", "gather", "broadcast", "repartition", "sort_values")


@dataclass(frozen=True, slots=True)
class TableStats:
    """Sizes of a distributed table and memory of its ranks, as all ranks know them.

    Attributes
    ----------
    verb : str
        What is to be done.
    rows, nbytes, staged_bytes, largest_staged_bytes, chunks : tuple of int
        Of each rank's part: rows, bytes in all tiers, bytes below the device tier, its
        largest chunk there, which is read back whole, and the number of its chunks.
    used, limits : tuple of int
        Of each rank: bytes of the budget in use, and the limit.
    fixed_row_bytes : int
        Bytes a row of the fixed columns.
    root : int
        For gather and broadcast.
    target_rows : tuple of int
        For repartition: rows that each rank will hold.
    fast_chunk_bytes : int
        A chunk where memory does not matter.
    overlaps : bool
        Whether a round is exchanged while the next one is partitioned, so that both are in memory.
    scatters : bool
        Whether rows of fixed columns are written straight into the results of other ranks, without a partitioned copy.
    columns : int
        How many, where that is known: of staged slices each is padded.
    writable : bool
        Whether kernels can write the variable columns too, as these are on all ranks: see `column_buffers`.
    texts : int
        How many columns hold texts.
    null_columns : int
        Of these at most so many lack values, as far as it is known.
    ready : bool
        Whether chunks are of the dtypes in which they are sent, so that they need not be joined to be written.
    in_vain : bool
        Whether tables are counted as given way that have not, as that would be in vain: the plan will be refused.
    fixed : bool
        Whether it is known that no column is variable: what rows take more is then the padding of staged chunks.
    widest_bytes : tuple of int
        Of each rank: bytes of the variable columns in the row in which they take most, 0 or left out where it is not
        known.
    route : str
        How rows travel, where that is not the same for all pairs of ranks.
    """

    verb: str
    rows: tuple[int, ...]
    nbytes: tuple[int, ...]
    staged_bytes: tuple[int, ...]
    largest_staged_bytes: tuple[int, ...]
    chunks: tuple[int, ...]
    used: tuple[int, ...]
    limits: tuple[int, ...]
    fixed_row_bytes: int
    root: int = 0
    target_rows: tuple[int, ...] = ()
    fast_chunk_bytes: int = FAST_CHUNK_BYTES
    overlaps: bool = False
    scatters: bool = False
    columns: int = 0
    writable: bool = False
    texts: int = 0
    null_columns: int = 0
    ready: bool = False
    in_vain: bool = False
    fixed: bool = False
    widest_bytes: tuple[int, ...] = ()
    route: str = ""

    @property
    def size(self) -> int:
        """World size."""
        return len(self.rows)

    @property
    def on_gpu(self) -> bool:
        """Whether ranks work on GPUs."""
        return self.fast_chunk_bytes > FAST_CHUNK_BYTES

    @property
    def deals(self) -> bool:
        """Whether columns are so many that of what is sent to a rank each block of them is together."""
        return self.columns >= MANY_COLUMNS and self.size > 1 and not self.on_gpu

    @property
    def scatters_rows(self) -> bool:
        """Whether the rows of a placed result are written by their senders' kernels, without a partitioned copy."""
        may = self.fixed or not self.variable_row_bytes or (self.writable and not any(self.staged_bytes))
        return self.scatters and self.verb == "shuffle" and may and 1 < self.size <= MOST_SCATTERED

    @property
    def sent_rows(self) -> tuple[int, ...]:
        """Rows that each rank sends from."""
        if self.verb == "broadcast":
            return tuple(n if rank == self.root else 0 for rank, n in enumerate(self.rows))
        return self.rows

    @property
    def bytes_per_row(self) -> float:
        """Mean bytes of a row, variable columns included."""
        total = sum(self.rows)
        return max(float(self.fixed_row_bytes), sum(self.nbytes) / total) if total else float(self.fixed_row_bytes)

    @property
    def row_bytes_of_ranks(self) -> tuple[float, ...]:
        """Mean bytes of a row on each rank; that of all where a rank has none."""
        of_ranks = zip(self.rows, self.nbytes, strict=True)
        return tuple(
            max(float(self.fixed_row_bytes), n / count) if count else self.bytes_per_row for count, n in of_ranks
        )

    @property
    def variable_row_bytes(self) -> float:
        """Mean bytes of a row in the variable columns."""
        return self.bytes_per_row - self.fixed_row_bytes


def wished_rows(stats: TableStats, config: GcylonConfig, *, placed: bool = False) -> int:
    """Rows of a chunk where memory does not matter, at least 1; ``placed``: for rounds into a result in place."""
    most = max(1, max(stats.sent_rows))
    if not stats.bytes_per_row:
        return most
    if placed and stats.scatters_rows and not any(stats.staged_bytes):
        share = stats.fast_chunk_bytes  # a round takes no memory then, whatever its size
    else:
        share = max(LEAST_FAST_CHUNK_BYTES, min(stats.limits) // CHUNKS_IN_LIMIT, _packed_share(stats))
    wished = config.chunk_size_bytes or min(max(stats.fast_chunk_bytes, stats.columns * _COLUMN_BYTES), share)
    return min(most, max(1, int(wished / stats.bytes_per_row), config.min_chunk_rows))


def _packed_share(stats: TableStats) -> int:
    """Bytes of a chunk between GPUs, where columns are packed; 0 elsewhere."""
    packs = stats.verb == "shuffle" and stats.size > 1 and stats.variable_row_bytes > 0 and not stats.scatters_rows
    if not packs or not stats.on_gpu:
        return 0
    evenly = -(-sum(stats.nbytes) // stats.size)
    free = min(limit - used - evenly for limit, used in zip(stats.limits, stats.used, strict=True))
    return max(0, min(free // _PACKED_CHUNKS_IN_FREE, min(stats.limits) // _PACKED_CHUNKS_IN_LIMIT))


def stage_slice_bytes(limit_bytes: int, *, on_gpu: bool = False) -> int:
    """Bytes of the slices in which rows are staged, so that reading one back takes little of the budget."""
    most = _DEVICE_STAGE_BYTES if on_gpu else _STAGE_BYTES
    return min(most, max(_LEAST_SLICE_BYTES, limit_bytes // 16))


def slices_of(nbytes: int, limit_bytes: int, *, on_gpu: bool = False) -> int:
    """Into how many slices a staged chunk is cut: 1 where it leaves enough of the limit when it is read back whole, or
    cannot be read at all."""
    cut = limit_bytes < _LARGEST_IN_LIMIT * nbytes and nbytes <= limit_bytes
    return -(-nbytes // stage_slice_bytes(limit_bytes, on_gpu=on_gpu)) if cut else 1


def after_cutting(stats: TableStats) -> TableStats:
    """The sizes once staged chunks that are large have been cut; they are of one size but for the last."""
    of_limits = zip(stats.largest_staged_bytes, stats.limits, strict=True)
    cuts = [slices_of(n, limit, on_gpu=stats.on_gpu) for n, limit in of_limits]
    if max(cuts) == 1:
        return stats
    of_ranks = list(zip(stats.largest_staged_bytes, stats.staged_bytes, stats.chunks, cuts, strict=True))
    chunks = tuple(count + (cut - 1) * (staged // max(n, 1)) for n, staged, count, cut in of_ranks)
    return replace(stats, largest_staged_bytes=tuple(-(-n // cut) for n, _, _, cut in of_ranks), chunks=chunks)


def fan_out(buckets: int, *, variable: bool) -> int:
    """Into how many buckets rows are split at once where so many are wanted: with more, parts are too small to be read
    one by one, and two splits of a root each write larger ones."""
    most = MOST_BUCKETS if variable else MOST_RUN_BUCKETS
    return buckets if buckets <= most else min(most, math.isqrt(buckets - 1) + 1)


def id_bytes(size: int) -> int:
    """Bytes of one partition id for so many ranks."""
    return 1 if size <= 256 else 2 if size <= 65536 else 4
