"""The seam for backends whose kernels write rows straight into the memory of other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from .backend import Data, Ids
from .cudf_partition_source import TILE_ROWS

Int64s = npt.NDArray[np.int64]

_PIECES = 64  # about as many pieces as a part has; each may end with a tile that is not full
MOST_SCATTERED = 256  # ids of one byte


class Scattering(Protocol):
    """Where each row of a part goes: known for all its pieces before the first of them leaves.

    The rows of one id keep their order, over all pieces, and follow those of the lower ids that go to the same rank.

    Attributes
    ----------
    rows : ndarray of int64, shape (pieces, n)
        How many rows of each piece go to each rank.
    aimed : bool
        Whether `aim` has been called.
    """

    rows: Int64s

    @property
    def aimed(self) -> bool: ...

    def aim(self, addresses: Int64s, widths: Sequence[int]) -> None:
        """Say where rows go.

        Parameters
        ----------
        addresses : ndarray of int64, shape (n, fixed columns)
            Where the first row for each rank belongs, as this rank's kernels address it.
        widths : sequence of int
            Bytes of an item of each fixed column.
        """
        ...

    def put(self, piece: int, data: Data) -> None:
        """Queue the writing of a piece's fixed columns to their places; may return before it is done."""
        ...


@runtime_checkable
class Scatters(Protocol):
    """A backend that can scatter."""

    def scattering(self, ids: Ids, n: int, edges: Sequence[int], *, first: int = 0, ids_each: int = 1) -> Scattering:
        """Find the places of all rows.

        Parameters
        ----------
        ids : array of uint8, shape (rows,)
            Of all rows of a part; kept.
        n : int
            Ranks; with all their ids at most `MOST_SCATTERED`.
        edges : sequence of int
            Piece i is rows [edges[i], edges[i + 1]), at least one.
        first, ids_each : int
            Only rows of the ids from ``first`` on travel, ``ids_each`` of them for every rank: the id of a row is
            ``first + i * n + rank``.
        """
        ...


def scatter_bytes(rows: int, n: int) -> int:
    """Bytes that the scattering of so many rows takes at the most, beside their ids."""
    tiles = -(-rows // TILE_ROWS) + _PIECES
    return 2 * 8 * n * (tiles + 1) + (1 << 16)  # counts, and what adding them up needs
