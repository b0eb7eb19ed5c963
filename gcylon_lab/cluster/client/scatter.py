"""Sending rows of the notebook to the ranks."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...backends.arrow.foreign import is_of_pyarrow, name_of, open_stream, read_batches, without_rows
from ...backends.arrow.interop import from_frame
from ...backends.arrow.named_arrays import from_columns
from ...backends.arrow.tables import from_arrow
from ...backends.protocol.data import Columns, bounded, empty_columns, slice_columns
from ...config import GcylonConfig
from ...errors import ArgumentError, raised_as
from ...formats.file_columns import ipc_dtypes
from ..channel.progress import moved
from ..handles.display_name import spoken
from ..handles.handle import DistTable
from ..messages import Reply, Request
from ..row_stream import MESSAGE_BYTES, NotebookEnd, RowSource, Sending, ThreadedSource
from .session import Session

_FIRST_ROWS = 1_000  # of which it is seen how many bytes a row takes
_SMALL_BYTES = MESSAGE_BYTES // 2
_OBJECT_BYTES = sys.getsizeof("")  # of an object beside its text


def scatter(session: Session, rows: Any, config: GcylonConfig | None) -> DistTable:
    """Send whatever has rows. See `Readers.scatter`."""
    whole = _sliceable(rows)
    if whole is not None:
        return _send_whole(session, whole, "scatter", config)
    return _send(session, _dealt(rows, "scatter"), "scatter", config)


def append(session: Session, name: str, rows: Any) -> list[Reply]:
    """Append rows to what `Cluster.empty` began, evenly spread or as they come."""
    rows = from_columns(rows) if isinstance(rows, Mapping) else rows
    whole = _of_columns(rows) if isinstance(rows, Columns) else _sliceable(rows)
    if whole is None:
        source: RowSource = _dealt(rows, "append")
    else:
        source = _Shared(whole, session.launcher.n)
    with session.row_end() as end, _feeding(session, end, source, "append", None) as sending, _told_by(sending):
        return session.call(Request("append", name, args=(end.address,)), pump=sending)


def _dealt(rows: Any, verb: str) -> RowSource:
    if isinstance(rows, (str, bytes, dict)) or not (_has_rows(rows) or isinstance(rows, Iterable)):
        raise ArgumentError(
            f"Expected a frame, Arrow data or an iterable of such for {verb}, got a {type(rows).__qualname__}.",
            advice="Give pd.DataFrame(...), or a generator of frames.",
        )
    return _Dealt(_pieces(rows) if _has_rows(rows) else (piece for one in rows for piece in _pieces(one)))


def spread_frame(session: Session, frame: Any, config: GcylonConfig | None) -> DistTable:
    """Spread a frame evenly over the ranks, in order. See `Readers.from_pandas`."""
    rows = _of_frame(frame)
    if rows.bytes_of(0, rows.count) > _SMALL_BYTES:
        return _send_whole(session, rows, "from_local", config)
    # Within the request itself: a stream of its own takes longer to begin.
    edges = _edges(rows.count, session.launcher.n)
    each = [frame.iloc[start:stop] for start, stop in zip(edges, edges[1:], strict=False)]
    return session.make(Request("from_local", kwargs={"config": config}), partial(DistTable, session), each=each)


def spread_columns(session: Session, columns: Columns, config: GcylonConfig | None) -> DistTable:
    """Spread columns evenly over the ranks, in order. See `Readers.from_columns`."""
    return _send_whole(session, _of_columns(columns), "from_columns", config)


def spread_arrow(session: Session, source: Any, config: GcylonConfig | None) -> DistTable:
    """Spread Arrow data evenly over the ranks, in order. See `Readers.from_arrow`."""
    whole = None if hasattr(source, "iloc") else _sliceable(source)
    if whole is not None:
        return _send_whole(session, whole, "from_arrow", config)
    reader = open_stream(source)
    known = (getattr(source, name, None) for name in ("num_rows", "height"))
    count = next((n for n in known if isinstance(n, int)), None)
    return spread_batches(session, reader.schema, read_batches(reader, name_of(source)), count, config)


def spread_batches(
    session: Session, schema: Any, batches: Iterable[Any], count: int | None, config: GcylonConfig | None
) -> DistTable:
    """Spread record batches evenly over the ranks, in order: by rank 0, where the number of their rows is not known."""
    n = session.launcher.n
    rows = _InOrder(_of_batches(schema, batches), None if count is None else _edges(count, n)[1:-1])
    return _send(session, rows, "from_arrow", config, count=count, spread=count is None and n > 1)


def _send_whole(session: Session, rows: _Rows, action: str, config: GcylonConfig | None) -> DistTable:
    source = _Shared(rows, session.launcher.n)
    return _send(session, source, action, config, count=rows.count, most_bytes=source.most_bytes)


def _send(
    session: Session,
    source: RowSource,
    action: str,
    config: GcylonConfig | None,
    *,
    count: int | None = None,
    most_bytes: int = 0,
    spread: bool = False,
) -> DistTable:
    """Send the rows of a source, of which there are so many, and a rank gets so many bytes, where that is known."""
    with session.row_end() as end, _feeding(session, end, source, action, count) as sending, _told_by(sending):
        arguments = (end.address, most_bytes, spread)
        request = Request(action, args=arguments, kwargs={"config": config})
        return session.make(request, partial(DistTable, session), pump=sending)


def _told_by(sending: Sending) -> raised_as:
    """Around the request: what sending raised is raised, and not what came of it."""
    return raised_as(lambda _: sending.error)


@contextmanager
def _feeding(
    session: Session, end: NotebookEnd, source: RowSource, action: str, count: int | None
) -> Iterator[Sending]:
    """Inside, a request may send the rows of a source.

    In the caller's own thread they are made there, where an interrupt strikes what makes them, and what belongs to a
    thread, as connections of sqlite3 do, can be read. A future's rows belong to no thread: what blocks is left to one
    of its own, so that the future can be cancelled.
    """
    threaded = ThreadedSource(source, session.alone) if session.is_later else None
    sending = Sending(end, threaded or source)
    session.waiting.told = lambda elapsed_s: moved(
        spoken(action), sending.sent_bytes, sending.sent_rows, count, elapsed_s
    )
    try:
        yield sending
    finally:
        session.waiting.told = None
        if threaded is not None:
            threaded.close()


# ---- what has rows


@dataclass(frozen=True, slots=True)
class _Rows:
    """Something that rows can be cut off: how many it has, about how many bytes some take, and columns of them."""

    count: int
    bytes_of: Callable[[int, int], int]
    columns: Callable[[int, int], Columns]


def _has_rows(given: Any) -> bool:
    return any(hasattr(given, name) for name in ("iloc", "__arrow_c_stream__", "__arrow_c_array__"))


def _sliceable(given: Any) -> _Rows | None:
    """A frame of pandas, or a table of pyarrow; None for what is neither."""
    if hasattr(given, "iloc"):
        return _of_frame(given)
    if is_of_pyarrow(given) and hasattr(given, "num_rows") and hasattr(given, "slice"):
        return _of_arrow(given)
    return None


def _pieces(given: Any) -> Iterator[_Rows]:
    rows = _sliceable(given)
    if rows is not None:
        yield rows
    elif _has_rows(given):
        yield from _of_stream(given)
    else:
        raise ArgumentError(
            f"Expected frames or Arrow data among the pieces for scatter, got a {type(given).__qualname__}.",
            advice="Let the iterable give pandas frames.",
        )


def _of_columns(columns: Columns) -> _Rows:
    cut = partial(slice_columns, columns)
    return _Rows(columns.rows, lambda start, stop: cut(start, stop).nbytes, cut)


def _of_frame(frame: Any) -> _Rows:
    return _Rows(
        len(frame),
        lambda start, stop: _frame_bytes(frame.iloc[start:stop]),
        lambda start, stop: from_frame(frame.iloc[start:stop]),
    )


def _frame_bytes(frame: Any) -> int:
    """About how many bytes a frame's columns take: of objects their text, and an offset instead of the reference."""
    objects = sum(str(dtype) == "object" for dtype in frame.dtypes)
    nbytes = int(frame.memory_usage(index=False, deep=bool(objects)).sum())
    return max(0, nbytes - objects * len(frame) * _OBJECT_BYTES)


