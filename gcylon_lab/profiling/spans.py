"""What every layer emits: `span`, `mark`, and `operation` around a verb.

They go to the current thread's recorder; where there is none they cost next
to nothing. With NVTX tools attached each is an NVTX range too.

A span is meant to cost little more than an empty ``with`` block: `span` is a
function because building an object through ``__init__`` takes longer than all
the rest, recording takes no lock, and rarer kinds of span are classes of their
own, not branches.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Literal, TypeVar

from gcylon_lab.config import LITERALS_VARIABLE, records_literals
from gcylon_lab.errors import (
    ArgumentError,
    BudgetExceeded,
    ColumnMissing,
    CommError,
    ConfigError,
    DuplicateColumns,
    GcylonError,
    SpillError,
    WriteError,
    note_left,
)

from .events import _CATEGORIES, NO_OPERATION, OperationRecord, Recorder, unknown_category
from .ranges import Ranges, open_domain

F = TypeVar("F", bound=Callable[..., Any])


class ThreadState:
    """What one thread records into, and its innermost open span."""

    __slots__ = ("recorder", "thread", "top")

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.top: Span | None = None
        self.thread = threading.get_ident()


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = ThreadState()


class Span:
    """A block being timed; made by `span`. ``bytes`` and ``tier`` may be set until its end."""

    __slots__ = ("_inner_ns", "_parent", "_recorder", "_state", "bytes", "category", "name", "start_ns", "tier")
    _inner_ns: int
    _parent: Span | None
    _recorder: Recorder
    _state: ThreadState
    bytes: int
    category: str
    name: str
    start_ns: int
    tier: str

    def __enter__(self) -> Span:
        state = self._state
        self._parent = state.top
        self._inner_ns = 0
        self.start_ns = perf_counter_ns()
        # Only now, complete: other threads read what a rank is in.
        state.top = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> Literal[False]:
        end_ns = perf_counter_ns()
        start_ns = self.start_ns
        own_ns = end_ns - start_ns
        state = self._state
        state.top = parent = self._parent
        if parent is not None:
            parent._inner_ns += own_ns
        name = self.name
        if error is not None:
            note_left(error, phase=name)
        nbytes = self.bytes
        recorder = self._recorder
        record = recorder.active
        if record is None:
            number = NO_OPERATION
        else:
            number = record.number
            own_ns -= self._inner_ns
            if record.owner is state:
                # As add_phase, without the call.
                phases = record.phases
                phases[name] = phases.get(name, 0) + own_ns
                if nbytes:
                    phases = record.phase_bytes
                    phases[name] = phases.get(name, 0) + nbytes
            else:
                record.add_elsewhere(name, own_ns, nbytes)
        recorder.append(
            (name, self.category, start_ns, end_ns, number, nbytes, self.tier, state.thread, recorder.next_number())
        )
        return False

    @property
    def overlapping(self) -> bool:
        """Whether it is outside the nesting."""
        return False

    def __call__(self, function: F) -> F:
        """Time every call of a function: ``@span("name")``. An async function's span overlaps those around it.

        Raises
        ------
        ArgumentError
            If it is a generator's function, whose body runs in pieces between those of its caller, or none at all.
        """
        name, category, nbytes, tier, overlapping = self.name, self.category, self.bytes, self.tier, self.overlapping
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ArgumentError(
                f"@span({name!r}) cannot time the generator {function.__qualname__}: its body runs in pieces, between "
                "those of its caller.",
                advice="Use `with span(...)` inside it, between two yields.",
            )
        if not callable(function) or isinstance(function, type):
            raise ArgumentError(
                f"@span({name!r}) expected a function, got {function!r}.",
                advice="Set it below @staticmethod, @classmethod and @property, directly above the function.",
            )
        timed: Callable[..., Any]
        # In the closure, not by its global name: a cluster runs a notebook's function among the names of its ranks.
        opened = span
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def timed(*args: Any, **kwargs: Any) -> Any:
                # Others of the thread's tasks run while it waits: their spans are not inside this one.
                with opened(name, category, bytes=nbytes, tier=tier, overlapping=True):
                    return await function(*args, **kwargs)
        else:

            @functools.wraps(function)
            def timed(*args: Any, **kwargs: Any) -> Any:
                with opened(name, category, bytes=nbytes, tier=tier, overlapping=overlapping):
                    return function(*args, **kwargs)

        return timed  # type: ignore[return-value]


class _IdleSpan(Span):
    """What a thread gets that records no spans."""

    __slots__ = ("_overlapping",)
    _overlapping: bool

    @property
    def overlapping(self) -> bool:
        """Whether it is outside the nesting."""
        return self._overlapping

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> Literal[False]:
        return False


class _RangeSpan(Span):
    """A span that is an NVTX range too."""

    __slots__ = ()

    def __enter__(self) -> Span:
        if _ranges is not None:
            _ranges.push(self.name, self.category)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> Literal[False]:
        super().__exit__(kind, error, tb)
        if _ranges is not None:
            _ranges.pop()
        return False


class _OverlappingSpan(Span):
    """A span outside the nesting: it may end out of order, or on another thread."""

    __slots__ = ("_range", "_record")

    @property
    def overlapping(self) -> bool:
        """Whether it is outside the nesting."""
        return True

    def __enter__(self) -> Span:
        self._record = self._recorder.active
        self._range: Any = _ranges.start(self.name, self.category) if _ranges is not None else None
        self.start_ns = perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> Literal[False]:
        end_ns, record, recorder = perf_counter_ns(), self._record, self._recorder
        if _ranges is not None:
            _ranges.end(self._range)
        number = NO_OPERATION
        if record is not None:
            number = record.number
            record.add_elsewhere(self.name, end_ns - self.start_ns, self.bytes)
        start_ns, thread = self.start_ns, self._state.thread
        recorder.append(
            (self.name, self.category, start_ns, end_ns, number, self.bytes, self.tier, thread, recorder.next_number())
        )
        return False


_local = _Local()
_new = object.__new__
_span_class: type[Span] = Span
_ranges: Ranges | None = None
_ranges_looked_for = False


def _look_for_ranges() -> None:
    """Open NVTX on first use, so that importing this package does not load it."""
    global _ranges, _ranges_looked_for, _span_class
    if not _ranges_looked_for:
        _ranges_looked_for = True
        domain = open_domain()
        _ranges = Ranges(domain) if domain is not None else None
        _span_class = Span if _ranges is None else _RangeSpan


def span(name: str, category: str = "user", *, bytes: int = 0, tier: str = "", overlapping: bool = False) -> Span:
    """Time a block: ``with span("partition", "algorithm", bytes=n, tier="device"):``; or a function: ``@span("load")``.

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
    if category not in _CATEGORIES:
        raise unknown_category(category)
    state = _local.state
    recorder = state.recorder
    if recorder is None or not recorder.spans:
        idle = _new(_IdleSpan)
        idle.name, idle.category, idle.bytes, idle.tier, idle._overlapping = name, category, bytes, tier, overlapping
        return idle
    made = _new(_OverlappingSpan if overlapping else _span_class)
    made.name = name
    made.category = category
    made.bytes = bytes
    made.tier = tier
    made._state = state
    made._recorder = recorder
    return made


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
    if recorder is None or not recorder.spans:
        return
    now = perf_counter_ns()
    record = recorder.active
    number = NO_OPERATION if record is None else record.number
    recorder.append((name, category, now, now, number, bytes, tier, state.thread, recorder.next_number()))
    if _ranges is not None:
        _ranges.mark(name, category)


