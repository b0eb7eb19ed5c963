"""Device memory by way of host memory: the last resort, where GPUs cannot reach each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from ..profiling import current_operation
from .device_overlay import Overlay
from .device_waits import DeviceWaits
from .transport import Receive, Send, Transport, Window

_TO_HOST = 2
_TO_DEVICE = 1


class HostStagedTransport(Overlay):
    """Copies what is sent to host memory, lets the transport beneath move it, and copies it up again.

    Parameters
    ----------
    base : Transport
        Moves host memory.
    take_host : callable
        Gives host memory of so many bytes, page-locked where it can: an object with ``view`` (a writable
        memoryview) and ``pointer``.
    """

    name = "host memory"

    def __init__(self, base: Transport, take_host: Callable[[int], Any]) -> None:
        super().__init__(base)
        import cupy

        self._runtime = cupy.cuda.runtime
        self._cuda = cupy.cuda
        self._take = take_host
        self._waits = DeviceWaits(base, [])
        self._begun: Any = cupy.cuda.Event()
        self._ended: Any = cupy.cuda.Event()

    def exchange(self, window: Window | None, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        """Collective: all ranks call it. Down, across and up; complete when it returns."""
        current = self._cuda.get_current_stream()
        stream = current.ptr
        self._begun.record(current)
        down = [self._take(max(send.view.nbytes, 1)) for send in sends]
        for send, buffer in zip(sends, down, strict=True):
            if send.view.nbytes:
                self._runtime.memcpyAsync(buffer.pointer, send.view.data.ptr, send.view.nbytes, _TO_HOST, stream)
        self._ended.record(current)
        self._waits.for_current_stream()
        began = perf_counter_ns()
        up = [self._take(max(receive.view.nbytes, 1)) for receive in receives]
        self.base.exchange(
            window,
            [Send(s.rank, b.view[: s.view.nbytes]) for s, b in zip(sends, down, strict=True)],
            [Receive(r.rank, b.view[: r.view.nbytes]) for r, b in zip(receives, up, strict=True)],
        )
        for receive, buffer in zip(receives, up, strict=True):
            if receive.view.nbytes:
                view = receive.view
                self._runtime.memcpyAsync(view.data.ptr, buffer.pointer, view.nbytes, _TO_DEVICE, stream)
        self._waits.for_current_stream()
        self._count(perf_counter_ns() - began)

    def _count(self, across_and_up_ns: int) -> None:
        """Count an exchange: all of it was waited for. Its time begins once the work before it is done."""
        record = current_operation()
        if record is not None:
            whole_ns = across_and_up_ns + int(1e6 * self._cuda.get_elapsed_time(self._begun, self._ended))
            record.add_copies("exchange", whole_ns, whole_ns)
