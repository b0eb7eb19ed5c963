"""The end of a join: its rows brought to the dtypes that a result with missing rows has."""

from __future__ import annotations

from ...backends.protocol.schema import Schema
from ...engine.exec.local_executor import LocalExecutor
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part


def of_one_schema(work: LocalExecutor, made: Part, schema: Schema) -> list[Chunk]:
    """The chunks of a result, which is used up: those made before a row was missing have narrower dtypes."""
    if all(chunk.schema == schema for chunk in made.chunks):
        return made.chunks
    result = work.new_part(schema)
    while made.chunks:
        chunk = made.chunks.pop(0)
        if chunk.schema == schema:
            result.chunks.append(chunk)
        else:
            _widen(work, chunk, result)
    return result.chunks


def _widen(work: LocalExecutor, chunk: Chunk, result: Part) -> None:
    """Bring rows to the dtypes of a result; an int that float64 does not hold is an error."""
    schema = result.schema
    alone = Part(work.workspace, chunk.schema, [chunk])
    rows = work.piece_rows(chunk.nbytes / chunk.rows, 2 * schema.row_bytes)
    for piece in work.pieces(alone, alone.schema, rows, using_up=True):
        for data, claim in work.apply(
            piece,
            lambda data: 2 * data.nbytes + data.rows * schema.row_bytes,
            lambda data: work.backend.concat([work.backend.cast(data, schema)]),
        ):
            work.keep(result, data, claim)
            del data
        del piece  # before the next one is read back
