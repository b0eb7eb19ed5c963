"""Sees ranks that wait in an operation which others will never join, and has them freed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..failures import name_ranks

IDLE_S = 3.5  # so long others have been idle, with nothing queued, before those that wait for them are freed
_EVERY_S = 0.5

ADVICE = (
    "An operation needs all ranks: run its cell on all of them (%%px without --targets), "
    "and call it outside of `if rank == ...`."
)

log = logging.getLogger(__name__)

States = Sequence[dict[str, Any] | None]


@dataclass(frozen=True, slots=True)
class StalledRanks:
    """Ranks that wait in an operation, and those that are idle without having begun it."""

    verb: str
    waiting: tuple[int, ...]
    idle: tuple[int, ...]
    requests: tuple[int, ...]  # that the idle ranks have begun so far: another one may be what is waited for

    def describe(self) -> str:
        """For people: "rank 0 waits in shuffle; rank 1 is idle"."""
        wait = "wait" if len(self.waiting) > 1 else "waits"
        are = "are" if len(self.idle) > 1 else "is"
        return f"{name_ranks(self.waiting)} {wait} in {self.verb}; {name_ranks(self.idle)} {are} idle"


def find_stalled(states: States) -> StalledRanks | None:
    """Ranks that wait for idle ones, by what `Engine.state` says of all that answered.

    Operations have the same number on all ranks, and none ends without all of them: one that a rank is in,
    and that an idle rank has not begun, needs another request to that rank.
    """
    known = [state for state in states if state is not None and not state["revoked"]]
    idle = [state for state in known if not state["running"]]
    first = min((state["operation"] for state in idle), default=None)
    waiting = [state for state in known if state["running"] and first is not None and state["operation"] > first]
    if not waiting:
        return None
    behind = [state for state in idle if state["operation"] < max(state["operation"] for state in waiting)]
    verbs = [state["progress"]["verb"] for state in waiting if state["progress"]]
    return StalledRanks(
        verbs[0] if verbs else "an operation",
        tuple(state["rank"] for state in waiting),
        tuple(state["rank"] for state in behind),
        tuple(state["requests"] for state in behind),
    )


class StallDetector:
    """A thread that looks at the ranks while any of them has work.

    Parameters
    ----------
    ask : callable
        Gives the ranks' states.
    is_busy : callable
        Whether any rank has work.
    free : callable
        Frees ranks that wait, with an error of the text and advice given.
    give_up : callable, optional
        Ends what is waited for in vain because a rank is stopped.
    """

    def __init__(
        self,
        ask: Callable[[], States],
        is_busy: Callable[[], bool],
        free: Callable[[Sequence[int], str, str], None],
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._ask = ask
        self._is_busy = is_busy
        self._free = free
        self._give_up = give_up
        self._work = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._seen: StalledRanks | None = None
        self._since = 0.0

    def watch(self) -> None:
        """Work was sent: look until it is done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gcylon-stall-detector", daemon=True)
            self._thread.start()
        self._work.set()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._closed = True
        self._work.set()

    def look(self, now: float) -> None:
        """Look once, at a time in seconds; free those that have waited too long."""
        self._give_up()
        states = self._ask()
        if any(state is None for state in states):
            return  # one that does not answer may be about to join
        stranded = find_stalled(states)
        if stranded is None or stranded != self._seen:
            self._seen, self._since = stranded, now
        elif now - self._since >= IDLE_S:
            self._seen = None
            text = f"{stranded.describe()} with nothing queued, for {IDLE_S:g} s: nobody would have joined"
            self._free(stranded.waiting, text[0].upper() + text[1:], ADVICE)

    def _run(self) -> None:
        while self._work.wait() and not self._closed:
            time.sleep(_EVERY_S)
            self._work.clear()
            try:
                if not self._closed and self._is_busy():
                    self._work.set()
                    self.look(time.monotonic())
            except Exception:
                # Without this thread nobody frees ranks that wait in vain, so nothing may end it.
                # A cluster that is just being restarted has nothing to say.
                if not self._closed:
                    log.exception("Detecting stalled ranks failed; detection goes on.")
