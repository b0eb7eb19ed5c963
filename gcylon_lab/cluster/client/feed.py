"""Live recordings of the ranks, pulled over the control channel: nothing is sent while nobody looks."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...profiling.snapshot import RankSnapshot, merge

if TYPE_CHECKING:
    from ..channel.channel import Channel

Subscriber = Callable[[list[RankSnapshot]], None]

_IDLE_EVERY_S = 1.0


class Feed:
    """Keeps what the ranks recorded, bounded, and tells subscribers of news.

    Parameters
    ----------
    channel : callable
        Gives the channel in use.
    hz : float, default 5
        Pulls a second while a request runs and somebody is subscribed; one a second otherwise.
    """

    def __init__(self, channel: Callable[[], Channel], *, hz: float = 5.0) -> None:
        self._channel = channel
        self._every_s = 1.0 / min(hz, 10.0)
        self._lock = threading.Lock()
        self._pulling = threading.Lock()
        self._snapshots: list[RankSnapshot] = []
        self._subscribers: list[Subscriber] = []
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call back with all ranks' snapshots whenever there is news, from a thread of the feed's own.

        Parameters
        ----------
        callback : callable
            Given a list of `RankSnapshot` in rank order. What it raises is swallowed.

        Returns
        -------
        callable
            Ends the subscription.
        """
        with self._lock:
            self._subscribers.append(callback)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="gcylon-feed", daemon=True)
                self._thread.start()

        def unsubscribe() -> None:
            with self._lock, contextlib.suppress(ValueError):
                self._subscribers.remove(callback)

        return unsubscribe

    def snapshots(self) -> list[RankSnapshot]:
        """Everything recorded so far, of all ranks that ever answered, in rank order."""
        self.pull()
        with self._lock:
            return self._snapshots

    def pull(self) -> None:
        """Fetch what is new. One pull at a time: a slow rank never makes them pile up."""
        with self._pulling:
            channel = self._channel()
            known = {snapshot["rank"]: int(snapshot["now_ns"]) for snapshot in self._snapshots}
            answers = channel.control.ask_each(
                [{"ask": "snapshot", "since_ns": known.get(rank, 0)} for rank in range(channel.size)]
            )
            channel.control.told([answer and answer.pop("state") for answer in answers])
            merged = merge(self._snapshots, [answer for answer in answers if answer is not None])
            with self._lock:
                self._snapshots = merged

    def forget(self) -> None:
        """Drop everything: new ranks have new clocks."""
        with self._pulling, self._lock:
            self._snapshots = []

    def close(self) -> None:
        """End the thread and the subscriptions. Idempotent."""
        self._closed.set()
        with self._lock:
            self._subscribers.clear()

    def _run(self) -> None:
        last, was_busy = 0.0, False
        while not self._closed.wait(self._every_s):
            with self._lock:
                callbacks = list(self._subscribers)
                if not callbacks:
                    self._thread = None
                    return
            busy = self._is_busy()
            # How a request ended is told as soon as what it did before.
            due = busy or was_busy or time.monotonic() - last >= _IDLE_EVERY_S
            was_busy = busy
            if due:
                last = time.monotonic()
                self._tell(callbacks)

    def _is_busy(self) -> bool:
        try:
            return self._channel().is_busy()
        except Exception:
            return False

    def _tell(self, callbacks: list[Subscriber]) -> None:
        snapshots: list[RankSnapshot] = []
        with contextlib.suppress(Exception):  # a cluster that is being restarted has nothing to say
            snapshots = self.snapshots()
        for callback in callbacks if snapshots else []:
            with contextlib.suppress(Exception):
                callback(snapshots)
