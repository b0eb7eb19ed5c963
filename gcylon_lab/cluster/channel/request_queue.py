"""Whose turn it is: requests that wait in a thread of their own keep their place before those asked for later."""

from __future__ import annotations

import threading


class RequestQueue:
    """The order in which requests were asked for, above the lock that each takes while it runs.

    A request that runs in the thread that asks for it only takes the lock. One
    that is to run in another thread takes a number when it is asked for; who
    comes later waits until that one has the lock, or has given its number up.

    Attributes
    ----------
    lock : RLock
        Held while a request runs.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition()
        self._waiting: list[int] = []
        self._last = 0

    def take(self) -> int:
        """Take a number; `leave` gives it back."""
        with self._changed:
            self._last += 1
            self._waiting.append(self._last)
            return self._last

    def leave(self, number: int) -> None:
        """Go out of the line: under the lock, or because it will not be taken. Idempotent."""
        with self._changed:
            if number in self._waiting:
                self._waiting.remove(number)
                self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all that took a number before have left; at once for a thread that holds the lock."""
        if self.lock._is_owned():  # type: ignore[attr-defined]
            return
        with self._changed:
            last = self._last
            self._changed.wait_for(lambda: not self._waiting or self._waiting[0] > last)

    @property
    def anybody_waits(self) -> bool:
        """Whether a number is taken."""
        return bool(self._waiting)
