"""The seam for backends whose kernels write rows straight into the memory of other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from .data import Data, Ids
from .schema import Schema

Int64s = npt.NDArray[np.int64]

TILE_ROWS = 4096  # of a piece, that a block of threads takes at once
_PIECES = 64  # about as many pieces as a part has; each may end with a tile that is not full
MOST_SCATTERED = 256  # ids of one byte
_SMALL_BYTES = 1 << 16  # pointers, label tables and small sums, each rounded up by a GPU's allocator


def device_partition_bytes(rows: int, n: int) -> int:
    """Temporary bytes at one time of computing ids on a GPU, then reordering so many rows, beside ids and reordered
    rows."""
    if n > MOST_SCATTERED:
        # The order in 64 and 32 bits; sorting holds keys and order twice.
        return (8 + 4 + 2 * (8 + 4)) * rows + 16 * n + _SMALL_BYTES
    tiles = -(-rows // TILE_ROWS)
    # The order for variable columns; counts, and what adding them up in several steps needs.
    return 4 * rows + 2 * 8 * n * (tiles + 1) + _SMALL_BYTES


@dataclass(frozen=True, slots=True)
class Plane:
    """One array by row.

    Attributes
    ----------
    column : int
        Its place in the schema.
    kind : str
        ``items``, ``valid`` (a byte), or ``text`` (offsets).
    width : int
        Bytes of a row.
    """

    column: int
    kind: str
    width: int


class Scattering(Protocol):
    """Where each row of a part goes: known for all its pieces before the first of them leaves.

    The rows of one id keep their order, over all pieces, and follow those of the lower ids that go to the same rank.
    """

    @property
    def counts(self) -> Int64s:
        """How many rows each piece has of each id; shape (pieces, ids_each, n). May wait, the first time."""
        ...

    @property
    def rows(self) -> Int64s:
        """How many rows of each piece go to each rank; shape (pieces, n)."""
        ...

    @property
    def aimed(self) -> bool:
        """Whether `aim` has been called."""
        ...

    def chosen(self, first: int, last: int) -> Scattering:
        """The same for the rows of some ids alone, of each rank those in [first, last). Waits for nothing."""
        ...

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

    def put(self, piece: int, views: Sequence[Data]) -> None:
        """Queue the writing of the fixed columns of pieces, from one on, to their places; may return before it is
        done."""
        ...


@runtime_checkable
class Scatters(Protocol):
    """A backend that can scatter."""

    def scattering(self, ids: Ids, n: int, edges: Sequence[int], *, ids_each: int = 1) -> Scattering:
        """Find the places of all rows.

        Parameters
        ----------
        ids : array of uint8, shape (rows,)
            Of all rows of a part; kept.
        n : int
            Ranks; with all their ids at most `MOST_SCATTERED`.
        edges : sequence of int
            Piece i is rows [edges[i], edges[i + 1]), at least one.
        ids_each : int
            How many ids each rank has: that of a row is ``i * n + rank``.
        """
        ...


class Writing(Scattering, Protocol):
    """As `Scattering`, for all columns; see `gcylon_lab.backends.host.column_buffers`.

    Where rows of a text go is known once the characters of all pieces have been counted. What is put has been taken by
    `weigh`.
    """

    def weigh(self, piece: int, data: Data) -> None:
        """Take a piece, whose characters `chars` will count."""
        ...

    def chars(self) -> Int64s:
        """Bytes of the characters of each piece, rank and text, once all pieces have been taken.

        Returns
        -------
        ndarray of int64, shape (pieces, n, texts)
        """
        ...

    def aim_at(self, planes: Sequence[Plane], addresses: Int64s, chars: Int64s, first_chars: Int64s) -> None:
        """Say where rows go.

        Parameters
        ----------
        planes : sequence of Plane
        addresses : ndarray of int64, shape (n, planes)
            Where the first row for each rank belongs.
        chars : ndarray of int64, shape (n, texts)
            Where each rank's characters begin.
        first_chars : ndarray of int64, shape (n, texts)
            How many of them stand before this rank's.
        """
        ...


class RemoteWriteOutput(Protocol):
    """A result whose planes are written by kernels.

    Attributes
    ----------
    planes : tuple of Plane
    buffers : list
        One for each plane, and then one for the characters of each text.
    """

    planes: tuple[Plane, ...]
    buffers: list[Any]

    def finish(self) -> Data:
        """The result, once all rows have been written."""
        ...


@runtime_checkable
class Writes(Protocol):
    """A backend whose kernels write texts and missing values too."""

    def writing(self, ids: Ids, n: int, edges: Sequence[int], schema: Schema) -> Writing:
        """As `Scatters.scattering`, for all columns of a schema."""
        ...

    def has_missing(self, data: Data) -> list[bool] | None:
        """In which columns rows lack values; None where these rows cannot be written. Waits for nothing."""
        ...

    def allocate_written(
        self, schema: Schema, rows: int, nulls: Sequence[bool], chars: Sequence[int]
    ) -> RemoteWriteOutput:
        """Room for a result.

        Parameters
        ----------
        schema : Schema
        rows : int
        nulls : sequence of bool
            Whether rows of each column lack values, on any rank.
        chars : sequence of int
            Bytes of the characters of each text.
        """
        ...


def scatter_bytes(rows: int, n: int, chunks: int = 0) -> int:
    """Bytes that the scattering of so many rows takes at the most, beside their ids.

    Parameters
    ----------
    rows : int
    n : int
        Ids, once for the rows, and once more for each text whose characters are counted too.
    chunks : int
        That are not joined: each may end with a tile that is not full.
    """
    tiles = -(-rows // TILE_ROWS) + max(_PIECES, 2 * chunks)
    return 2 * 8 * n * (tiles + 1) + (1 << 16)  # counts, and what adding them up needs
