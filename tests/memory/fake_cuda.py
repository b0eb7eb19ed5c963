"""As much of CuPy as copies need, in ordinary memory: work waits on its stream until somebody waits for it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np


class FakeArray(np.ndarray):
    """An array that says where it is, as CuPy's do."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.ctypes.data, False), "shape": self.shape, "typestr": "|u1", "version": 3}

    @property
    def data(self) -> Any:
        return type("Pointer", (), {"ptr": self.ctypes.data})


class FakeEvent:
    def __init__(self) -> None:
        self.stream: FakeStream | None = None
        self.at = 0

    def record(self, stream: FakeStream) -> None:
        self.stream, self.at = stream, len(stream.work)

    @property
    def done(self) -> bool:
        return self.stream is None or self.stream.ran >= self.at

    def synchronize(self) -> None:
        if self.stream is not None:
            self.stream.run(self.at)


class FakeStream:
    def __init__(self, *, non_blocking: bool = False, priority: int = 0) -> None:
        self.work: list[Callable[[], None]] = []
        self.ran = 0

    @property
    def ptr(self) -> FakeStream:
        return self

    def record(self, event: FakeEvent | None = None) -> FakeEvent:
        event = event or FakeEvent()
        event.record(self)
        return event

    def wait_event(self, event: FakeEvent) -> None:
        self.work.append(event.synchronize)

    def run(self, until: int) -> None:
        while self.ran < until:
            self.ran += 1
            self.work[self.ran - 1]()

    def synchronize(self) -> None:
        self.run(len(self.work))

    def launch_host_func(self, function: Callable[[Any], None], argument: Any) -> None:
        self.work.append(lambda: function(argument))


class FakeRuntime:
    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: FakeStream) -> None:
        assert kind == 4
        stream.work.append(lambda: ctypes.memmove(target, source, nbytes) and None)


class FakeCuda:
    Event, Stream = FakeEvent, FakeStream

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.current = FakeStream()

    def get_current_stream(self) -> FakeStream:
        return self.current

    def get_elapsed_time(self, begun: FakeEvent, ended: FakeEvent) -> float:
        assert begun.done and ended.done
        return 1.0


class FakeCupy:
    """Stands in for the module."""

    uint8 = np.uint8

    def __init__(self) -> None:
        self.cuda = FakeCuda()

    def empty(self, nbytes: int, dtype: Any) -> Any:
        return np.full(nbytes, 255, dtype=dtype).view(FakeArray)
