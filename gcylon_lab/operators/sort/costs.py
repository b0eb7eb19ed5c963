"""What sorting costs in memory, beside the exchange: pure arithmetic over sizes that all ranks share."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...backends.host.sorting import sort_scratch_bytes
from ...backends.protocol.sorting import device_scratch_bytes
from ...engine.plan.costs import COSTS, Costs, Numbers, Pieces, expected_results
from ...engine.plan.table_stats import TableStats, fan_out

ORDER_BYTES = 8
_COLUMN_BYTES = 8
# Of what is free, runs take so much at the most, and the sorting of a bucket so much in the mean: where keys are not
# spread as in the sample, it takes more.
RUN_SHARE = 0.75
_BUCKET_SHARE = 0.5
_MOST_BUCKETS = 256
SAMPLED = 64  # rows looked at for each bucket, where a bucket has to be cut again
# Of what is free, where buckets are cut again that do not fit: one that nearly fills it may be sorted, or cut again,
# and then the runs of `RUN_SHARE` are what takes most.
ALL_SHARE = 0.85
# Of so many rows one is looked at, within these numbers for each rank. A rank's share of the result then differs from
# the mean by about 1/sqrt(rows looked at): 1.6 % with the most.
_ONE_IN = 128
_LEAST_A_RANK = 64
_MOST_A_RANK = 4096
_MOST_BYTES_A_RANK = 4 * 1024**2  # with long text, fewer
_SHARE = 0.5  # of the budget, that a sample may take
_SAMPLED = 1024  # what it costs to order a row is that of so many


class SortCosts(Costs):
    """Device bytes that each rank uses beside inputs and result.

    The exchange costs what a shuffle does, with sorted pieces in place of
    partitioned ones where they are sorted before they are sent. After it the
    result is sorted: as a whole, column by column, or bucket by bucket.

    Parameters
    ----------
    stats : TableStats
    strategy : str
        direct, chunked or staged.
    results : tuple of int, optional
        Bytes that arrive on each rank, where they have been counted.
    """

    def __init__(self, stats: TableStats, strategy: str, results: tuple[int, ...] | None = None) -> None:
        super().__init__(replace(stats, verb="shuffle"), strategy)
        self._on_gpu = stats.on_gpu
        self._presorts = not self._on_gpu
        self._copies = self._copies or self._presorts
        free = [limit - used for limit, used in zip(stats.limits, stats.used, strict=True)]
        self._sorting = np.array(
            [self._sorting_bytes(*both) for both in zip(results or expected_results(stats), free, strict=True)]
        )

    def _work(self, chunk_rows: int, longer: Numbers | float = 0.0) -> Numbers:
        exchanging = np.maximum(super()._work(chunk_rows, longer), self._run_bytes(chunk_rows))
        work: Numbers = np.maximum(exchanging, self._sorting - np.array(self.kept, dtype=np.float64))
        return work

    def _run_bytes(self, chunk_rows: int) -> float:
        """Of sorting what a round brings, where that is staged on a GPU: it is sorted at once at the least, and that
        takes much however little it is."""
        if not (self._staged and self._on_gpu):
            return 0.0
        rows = self._reading(chunk_rows)[0].sum() / self._stats.size
        nbytes = rows * self._stats.bytes_per_row
        return float(nbytes + max(nbytes, self._order_bytes(rows, rows * self._stats.variable_row_bytes)))

    def of_pieces(self, rank: int, pieces: Pieces, rounds: int, incoming_bytes: float | None = None) -> int:
        """As for a shuffle, and of the sorting that follows; where that is of staged rows, it is seen to once they are
        there."""
        if self._staged:
            return super().of_pieces(rank, pieces, rounds, incoming_bytes)
        return max(super().of_pieces(rank, pieces, rounds, incoming_bytes), int(self._sorting[rank] - self.kept[rank]))

    def _round_bytes(self, chunk_rows: int) -> Numbers:
        """Smaller chunks would not make the sort of all that follows smaller."""
        work: Numbers = np.maximum(super()._work(chunk_rows), self._run_bytes(chunk_rows))
        return work

    def room_for(self, chunk_rows: int) -> Numbers:
        """Bytes in which chunks of so many rows work: of staged ones no more are sorted at a time than fit."""
        if not self._staged:
            return super().room_for(chunk_rows)
        rounds = self._round_bytes(chunk_rows) + self._longest_round_bytes(chunk_rows)
        room: Numbers = np.ceil(self._largest + np.maximum(rounds - self._largest, 0.0) / self._usable) + 1
        return room

    def _longest_round_bytes(self, chunk_rows: int) -> Numbers:
        longest: Numbers = super()._work(chunk_rows, self._longer) - super()._work(chunk_rows)
        return longest

    def _scratch_bytes(self, rows: int, variable_bytes: int) -> int:
        if self._presorts:
            return self._order_bytes(rows, variable_bytes)
        return super()._scratch_bytes(rows, variable_bytes)

    def _order_bytes(self, rows: float, variable_bytes: float) -> int:
        order = device_scratch_bytes if self._on_gpu else sort_scratch_bytes
        return order(int(rows), int(variable_bytes))

    def _sorting_bytes(self, result: int, free: int) -> float:
        """Of sorting what has arrived: beside the result where that is on the device, else all there is."""
        rows = sum(self._stats.rows) / self._stats.size  # splitters cut rows evenly, of whatever length
        variable = max(0.0, result - rows * self._stats.fixed_row_bytes)
        sorting = max(
            self._order_bytes(rows, variable), rows * (ORDER_BYTES + _COLUMN_BYTES), rows * ORDER_BYTES + 2 * variable
        )
        if not self._staged:  # on GPUs text arrives in pieces, which are joined first
            return sorting + (result if self._on_gpu and variable else 0)
        # Rows of fixed columns are read straight into one array a column, where parts of what is staged can be read.
        joining = result + (max(result, sorting) if self._on_gpu or self._stats.variable_row_bytes else sorting)
        if joining <= free:
            return joining
        fixed = self._order_bytes(0, 0)
        buckets = bucket_count(int(joining), int(free), fixed)
        looked = sum(sample_rows(self._stats)) / self._stats.size
        if not self._on_gpu and fan_out(buckets, variable=self._stats.variable_row_bytes > 0) < buckets:
            looked = SAMPLED * buckets
        bucket = fixed + largest_bucket(joining - fixed, 1 / buckets, looked)
        return max(min(max(share_of(free, RUN_SHARE, fixed), bucket), share_of(free, ALL_SHARE, fixed)), 0.0)


COSTS["sort_values"] = SortCosts


def largest_bucket(joining_bytes: float, share: float, looked_at: float) -> float:
    """About what the largest of buckets takes, each such a share of all, that were cut by a sample of so many rows."""
    more = (2 * math.log(max(1 / max(share, 1e-9), 2)) / max(share * looked_at, 1e-9)) ** 0.5
    return float(joining_bytes * share * (1 + more))


def sample_rows(stats: TableStats) -> list[int]:
    """How many rows of each rank are looked at: it does not depend on strategies, so that all of them cut alike."""
    total, size = sum(stats.rows), stats.size
    wanted = min(max(total // _ONE_IN, _LEAST_A_RANK * size), _MOST_A_RANK * size)
    if total:
        table_row = max(1.0, sum(stats.nbytes) / total)
        a_row = 2 * table_row + sort_scratch_bytes(_SAMPLED, int(_SAMPLED * table_row)) / _SAMPLED
        most = min(_MOST_BYTES_A_RANK * size / table_row, _SHARE * min(stats.limits) / a_row)
        wanted = min(wanted, max(int(most), 8 * size))
    wanted = min(wanted, total)
    return [-(-wanted * n // total) if total else 0 for n in stats.rows]


def bucket_count(sorting_bytes: int, free_bytes: int, fixed_bytes: int = 0) -> int:
    """Into how many buckets rows are cut whose sorting takes so much, so that each can be sorted in what is free;
    so much of it is taken however few the rows are."""
    share = max(1, int((free_bytes - fixed_bytes) * _BUCKET_SHARE))
    return min(max(1, -(-(sorting_bytes - fixed_bytes) // share)), _MOST_BUCKETS)


def share_of(free_bytes: float, share: float, fixed_bytes: int = 0) -> float:
    """What work may take of what is free: a share of what is left beside what it takes however little there is."""
    return fixed_bytes + max(0.0, free_bytes - fixed_bytes) * share
