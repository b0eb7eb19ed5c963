"""Sending rows of the notebook to the ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...backends.arrow.interop import from_frame
from ...backends.arrow.tables import from_arrow
from ...backends.protocol.data import Columns, bounded, empty_columns
from ...config import GcylonConfig
from ...errors import ArgumentError
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
    source = _Dealt(rows) if whole is None else _Shared(whole, size)
    total = None if whole is None else whole.count
    with session.row_end() as end:
        sending = Sending(end, source)
        session.waiting.told = lambda elapsed_s: moved(
            spoken(action), sending.sent_bytes, sending.sent_rows, total, elapsed_s
        )
        expected_bytes = 0 if whole is None else -(-whole.nbytes // size)
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
