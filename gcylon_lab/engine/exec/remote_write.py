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
Bools = npt.NDArray[np.bool_]


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


def columns_told(workspace: Workspace, part: Part, verb: str) -> tuple[list[bool] | None, bool]:
    """`has_missing` and `Part.is_ready` of a rank's rows: of a shuffle's alone, as each chunk has to be looked at."""
    if verb != "shuffle" or not workspace.scatters:
        return None, False
    return has_missing(workspace, part), part.is_ready(part.schema)


@dataclass(frozen=True, slots=True)
class ColumnsSeen:
    """What all ranks know of the columns of an operation's input.

    Attributes
    ----------
    writable : bool
        Whether kernels can write all of them.
    nulls : int
        How many lack values, as far as it is known.
    ready : bool
        Whether all chunks have the dtypes in which they will be sent.
    """

    writable: bool
    nulls: int
    ready: bool


def columns_seen(schema: Schema, there: Bools, nulls: Int64s, ready: Int64s, digests: Int64s) -> ColumnsSeen:
    """What ranks' agreements say; those without rows do not matter.

    Parameters
    ----------
    schema : Schema
        Agreed.
    there : ndarray of bool, shape (size,)
        Which ranks have rows.
    nulls, ready, digests : ndarray of int64, shape (size,)
        `null_columns`, `Part.is_ready`, and the digest of the schema, of each rank.
    """
    # What a rank without rows holds may have changed what was agreed, such as labels.
    all_ready = bool(ready[there].all()) and bool((digests[there] == schema.digest()).all())
    writable = all_ready and can_write(schema) and bool((nulls[there] >= 0).all())
    return ColumnsSeen(writable, int(nulls[there].max(initial=0)) if writable else 0, all_ready)
