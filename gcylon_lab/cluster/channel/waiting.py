"""Waiting for the replies of all ranks, without waiting for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...errors import DeadlineExceeded, GcylonError
from ..failures import freed, name_ranks, unreadable
from ..messages import Reply
from ..stop_detector import Stop, StopDetector
from .interrupts import called

FREED_S = 5.0  # an interrupt was sent: all have answered by then, or are beyond help
AGAIN_S = 1.0  # one that had not begun the request when an interrupt came did not hear of it

_TICK_S = 0.25
_PUMP_S = 0.05  # rows are moved for so long before it is looked whether the request is over
_TOLD_S = 5.0  # the whole is ready: so is each part, as soon as ipyparallel's own thread has told it
_PEERS_S = 2.5  # a rank failed: the others have left by then, or are freed
_LOST_S = 1.0  # a rank died: those that wait for it in a collective learn of it within a moment
_LATE_S = 1.0  # past the ranks' own deadline: it did not help
_LATE_FREED_S = 2.0  # as FREED_S, past a deadline: for a rank that comes later the next request waits


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
    stops : StopDetector

    Attributes
    ----------
    stuck : list of int
        Ranks that did not answer although they were freed.
    stop : Stop or None
        Processes that are stopped, for which it did not wait any longer.
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
        stops: StopDetector,
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
        self._told_at = 0.0
        self._overdue = False
        self._stops = stops
        self._waited_for: list[int] = []
        self._only_freed: list[int] = []
        self.stuck: list[int] = []
        self.stop: Stop | None = None

    def replies(
        self, on_wait: Callable[[float], None] | None = None, pump: Callable[[float], bool] | None = None
    ) -> list[Reply]:
        """Wait; return a reply for every rank, a stand-in where none came.

        Parameters
        ----------
        on_wait : callable, optional
            Called a few times a second with the time so far, in seconds.
        pump : callable, optional
            Moves rows between the notebook and the ranks for so many seconds; says whether more are to come.
        """
        start = time.monotonic()
        while not self._tick(pump):
            now = time.monotonic()
            if on_wait is not None:
                on_wait(now - start)
            self._note_late(now - start)
            if self._freed_at is None:
                self._free_if_needed(now, now - start)
            elif now - self._freed_at > (_LATE_FREED_S if self._overdue else FREED_S):
                break
            elif now - self._told_at > AGAIN_S:
                self._told_at = now
                self._free()
            if self._is_cut_off():
                break
            # Past a deadline nobody waits for one that may go on.
            is_late = self._timeout_s is not None and now - start > self._timeout_s
            self.stop = self._stops.now() if is_late else self._stops.look()
            # Where one is gone too, that is what is said, once the others were freed.
            if self.stop is not None and (self._freed_at is not None or not self._is_lost()):
                break
        parts = self._parts
        for part in parts if self._sent.ready() else []:
            part.wait(_TOLD_S)
        self.stuck = self._unanswered()
        replies = [_reply(rank, part) for rank, part in enumerate(parts)]
        return [self._late(freed(reply) if reply.rank in self._only_freed else reply) for reply in replies]

    def _tick(self, pump: Callable[[float], bool] | None) -> bool:
        until = time.monotonic() + _TICK_S
        while not self._sent.ready():
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            if pump is None or not pump(min(left_s, _PUMP_S)):
                return bool(self._sent.wait(left_s))
        return True

    def given_up(self, stop: Stop) -> GcylonError:
        """The error where it was not waited any longer for processes that are stopped."""
        error = stop.error("" if self._what == "recover" else called(self._what))
        if self._timeout_s is None or not self._waited_for:
            return error
        text = stop.text[0].lower() + stop.text[1:]
        message = f"{called(self._what)} took longer than {self._timeout_s:g} s, and was given up: {text}."
        late = DeadlineExceeded(message, advice=error.advice, **error.numbers)
        late.rank = error.rank
        return late

    def _note_late(self, elapsed_s: float) -> None:
        """Which ranks had not answered at the deadline, nor a moment after it as those that saw it themselves."""
        if self._timeout_s is not None and elapsed_s > self._timeout_s and self._freed_at is None:
            self._waited_for = self._unanswered() or self._waited_for

    def _free_if_needed(self, now: float, elapsed_s: float) -> None:
        if self._failed_at is None and (self._is_lost() or self._has_failure()):
            self._failed_at = now
        patience = _LOST_S if self._is_lost() else _PEERS_S
        alone = self._failed_at is not None and now - self._failed_at > patience
        # Verbs end at the ranks' own deadline; a function of the user's has none there.
        grace = 0.0 if self._what == "run" else _LATE_S
        self._overdue = self._timeout_s is not None and elapsed_s > self._timeout_s + grace and not alone
        if alone or self._overdue or self._is_unwanted():
            self._only_freed = [rank for rank, part in enumerate(self._parts) if not part.ready()] if alone else []
            self._free()
            self._freed_at = self._told_at = now

    def _unanswered(self) -> list[int]:
        return [rank for rank, part in enumerate(self._parts) if not part.ready()]

    def _has_failure(self) -> bool:
        done = [_reply(rank, part) for rank, part in enumerate(self._parts) if part.ready()]
        return any(reply.error is not None for reply in done)

    def _late(self, reply: Reply) -> Reply:
        is_late = reply.error is not None and (self._overdue or reply.error["kind"] == "DeadlineExceeded")
        if reply.error is None or not is_late or not self._waited_for:
            return reply
        whom = f" It waited for {name_ranks(self._waited_for)}." if len(self._waited_for) < len(self._parts) else ""
        message = f"{called(self._what)} took longer than {self._timeout_s:g} s, and was interrupted.{whom}"
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
    return value if isinstance(value, Reply) else unreadable(rank, TypeError(f"expected a Reply, got {value!r}"))
