"""What sorting costs in memory, beside the exchange: pure arithmetic over sizes that all ranks share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..tables.pandas_sorting import sort_scratch_bytes
from ..tables.sorting import device_scratch_bytes
from .costs import Costs, Numbers, expected_results
from .shapes import FAST_CHUNK_BYTES, Shapes

ORDER_BYTES = 8
_COLUMN_BYTES = 8
# Of what is free, runs take so much at the most, and the sorting of a bucket so much in the mean: where keys are not
# spread as in the sample, it takes more.
RUN_SHARE = 0.75
_BUCKET_SHARE = 0.5
_MOST_BUCKETS = 256


class SortCosts(Costs):
    """Device bytes that each rank uses beside inputs and result.

    The exchange costs what a shuffle does, with sorted pieces in place of
    partitioned ones where they are sorted before they are sent. After it the
    result is sorted: as a whole, column by column, or bucket by bucket.

    Parameters
    ----------
    shapes : Shapes
    strategy : str
        direct, chunked or staged.
    """

    def __init__(self, shapes: Shapes, strategy: str) -> None:
        super().__init__(replace(shapes, verb="shuffle"), strategy)
        self._on_gpu = shapes.fast_chunk_bytes > FAST_CHUNK_BYTES
        self._presorts = not self._on_gpu
        self._copies = self._copies or self._presorts
        free = [limit - used for limit, used in zip(shapes.limits, shapes.used, strict=True)]
        self._sorting = np.array(
            [self._sorting_bytes(*both) for both in zip(expected_results(shapes), free, strict=True)]
        )

    def _work(self, chunk_rows: int, known_incoming: Numbers | None = None) -> Numbers:
        exchanging = super()._work(chunk_rows, known_incoming)
        work: Numbers = np.maximum(exchanging, self._sorting - np.array(self.kept, dtype=np.float64))
        return work

    def _round_bytes(self, chunk_rows: int) -> Numbers:
        """Smaller chunks would not make the sort that follows smaller."""
        return super()._work(chunk_rows)

    def _scratch_bytes(self, rows: int) -> int:
        return self._order_bytes(rows) if self._presorts else super()._scratch_bytes(rows)

    def _order_bytes(self, rows: float) -> int:
        variable = int(rows * self._shapes.variable_row_bytes)
        if self._on_gpu:
            return device_scratch_bytes(int(rows), variable)
        return sort_scratch_bytes(int(rows), variable)

    def _sorting_bytes(self, result: int, free: int) -> float:
        """Of sorting what has arrived: beside the result where that is on the device, else all there is."""
        variable = self._shapes.variable_row_bytes
        rows = result / max(self._shapes.bytes_per_row, 1.0)
        sorting = max(self._order_bytes(rows), rows * (ORDER_BYTES + max(_COLUMN_BYTES, 2 * variable)))
        if not self._staged:  # on GPUs text arrives in pieces, which are joined first
            return sorting + (result if self._on_gpu and variable else 0)
        joining = result + max(result, sorting)
        return joining if joining <= free else max(free * RUN_SHARE, 0.0)


def bucket_count(sorting_bytes: int, free_bytes: int) -> int:
    """Into how many buckets rows are cut whose sorting takes so much, so that each can be sorted in what is free."""
    return min(max(1, -(-sorting_bytes // max(1, int(free_bytes * _BUCKET_SHARE)))), _MOST_BUCKETS)
