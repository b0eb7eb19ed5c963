"""`operation`: the block around a verb."""

from __future__ import annotations

from time import perf_counter_ns
from types import TracebackType
from typing import Literal

from ..config import LITERALS_VARIABLE, records_literals
from ..errors import (
    BudgetExceeded,
    ColumnMissing,
    CommError,
    ConfigError,
    DuplicateColumns,
    GcylonError,
    SpillError,
    WriteError,
)
from . import spans
from .events import OperationRecord, Recorder
from .ranges import Ranges


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
        self._recording: spans.recording | None = None

    def __enter__(self) -> OperationRecord:
        record, state = self.record, spans._local.state
        if self.recorder is not None and self.recorder is not state.recorder:
            self._recording = spans.recording(self.recorder)
            self._recording.__enter__()
        self.recorder = state.recorder
        record.owner = state
        self._top = state.top
        record.start_ns = perf_counter_ns()
        if self.recorder is not None:
            outer = self.recorder.active
            record.outer = None if outer is None or outer.done else outer
            self.recorder.active = record
            self._range = spans._ranges
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
        spans._local.state.top = self._top
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
