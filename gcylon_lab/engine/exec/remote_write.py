"""Results whose variable columns are written by their senders' kernels: whether they are, and what all ranks know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...backends.host.column_buffers import can_write, planes_of
from ...backends.protocol.scattering import Writes
from ...backends.protocol.schema import Schema

if TYPE_CHECKING:
    from ..store.part import Part
    from ..store.workspace import Workspace

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RemoteWrite:
    """What all ranks know of rows that are written.

    Attributes
    ----------
    nulls : tuple of bool
        Whether rows of each column lack values, on any rank.
    chars : ndarray of int64, shape (size, size, texts)
        Bytes of the characters that go from each rank (first axis) to each.
    """

    nulls: tuple[bool, ...]
    chars: Int64s

    def before(self, rank: int) -> Int64s:
        """Characters of the ranks before one, in each rank's result; shape (size, texts)."""
        before: Int64s = self.chars[:rank].sum(axis=0)
        return before

    def result_bytes(self, schema: Schema, rows: int, rank: int) -> int:
        """Bytes of the planes of so many rows, and of the characters, that a rank gets."""
        # Of a text one offset more than rows.
        planes = sum((rows + (plane.kind == "text")) * plane.width for plane in planes_of(schema, self.nulls))
        return planes + int(self.chars[:, rank].sum())


def has_missing(workspace: Workspace, part: Part) -> list[bool] | None:
    """In which columns of a part rows lack values; None where its rows cannot be written, or all columns are fixed."""
    backend, schema = workspace.backend, part.schema
    if not schema.variable or not workspace.writes or not can_write(schema):
        return None
    assert isinstance(backend, Writes)
    lacking = [False] * len(schema.columns)
    for chunk in part.chunks:
        if chunk.tier != "device" or chunk.schema != schema:
            return None  # what is brought to other dtypes for it may have to be cut where memory is short
        of_chunk = backend.has_missing(chunk.data)
        if of_chunk is None:
            return None
        lacking = [one or other for one, other in zip(lacking, of_chunk, strict=True)]
    return lacking


def null_columns(lacking: Sequence[bool] | None) -> int:
    """In how many columns rows lack values; -1 where they are not written."""
    return -1 if lacking is None else sum(lacking)
