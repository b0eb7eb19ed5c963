"""Sending record batches to the ranks: in messages of some megabytes, each taken in before the next is sent."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...backends.arrow.foreign import plain_bytes
from ...config import GcylonConfig
from ...units import MIB
from ..messages import Request

if TYPE_CHECKING:
    from ..handles.handle import DistTable
    from .session import Session

MESSAGE_BYTES = 4 * MIB
_LABELS_IN_MESSAGE = 4  # a message takes its dictionaries along, and shall not be made of them


def send_stream(
    session: Session, schema: Any, batches: Iterator[Any], rows: int | None, config: GcylonConfig | None
) -> DistTable:
    """Share the rows of a stream out evenly, in order. Here one batch and one message are in memory at a time.

    Parameters
    ----------
    session : Session
    schema : pyarrow.Schema
    batches : iterator of pyarrow.RecordBatch
    rows : int, optional
        How many there will be. Where that is not known all go to rank 0 first, which stages what does not fit, and are
        spread from there.
    config : GcylonConfig, optional
        Of the whole transfer.

    Raises
    ------
    GcylonError
        What a rank could not take in, or what making the batches raised. Nothing is kept on any rank then.
    """
    from ..handles.handle import DistTable

    n, incoming = session.launcher.n, session.new_id()
    try:
        # Also where there are no rows: the ranks learn of the columns.
        session.call(Request("receive", args=(incoming, config)), each=[_message(schema, [])] * n)
        for rank, slices in _messages(batches, _stops(rows, n)):
            each: list[Any] = [None] * n
            each[rank] = _message(schema, slices)
            del slices
            replies = session.call(Request("receive", args=(incoming, config)), each=each)
            if not all(reply.value for reply in replies):
                break  # the ranks say what it was, all of them
        request = Request("from_arrow", args=(incoming, config, rows is None and n > 1))
        return session.make(request, partial(DistTable, session))
    except BaseException:
        session.drop(incoming)
        raise


def _stops(rows: int | None, n: int) -> list[int]:
    """The rows before which each rank's share ends, but for the last one's, who gets all others: rank 0 where it is not
    known how many there are."""
    if rows is None:
        return []
    each, more = divmod(rows, n)
    return [(rank + 1) * each + min(rank + 1, more) for rank in range(n - 1)]


def _messages(batches: Iterator[Any], stops: list[int]) -> Iterator[tuple[int, list[Any]]]:
    """Slices of batches that make a message together, and the rank that they are for."""
    held: list[Any] = []
    rank = row = nbytes = 0
    for batch in batches:
        plain, labels = plain_bytes(batch)
        room = max(MESSAGE_BYTES, _LABELS_IN_MESSAGE * labels)
        row_bytes = max(1, plain // batch.num_rows)
        start = 0
        while start < batch.num_rows:
            while rank < len(stops) and row >= stops[rank]:
                if held:
                    yield rank, held
                held, nbytes, rank = [], 0, rank + 1
            count = min(batch.num_rows - start, max(1, (room - nbytes) // row_bytes))
            if rank < len(stops):
                count = min(count, stops[rank] - row)
            held.append(batch.slice(start, count))
            start, row, nbytes = start + count, row + count, nbytes + count * row_bytes
            if nbytes + row_bytes > room:
                yield rank, held
                held, nbytes = [], 0
        del batch  # the next one is made before this name is given another
    if held:
        yield rank, held


def _message(schema: Any, batches: list[Any]) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue())
