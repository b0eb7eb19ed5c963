"""What an operation costs in memory: pure arithmetic over sizes that all ranks share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from operator import add

import numpy as np
import numpy.typing as npt

from ...backends.host.partition import partition_scratch_bytes
from ...backends.protocol.scattering import device_partition_bytes, scatter_bytes
from ...config import GcylonConfig
from .table_stats import VERBS, TableStats, id_bytes, stage_slice_bytes, wished_rows

Numbers = npt.NDArray[np.float64]

# What no plan comes near; little beside most limits where tables are small.
_ENOUGH_TIMES, _ENOUGH_ROW_BYTES, _ENOUGH_BYTES = 16, 256, 4 << 20
_LONG_ROWS_IN_FREE = 2  # of what is free a longest row takes so much of what a round may take, at the most


def expected_results(stats: TableStats) -> tuple[int, ...]:
    """Bytes of each rank's result, with keys spread evenly where they decide.

    Returns
    -------
    tuple of int
        One a rank.
    """
    total, size = sum(stats.nbytes), stats.size
    if stats.verb == "allgather":
        return (total,) * size
    if stats.verb == "gather":
        return tuple(total if rank == stats.root else 0 for rank in range(size))
    if stats.verb == "broadcast":
        return (stats.nbytes[stats.root],) * size
    if stats.verb == "repartition":
        return tuple(int(n * stats.bytes_per_row) for n in stats.target_rows)
    return (-(-total // size),) * size


def costs_of(stats: TableStats, strategy: str, results: tuple[int, ...] | None = None) -> Costs:
    """The costs of one strategy, with each rank's result where it is known; kept, as an operation plans again once it
    has counted."""
    if stats.verb != "sort_values":  # neither what is in use nor the result matters
        stats, results = replace(stats, used=(0,) * stats.size), None
    return _costs_of(stats, strategy, results)


@lru_cache(maxsize=32)
def _costs_of(stats: TableStats, strategy: str, results: tuple[int, ...] | None) -> Costs:
    if stats.verb not in COSTS:
        raise LookupError(f"no costs are registered for verb={stats.verb!r}: its module has to be imported")
    return COSTS[stats.verb](stats, strategy, results)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces in which a rank's rows travel, one a round.

    Attributes
    ----------
    rows, nbytes : ndarray
        Of each.
    read, joining : ndarray
        Bytes that each takes to have, and to make, where it is read back or joined of smaller chunks.
    """

    rows: Numbers
    nbytes: Numbers
    read: Numbers
    joining: Numbers

    @property
    def largest_percent(self) -> int:
        """How large the largest one is, in percent of the first one."""
        return int(100 * self.nbytes.max() / max(self.nbytes[0], 1.0)) if len(self.nbytes) else 100


def _are_cut(stats: TableStats) -> list[bool]:
    """Of which ranks pieces of consecutive rows may be cut between others, or are not read back for it."""
    if stats.verb in ("allgather", "gather", "broadcast"):
        inside = [False] * stats.size
    elif not stats.target_rows:
        inside = [True] * stats.size
    else:
        edges, first = np.cumsum(stats.target_rows), np.cumsum((0, *stats.rows))
        inside = [bool(((edges > low) & (edges < high)).any()) for low, high in zip(first, first[1:], strict=False)]
    sizes = zip(inside, stats.staged_bytes, stats.nbytes, strict=True)
    return [cut or staged < nbytes for cut, staged, nbytes in sizes]


