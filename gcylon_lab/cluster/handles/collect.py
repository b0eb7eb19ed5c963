"""Bringing rows of a table to the notebook."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...backends.protocol.data import Columns, concat_columns, slice_columns
from ...backends.protocol.schema import Column, Label, Schema
from ...errors import ClusterError
from ..channel.progress import moved
from ..messages import Request
from ..row_stream import MESSAGE_BYTES, Receiving
from .display_name import spoken
from .session_api import SessionApi

HIGH_BYTES = 8 * MESSAGE_BYTES
_LAST_S = 10.0  # for what was sent before the ranks' replies, and comes after them


def fetch(
    session: SessionApi, table: str, action: str, start: int, stop: int, take: Callable[[int, Columns], None]
) -> None:
    """Bring rows [start, stop) of a stored table in global order, piece by piece.

    Parameters
    ----------
    session : SessionApi
    table, action : str
    start, stop : int
    take : callable
        Gets the rank, and rows of it: those of one rank in order.

    Raises
    ------
    GcylonError
        What a rank raised.
    """
    with session.row_end() as end:
        receiving = Receiving(end, HIGH_BYTES, take)
        session.waiting.told = lambda elapsed_s: moved(
            spoken(action), receiving.bytes, receiving.rows, stop - start, elapsed_s
        )
        try:
            session.call(Request(action, table, args=(end.address, start, stop)), pump=receiving)
        finally:
            session.waiting.told = None
        if receiving(_LAST_S):
            raise ClusterError(f"Of {stop - start} rows {receiving.rows} have come.", advice="Run it again.")


def batches(
    session: SessionApi,
    table: Callable[[], str],
    size: tuple[int, int],
    action: str,
    *,
    rows: int | None = None,
    batch_rows: int | None = None,
) -> Iterator[Columns]:
    """The first rows of a table in batches, in global order; between requests the ranks are free.

    Parameters
    ----------
    session : SessionApi
    table : callable
        Gives the stored table's name; raises where it is gone by then.
    size : tuple of int
        Rows and bytes of the whole table.
    action : str
    rows : int, optional
        How many; all by default.
    batch_rows : int, optional
        Rows of a batch; as many as take about 4 MB by default.
    """
    row_bytes = max(1.0, size[1] / max(1, size[0]))
    each = batch_rows or max(1, int(MESSAGE_BYTES / row_bytes))
    # So many batches with one request as keep to what may be on its way.
    together = each * max(1, int(HIGH_BYTES / row_bytes / each))
    count = size[0] if rows is None else min(rows, size[0])
    for start in range(0, count, together):
        stop = min(count, start + together)
        ranks: dict[int, list[Columns]] = defaultdict(list)
        fetch(session, table(), action, start, stop, lambda rank, piece: ranks[rank].append(piece))  # noqa: B023
        pieces = deque(piece for rank in sorted(ranks) for piece in ranks[rank])
        ranks.clear()
        for at in range(start, stop, each):
            yield _taken(pieces, min(each, stop - at))


class Batches(Iterator[Any]):
    """What ``t.collect()`` gives: frames, one after the other, until `close`.

    Parameters
    ----------
    batches : generator
    """

    def __init__(self, batches: Generator[Any]) -> None:
        self._batches = batches

    def __next__(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        """Take no more of them."""
        self._batches.close()

    def __repr__(self) -> str:
        return "<frames of collect(), batch by batch: loop over them; to_pandas(limit) and head(n) give one frame>"

    if not TYPE_CHECKING:  # a checker shall go on to find names that are not there

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"collect() gives frames batch by batch, which have no {name!r}: loop over them, as in "
                "'for frame in t.collect():'; t.to_pandas(limit) and t.head(n) give one frame"
            )


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


class Gathered:
    """Rows that come piece by piece, put where they belong: what they came in is given up at once.

    Parameters
    ----------
    schema : Schema
    rows : sequence of int
        How many come from each rank.
    """

    def __init__(self, schema: Schema, rows: Sequence[int]) -> None:
        self._schema = schema
        self._rows = sum(rows)
        self._at = [sum(rows[:rank]) for rank in range(len(rows))]
        self._fixed = {c.name: np.empty(self._rows, c.dtype) for c in schema.fixed}
        self._chunks: dict[Label, dict[int, Any]] = {column.name: {} for column in schema.variable}

    def take(self, rank: int, data: Columns) -> None:
        """Put the next rows of a rank in their place."""
        start, stop = self._at[rank], self._at[rank] + data.rows
        for column, array in zip(data.schema.columns, data.arrays, strict=True):
            if column.fixed:
                self._fixed[column.name][start:stop] = array
            else:
                self._chunks[column.name][start] = array
        self._at[rank] = stop

    def columns(self) -> Columns:
        """All rows, in rank order."""
        arrays = [self._fixed[c.name] if c.fixed else self._variable(c) for c in self._schema.columns]
        return Columns(self._schema, self._rows, tuple(arrays))

    def _variable(self, column: Column) -> Any:
        pieces = self._chunks[column.name]
        return pa.chunked_array([chunk for start in sorted(pieces) for chunk in pieces[start].chunks], column.arrow)
