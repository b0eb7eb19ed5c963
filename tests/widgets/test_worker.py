"""The worker: pace, order, failures, end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise

from replay import eventually

from gcylon_lab.ui.live.worker import Worker


def once_in_three(measure: Callable[[], float]) -> float:
    """The largest of some measurements: what a busy machine makes late looks quick after it."""
    return max(measure() for _ in range(3))


def least_gap(times: list[float]) -> float:
    return min(b - a for a, b in pairwise(times))


def test_a_flood_of_requests_runs_at_its_pace_and_ends_with_the_latest() -> None:
    def flood() -> float:
        ran: list[tuple[float, int]] = []
        worker = Worker(lambda error: None)
        began, n = time.monotonic(), 0
        while time.monotonic() < began + 0.35:
            n += 1
            worker.request("draw", lambda n=n: ran.append((time.monotonic(), n)), every_s=0.1)  # type: ignore[misc]
            time.sleep(0.001)
        assert eventually(lambda: ran and ran[-1][1] == n)
        assert 2 <= len(ran) <= (time.monotonic() - began) / 0.1 + 2
        worker.close()
        return least_gap([at for at, _ in ran])

    assert once_in_three(flood) > 0.095


def test_a_slow_job_gets_a_slower_pace() -> None:
    def slow_jobs() -> float:
        starts: list[float] = []
        worker = Worker(lambda error: None)

        def slow() -> None:
            starts.append(time.monotonic())
            time.sleep(0.05)
            if len(starts) < 3:
                worker.request("draw", slow, every_s=0.05)

        worker.request("draw", slow, every_s=0.05)
        assert eventually(lambda: len(starts) == 3)
        worker.close()
        return least_gap(starts)

    assert once_in_three(slow_jobs) > 0.095


def test_a_failure_is_told_and_the_worker_goes_on() -> None:
    told: list[Exception] = []
    worker = Worker(told.append)
    done = threading.Event()
    worker.request("bad", lambda: [].pop())  # type: ignore[func-returns-value]
    worker.request("good", done.set)
    assert done.wait(20)
    assert [type(e) for e in told] == [IndexError]
    worker.close()


def test_a_delayed_job_waits_for_the_last_request() -> None:
    ran: list[float] = []
    worker = Worker(lambda error: None)
    for delay_s in (60.0, 0.5, 0.8):
        worker.request("apply", lambda: ran.append(time.monotonic()), delay_s=delay_s)
    asked = time.monotonic()
    assert worker.waits("apply")
    assert eventually(lambda: ran)
    assert len(ran) == 1 and ran[0] - asked > 0.7
    assert not worker.waits("apply")
    worker.close()


def test_closing_ends_the_thread_and_drops_what_waits() -> None:
    ran: list[int] = []
    worker = Worker(lambda error: None)
    worker.request("later", lambda: ran.append(1), delay_s=60.0)
    thread = worker._thread
    worker.close()
    worker.close()
    worker.request("after", lambda: ran.append(2))
    assert thread is not None and not thread.is_alive()
    assert ran == []


def test_closing_does_what_is_kept_and_tells_its_failure() -> None:
    told: list[Exception] = []
    ran: list[int] = []
    worker = Worker(told.append)
    worker.request("set", lambda: ran.append(1), delay_s=60.0, kept=True)
    worker.request("set too", lambda: [].pop(), delay_s=60.0, kept=True)  # type: ignore[func-returns-value]
    worker.request("draw", lambda: ran.append(2), delay_s=60.0)
    worker.close()
    worker.close()
    assert ran == [1] and [type(e) for e in told] == [IndexError]
