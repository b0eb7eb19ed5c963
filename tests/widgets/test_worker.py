"""The worker: pace, order, failures, end."""

from __future__ import annotations

import threading
import time

from replay import eventually

from gcylon_lab.widgets.worker import Worker


def test_a_flood_of_requests_runs_at_its_pace_and_ends_with_the_latest() -> None:
    ran: list[tuple[float, int]] = []
    worker = Worker(lambda error: None)
    end, n = time.monotonic() + 0.55, 0
    while time.monotonic() < end:
        n += 1
        worker.request("draw", lambda n=n: ran.append((time.monotonic(), n)), every_s=0.1)  # type: ignore[misc]
        time.sleep(0.001)
    assert eventually(lambda: ran and ran[-1][1] == n)
    assert 3 <= len(ran) <= 7
    assert min(b[0] - a[0] for a, b in zip(ran, ran[1:], strict=False)) > 0.095
    worker.close()


def test_a_slow_job_gets_a_slower_pace() -> None:
    starts: list[float] = []
    worker = Worker(lambda error: None)

    def slow() -> None:
        starts.append(time.monotonic())
        time.sleep(0.1)
        if len(starts) < 4:
            worker.request("draw", slow, every_s=0.1)

    worker.request("draw", slow, every_s=0.1)
    assert eventually(lambda: len(starts) == 4)
    assert min(b - a for a, b in zip(starts, starts[1:], strict=False)) > 0.19
    worker.close()


def test_a_failure_is_told_and_the_worker_goes_on() -> None:
    told: list[Exception] = []
    worker = Worker(told.append)
    done = threading.Event()
    worker.request("bad", lambda: [].pop())  # type: ignore[func-returns-value]
    worker.request("good", done.set)
    assert done.wait(2)
    assert [type(e) for e in told] == [IndexError]
    worker.close()


def test_a_delayed_job_waits_for_the_last_request() -> None:
    ran: list[float] = []
    worker = Worker(lambda error: None)
    for _ in range(5):
        worker.request("apply", lambda: ran.append(time.monotonic()), delay_s=0.15)
        last = time.monotonic()
        time.sleep(0.05)
    assert worker.waits("apply")
    assert eventually(lambda: ran)
    assert len(ran) == 1 and ran[0] - last > 0.14
    assert not worker.waits("apply")
    worker.close()


def test_closing_ends_the_thread_and_drops_what_waits() -> None:
    ran: list[int] = []
    worker = Worker(lambda error: None)
    worker.request("later", lambda: ran.append(1), delay_s=0.2)
    thread = worker._thread
    worker.close()
    worker.close()
    worker.request("after", lambda: ran.append(2))
    assert thread is not None and not thread.is_alive()
    assert ran == []