def _of_arrow(table: Any) -> _Rows:
    """A table or record batch of pyarrow."""
    dtypes = ipc_dtypes(table.schema)

    def columns(start: int, stop: int) -> Columns:
        return from_arrow(table.slice(start, stop - start), dtypes, nullable=True)

    without_rows(table.schema, dtypes)  # which says what cannot be held
    return _Rows(table.num_rows, lambda start, stop: int(table.slice(start, stop - start).nbytes), columns)


def _of_stream(source: Any) -> Iterator[_Rows]:
    """The batches of whatever speaks Arrow's C interface."""
    reader = open_stream(source)
    return _of_batches(reader.schema, read_batches(reader, name_of(source)))


def _of_batches(schema: Any, batches: Iterable[Any]) -> Iterator[_Rows]:
    """No rows of the columns first, so that what cannot be held is told before a batch is made."""
    none = _of_arrow(schema.empty_table())
    return (rows for part in ([none], map(_of_arrow, batches)) for rows in part)


# ---- which rank gets what


def _edges(rows: int, n: int) -> list[int]:
    """Where rows are cut for n ranks: where they do not divide, the first hold one more."""
    each, more = divmod(rows, n)
    return [rank * each + min(rank, more) for rank in range(n + 1)]


class _Cut:
    """Cuts rows off, so many at a time as take about so many bytes."""

    def __init__(self, rows: _Rows, start: int, stop: int) -> None:
        self._rows = rows
        self._at, self._stop = start, stop
        self._row_bytes = 0.0
        self._waiting: deque[Columns] = deque()
        self._began = False

    def next(self, most_bytes: int, most_rows: int | None = None) -> Columns | None:
        """The next rows, at least once, be there none; None where there are no more."""
        if self._waiting:
            return self._waiting.popleft()
        if self._at >= self._stop and self._began:
            return None
        count = int(most_bytes / self._row_bytes) if self._row_bytes else _FIRST_ROWS
        count = count if most_rows is None else min(count, most_rows)
        end = min(self._stop, self._at + max(1, count))
        data = self._rows.columns(self._at, end)
        self._at, self._began = end, True
        self._row_bytes = max(1.0, data.nbytes / max(1, data.rows))
        self._waiting.extend(bounded(data, 2 * most_bytes, None))
        return self._waiting.popleft()


