"""How long queued copies were under way, and how much of that their rank waited for, by events on their streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..profiling import OperationRecord, current_operation


class TransferTimes:
    """Times the copies that are queued between `begin` and `end`, and counts them in the operation they belong to.

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
        self._ended: list[Any] = [cuda.Event() for _ in streams]
        self._record: OperationRecord | None = None
        self._queued = False

    def begin(self) -> None:
        """Note on the current stream, which the copy streams wait for, when the copies may begin."""
        if self._queued:
            if not all(event.done for event in self._ended):
                return  # one stretch with those before, which are still under way
            self.waited(0)
        self._record = current_operation()
        self._begun.record(self._cuda.get_current_stream())

    def end(self) -> None:
        """Note on the copy streams when what has been queued is done."""
        if self._record is not None:
            for event, stream in zip(self._ended, self._streams, strict=True):
                event.record(stream)
            self._queued = True

    def waited(self, wait_ns: int) -> None:
        """Count what was queued, all of it done by now, after its rank did nothing for so long but wait for it."""
        if not self._queued or self._record is None:
            return
        self._queued = False
        # The wait ended with the last copy, so that the shorter of the two times is what they have in common.
        copy_ns = max(int(1e6 * self._cuda.get_elapsed_time(self._begun, event)) for event in self._ended)
        self._record.add_copies("exchange", copy_ns, min(wait_ns, copy_ns))
