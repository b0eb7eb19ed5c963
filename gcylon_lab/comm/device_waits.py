"""Waiting for work on a GPU without going deaf: events are polled, and so is the transport's revoke."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .transfer_times import TransferTimes
from .transport import Transport

_EAGER_S = 0.002
_PAUSE_S = 20e-6


class DeviceWaits:
    """Orders copy streams after a rank's own stream, and waits for either.

    Parameters
    ----------
    base : Transport
        Whose `check` raises where this rank must leave.
    streams : sequence of cupy.cuda.Stream
        On which copies run.
    """

    def __init__(self, base: Transport, streams: Sequence[Any]) -> None:
        import cupy

        self._cuda = cupy.cuda
        self._base = base
        self._streams = list(streams)
        self._events = [self._new_event() for _ in streams]
        self._own = self._new_event()
        self._written = False  # by kernels on the current stream, which are to be waited for as copies are
        self._times = TransferTimes(self._cuda, self._streams)

    def joined(self, other: DeviceWaits) -> DeviceWaits:
        """One for the streams of both."""
        return DeviceWaits(self._base, [*self._streams, *other._streams])

    def _new_event(self) -> Any:
        return self._cuda.Event(disable_timing=True)

    def let_streams_follow(self) -> None:
        """Let the copy streams wait, on the GPU, for what is queued on the current stream so far."""
        self._own.record(self._cuda.get_current_stream())
        for stream in self._streams:
            stream.wait_event(self._own)
        self._times.begin()

    def note_queued(self) -> None:
        """Say that all copies of an exchange are queued, so that they are timed."""
        self._times.end()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Time what is queued on the current stream within it, and wait for it too from now on."""
        self._times.begin(writing=True)
        self._written = True
        yield
        self._times.end()

    def for_current_stream(self) -> None:
        """Wait until the current stream is done."""
        self._own.record(self._cuda.get_current_stream())
        self._poll([self._own])

    def for_streams(self) -> None:
        """Wait until the copy streams are done, and what was written by kernels."""
        for event, stream in zip(self._events, self._streams, strict=True):
            event.record(stream)
        if self._written:
            self._times.end_writing()
            self._own.record(self._cuda.get_current_stream())
        began = time.perf_counter_ns()
        self._poll([*self._events, self._own] if self._written else self._events)
        self._written = False
        self._times.waited(time.perf_counter_ns() - began)

    def _poll(self, events: Sequence[Any]) -> None:
        start = time.monotonic()
        for event in events:
            while not event.done:
                self._base.check()
                if time.monotonic() - start > _EAGER_S:
                    time.sleep(_PAUSE_S)
