"""What every layer emits: `span`, `mark`, and `operation` around a verb.

They go to the current thread's recorder; where there is none they cost next
to nothing. With NVTX tools attached each is an NVTX range too.
"""

from __future__ import annotations

import threading
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Literal

from .events import _CATEGORIES, NO_OPERATION, OperationRecord, Recorder, unknown_category
from .ranges import Ranges, open_domain


class ThreadState:
    """What one thread records into, and its innermost open span."""

    __slots__ = ("recorder", "thread", "top")

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.top: span | None = None
        self.thread = threading.get_ident()


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = ThreadState()


_local = _Local()
_ranges: Ranges | None = None
_ranges_looked_for = False


def _look_for_ranges() -> None:
    """Open NVTX on first use, so that importing this package does not load it."""
    global _ranges, _ranges_looked_for
    if not _ranges_looked_for:
        _ranges_looked_for = True
        domain = open_domain()
        _ranges = Ranges(domain) if domain is not None else None


def current_recorder() -> Recorder | None:
    """The recorder of this thread, or None."""
    return _local.state.recorder


def set_recorder(recorder: Recorder | None) -> Recorder | None:
    """Record this thread's spans from now on into ``recorder``; returns the one before."""
    state = _local.state
    before, state.recorder = state.recorder, recorder
    if recorder is not None:
        _look_for_ranges()
    return before


class recording:
    """``with recording(recorder):`` records this thread's spans into it, inside the block only."""

    __slots__ = ("_before", "_top", "recorder")

    def __init__(self, recorder: Recorder | None) -> None:
        self.recorder = recorder

    def __enter__(self) -> Recorder | None:
        state = _local.state
        # Spans of one recorder are not nested in those of another.
        self._top, state.top = state.top, None
        self._before = set_recorder(self.recorder)
        return self.recorder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        set_recorder(self._before)
        _local.state.top = self._top


class span:
    """``with span("partition", "algorithm", bytes=n, tier="device"):`` times its block.

    Parameters
    ----------
    name : str
        Inside an operation this is the phase that the time counts under.
    category : str, optional
        One of `categories`.
    bytes : int, optional
        What is moved or worked on. May also be set on the span before its end.
    tier : str, optional
        Where those bytes are or go.
    overlapping : bool, optional
        The span may end out of order or on another thread; its time is not taken from
        the spans around it.

    Raises
    ------
    ArgumentError
        If the category is unknown.
    """

    __slots__ = (
        "_inner_ns", "_parent", "_range", "_record", "_recorder", "_state",
        "bytes", "category", "name", "overlapping", "start_ns", "tier",
    )  # fmt: skip

    def __init__(
        self, name: str, category: str = "user", *, bytes: int = 0, tier: str = "", overlapping: bool = False
    ) -> None:
        if category not in _CATEGORIES:
            raise unknown_category(category)
        self.name = name
        self.category = category
        self.bytes = bytes
        self.tier = tier
        self.overlapping = overlapping

    def __enter__(self) -> span:
        self._state = state = _local.state
        self._recorder = recorder = state.recorder
        if recorder is None:
            return self
        self._record = recorder.active
        self._inner_ns = 0
        if not self.overlapping:
            self._parent = state.top
            state.top = self
        if _ranges is not None:
            self._open_range(_ranges)
        self.start_ns = perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> Literal[False]:
        recorder = self._recorder
        if recorder is None:
            return False
        end_ns = perf_counter_ns()
        start_ns = self.start_ns
        own_ns = end_ns - start_ns
        if _ranges is not None:
            self._close_range(_ranges)
        state = self._state
        if not self.overlapping:
            state.top = parent = self._parent
            if parent is not None:
                parent._inner_ns += own_ns
                # A span kept for later must not keep all spans that were around it.
                self._parent = None
            own_ns -= self._inner_ns
        record = self._record
        number = NO_OPERATION if record is None else record.number
        recorder.add(
            (self.name, self.category, start_ns, end_ns, number, self.bytes, self.tier, state.thread), record, own_ns
        )
        return False

    def _open_range(self, ranges: Ranges) -> None:
        if self.overlapping:
            self._range: Any = ranges.start(self.name, self.category)
        else:
            ranges.push(self.name, self.category)

    def _close_range(self, ranges: Ranges) -> None:
        if self.overlapping:
            ranges.end(self._range)
        else:
            ranges.pop()


def mark(name: str, category: str = "user", *, bytes: int = 0, tier: str = "") -> None:
    """Record an instant.

    Raises
    ------
    ArgumentError
        If the category is unknown.
    """
    if category not in _CATEGORIES:
        raise unknown_category(category)
    state = _local.state
    recorder = state.recorder
    if recorder is None:
        return
    now = perf_counter_ns()
    record = recorder.active
    number = NO_OPERATION if record is None else record.number
    recorder.add((name, category, now, now, number, bytes, tier, state.thread))
    if _ranges is not None:
        _ranges.mark(name, category)


class operation:
    """``with operation("shuffle", number) as record:`` records a verb; spans inside carry its number.

    An operation inside another gives its phases to the outer one too when it ends.

    Parameters
    ----------
    verb : str
    number : int
        The operation's number, the same on all ranks.
    recorder : Recorder, optional
        Used inside the block; by default this thread's. Without one the record is kept
        by nobody, but filled all the same.
    arguments : str, optional
        As the caller wrote them, for people.
    """

    __slots__ = ("_before", "_outer", "_owner", "_ranges", "record", "recorder")

    def __init__(self, verb: str, number: int, recorder: Recorder | None = None, *, arguments: str = "") -> None:
        self.recorder = recorder
        self.record = OperationRecord(number, verb, arguments)

    def __enter__(self) -> OperationRecord:
        state = _local.state
        self._before = state.recorder
        self._ranges = None
        self._outer = None
        if self.recorder is None:
            self.recorder = state.recorder
        if self.recorder is not None:
            set_recorder(self.recorder)
            self._ranges = _ranges
            self._outer, self._owner = self.recorder.active, self.recorder.owner
            self.record.start_ns = perf_counter_ns()
            self.recorder.owner, self.recorder.active = state, self.record
            if self._ranges is not None:
                self._ranges.push(self.record.verb, "algorithm")
        else:
            self.record.start_ns = perf_counter_ns()
        return self.record

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> Literal[False]:
        record, recorder = self.record, self.recorder
        record.end_ns = perf_counter_ns()
        if kind is not None and not record.error:
            record.error = f"{kind.__name__}: {error}"
        if recorder is not None:
            if self._ranges is not None:
                self._ranges.pop()
            recorder.finish(record, self._outer)
            recorder.owner = self._owner
            set_recorder(self._before)
        return False
