"""`VerbFuture`: a verb that was asked for, and whose result comes later."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Generator
from html import escape
from typing import Any, Generic, TypeVar

from ...units import format_seconds
from ..channel.interrupts import not_sent, stopped, tell
from ..channel.progress import ProgressLine
from ..channel.waiting import FREED_S
from .session_api import SessionApi

T = TypeVar("T")

_TICK_S = 0.25

log = logging.getLogger(__name__)


class VerbFuture(Generic[T]):
    """What ``t.shuffle_async(...)`` gives at once: await it, or take `result`.

    Requests run in the order in which they were asked for, these and others
    alike. Cancelling a task that awaits it cancels it; `asyncio.shield` keeps it.

    Parameters
    ----------
    session : SessionApi
    what : str
        The call in words.
    function : callable
        Makes the request, and waits for it.
    """

    def __init__(self, session: SessionApi, what: str, function: Callable[[], T]) -> None:
        self._session = session
        self._what = what
        self._function: Callable[[], T] | None = function
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._turns = session.turns
        self._number = self._turns.take()
        self._state = threading.Lock()
        self._began_at = 0.0
        self._seconds = 0.0
        self._was_cancelled = False
        self._was_looked_at = False

    def done(self) -> bool:
        """Whether there is a result or an error, or it was cancelled."""
        return self._was_cancelled or self._future.done()

    def running(self) -> bool:
        """Whether the ranks are at it."""
        return self._future.running()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._was_cancelled

    def cancel(self) -> bool:
        """Drop the request if it has not begun; else free all ranks from it.

        Inputs stay as they were, and the next request works: the ranks are
        brought back together first.

        Returns
        -------
        bool
            False if it was over already.
        """
        with self._state:
            if self.done():
                return self._was_cancelled
            # While it runs, the thread that waits for the ranks frees them: it has the lock, so nothing else is struck.
            self._was_cancelled = True
            if self._future.cancel():
                self._turns.leave(self._number)
                self._function = None
            return True

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result, and return it or raise what went wrong. Interrupting the wait cancels the request.

        Parameters
        ----------
        timeout : float, optional
            In seconds; the request goes on after it.

        Raises
        ------
        TimeoutError
            If it is not there in time.
        concurrent.futures.CancelledError
            If it was cancelled.
        GcylonError
            As the verb itself.
        """
        start = time.monotonic()
        try:
            self._await_done(start, timeout)
        except KeyboardInterrupt as error:
            took = time.monotonic() - (self._began_at or start)
            tell(error, stopped(self._what, took) if self.running() else not_sent(self._what))
            self.cancel()
            with contextlib.suppress(KeyboardInterrupt):  # whoever cannot wait goes on
                concurrent.futures.wait([self._future], FREED_S)
            raise
        return self._outcome()

    def _await_done(self, start: float, timeout: float | None) -> None:
        with self._progress() as show:
            while not self.done():
                left = _TICK_S if timeout is None else timeout - (time.monotonic() - start)
                if left <= 0:
                    raise TimeoutError(f"{self._what} is not done after {timeout:g} s; it goes on.")
                concurrent.futures.wait([self._future], min(left, _TICK_S))
                show()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait as `result` does, and return what it would raise; None where it would not."""
        try:
            self.result(timeout)
        except concurrent.futures.CancelledError:
            raise
        except Exception as error:
            if not self.done():
                raise
            return error
        return None

    def add_done_callback(self, callback: Callable[[VerbFuture[T]], Any]) -> None:
        """Call back when it is done, from the thread that made it so; at once where it is."""
        self._future.add_done_callback(lambda _: callback(self))

    def __await__(self) -> Generator[Any, None, T]:
        return self._awaited().__await__()

    def __repr__(self) -> str:
        return f"<VerbFuture {self._what}: {self._describe()}>"

    def _repr_html_(self) -> str:
        return f"<code>{escape(repr(self))}</code>"

    def __del__(self) -> None:
        error = None if self._was_looked_at else self._error()
        if error is not None:
            log.error("%s failed, and nobody asked for its result: %s: %s", self._what, type(error).__name__, error)

    # --- called by the session's thread ---

    def run(self) -> None:
        """Do it, under the lock; nothing if it was cancelled."""
        with self._turns.lock:
            self._turns.leave(self._number)
            with self._state:
                if not self._future.set_running_or_notify_cancel():
                    return
                self._began_at = time.monotonic()
            function, self._function = self._function, None
            assert function is not None
            try:
                with self._session.on_behalf_of(self):
                    outcome: tuple[T | None, BaseException | None] = function(), None
            except BaseException as error:
                outcome = None, error
            self._seconds = time.monotonic() - self._began_at
            with self._state:
                self._end(*outcome)

    def _end(self, value: T | None, error: BaseException | None) -> None:
        if self._was_cancelled:
            error = concurrent.futures.CancelledError(f"{self._what} was cancelled.")
        if error is None:
            self._future.set_result(value)  # type: ignore[arg-type]
        else:
            self._future.set_exception(error)

    # --- inside ---

    async def _awaited(self) -> T:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def tell(_: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed by then
                loop.call_soon_threadsafe(done.set)

        self._future.add_done_callback(tell)
        with self._progress() as show:
            try:
                while not self.done():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(done.wait(), _TICK_S)
                    show()
            except asyncio.CancelledError:
                self.cancel()
                raise
        if self._was_cancelled:
            raise asyncio.CancelledError(f"{self._what} was cancelled.")
        return self._outcome()

    def _outcome(self) -> T:
        self._was_looked_at = True
        if self._was_cancelled:
            raise concurrent.futures.CancelledError(f"{self._what} was cancelled.")
        return self._future.result(0)

    @contextlib.contextmanager
    def _progress(self) -> Generator[Callable[[], None], None, None]:
        """Shows where the ranks are in the cell that waits, since the thread that asks them belongs to none."""
        line = ProgressLine() if self._session.waiting.shows else None

        def show() -> None:
            if line is not None and self.running():
                line.show(self._session.waiting.where)

        try:
            yield show
        finally:
            if line is not None and self.done():
                line.end(KeyboardInterrupt() if self._was_cancelled else self._error())

    def _error(self) -> BaseException | None:
        """What went wrong, as far as it is over."""
        return self._future.exception(0) if self._future.done() and not self._was_cancelled else None

    def _describe(self) -> str:
        if self._was_cancelled:
            return "cancelled"
        if not self._future.done():
            return f"running {self._session.waiting.where}".rstrip() if self.running() else "waits for its turn"
        error = self._error()
        took = format_seconds(self._seconds)
        return f"failed after {took} with {type(error).__name__}" if error is not None else f"done in {took}"


class Later:
    """The thread in which a session's futures run, one after the other; there is none until one is asked for."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[VerbFuture[Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._left = 0

    def put(self, make: Callable[[], VerbFuture[T]]) -> VerbFuture[T]:
        """Let a future run after those before it.

        Parameters
        ----------
        make : callable
            Makes the future, so that it takes its number in the order of the queue.
        """
        with self._lock:
            future = make()
            self._queue.put(future)
            self._left += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gcylon-later", daemon=True)
                self._thread.start()
            return future

    def _run(self) -> None:
        while True:
            self._queue.get().run()
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._thread = None
                    return
