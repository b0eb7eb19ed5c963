"""Waiting for the replies of all ranks, without waiting for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .failures import unreadable
from .messages import Reply

FREED_S = 5.0  # an interrupt was sent: all have answered by then, or are beyond help

_TICK_S = 0.25
_TOLD_S = 5.0  # the whole is ready: so is each part, as soon as ipyparallel's own thread has told it
_PEERS_S = 4.0  # a rank failed: the others have left by then, or are freed
_LOST_S = 1.0  # a rank died: those that wait for it in a collective learn of it within a moment
_LATE_S = 4.0  # past the ranks' own deadline: it did not help


class Waiter:
    """Waits for one request, and frees its ranks where one of them failed, or none is in time.

    Parameters
    ----------
    sent : ipyparallel.AsyncResult
        Of a `deliver` on all ranks, in rank order.
    what : str
        The request's action, for messages.
    timeout_s : float or None
    is_lost : callable
        Whether a rank's process is gone.
    is_cut_off : callable
        Whether no answer can come any more.
    is_unwanted : callable
        Whether nobody wants the answer any more.
    free : callable
        Interrupts all ranks.

    Attributes
    ----------
    stuck : list of int
        Ranks that did not answer although they were freed.
    """

    def __init__(
        self,
        sent: Any,
        what: str,
        timeout_s: float | None,
        *,
        is_lost: Callable[[], bool],
        is_cut_off: Callable[[], bool],
        is_unwanted: Callable[[], bool],
        free: Callable[[], None],
    ) -> None:
        self._sent = sent
        self._parts = parts_of(sent)
        self._what = what
        self._timeout_s = timeout_s
        self._is_lost = is_lost
        self._is_cut_off = is_cut_off
        self._is_unwanted = is_unwanted
        self._free = free
        self._failed_at: float | None = None
        self._freed_at: float | None = None
        self._overdue = False
        self.stuck: list[int] = []

    def replies(self, on_wait: Callable[[float], None] | None = None) -> list[Reply]:
        """Wait; return a reply for every rank, a stand-in where none came.

        Parameters
        ----------
        on_wait : callable, optional
            Called a few times a second with the time so far, in seconds.
        """
        start = time.monotonic()
        while not self._sent.wait(_TICK_S):
            now = time.monotonic()
            if on_wait is not None:
                on_wait(now - start)
            if self._freed_at is None:
                self._free_if_needed(now, now - start)
            elif now - self._freed_at > FREED_S:
                break
            if self._is_cut_off():
                break
        parts = self._parts
        for part in parts if self._sent.ready() else []:
            part.wait(_TOLD_S)
        self.stuck = [rank for rank, part in enumerate(parts) if not part.ready()]
        replies = [_reply(rank, part) for rank, part in enumerate(parts)]
        return [self._late(reply) for reply in replies] if self._overdue else replies

    def _free_if_needed(self, now: float, elapsed_s: float) -> None:
        if self._failed_at is None and (self._is_lost() or self._has_failure()):
            self._failed_at = now
        patience = _LOST_S if self._is_lost() else _PEERS_S
        alone = self._failed_at is not None and now - self._failed_at > patience
        # Verbs end at the ranks' own deadline; a function of the user's has none there.
        grace = 0.0 if self._what == "run" else _LATE_S
        self._overdue = self._timeout_s is not None and elapsed_s > self._timeout_s + grace and not alone
        if alone or self._overdue or self._is_unwanted():
            self._free()
            self._freed_at = now

    def _has_failure(self) -> bool:
        done = [_reply(rank, part) for rank, part in enumerate(self._parts) if part.ready()]
        return any(reply.error is not None for reply in done)

    def _late(self, reply: Reply) -> Reply:
        if reply.error is None:
            return reply
        message = f"{self._what} took longer than {self._timeout_s:g} s, and was interrupted."
        late = {"kind": "DeadlineExceeded", "message": message, "advice": "Give a larger timeout_s."}
        return replace(reply, error={**reply.error, **late})


def parts_of(sent: Any) -> Sequence[Any]:
    """Each rank's part of a request, in rank order.

    Not ``sent.split()`` itself: it is cached for the class, so that the last 128 requests would stay in memory, with
    all that they brought back.
    """
    parts: Sequence[Any] = type(sent).split.__wrapped__(sent)
    return parts


def _reply(rank: int, part: Any) -> Reply:
    if not part.ready():
        return unreadable(rank, TimeoutError("it is still busy"))
    try:
        value = part.get()
    except Exception as error:
        return unreadable(rank, error)
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return value if isinstance(value, Reply) else unreadable(rank, TypeError(f"{value!r} is no reply"))
