"""One thread that does what the callbacks ask for, so that they stay short and never meet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Job = Callable[[], object]


class Worker:
    """Runs jobs one after another on a thread of its own, which starts with the first.

    A job asked for again before it ran runs once, and a job can have a pace, so
    a flood of requests costs what its latest one costs.

    Parameters
    ----------
    on_error : callable
        Gets the exception of a job that failed, on the worker's thread.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self._wake = threading.Condition()
        self._waiting: dict[str, tuple[float, Job, bool]] = {}  # when it is due, and whether it is kept
        self._paced: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def request(self, key: str, job: Job, *, every_s: float = 0.0, delay_s: float = 0.0, kept: bool = False) -> None:
        """Have a job run soon; returns at once, from any thread.

        Parameters
        ----------
        key : str
            A waiting job of the same key is replaced.
        every_s : float, optional
            Least time between two starts of this key. A job that is slow gets a
            slower pace by itself: it never takes more than half of the time.
        delay_s : float, optional
            Wait so long for a newer request, which starts the wait anew.
        kept : bool, optional
            Not forgotten where the worker is closed before its time: `close` does it.
        """
        with self._wake:
            if self._closed:
                return
            due = time.monotonic() + delay_s
            if key in self._waiting and not delay_s:
                due = min(due, self._waiting[key][0])
            self._waiting[key] = (due, self._pacing(key, job, every_s), kept)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gcylon_lab dashboard", daemon=True)
                self._thread.start()
            self._wake.notify()

    def waits(self, key: str) -> bool:
        """Return whether a job of this key has been asked for and has not begun."""
        with self._wake:
            return key in self._waiting

    def _pacing(self, key: str, job: Job, every_s: float) -> Job:
        def run() -> None:
            began = time.monotonic()
            try:
                job()
            finally:
                took = time.monotonic() - began
                with self._wake:
                    self._paced[key] = began + max(every_s, 2 * took if every_s else 0.0)

        return run

    def _run(self) -> None:
        while True:
            with self._wake:
                job = self._next()
                if job is None:
                    return
            try:
                job()
            except Exception as error:  # whatever fails is shown, and the worker goes on
                self._on_error(error)
            del job

    def _next(self) -> Job | None:
        while not self._closed:
            if not self._waiting:
                self._wake.wait()
                continue
            key = min(self._waiting, key=self._due)
            left = self._due(key) - time.monotonic()
            if left <= 0:
                return self._waiting.pop(key)[1]
            self._wake.wait(left)
        return None

    def _due(self, key: str) -> float:
        return max(self._waiting[key][0], self._paced.get(key, 0.0))

    def close(self, timeout_s: float = 2.0) -> None:
        """Do what is kept, forget what waits, and end the thread once its job is done; may be called twice."""
        with self._wake:
            self._closed = True
            kept = [job for _, job, is_kept in self._waiting.values() if is_kept]
            self._waiting.clear()
            self._wake.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
        for job in kept:
            try:
                job()
            except Exception as error:
                self._on_error(error)