def current_recorder() -> Recorder | None:
    """The recorder of this thread, or None."""
    return _local.state.recorder


def current_operation() -> OperationRecord | None:
    """The record of the operation that this thread's recorder is in, or None."""
    recorder = _local.state.recorder
    return None if recorder is None else recorder.active


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


class operation:
    """Record a verb: ``with operation("shuffle", number) as record:``; spans inside carry its number.

    An operation inside another gives its phases and its copies' times to the outer one too when it ends.

    Parameters
    ----------
    verb : str
    number : int
        The operation's number, the same on all ranks.
    recorder : Recorder, optional
        Used inside the block; by default this thread's. Without one the record is kept
        by nobody, and has no phases.
    arguments : str, optional
        As the caller wrote them, for people.
    """

    __slots__ = ("_range", "_recording", "_top", "record", "recorder")

    def __init__(self, verb: str, number: int, recorder: Recorder | None = None, *, arguments: str = "") -> None:
        self.recorder = recorder
        self.record = OperationRecord(number, verb, arguments)
        self._range: Ranges | None = None
        self._recording: recording | None = None

    def __enter__(self) -> OperationRecord:
        record, state = self.record, _local.state
        if self.recorder is not None and self.recorder is not state.recorder:
            self._recording = recording(self.recorder)
            self._recording.__enter__()
        self.recorder = state.recorder
        record.owner = state
        self._top = state.top
        record.start_ns = perf_counter_ns()
        if self.recorder is not None:
            outer = self.recorder.active
            record.outer = None if outer is None or outer.done else outer
            self.recorder.active = record
            self._range = _ranges
            if self._range is not None:
                self._range.push(record.verb, "algorithm")
        return record

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> Literal[False]:
        record = self.record
        if kind is not None and not record.error:
            record.error = _recorded(kind, error)
        record.finish(perf_counter_ns())
        # An interrupt may have cut a span's end short; what comes next must not nest in it.
        _local.state.top = self._top
        if self.recorder is not None:
            self._leave(self.recorder)
        if self._recording is not None:
            self._recording.__exit__(kind, error, tb)
        return False

    def _leave(self, recorder: Recorder) -> None:
        record, outer = self.record, self.record.outer
        if self._range is not None:
            self._range.pop()
        # In this order a reader on another thread may meet the record twice, but never miss it.
        recorder.operations.append(record)
        recorder.active = outer
        if outer is not None:
            for name, ns in record.phases.items():
                outer.add_phase(name, ns, record.phase_bytes.get(name, 0))
            outer.add_copies("exchange", record.exchange_copy_ns, record.exchange_wait_ns)
            outer.add_copies("staging", record.staging_copy_ns, record.staging_wait_ns)
        # A kept record must not keep all those around it.
        record.outer = None


# Their texts hold names, numbers and places alone; those of others may hold values of rows or of conditions.
_WITHOUT_VALUES = (BudgetExceeded, SpillError, CommError, ColumnMissing, DuplicateColumns, ConfigError, WriteError)


def _recorded(kind: type[BaseException], error: BaseException | None) -> str:
    """What a profile says of an error, which may be shown to others than those who made the call."""
    if error is None or isinstance(error, _WITHOUT_VALUES) or not isinstance(error, Exception) or records_literals():
        return f"{kind.__name__}: {error}"
    path = error.numbers.get("path") if isinstance(error, GcylonError) else None
    where = f" of {path}" if path else ""
    return f"{kind.__name__}{where} (its text may hold values: {LITERALS_VARIABLE}=1 records it)"
