"""Copies between device and host that run beside the work: ordered by events, a few at a time, and timed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from ..profiling import current_operation
from .tiers.layout import Move

_ANY_KIND = 4  # cudaMemcpyDefault: the driver sees from the addresses what is where
_HIGHEST = -100  # cut to what the device has


@dataclass(slots=True)
class Traffic:
    """What one direction has moved, and how long it took."""

    nbytes: int = 0
    seconds: float = 0.0

    @property
    def bytes_per_s(self) -> float:
        """The rate while copies ran; 0 where nothing was moved."""
        return self.nbytes / self.seconds if self.seconds else 0.0

    def add(self, nbytes: int, seconds: float) -> None:
        """Count one copy."""
        self.nbytes += nbytes
        self.seconds += seconds


class Copy:
    """A copy in flight. It keeps what it reads and writes until it is done.

    Where ``beside`` is not set the stream is that of the work itself, which goes
    on only after the copy.
    """

    __slots__ = ("_begun", "_beside", "_ended", "_held", "_nbytes", "_record", "_traffic", "_wait_ns", "stream")

    def __init__(self, cuda: Any, stream: Any, held: Any, traffic: Traffic, *, beside: bool) -> None:
        self.stream = stream
        self._beside = beside
        self._record = current_operation()
        self._wait_ns = 0
        self._held: tuple[Any, ...] = (held,)
        self._nbytes = 0
        self._traffic = traffic
        self._begun: Any = cuda.Event()
        self._ended: Any = cuda.Event()

    def start(self, cuda: Any, moves: Sequence[Move]) -> None:
        """Put the copies on the stream."""
        self._begun.record(self.stream)
        try:
            for move in moves:
                cuda.runtime.memcpyAsync(move.target, move.source, move.nbytes, _ANY_KIND, self.stream.ptr)
                self._nbytes += move.nbytes
        finally:  # also after an error the copies that were begun go on
            self._ended.record(self.stream)

    @property
    def done(self) -> bool:
        """Whether all bytes are there."""
        return not self._held or bool(self._ended.done)

    def wait(self) -> None:
        """Wait until all bytes are there."""
        if self._held:
            began = perf_counter_ns()
            self._ended.synchronize()
            self._wait_ns += perf_counter_ns() - began

    def order_before(self, stream: Any) -> None:
        """Let what comes next on a stream see the bytes."""
        if self._held:
            stream.wait_event(self._ended)

    def count(self, cuda: Any) -> None:
        """Count a copy that is done."""
        elapsed_ms = cuda.get_elapsed_time(self._begun, self._ended)
        self._traffic.add(self._nbytes, elapsed_ms / 1e3)
        if self._record is not None:
            copy_ns = int(1e6 * elapsed_ms)
            # A wait ends with its copy, and may have begun before it: the shorter time is what they have in common.
            self._record.add_copies("staging", copy_ns, min(self._wait_ns, copy_ns) if self._beside else copy_ns)

    def let_go(self) -> None:
        """Keep no longer what a copy that is done has kept."""
        self._held = ()


class CopyQueue:
    """The copies of one rank.

    Down copies run on a stream of their own, up copies on the caller's.

    Parameters
    ----------
    most_in_flight : int, optional
        Down copies that may be under way; one more waits for the oldest. The
        device memory that they read cannot be used again before they are done.
    """

    def __init__(self, most_in_flight: int = 8) -> None:
        import cupy

        self._cuda: Any = cupy.cuda
        self._most = most_in_flight
        self._lock = threading.Lock()
        self._flying: list[Copy] = []
        self._stream: Any = cupy.cuda.Stream(non_blocking=True, priority=_HIGHEST)
        self.down_traffic = Traffic()
        self.up_traffic = Traffic()

    def down(self, moves: Sequence[Move], held: Any, after: Sequence[Copy] = ()) -> Copy:
        """Copy from the device, after what the caller's current stream holds already, and beside what comes later.

        Parameters
        ----------
        moves : sequence of Move
            What to copy.
        held : object
            Kept until it is done: what is read and what is written.
        after : sequence of Copy
            Copies that must be done before.
        """
        while len(flying := self._down_flying()) >= self._most:
            flying[0].wait()
            self.poll()
        self._stream.wait_event(self._cuda.get_current_stream().record())
        return self._start(self._stream, moves, held, after, self.down_traffic, beside=True)

    def up(self, moves: Sequence[Move], held: Any, after: Sequence[Copy] = ()) -> Copy:
        """Copy to the device on the caller's current stream; parameters as of `down`."""
        self.poll()
        return self._start(self._cuda.get_current_stream(), moves, held, after, self.up_traffic, beside=False)

    def poll(self) -> int:
        """Let go of what copies that are done have kept; returns how many are still in flight."""
        with self._lock:
            ended = [copy for copy in self._flying if copy.done]
            self._flying = [copy for copy in self._flying if copy not in ended]
            for copy in ended:
                copy.count(self._cuda)
            left = len(self._flying)
        for copy in ended:  # without the lock: what is collected now may do anything
            copy.let_go()
        return left

    def flush(self) -> None:
        """Wait for all copies, and let go of what they kept."""
        for copy in list(self._flying):
            copy.wait()
        self.poll()

    def _down_flying(self) -> list[Copy]:
        self.poll()
        return [copy for copy in list(self._flying) if copy.stream is self._stream]

    def _start(
        self, stream: Any, moves: Sequence[Move], held: Any, after: Sequence[Copy], traffic: Traffic, *, beside: bool
    ) -> Copy:
        for copy in after:
            copy.order_before(stream)
        copy = Copy(self._cuda, stream, held, traffic, beside=beside)
        with self._lock:
            try:
                copy.start(self._cuda, moves)
            finally:
                self._flying.append(copy)
        return copy
