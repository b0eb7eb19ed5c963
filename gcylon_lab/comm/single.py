"""One rank: a transport of its own, with no MPI underneath."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence

from ..errors import CommError, DeadlineExceeded, Revoked
from .transport import Int64s, PlainTransport, Receive, Send, Window, copy_to_self


class SingleTransport(PlainTransport):
    """A world of one rank."""

    name = "single"
    rank = 0
    size = 1

    def __init__(self) -> None:
        self.host = socket.gethostname()
        self._revoked = threading.Event()
        self._deadline: float | None = None
        self._closed = False

    def agree(self, values: Int64s) -> Int64s:
        """Collective: all ranks call it. The numbers themselves, as one row."""
        self._check()
        return values.reshape(1, -1).copy()

    def share(self, payload: bytes) -> list[bytes]:
        """Collective: all ranks call it. The payload itself."""
        self._check()
        return [payload]

    def exchange(self, window: Window | None, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        """Collective: all ranks call it. Copy what is sent to oneself."""
        self._check()
        copy_to_self([s.view for s in sends], [r.view for r in receives])

    def check(self) -> None:
        """Raise after a revoke or past the deadline."""
        self._check()

    def set_deadline(self, timeout_s: float | None) -> None:
        """Raise `DeadlineExceeded` from calls made after this time."""
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def revoke(self) -> None:
        """Make the next call raise `Revoked`."""
        self._revoked.set()

    def recover(self) -> None:
        """Collective: all ranks call it. Forget a revoke."""
        self._revoked.clear()
        self._deadline = None

    def close(self) -> None:
        """Refuse calls from now on: no resources are held."""
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            raise CommError("The transport is closed.", advice="Start a new context.", rank=0)
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise DeadlineExceeded("The operation ran past its deadline.", advice="Give a larger timeout_s.", rank=0)
        if self._revoked.is_set():
            raise Revoked("The operation was interrupted.", rank=0)
