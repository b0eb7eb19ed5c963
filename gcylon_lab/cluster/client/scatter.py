"""Sending rows of the notebook to the ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...backends.arrow.foreign import plain_bytes, without_rows
from ...backends.arrow.interop import from_frame
from ...backends.arrow.tables import from_arrow
from ...backends.protocol.data import Columns, bounded, empty_columns, slice_columns
from ...config import GcylonConfig
from ...errors import ArgumentError
from ...formats.file_columns import ipc_dtypes
from ..channel.progress import moved
from ..handles.display_name import spoken
from ..handles.handle import DistTable
from ..messages import Request
from ..row_stream import MESSAGE_BYTES, Sending
from .session import Session

_FIRST_ROWS = 1_000  # of which it is seen how many bytes a row takes
_SMALL_BYTES = MESSAGE_BYTES // 2


@dataclass(frozen=True, slots=True)
class _Rows:
    """Something that rows can be cut off: how many it has, about how many bytes, and columns of some of them."""

    count: int
    nbytes: int
    columns: Callable[[int, int], Columns]


def scatter(session: Session, rows: Any, action: str, config: GcylonConfig | None) -> DistTable:
    """Collective on the ranks. See `Readers.scatter`."""
    whole = _rows_of(rows)
    is_frame = hasattr(rows, "iloc")
    size = session.launcher.n
    if whole is None and (isinstance(rows, (str, bytes, dict)) or not isinstance(rows, Iterable)):
        raise ArgumentError(
            f"scatter takes a frame, an Arrow table, or an iterable of such, not a {_named(rows)}.",
            advice="Pass pd.DataFrame(...), or a generator of frames.",
        )
    if whole is not None and is_frame and whole.nbytes <= _SMALL_BYTES:
        # Within the request itself: a stream of its own takes longer to begin.
        request = Request("from_local", kwargs={"config": config})
        return session.make(request, partial(DistTable, session), each=_shares(rows, size))
    if whole is not None:
        return _send(session, _Shared(whole, size), action, config, whole.count, -(-whole.nbytes // size))
    return _send(session, _Dealt(rows), action, config)


def send_columns(session: Session, data: Columns, action: str, config: GcylonConfig | None) -> DistTable:
    """Collective on the ranks. Share columns out evenly, in order."""
    size = session.launcher.n
    rows = _Rows(data.rows, data.nbytes, lambda start, stop: slice_columns(data, start, stop))
    return _send(session, _Shared(rows, size), action, config, data.rows, -(-data.nbytes // size))


def send_batches(
    session: Session, schema: Any, batches: Iterator[Any], rows: int | None, config: GcylonConfig | None
) -> DistTable:
    """Collective on the ranks. Share the rows of record batches out evenly, in order; one batch is here at a time.

    Parameters
    ----------
    session : Session
    schema : pyarrow.Schema
    batches : iterator of pyarrow.RecordBatch
    rows : int, optional
        How many there will be. Where that is not known all go to rank 0, which stages what does not fit, and are
        spread from there.
    config : GcylonConfig, optional

    Raises
    ------
    GcylonError
        If the ranks cannot take the rows; and whatever making the batches raises. No table is left then.
    """
    size = session.launcher.n
    stops = [] if rows is None else _edges(rows, size)[1:-1]
    table = _send(session, _InTurn(schema, batches, stops), "from_arrow", config, rows)
    if rows is not None or size == 1:
        return table
    try:
        return table.repartition(config=config)
    finally:
        table.release()


def _send(
    session: Session,
    source: Callable[[int, int], Columns | None],
    action: str,
    config: GcylonConfig | None,
    total: int | None = None,
    expected_bytes: int = 0,
) -> DistTable:
    """Send what a source gives; of so many rows in all, which take about so many bytes on a rank."""
    has_turn = source.has_turn if isinstance(source, _InTurn) else lambda rank: True
    with session.row_end() as end:
        sending = Sending(end, source, has_turn)
        session.waiting.told = lambda elapsed_s: moved(
            spoken(action), sending.sent_bytes, sending.sent_rows, total, elapsed_s
        )
        request = Request(action, args=(end.address, expected_bytes), kwargs={"config": config})
        try:
            return session.make(request, partial(DistTable, session), pump=sending)
        except Exception:
            if sending.error is not None:
                raise sending.error from None
            raise
        finally:
            session.waiting.told = None


def _rows_of(given: Any) -> _Rows | None:
    """What rows can be cut off; None for what gives pieces."""
    if hasattr(given, "iloc") and hasattr(given, "columns"):
        return _Rows(len(given), _frame_bytes(given), lambda start, stop: from_frame(given.iloc[start:stop]))
    if hasattr(given, "num_rows") and hasattr(given, "slice"):

        def columns(start: int, stop: int) -> Columns:
            return from_arrow(given.slice(start, stop - start), nullable=True)

        return _Rows(given.num_rows, given.nbytes, columns)
    return None


def _frame_bytes(frame: Any) -> int:
    """About how many bytes a frame's columns take, their objects counted in some rows."""
    objects = [place for place, dtype in enumerate(frame.dtypes) if str(dtype) == "object"]
    nbytes = int(frame.memory_usage(index=False).sum())
    some = min(len(frame), _FIRST_ROWS)
    if objects and some:
        nbytes += int(frame.iloc[:some, objects].memory_usage(index=False, deep=True).sum()) * len(frame) // some
    return nbytes


