"""How many groups there may be, told from some rows of a part."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ..tables.backend import Data
from ..tables.schema import Schema
from .chunk import Chunk
from .local import LocalWork
from .part import Part

_SAMPLES = 16
_SAMPLE_ROWS = 4096
_LOOKS_IN_LIMIT = 8  # what is looked at takes so much of the budget at the most


def sample_keys(work: LocalWork, part: Part, keys: Schema, scratch: int) -> tuple[int, int]:
    """Look at some rows of a part in many places.

    Parameters
    ----------
    work : LocalWork
    part : Part
    keys : Schema
        Key columns, as they are compared.
    scratch : int
        Bytes a row of comparing them.

    Returns
    -------
    int, int
        How many rows were looked at, and how many different keys they have.
    """
    rows = part.rows
    if not rows:
        return 0, 0
    backend, row_bytes = work.backend, part.nbytes / max(part.rows, 1)
    # Fewer rows of each place where that would take much of the budget.
    share = work.workspace.budget.limit_bytes // _LOOKS_IN_LIMIT
    length = max(1, min(_SAMPLE_ROWS, int(share / (4 * row_bytes + scratch) / _SAMPLES)))
    starts = {rows * i // _SAMPLES for i in range(_SAMPLES)} if rows > _SAMPLES * length else {0}
    length = length if len(starts) > 1 else rows
    places = part.places(starts)
    looks = sum(min(length, chunk.rows - start) for chunk, inside in places for start in inside)
    held_row_bytes = 2 * (row_bytes if keys.variable else keys.row_bytes)
    read_back = max(chunk.loaded_bytes(keys.names) for chunk in part.chunks)
    work.expect_now(looks * held_row_bytes + max(looks * scratch, read_back))
    pieces: list[Data] = []
    with ExitStack() as held:
        if not keys.variable:  # their bytes are known: nothing gives way while there are views of it
            held.enter_context(work.claim(looks * 2 * keys.row_bytes))
        for chunk, inside in places:
            pieces += _looked_at(work, chunk, inside, length, keys, held)
        whole = backend.concat(pieces)
        del pieces, places, chunk  # chunks that give way now shall be free
        with work.claim(whole.rows * scratch):
            return whole.rows, backend.count_distinct(whole, list(keys.names))


def _looked_at(
    work: LocalWork, chunk: Chunk, starts: Sequence[int], length: int, schema: Schema, held: ExitStack
) -> list[Data]:
    """Keys of some rows, from so many places of a chunk: copies where its rows are not in memory."""
    backend, pieces = work.backend, []
    with chunk.load(work.workspace, schema.names) as keys:
        for start in starts:
            piece = backend.cast(backend.slice(keys, start, min(chunk.rows, start + length)), schema)
            if schema.variable:
                held.enter_context(work.claim(2 * piece.nbytes))
            pieces.append(backend.concat([piece]) if schema.variable or chunk.tier != "device" else piece)
    return pieces
