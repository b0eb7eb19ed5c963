"""How long queued copies were under way, and how much of that their rank waited for, by events on their streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..profiling import OperationRecord, current_operation


class TransferTimes:
    """Times what is queued between `begin` and an end, and counts it in the operation it belongs to.

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
        self._begun: Any = cuda.Event()
        self._of_copies: list[Any] = [cuda.Event() for _ in streams]
        self._of_writing: Any = cuda.Event()
        self._ended: list[Any] = []  # those of these that end the stretch that is under way
        self._record: OperationRecord | None = None

    def begin(self) -> None:
        """Note on the current stream, which the copy streams wait for, when the copies may begin."""
        if self._ended:
            if not all(event.done for event in self._ended):
                return  # one stretch with those before, which are still under way
            self.waited(0)
        self._record = current_operation()
        self._begun.record(self._cuda.get_current_stream())

    def end_copies(self) -> None:
        """Note on the copy streams when what has been queued is done."""
        if self._record is not None:
            for event, stream in zip(self._of_copies, self._streams, strict=True):
                event.record(stream)
            self._ended = [event for event in self._ended if event is self._of_writing] + self._of_copies

    def end_writing(self) -> None:
        """Note on the current stream when what has been queued there is done."""
        if self._record is not None:
            self._of_writing.record(self._cuda.get_current_stream())
            if not self._ended or self._ended[0] is not self._of_writing:
                self._ended = [self._of_writing, *self._ended]

    def waited(self, wait_ns: int) -> None:
        """Count what was queued, all of it done by now, after its rank did nothing for so long but wait for it."""
        if not self._ended or self._record is None:
            return
        # The wait ended with the last copy, so that the shorter of the two times is what they have in common.
        copy_ns = max(int(1e6 * self._cuda.get_elapsed_time(self._begun, event)) for event in self._ended)
        self._record.add_copies("exchange", copy_ns, min(wait_ns, copy_ns))
        self._ended = []
