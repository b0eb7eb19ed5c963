"""How long queued copies were under way, and how much of that their rank waited for, by events on their streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..profiling import OperationRecord, current_operation

_MOST_PENDING = 64

Interval = tuple[float, float]


class _Batch:
    """What was queued in one go: when it might begin, when its rank was free for other work, when it ended."""

    __slots__ = ("begun", "ended", "free", "record")

    def __init__(self, cuda: Any, streams: int) -> None:
        self.begun: Any = cuda.Event()
        # A kernel is queued in no time: what it writes has no event for that.
        self.free: Any = cuda.Event() if streams else self.begun
        self.ended: list[Any] = [cuda.Event() for _ in range(max(streams, 1))]
        self.record: OperationRecord | None = None

    @property
    def writing(self) -> bool:
        """Whether kernels write it, and not copies."""
        return self.free is self.begun

    @property
    def done(self) -> bool:
        return bool(self.begun.done and self.free.done and all(event.done for event in self.ended))

    def after(self, cuda: Any, origin: Any) -> Interval:
        """From when to when it was under way beside a rank that had queued all of it, in ms after an event."""
        begun = max(float(cuda.get_elapsed_time(origin, event)) for event in (self.begun, self.free))
        ended = max(float(cuda.get_elapsed_time(origin, event)) for event in self.ended)
        return begun, max(begun, ended)


class TransferTimes:
    """Times what is queued between `begin` and `end`, and counts it in the operation it belongs to.

    Transfers are under way from when their rank has queued all of them, and could go
    on with other work, to the end of the last. What is done while the rank still
    queues (NCCL may connect first, for a long time) is neither waited for nor hidden.

    The events are read only after a wait that was made anyway has found them
    done: nothing is waited for here.

    Parameters
    ----------
    cuda : module
        ``cupy.cuda``.
    streams : sequence of cupy.cuda.Stream
        On which the copies run.
    """

    def __init__(self, cuda: Any, streams: Sequence[Any]) -> None:
        self._cuda = cuda
        self._streams = list(streams)
        # Nothing ever runs on it, so that an event on it tells when the host came by.
        self._idle: Any = cuda.Stream(non_blocking=True) if self._streams else None
        self._pending: list[_Batch] = []
        self._spare: dict[int, list[_Batch]] = {0: [], len(self._streams): []}  # by streams
        self._open: _Batch | None = None

    def begin(self, *, writing: bool = False) -> None:
        """Note on the current stream, which the copy streams wait for, when transfers may begin.

        With ``writing`` they are kernels on the current stream itself.
        """
        record = current_operation()
        if self._pending and (self._pending[0].record is not record or len(self._pending) >= _MOST_PENDING):
            self._count_without_wait()
        self._open = None
        if writing and self._pending and self._pending[-1].writing:
            # One stretch up to the next wait: an event between kernels lets the GPU wait until all that the first has
            # written has arrived, which was seen to cost a tenth of a shuffle in 16 rounds.
            self._open = self._pending.pop()
        elif record is not None and self._streams:
            streams = 0 if writing else len(self._streams)
            spare = self._spare[streams]
            self._open = spare.pop() if spare else _Batch(self._cuda, streams)
            self._open.record = record
            self._open.begun.record(self._cuda.get_current_stream())

    def end(self) -> None:
        """Note when what has been queued is done, and that the rank is free now."""
        batch, self._open = self._open, None
        if batch is None:
            return
        if not batch.writing:
            for event, stream in zip(batch.ended, self._streams, strict=True):
                event.record(stream)
            batch.free.record(self._idle)
        self._pending.append(batch)

    def end_writing(self) -> None:
        """Note on the current stream when all that kernels write is done, before that is waited for."""
        for batch in self._pending:
            if batch.writing:
                batch.ended[0].record(self._cuda.get_current_stream())

    def waited(self, wait_ns: int) -> None:
        """Count what was queued, after its rank did nothing for so long but wait until it was done."""
        batches, self._pending = self._pending, []
        if not batches or not all(batch.done for batch in batches):
            return
        copy_ms, wait_ms = _times([batch.after(self._cuda, batches[0].begun) for batch in batches], wait_ns / 1e6)
        record = batches[0].record
        if record is not None:
            record.add_copies("exchange", int(1e6 * copy_ms), int(1e6 * wait_ms))
        for batch in batches:
            self._spare[0 if batch.writing else len(self._streams)].append(batch)

    def _count_without_wait(self) -> None:
        """Count what nobody has waited for and has ended by itself; what has not is of an operation that failed."""
        self._pending = [batch for batch in self._pending if batch.done]
        self.waited(0)


def _times(intervals: Sequence[Interval], wait_ms: float) -> tuple[float, float]:
    """Return the time that intervals cover, each moment once, and how much of it was in a wait for the last one."""
    wait_from = max(end for _, end in intervals) - wait_ms
    covered = waited = 0.0
    reached = float("-inf")
    for start, end in sorted(intervals):
        start = max(start, reached)
        if end > start:
            covered += end - start
            waited += max(0.0, end - max(start, wait_from))
            reached = end
    return covered, waited