class Costs:
    """Device bytes that each rank uses beside inputs and result.

    A round holds the piece where it is read back or joined of smaller chunks,
    its partitioned copy and the scratch of that (shuffle), the packed message
    of its variable columns, and for ``staged`` what comes in: once as received
    and once more, variable columns only, as written to disk.

    Parameters
    ----------
    stats : TableStats
    strategy : str
        direct, chunked or staged.
    results : tuple of int, optional
        Bytes that arrive on each rank, where they have been counted: an exchange costs the same whatever they are.

    Attributes
    ----------
    kept : tuple of int
        On each rank during all rounds: the partition ids.
    """

    def __init__(self, stats: TableStats, strategy: str, results: tuple[int, ...] | None = None) -> None:
        self._stats = stats
        self._staged = strategy == "staged"
        self._shuffle = stats.verb == "shuffle"
        scatters = not self._staged and stats.scatters_rows
        self._copies = self._shuffle and stats.size > 1 and not scatters  # one rank's rows stay as they are
        self._deals = self._staged and stats.deals and not self._shuffle
        self._cut = np.array(_are_cut(stats)) if self._deals else np.zeros(stats.size, dtype=bool)
        keeps_ids = self._shuffle and not self._staged
        each = id_bytes(stats.size)
        written = scatters and stats.variable_row_bytes > 0 and not stats.fixed
        # Kernels that write texts know the bytes of each tile too; and a result has a byte a row for what is missing.
        counted = stats.size * (1 + stats.texts * written)
        each_chunk = stats.chunks if stats.ready else (0,) * stats.size
        counts = tuple(
            scatter_bytes(n, counted, chunks) if scatters else 0
            for n, chunks in zip(stats.rows, each_chunk, strict=True)
        )
        self._valid = stats.null_columns if written else 0
        valid = self._valid * sum(stats.rows) // stats.size
        self.kept = tuple(
            n * each + more + valid if keeps_ids else 0 for n, more in zip(stats.rows, counts, strict=True)
        )
        self._packs = not written
        self._joins = not (scatters and stats.ready and not any(stats.staged_bytes))
        self._sent = np.array(stats.sent_rows, dtype=np.float64)
        largest = np.array(stats.largest_staged_bytes, dtype=np.float64)
        self._largest = np.where(self._sent > 0, largest, 0.0)  # what is read back whole whatever the chunk
        # Of a view of some texts staged chunks are read back with all texts.
        below = np.array(stats.staged_bytes, dtype=np.float64) / np.maximum(self._sent, 1.0)
        self._read_row = np.maximum(below, max(stats.bytes_per_row, 1.0))
        # Staged chunks are of one size but for the last.
        mean = np.floor(self._sent / np.maximum(stats.chunks, 1))
        self._chunk_rows = np.maximum(np.maximum(mean, np.floor(self._largest / self._read_row)), 1.0)
        self._paths = _paths(stats)
        self._worked: dict[int, Numbers] = {}
        self._row = np.array(stats.row_bytes_of_ranks)
        self._variable = self._row - stats.fixed_row_bytes
        widest = np.array(stats.widest_bytes or (0,) * stats.size, dtype=np.float64)
        self._longer = np.where(self._sent > 0, np.maximum(widest - self._variable, 0.0), 0.0)
        self._read: dict[int, tuple[Numbers, Numbers, Numbers, Numbers]] = {}
        # Fixed columns that are received in place need just what was counted.
        self._usable = 0.9 if self._staged or (stats.variable_row_bytes and self._packs) else 0.98

    def work(self, chunk_rows: int) -> Numbers:
        """Bytes in use at the most within a round of chunks of at most so many rows; shape (size,)."""
        if chunk_rows not in self._worked:
            self._worked[chunk_rows] = self._work(chunk_rows)
        return self._worked[chunk_rows]

    def most(self, chunk_rows: int) -> Numbers:
        """As `work`, in the round in which a chunk has the longest row; shape (size,)."""
        return self._work(chunk_rows, self._longer) if self._longer.any() else self.work(chunk_rows)

    def of_pieces(self, rank: int, pieces: Pieces, rounds: int, incoming_bytes: float | None = None) -> int:
        """Bytes in use at the most on a rank within rounds of these pieces of its rows.

        Parameters
        ----------
        rank : int
        pieces : Pieces
        rounds : int
            Of all ranks, of which this one may have fewer pieces.
        incoming_bytes : float, optional
            What a round brings to the rank at the most, where it is known.
        """
        if not len(pieces.rows):
            none = np.zeros(1)
            pieces = Pieces(none, none, none, none)
        variable = np.maximum(pieces.nbytes - pieces.rows * self._stats.fixed_row_bytes, 0.0)
        incoming = np.zeros_like(variable)
        if self._staged:
            known = incoming_bytes
            incoming += self._incoming(np.minimum(pieces.rows.max(), self._sent))[rank] if known is None else known
        alone = np.full(len(variable), len(variable) == 1)
        # What is read back as a piece is sent as it is.
        copied = np.where(self._cut[rank] | (pieces.read > pieces.nbytes), pieces.nbytes * self._deals, 0.0)
        return int(
            self._round(
                pieces.rows, pieces.nbytes, variable, incoming, pieces.read, pieces.joining, copied, alone, rounds == 1
            ).max()
        )

    def _work(self, chunk_rows: int, longer: Numbers | float = 0.0) -> Numbers:
        """What a round takes, with a row in it that takes so many bytes more than the mean."""
        piece, read, joining, joined = self._reading(chunk_rows)
        longer = longer * (1 - piece / np.maximum(self._sent, 1.0))  # in all rows it is part of the mean
        incoming = np.zeros_like(piece)
        if self._staged:
            incoming = self._incoming(piece) + 2 * np.max(longer)
        nbytes, variable = piece * self._row + longer, piece * self._variable + longer
        read, joining = read + joined * longer, joining + 2 * joined * longer
        alone = piece >= self._sent
        copied = np.where(self._cut | (self._chunk_rows > chunk_rows), nbytes * self._deals, 0.0)
        return self._round(piece, nbytes, variable, incoming, read, joining, copied, alone, bool(alone.all()))

    def _round(
        self,
        rows: Numbers,
        nbytes: Numbers,
        variable: Numbers,
        incoming: Numbers,
        read: Numbers,
        joining: Numbers,
        copied: Numbers,
        alone: npt.NDArray[np.bool_],
        once: bool,
    ) -> Numbers:
        """What rounds take.

        Each has a piece of so many rows and bytes, some of them of variable columns; what it brings; what it takes to
        have the piece, and to make it; what is copied of it by ranks; and whether the piece is a rank's only one.
        ``once``: there is one round.
        """
        packed = variable if self._packs else rows * self._valid
        several = ~alone if self._stats.overlaps else np.zeros(len(rows), dtype=bool)
        # One is on its way down while the next one comes, also to a rank that sends nothing itself.
        coming, incoming = incoming, incoming * (2 if self._stats.overlaps and not once else 1)
        exchanging = packed + incoming + copied
        if self._copies:
            # The copy is claimed together with what follows it, so that it never leaves too little for that.
            pieces = zip(rows.tolist(), variable.tolist(), strict=True)
            scratch = np.array([self._scratch_bytes(int(n), int(v)) if n else 0 for n, v in pieces])
            exchanging = nbytes + packed + np.maximum(scratch, incoming)
            if self._stats.overlaps:
                # The next piece is partitioned while the last one is exchanged and what came before it is staged; from
                # a GPU that has left by then, and where it has not, the last one is waited for.
                leaving = coming if self._stats.on_gpu else incoming
                partitioning = nbytes * np.where(several, 2, 1) + packed + scratch + leaving
                exchanging = np.maximum(partitioning, nbytes + packed + incoming)
        return np.ceil(np.maximum(joining, read + exchanging))

    def rows_in(self, room: Numbers, most: int) -> int:
        """Rows, at most ``most``, of about the largest chunk that works within each rank's room; 0 where none does."""
        # A part is left alone: strings vary in length, and keys are not spread evenly in every round.
        free = np.maximum(room - self._largest, 0.0) * self._usable

        def fits(rows: int) -> bool:
            # Where the longest row takes most of it, rounds of other rows are not cut down to little for it.
            beside = np.maximum(free - self._longest_round_bytes(rows), free / _LONG_ROWS_IN_FREE)
            return bool((self._round_bytes(rows) <= self._largest + beside).all())

        if most < 1 or fits(most):
            return most
        low, high = 0, most
        while high - low > max(1, low // 64):
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def in_whole_chunks(self, rows: int) -> int:
        """Rows that come to as many chunks joined on each rank, and to no more where chunks are of fewer rows than the
        bytes of the largest one let think."""
        chunk_rows = self._chunk_rows[self._sent > 0]
        together = np.floor(rows / chunk_rows)
        if not together.size or (together < 2).any() or rows >= self._sent.max():
            return rows
        return min(rows, int(((together + 0.5) * chunk_rows).max()))

    def _round_bytes(self, chunk_rows: int) -> Numbers:
        """What of `work` depends on the size of a chunk."""
        return self.work(chunk_rows)

    def _longest_round_bytes(self, chunk_rows: int) -> Numbers:
        """What a round takes more that has the longest row."""
        return self.most(chunk_rows) - self.work(chunk_rows)

    def room_for(self, chunk_rows: int) -> Numbers:
        """Bytes in which chunks of so many rows work; shape (size,)."""
        return np.ceil(self._largest + np.maximum(self.most(chunk_rows) - self._largest, 0.0) / self._usable) + 1

    def rounds(self, chunk_rows: int) -> int:
        """How many rounds chunks of at most so many rows take: chunks are cut evenly, and joined whole."""
        piece = np.maximum(self._reading(chunk_rows)[0], 1.0)
        chunks = np.array(self._stats.chunks, dtype=np.float64)
        together = np.floor(chunk_rows / self._chunk_rows)
        most = np.where(
            together >= 2, np.ceil(chunks / np.maximum(together, 1)), chunks * np.ceil(self._chunk_rows / chunk_rows)
        )
        return max(1, int(np.minimum(np.ceil(self._sent / piece), most).max()))

    def _scratch_bytes(self, rows: int, variable_bytes: int) -> int:
        """Temporary bytes of reordering a piece, beside the piece and its copy."""
        scratch = device_partition_bytes if self._stats.on_gpu else partition_scratch_bytes
        return scratch(rows, self._stats.size)

    def _reading(self, chunk_rows: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Rows of a piece, what it takes to have it and to make it, where chunks are of equal size, and whether it is a
        copy of several."""
        if chunk_rows not in self._read:
            self._read[chunk_rows] = self._reads(chunk_rows)
        return self._read[chunk_rows]

    def _reads(self, chunk_rows: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        row = self._row
        slices = np.ceil(self._chunk_rows / chunk_rows)
        together = np.floor(chunk_rows / self._chunk_rows)
        joined = (together >= 2) & (np.array(self._stats.chunks) >= 2)
        whole = np.where(chunk_rows >= self._sent, self._sent, self._chunk_rows * together)
        piece = np.where(joined, whole, np.ceil(self._chunk_rows / slices))
        piece = np.minimum(piece, self._sent)
        if not self._joins:
            return piece, np.zeros_like(piece), np.zeros_like(piece), np.zeros_like(piece)
        read = np.where(joined, piece * row, self._largest)
        joining = np.where(joined, piece * (row + np.where(self._largest > 0, self._read_row, 0.0)), 0.0)
        return piece, read, joining, joined.astype(np.float64)

    def _incoming(self, piece: Numbers) -> Numbers:
        """Bytes of rows that reach each rank in a round, variable columns twice, with keys spread evenly where they
        decide."""
        row = self._row + self._variable
        if self._paths is None:
            return np.full(len(piece), (piece * row).sum() / len(piece))
        arriving: Numbers = (np.minimum(piece[:, None], self._paths) * row[:, None]).sum(axis=0)
        return arriving


# By verb. `sort_costs` adds those of sorting: what plans or runs a sort imports it.
COSTS: dict[str, type[Costs]] = {verb: Costs for verb in VERBS if verb != "sort_values"}


def _paths(stats: TableStats) -> Numbers | None:
    """Rows that go from each rank (first axis) to each; None where keys decide."""
    size, rows = stats.size, np.array(stats.sent_rows, dtype=np.float64)
    if stats.verb == "shuffle":
        return None
    if stats.verb == "repartition":
        first, target = (np.concatenate(([0], np.cumsum(n))) for n in (rows, stats.target_rows))
        starts = np.maximum(first[:-1, None], target[None, :-1])
        stops = np.minimum(first[1:, None], target[None, 1:])
        between: Numbers = np.maximum(stops - starts, 0.0)
        return between
    everywhere: Numbers = np.repeat(rows[:, None], size, axis=1)
    if stats.verb == "gather":
        everywhere[:, [rank for rank in range(size) if rank != stats.root]] = 0
    return everywhere


@dataclass(frozen=True, slots=True)
class MemoryTarget:
    """Bytes that a rank should have free.

    ``all`` lets the best strategy run, and ``here`` lets any run with the inputs where they are; where that
    is not to be had, ``least`` does once inputs have given way, which then have to be read back.
    """

    all: int
    least: int
    here: int


def room_wanted(stats: TableStats, config: GcylonConfig, strategy: str) -> tuple[MemoryTarget, ...]:
    """How much to free on each rank before planning, by staging what can be.

    Parameters
    ----------
    stats : TableStats
        What is in use does not matter.
    config : GcylonConfig
        The settings of the operation.
    strategy : str
        As asked for.

    Returns
    -------
    tuple of MemoryTarget
        One a rank. Other tables are evicted for ``all``; the inputs only for ``least``.
    """
    stats = replace(stats, used=(0,) * stats.size)
    rows = wished_rows(stats, config)
    worth = min(config.min_chunk_rows, rows)
    placed, limits = costs_of(stats, "direct"), np.array(stats.limits)
    result = np.array(expected_results(stats)) + placed.kept
    everything = result + placed.most(rows)
    # Inputs that are evicted are read back: that takes room as well.
    below = all_staged(stats)
    if strategy in ("staged", "auto"):
        good, least = _room_staged(stats, below, config, rows, worth)
        # Where the result cannot fit even alone, freeing memory for it would be in vain.
        wanted = np.minimum(good, limits)
        wanted = wanted if strategy == "staged" else np.where(everything <= limits, everything, wanted)
        here = least
    else:
        # Smaller chunks do as well, so the inputs are evicted for `chunked` only where not even those would fit.
        some = worth if strategy == "chunked" else rows
        least = np.minimum(result + np.maximum(placed.most(some), costs_of(below, "direct").most(some)), limits)
        here = np.minimum(result + placed.most(some), limits)
        wanted = np.minimum(everything, limits) if strategy == "chunked" else least
    rooms = zip(wanted.tolist(), least.tolist(), here.tolist(), strict=True)
    return tuple(MemoryTarget(int(one), int(two), int(three)) for one, two, three in rooms)


def surely_enough(stats: TableStats) -> int:
    """Bytes that are more than `room_wanted` says of any rank and strategy, found in no time: where they are free,
    nobody has to ask. Nothing is staged."""
    longest = max(stats.widest_bytes, default=0)
    return _ENOUGH_TIMES * (sum(stats.nbytes) + longest) + _ENOUGH_ROW_BYTES * sum(stats.rows) + _ENOUGH_BYTES


def _room_staged(
    stats: TableStats, below: TableStats, config: GcylonConfig, rows: int, worth: int
) -> tuple[Numbers, Numbers]:
    """For a staged result: bytes for chunks that are fastest, and for those that inputs are evicted for."""
    quarter = max(rows // 4, worth) if stats.on_gpu else rows
    staged, staged_below = costs_of(stats, "staged"), costs_of(below, "staged")
    # On GPUs chunks of a quarter are nearly as fast: the inputs are not evicted for more.
    good, fair, enough = (np.maximum(staged.most(n), staged_below.most(n)) for n in (rows, quarter, worth))
    limits = np.array(stats.limits)
    return good, np.minimum(np.maximum(np.minimum(fair, limits // 2), enough), limits)


def never_fits(stats: TableStats, strategy: str) -> npt.NDArray[np.bool_]:
    """On which ranks a strategy fits not even in chunks of a row, all tables evicted; shape (size,), of bool.

    Of what is read back only what is staged already counts: room for more is not needed to tell.
    """
    if strategy not in ("direct", "chunked"):
        return np.zeros(stats.size, dtype=bool)
    costs = costs_of(stats, strategy)
    never: npt.NDArray[np.bool_] = np.array(expected_results(stats)) + costs.kept + costs.work(1) > np.array(
        stats.limits
    )
    return never


def all_staged(stats: TableStats) -> TableStats:
    """The sizes once all inputs have given way."""
    each = [-(-n // max(c, 1)) for n, c in zip(stats.nbytes, stats.chunks, strict=True)]
    widest = stats.widest_bytes or (0,) * stats.size
    most = [stage_slice_bytes(limit, on_gpu=stats.on_gpu) for limit in stats.limits]
    slices = list(map(min, each, most))
    return replace(
        stats,
        staged_bytes=stats.nbytes,
        largest_staged_bytes=tuple(map(max, stats.largest_staged_bytes, map(add, slices, widest))),
        chunks=tuple(max(c, -(-n // max(s, 1))) for c, n, s in zip(stats.chunks, stats.nbytes, slices, strict=True)),
    )
