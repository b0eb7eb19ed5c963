"""Rows of a part that an operation has made, chosen by a condition."""

from __future__ import annotations

from collections.abc import Iterator

from ...backends.protocol.data import Data
from ...backends.protocol.expressions import Expression
from ...backends.protocol.schema import Schema
from ...engine.exec.local_executor import LocalExecutor
from ...engine.store.part import Part
from ...memory.budget import Reservation


def chosen_rows(
    work: LocalExecutor, part: Part, condition: Expression, schema: Schema
) -> Iterator[tuple[Data, Reservation]]:
    """Some of the rows, as columns of a schema, each piece under a claim; the part is used up."""
    backend = work.backend
    scratch = backend.evaluating_row_bytes(part.schema, [condition])
    total, row_bytes = part.rows, part.nbytes / max(part.rows, 1)
    rows = work.piece_rows(row_bytes, scratch)
    work.expect_pieces(part, part.schema, rows, 3 * row_bytes + scratch)
    looked_at = found = 0

    def filtered(data: Data) -> Data:
        return backend.concat([backend.select(backend.filter(data, condition), schema.names)])

    for piece in work.pieces(part, part.schema, rows, using_up=True):
        for made, claim in work.apply(piece, lambda data: 3 * data.nbytes + data.rows * scratch, filtered):
            found += made.rows
            yield made, claim
            del made
        looked_at += piece.rows
        if looked_at == piece.rows < total:  # the first piece says about how many there will be
            more = work.kept_bytes(found / looked_at * (total - looked_at) * row_bytes)
            work.expect_now(more + piece.rows * (3 * row_bytes + scratch))
        del piece  # before the next one is read back