def _named(given: Any) -> str:
    return f"{type(given).__module__}.{type(given).__qualname__}"


def _shares(frame: Any, n: int) -> list[Any]:
    edges = _edges(len(frame), n)
    return [frame.iloc[start:stop] for start, stop in zip(edges, edges[1:], strict=False)]


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

    def next(self, most_bytes: int) -> Columns | None:
        """The next rows, at least once, be there none; None where there are no more."""
        if self._waiting:
            return self._waiting.popleft()
        if self._at >= self._stop and self._began:
            return None
        count = int(most_bytes / self._row_bytes) if self._row_bytes else _FIRST_ROWS
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
        self._cuts = [_Cut(rows, start, stop) for start, stop in zip(edges, edges[1:], strict=False)]

    def __call__(self, rank: int, most_bytes: int) -> Columns | None:
        return self._cuts[rank].next(most_bytes)


class _InTurn:
    """The rows of record batches in order: the shares of ranks, one rank after the other."""

    def __init__(self, schema: Any, batches: Iterator[Any], stops: Sequence[int]) -> None:
        self._dtypes = ipc_dtypes(schema)
        self._none = without_rows(schema, self._dtypes)
        self._batches = batches
        self._stops = list(stops)  # the rows before which shares end; all others are of the rank after these
        self._told: set[int] = set()
        self._turn = self._row = self._start = 0
        self._batch: Any = None
        self._waiting: deque[Columns] = deque()

    def has_turn(self, rank: int) -> bool:
        """Whether a rank's rows come next, or none do."""
        return rank not in self._told or rank <= self._turn

    def __call__(self, rank: int, most_bytes: int) -> Columns | None:
        if rank not in self._told:  # the columns, also where it gets no rows
            self._told.add(rank)
            return self._none
        if rank < self._turn:
            return None
        if not self._waiting:
            self._cut(most_bytes)
        if self._waiting:
            return self._waiting.popleft()
        self._turn += 1
        return None

    def _cut(self, most_bytes: int) -> None:
        """The next rows of the rank whose turn it is, if there are any."""
        left = self._stops[self._turn] - self._row if self._turn < len(self._stops) else None
        if left == 0:
            return
        if self._batch is None:
            self._batch, self._start = next(self._batches, None), 0
            if self._batch is None:
                return
        rows = self._batch.num_rows
        count = min(rows - self._start, max(1, most_bytes * rows // max(1, plain_bytes(self._batch)[0])))
        count = count if left is None else min(count, left)
        some = self._batch.slice(self._start, count)
        self._start, self._row = self._start + count, self._row + count
        if self._start == rows:
            self._batch = None
        data = from_arrow(some, self._dtypes, nullable=True, share=True)
        self._waiting.extend(bounded(data, 2 * most_bytes, None))


class _Dealt:
    """The rows of an iterable's pieces, for whichever rank asks first."""

    def __init__(self, pieces: Iterable[Any]) -> None:
        self._pieces: Iterator[Any] = iter(pieces)
        self._cut: _Cut | None = None
        self._empty: Columns | None = None
        self._given: set[int] = set()

    def __call__(self, rank: int, most_bytes: int) -> Columns | None:
        data = self._next(most_bytes)
        if data is not None:
            self._empty = self._empty or empty_columns(data.schema)
        elif rank not in self._given:
            data = self._empty  # a rank that gets no rows has the columns
        self._given.add(rank)
        return data

    def _next(self, most_bytes: int) -> Columns | None:
        while True:
            data = self._cut.next(most_bytes) if self._cut is not None else None
            if data is not None:
                return data
            piece = next(self._pieces, None)
            if piece is None:
                return None
            rows = _rows_of(piece)
            if rows is None:
                raise ArgumentError(
                    f"scatter got a {_named(piece)} among its pieces; expected frames or Arrow tables.",
                    advice="Let the iterable give pandas frames.",
                )
            self._cut = _Cut(rows, 0, rows.count)