class _Shared:
    """The rows of one frame or table: each rank's share, in order."""

    def __init__(self, rows: _Rows, size: int) -> None:
        edges = _edges(rows.count, size)
        shares = list(zip(edges, edges[1:], strict=False))
        self._cuts = [_Cut(rows, start, stop) for start, stop in shares]
        self.most_bytes = max(rows.bytes_of(start, stop) for start, stop in shares)

    def waits(self, rank: int) -> bool:
        """Every rank has a share of its own."""
        return False

    def next(self, rank: int, most_bytes: int) -> Columns | None:
        """Of the rank's share."""
        return self._cuts[rank].next(most_bytes)


class _Pieces:
    """The rows of pieces, one after the other; a rank that gets none is given the columns all the same."""

    def __init__(self, pieces: Iterator[_Rows]) -> None:
        self._pieces = pieces
        self._cut: _Cut | None = None
        self._none: Columns | None = None
        self._given: set[int] = set()

    def cut(self, rank: int, most_bytes: int, most_rows: int | None = None) -> Columns | None:
        """The next rows; without any where a rank has none, None once it knows the columns."""
        data = None if most_rows == 0 else self._next(most_bytes, most_rows)
        if data is None:
            data = None if rank in self._given else self._none
        self._given.add(rank)
        return data

    def _next(self, most_bytes: int, most_rows: int | None) -> Columns | None:
        while True:
            data = None if self._cut is None else self._cut.next(most_bytes, most_rows)
            if data is not None:
                self._none = self._none or empty_columns(data.schema)
                if data.rows:
                    return data
                continue
            piece = next(self._pieces, None)
            if piece is None:
                return None
            self._cut = _Cut(piece, 0, piece.count)


class _Dealt:
    """The rows of pieces, for whichever rank asks first."""

    def __init__(self, pieces: Iterator[_Rows]) -> None:
        self._pieces = _Pieces(pieces)

    def waits(self, rank: int) -> bool:
        """The next rows are for any rank."""
        return False

    def next(self, rank: int, most_bytes: int) -> Columns | None:
        """The next ones."""
        return self._pieces.cut(rank, most_bytes)


class _InOrder:
    """The rows of pieces in order: up to the first stop for rank 0, and so on. All for rank 0 without stops."""

    def __init__(self, pieces: Iterator[_Rows], stops: list[int] | None) -> None:
        self._pieces = _Pieces(pieces)
        self._stops = stops
        self._rank = self._row = 0

    def waits(self, rank: int) -> bool:
        """Whether a rank before has not got its share yet."""
        return rank > self._rank

    def next(self, rank: int, most_bytes: int) -> Columns | None:
        """Of the rank's share."""
        left = None
        if rank < self._rank or (self._stops is None and rank):
            left = 0
        elif self._stops is not None and rank < len(self._stops):
            left = self._stops[rank] - self._row
        data = self._pieces.cut(rank, most_bytes, left)
        self._row += 0 if data is None else data.rows
        if data is None:
            self._rank = max(self._rank, rank + 1)
        return data
