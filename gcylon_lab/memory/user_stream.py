"""A stream for a user's own GPU work, in order with the engine's: after what is queued there, before what follows."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any, Self

from ..profiling import Span, span
from ..profiling.events import hidden_share


class UserEvent:
    """A moment in the work of a stream; on CPU engines, where nothing is queued, it has passed already."""

    def __init__(self, event: Any, cuda: Any, now_ns: int) -> None:
        self._event, self._cuda, self._now_ns = event, cuda, now_ns

    @property
    def done(self) -> bool:
        """Whether all that was queued before it is done."""
        return self._event is None or bool(self._event.done)

    def wait(self) -> None:
        """Wait until all that was queued before it is done."""
        if self._event is not None:
            self._event.synchronize()

    def seconds_since(self, earlier: UserEvent) -> float:
        """The time between two events of one rank, as the device measured it; waits for both."""
        if self._event is None or earlier._event is None:
            return (self._now_ns - earlier._now_ns) / 1e9
        self.wait()
        earlier.wait()
        return float(self._cuda.get_elapsed_time(earlier._event, self._event)) / 1e3


class UserStream:
    """A block in which CuPy and numba-cuda work on a stream of its own; made by `Context.stream`.

    Attributes
    ----------
    stream : cupy.cuda.Stream or None
        None on CPU engines, where code runs in order by itself and the block does nothing.
    why : str
        What it does on this engine, in words.
    """

    def __init__(self, name: str, *, on_gpu: bool) -> None:
        self._name = name
        self.stream: Any = None
        self._cuda: Any = None
        self._engine: tuple[Any, ...] = ()
        self.why = "nothing: this is a CPU engine, on which code runs in order by itself"
        if on_gpu:
            import cupy

            self._cuda = cupy.cuda
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.why = "work on a stream of its own, which waits for the engine's work, and which that waits for"
        self._begun: UserEvent | None = None
        self._ended: UserEvent | None = None
        self._waited_ns = 0
        self._span: Span | None = None

    def __enter__(self) -> Self:
        self._span = span(self._name, "user", overlapping=True)
        self._span.__enter__()
        if self.stream is not None:
            # CuPy's work goes to the current stream, and cuDF's to the device's default one.
            self._engine = self._cuda.get_current_stream(), self._cuda.Stream.null
            for own in self._engine:
                self.stream.wait_event(own.record())
            self.stream.__enter__()
        self._begun = self.event()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended = self.event()
        if self.stream is not None:
            self.stream.__exit__(*error)
            for own in self._engine:
                own.wait_event(self._ended._event)
            # The span ends with the work, which goes on beside what comes after the block.
            self.stream.launch_host_func(_end, self._span)
        else:
            _end(self._span)

    def event(self) -> UserEvent:
        """The moment when all is done that was queued on it so far."""
        made = None if self.stream is None else self.stream.record(self._cuda.Event())
        return UserEvent(made, self._cuda, perf_counter_ns())

    def wait(self, event: UserEvent) -> None:
        """Let what is queued on it from now on begin only after an event of another one."""
        if self.stream is not None and event._event is not None:
            self.stream.wait_event(event._event)

    def synchronize(self) -> None:
        """Wait until all that was queued on it is done."""
        began = perf_counter_ns()
        if self.stream is not None:
            self.stream.synchronize()
            self._waited_ns += perf_counter_ns() - began

    @property
    def seconds(self) -> float:
        """How long the block's work took; waits for it.

        Returns
        -------
        float
            0 where the block has not ended.
        """
        if self._begun is None or self._ended is None:
            return 0.0
        return self._ended.seconds_since(self._begun)

    @property
    def hidden(self) -> float | None:
        """The part of that time in which nobody waited in `synchronize`, in [0, 1]; None on CPU engines."""
        waited = self._waited_ns / 1e9  # before `seconds` waits too, which only reads the time
        return None if self.stream is None else hidden_share(self.seconds, waited)

    def __repr__(self) -> str:
        return f"<UserStream {self._name!r}: {self.why}>"


def _end(open_span: Span | None) -> None:
    if open_span is not None:
        open_span.__exit__(None, None, None)
