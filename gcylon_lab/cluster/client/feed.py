"""Live recordings of the ranks, pulled over the control channel: nothing is sent while nobody looks."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...profiling.snapshot import RankSnapshot, merge

if TYPE_CHECKING:
    from ..channel.channel import Channel

Subscriber = Callable[[list[RankSnapshot]], None]

BYTES_PER_S = 800_000
"""What subscribers bring to the notebook at most, of all ranks together; explicit calls bring what there is."""

_IDLE_EVERY_S = 1.0
_LEAST_BYTES = 4096  # of a rank's answer, about half of which is there also where nothing has happened


class Feed:
    """Keeps what the ranks recorded, bounded, and tells subscribers of news.

    Parameters
    ----------
    channel : callable
        Gives the channel in use.
    hz : float, default 5
        Pulls a second while a request runs and somebody is subscribed; one a second otherwise. Of many ranks fewer,
        so that all of them stay below `BYTES_PER_S`: then what does not fit is told later, once they are idle.
    """

    def __init__(self, channel: Callable[[], Channel], *, hz: float = 5.0) -> None:
        self._channel = channel
        self._every_s = 1.0 / min(hz, 10.0)
        self._lock = threading.Lock()
        self._pulling = threading.Lock()
        self._snapshots: list[RankSnapshot] = []
        # By rank, from when on something was left out.
        self._gaps: dict[int, int] = {}
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

    def pull(self, *, every_s: float | None = None, busy: bool = False) -> None:
        """Fetch what is new. One pull at a time: a slow rank never makes them pile up.

        Parameters
        ----------
        every_s : float, optional
            Fetch no more than comes to `BYTES_PER_S` where that is done so often; by default all.
        busy : bool
            Whether the newest is wanted, where not all may be fetched.
        """
        with self._pulling:
            channel = self._channel()
            known = {snapshot["rank"]: int(snapshot["now_ns"]) for snapshot in self._snapshots}
            since = {rank: known.get(rank, 0) for rank in range(channel.size)}
            if not busy:
                since |= {rank: min(at, since[rank]) for rank, at in self._gaps.items() if rank in since}
            room: dict[str, Any] = {}
            if every_s is not None:
                room = {"max_bytes": int(BYTES_PER_S * every_s / channel.size), "oldest": not busy}
            answers = channel.control.ask_each(
                [{"ask": "snapshot", "since_ns": since[rank], **room} for rank in range(channel.size)]
            )
            channel.control.told([answer and answer.pop("state") for answer in answers])
            for rank, answer in enumerate(answers):
                if answer is not None:
                    self._note_gap(rank, since[rank], answer)
            merged = merge(self._snapshots, [answer for answer in answers if answer is not None])
            with self._lock:
                self._snapshots = merged

    def _note_gap(self, rank: int, since_ns: int, answer: RankSnapshot) -> None:
        complete = int(answer.pop("complete_ns", answer["now_ns"]))
        gap = self._gaps.pop(rank, None)
        if gap is not None and gap < since_ns:
            self._gaps[rank] = gap  # nobody has asked for that
        elif complete < answer["now_ns"]:
            self._gaps[rank] = complete

    def forget(self) -> None:
        """Drop everything: new ranks have new clocks."""
        with self._pulling, self._lock:
            self._snapshots, self._gaps = [], {}

    def close(self) -> None:
        """End the thread and the subscriptions. Idempotent."""
        self._closed.set()
        with self._lock:
            self._subscribers.clear()

    def _run(self) -> None:
        last, was_busy = 0.0, False
        while not self._closed.wait(max(self._every_s, last + self._least_s() - time.monotonic())):
            with self._lock:
                callbacks = list(self._subscribers)
                if not callbacks:
                    self._thread = None
                    return
            busy = self._is_busy()
            # How a request ended is told as soon as what it did before.
            ended, was_busy = was_busy and not busy, busy
            now = time.monotonic()
            if busy or ended or now - last >= _IDLE_EVERY_S:
                every_s = max(self._every_s, self._least_s(), min(now - last, _IDLE_EVERY_S))
                last = now
                self._tell(callbacks, every_s, busy=busy or ended)

    def _least_s(self) -> float:
        """The least time between two pulls, so that there is room for an answer of each rank."""
        try:
            return self._channel().size * _LEAST_BYTES / BYTES_PER_S
        except Exception:
            return 0.0

    def _is_busy(self) -> bool:
        try:
            return self._channel().is_busy()
        except Exception:
            return False

    def _tell(self, callbacks: list[Subscriber], every_s: float, *, busy: bool) -> None:
        snapshots: list[RankSnapshot] = []
        with contextlib.suppress(Exception):  # a cluster that is being restarted has nothing to say
            self.pull(every_s=every_s, busy=busy)
            with self._lock:
                snapshots = self._snapshots
        for callback in callbacks if snapshots else []:
            with contextlib.suppress(Exception):
                callback(snapshots)
