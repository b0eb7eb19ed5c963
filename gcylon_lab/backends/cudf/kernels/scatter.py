"""Rows from where they are straight to where they belong, on this GPU or another: partition and exchange in one kernel.

Nothing is reordered in a copy first. Each block takes a tile of rows, orders it by id in shared memory, and writes
runs of items to the addresses of their ids, over NVLink where these are another GPU's.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from ...protocol.scattering import TILE_ROWS
from ..columns.data import DeviceColumns
from ..columns.transfer import Arriving, uploaded
from .partition import THREADS, bits_of, partition_module

Int64s = npt.NDArray[np.int64]

_COLUMNS_A_LAUNCH = 8  # whose addresses are passed by value


class DeviceScattering:
    """Implements `gcylon_lab.backends.protocol.scattering.Scattering`.

    Parameters
    ----------
    ids : cupy array of uint8, shape (rows,)
    n : int
        At most 256.
    edges : sequence of int
        Piece i is rows [edges[i], edges[i + 1]), at least one.
    ids_each : int
        See `gcylon_lab.backends.protocol.scattering.Scatters`.
    """

    def __init__(self, ids: Any, n: int, edges: Sequence[int], *, ids_each: int = 1) -> None:
        self._ids, self._n, self._first = ids, n * ids_each, 0
        self._edges = list(edges)
        tiles = [-(-(stop - start) // TILE_ROWS) for start, stop in zip(edges, edges[1:], strict=False)]
        self._tile_edges = np.concatenate(([0], np.cumsum(tiles, dtype=np.int64))).tolist()
        self._each = ids_each, n
        self._targets: Any = None
        self._arriving: Arriving | None = None
        self._counts = self._rows = np.zeros((0, *self._each), np.int64)
        if self._tile_edges[-1]:
            self._count()

    @property
    def counts(self) -> Int64s:
        """How many rows each piece has of each id; waits, the first time."""
        self._wait_for_counts()
        return self._counts

    @property
    def rows(self) -> Int64s:
        """How many rows of each piece go to each rank."""
        self._wait_for_counts()
        return self._rows

    def chosen(self, first: int, last: int) -> DeviceScattering:
        """The same for some ids of each rank alone."""
        self._wait_for_counts()
        some, (_, n) = copy(self), self._each
        some._each = last - first, n
        some._n, some._first = (last - first) * n, self._first + first * n
        some._counts, some._targets = self._counts[:, first:last], None
        some._rows = some._counts.sum(axis=1)
        return some

    def _wait_for_counts(self) -> None:
        if self._arriving is None:
            return
        at_ends = self._arriving.wait()  # rows of each id, and those before it, up to the end of each piece
        starts = np.concatenate(([0], at_ends[:-1, -1]))
        before = np.concatenate((starts[:, None], at_ends[:, :-1]), axis=1)
        self._counts = np.ascontiguousarray((at_ends - before).T).reshape(-1, *self._each)
        self._rows, self._arriving = self._counts.sum(axis=1), None

    def _count(self) -> None:
        """Count the rows of each piece and id; keeps, for each id and tile, those of that id up to the tile's end."""
        n, tiles, pieces = self._n, self._tile_edges[-1], len(self._edges) - 1
        last_tiles = [0, *(edge - 1 for edge in self._tile_edges[1:])]
        edges = uploaded(np.array([self._edges, self._tile_edges, last_tiles], np.int64))
        self._tiles = edges[0], edges[1], np.int32(pieces)  # as kernels find the piece of a tile
        self._last_tiles = edges[2][1:]
        counts = cupy.empty((n, tiles), np.int64)
        kernel = partition_module().get_function("count_piece_tiles")
        kernel((tiles,), (THREADS,), (self._ids, *self._tiles, np.int32(n), bits_of(n), np.int64(tiles), counts))
        self._ends = counts.reshape(-1)
        cupy.cumsum(self._ends, out=self._ends)
        self._arriving = Arriving(counts[:, self._last_tiles])

    @property
    def aimed(self) -> bool:
        """Whether `aim` has been called."""
        return self._targets is not None

    def aim(self, addresses: Int64s, widths: Sequence[int]) -> None:
        """Say where the first row for each rank belongs; shape (n, fixed columns), and the bytes of their items."""
        totals = self.counts.sum(axis=0)
        before = np.cumsum(totals, axis=0) - totals  # a rank's rows lie id after id
        each = addresses + before[:, :, None] * np.array(widths, np.int64)
        self._targets = uploaded(np.ascontiguousarray(each.reshape(self._n, -1).T.astype(np.uint64)))

    def put(self, piece: int, views: Sequence[DeviceColumns]) -> None:
        """Queue the writing of pieces, from one on, on the current stream."""
        for place, data in enumerate(views, piece):
            if data.rows and data.fixed:
                self._put(place, data)

    def _put(self, piece: int, data: DeviceColumns) -> None:
        rows, sources = data.rows, [(array.data.ptr, array.dtype.itemsize) for array in data.fixed]
        first_tile, tiles = self._tile_edges[piece], self._tile_edges[-1]
        blocks = self._tile_edges[piece + 1] - first_tile
        ids = self._ids[self._edges[piece] : self._edges[piece + 1]]
        numbers: tuple[Any, ...] = (np.int64(rows), np.int32(self._first), np.int32(self._n), bits_of(self._n))
        numbers = (*numbers, np.int64(first_tile), np.int64(tiles))
        kernel = partition_module().get_function("scatter_tiles")
        for start in range(0, len(sources), _COLUMNS_A_LAUNCH):
            group = sources[start : start + _COLUMNS_A_LAUNCH]
            addresses = [np.uint64(address) for address, _ in group]
            addresses += [np.uint64(0)] * (_COLUMNS_A_LAUNCH - len(group))
            widths = np.uint64(sum(width << (8 * place) for place, (_, width) in enumerate(group)))
            targets = self._targets[start : start + len(group)]
            arguments = (ids, *numbers, self._ends, targets, *addresses, widths, np.int32(len(group)))
            kernel((blocks,), (THREADS,), arguments)
