"""Which chunks are read together, and what that takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...backends.protocol.schema import Label, Schema
from ..store.chunk import Chunk, fill_together
from ..store.part import Part


def next_group(waiting: list[Chunk], rows: int, most_bytes: float = math.inf) -> list[Chunk]:
    """Take chunks from a list that are read together: small ones of one schema, up to so many rows and bytes."""
    group = [waiting.pop(0)]
    count, nbytes = group[0].rows, group[0].nbytes
    while waiting and count + waiting[0].rows <= rows and waiting[0].schema == group[0].schema:
        if nbytes + waiting[0].nbytes > most_bytes:
            break
        group.append(waiting.pop(0))
        count, nbytes = count + group[-1].rows, nbytes + group[-1].nbytes
    return group


@dataclass(frozen=True, slots=True)
class Ahead:
    """Chunks that `LocalExecutor.pieces` will read together.

    Attributes
    ----------
    joining, kept : int
        Bytes while they are read, and while pieces of them are worked on.
    rows, pieces : int
        Of a piece at the most, and how many there are.
    cast_row_bytes : float
        Where pieces are brought to other dtypes.
    """

    joining: int
    kept: int
    rows: int
    pieces: int
    cast_row_bytes: float


def pieces_ahead(part: Part, schema: Schema, rows: int) -> Iterator[Ahead]:
    """How a part's rows will be read, in order."""
    waiting = list(part.chunks)
    while waiting:
        group = next_group(waiting, rows)
        count = sum(chunk.rows for chunk in group)
        if count:
            kept, joining = reading_bytes(group, schema.names)
            pieces = -(-count // rows)
            cast = 0.0
            if group[0].schema.select(schema.names) != schema:
                cast = sum(columns_bytes(chunk, schema.names) for chunk in group) / count + schema.row_bytes
            yield Ahead(joining, kept, -(-count // pieces), pieces, cast)


def reading_bytes(chunks: Sequence[Chunk], names: Sequence[Label] | None = None) -> tuple[int, int]:
    """What it takes to have chunks, or some columns of them, as one: afterwards, and while they are joined."""
    below = sum(chunk.loaded_bytes(names) for chunk in chunks)
    if len(chunks) == 1:
        return below, below
    whole = sum(columns_bytes(chunk, names) for chunk in chunks)
    if fill_together(chunks, chunks[0].schema.names if names is None else names):
        return whole, whole
    return whole, whole + below


def columns_bytes(chunk: Chunk, names: Sequence[Label] | None) -> int:
    """Bytes of some columns of a chunk, or all: of a staged one as many as are read back."""
    if names is None or tuple(names) == chunk.schema.names:
        return chunk.nbytes
    if chunk.tier != "device":
        return chunk.loaded_bytes(names)
    fixed = sum(chunk.rows * c.dtype.itemsize for c in chunk.schema.select(names) if c.dtype is not None)
    variable = any(not chunk.schema[name].fixed for name in names)
    return fixed + (chunk.nbytes - chunk.rows * chunk.schema.row_bytes if variable else 0)
