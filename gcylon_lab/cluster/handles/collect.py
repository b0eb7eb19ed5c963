"""Bringing rows of a table to the notebook."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...backends.arrow.interop import to_frame
from ...backends.protocol.data import Columns, concat_arrays, concat_columns, empty_columns, slice_columns
from ...backends.protocol.schema import Schema
from ...errors import ClusterError
from ..channel.progress import moved
from ..messages import Request
from ..row_stream import MESSAGE_BYTES, Receiving
from .display_name import spoken
from .session_api import SessionApi

if TYPE_CHECKING:
    import pandas as pd

    from .handle import DistTable

HIGH_BYTES = 8 * MESSAGE_BYTES
_LAST_S = 10.0  # for what was sent before the ranks' replies, and comes after them


def fetch(session: SessionApi, table: str, schema: Schema, action: str, start: int, stop: int) -> list[list[Columns]]:
    """Rows [start, stop) of a stored table in global order, in pieces, by rank.

    Raises
    ------
    GcylonError
        What a rank raised.
    """
    with session.row_end() as end:
        receiving = Receiving(end, HIGH_BYTES)
        session.waiting.told = lambda elapsed_s: moved(
            spoken(action), receiving.bytes, receiving.rows, stop - start, elapsed_s
        )
        try:
            session.call(Request(action, table, args=(end.address, start, stop)), pump=receiving)
        finally:
            session.waiting.told = None
        if receiving(_LAST_S):
            raise ClusterError(f"Of {stop - start} rows {receiving.rows} have come.", advice="Run it again.")
        return receiving.pieces


def batches(handle: DistTable, session: SessionApi, batch_rows: int | None) -> Iterator[pd.DataFrame]:
    """All rows of a table as frames of so many rows, in global order."""
    rows, schema = handle.num_rows, handle.schema
    if not rows:
        yield to_frame(empty_columns(schema))
        return
    row_bytes = max(1.0, handle.nbytes / rows)
    each = batch_rows or max(1, int(MESSAGE_BYTES / row_bytes))
    # So many batches with one request as keep to what may be on its way.
    together = each * max(1, int(HIGH_BYTES / row_bytes / each))
    for start in range(0, rows, together):
        stop = min(rows, start + together)
        table = handle._reference(session).table
        pieces = deque(piece for rank in fetch(session, table, schema, "collect", start, stop) for piece in rank)
        for at in range(start, stop, each):
            yield to_frame(_taken(pieces, min(each, stop - at)), copy=False)


def _taken(pieces: deque[Columns], rows: int) -> Columns:
    """The first so many rows of pieces, which they leave."""
    taken: list[Columns] = []
    while rows:
        piece = pieces.popleft()
        if piece.rows > rows:
            pieces.appendleft(slice_columns(piece, rows, piece.rows))
            piece = slice_columns(piece, 0, rows)
        rows -= piece.rows
        taken.append(piece)
    return concat_columns(taken)


def joined(schema: Schema, pieces: list[Columns]) -> Columns:
    """All rows of pieces, column by column: of each, the pieces' memory is given up once it is copied."""
    if not pieces:
        return empty_columns(schema)
    rows = sum(piece.rows for piece in pieces)
    columns = [list(arrays) for arrays in zip(*(piece.arrays for piece in pieces), strict=True)]
    pieces.clear()
    arrays = []
    for column in schema.columns:
        arrays.append(concat_arrays(column, columns.pop(0)))
    return Columns(schema, rows, tuple(arrays))
