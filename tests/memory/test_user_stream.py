"""A user's own stream: what waits for what, without a device."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from fake_cuda import FakeCupy, FakeStream

from gcylon_lab.memory.user_stream import UserStream
from gcylon_lab.profiling import Recorder, recording


class CurrentStream(FakeStream):
    """A stream that is the current one inside a block, and which has the default one beside it."""

    null = FakeStream()
    cuda: Any = None

    def __enter__(self) -> CurrentStream:
        self._before, self.cuda.current = self.cuda.current, self
        return self

    def __exit__(self, *error: object) -> None:
        self.cuda.current = self._before


def test_its_work_runs_after_what_was_queued_and_before_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy()
    cupy.cuda.Stream = CurrentStream  # type: ignore[misc]
    CurrentStream.cuda, CurrentStream.null = cupy.cuda, FakeStream()
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # type: ignore[arg-type]
    done: list[str] = []
    engine, default, recorder = cupy.cuda.current, CurrentStream.null, Recorder()

    def queue(name: str) -> None:
        cupy.cuda.current.work.append(lambda: done.append(name))

    queue("engine's before")
    default.work.append(lambda: done.append("cuDF's before"))
    with recording(recorder):
        with UserStream("mine", on_gpu=True) as stream:
            assert cupy.cuda.current is stream.stream and "stream of its own" in repr(stream)
            queue("mine")
            half = stream.event()
            queue("mine too")
        assert cupy.cuda.current is engine
        queue("engine's after")
        default.work.append(lambda: done.append("cuDF's after"))
        assert done == [] and not half.done and not recorder.events(), "nothing has waited"
        default.synchronize()
        assert set(done[:2]) == {"engine's before", "cuDF's before"}
        assert done[2:] == ["mine", "mine too", "cuDF's after"] and half.done
        engine.synchronize()
        assert done[5:] == ["engine's after"]
        with UserStream("another", on_gpu=True) as second:
            second.wait(half)
        second.synchronize()
        stream.synchronize()
    # The fake measures a millisecond between any two events.
    assert stream.seconds == 1e-3 and 0 <= (stream.hidden or 0) <= 1
    assert [(event.name, event.category) for event in recorder.events()] == [("another", "user"), ("mine", "user")]
