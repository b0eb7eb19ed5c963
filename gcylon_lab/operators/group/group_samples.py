"""How many groups there may be, told from some rows of a part."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ...backends.protocol.data import Data
from ...backends.protocol.schema import Schema
from ...engine.exec.local_executor import LocalExecutor
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part
from .group_counts import KeysSeen

_SAMPLES = 16
_SAMPLE_ROWS = 4096
_FEW, _NEARLY_ALL = 8, 0.99  # keys: half of the rows are taken to have as many, or half of them
_LOOKS_IN_LIMIT = 8  # what is looked at takes so much of the budget at the most


def sample_keys(work: LocalExecutor, part: Part, keys: Schema, scratch: int) -> KeysSeen:
    """Look at some rows of a part in many places.

    Parameters
    ----------
    work : LocalExecutor
    part : Part
    keys : Schema
        Key columns, as they are compared.
    scratch : int
        Bytes a row of comparing them.

    Returns
    -------
    KeysSeen
    """
    rows = part.rows
    if not rows:
        return KeysSeen(0, 0, 0, 0)
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
        if not keys.variable:  # their bytes are known: nothing is evicted while there are views of it
            held.enter_context(work.claim(looks * 2 * keys.row_bytes))
        for chunk, inside in places:
            pieces += _looked_at(work, chunk, inside, length, keys, held)
        whole = backend.concat(pieces)
        del pieces, places, chunk  # chunks that are evicted now shall be free
        with work.claim(whole.rows * scratch):
            names, looked_at = list(keys.names), whole.rows
            found = backend.count_distinct(whole, names)
            if found < _FEW or found > _NEARLY_ALL * looked_at:  # it is known what some of them have
                return KeysSeen(looked_at, found, min(found, looked_at // 2), min(found, looked_at // 4))
            some = (backend.slice(whole, 0, looked_at // parts) for parts in (2, 4))
            return KeysSeen(looked_at, found, *(backend.count_distinct(one, names) for one in some))


def _looked_at(
    work: LocalExecutor, chunk: Chunk, starts: Sequence[int], length: int, schema: Schema, held: ExitStack
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
