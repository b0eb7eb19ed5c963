"""Taking over ranks that still do what a notebook kernel that is gone had asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ClusterError, warn
from ...units import format_seconds
from ..channel.stall_detector import ADVICE, StalledRanks, States, find_stalled

_SAID_AFTER_S = 5.0
_STRANDED_S = 1.0  # so long ranks wait for idle ones before they are freed: the kernel that could send more is gone
_EVERY_S = 0.25

Ask = Callable[[Sequence[dict[str, Any]]], States]


def wait_until_idle(ask: Ask, size: int, timeout_s: float, has_fewer: Callable[[], bool] = lambda: False) -> None:
    """Wait until no rank has anything to do; free those that wait in an operation for idle ones.

    Says after some seconds, as a warning, what the ranks are doing.

    Parameters
    ----------
    ask : callable
        Asks each rank something of its own on the control channel; None for those that do not answer.
    size : int
        How many ranks there are.
    timeout_s : float
    has_fewer : callable, optional
        Whether a rank is known to be gone by now, which nobody needs to wait for then.

    Raises
    ------
    ClusterError
        If they are still busy after the timeout, with what they do.
    """
    start = time.monotonic()
    said, seen, since = False, None, start
    while True:
        states = ask([{"ask": "state"}] * size)
        if all(state is not None and not state["running"] for state in states):
            return
        if has_fewer():
            return
        now = time.monotonic()
        stranded = None if None in states else find_stalled(states)
        if stranded is None or stranded != seen:
            seen, since = stranded, now
        elif now - since >= _STRANDED_S:
            _free(ask, states, stranded)
            seen = None
        if now - start > timeout_s:
            raise _busy(states, now - start)
        if not said and now - start > _SAID_AFTER_S:
            said = True
            warn(
                f"attach waits for the ranks: {describe_states(states)}. Interrupting it ends what they do; "
                "attach again then."
            )
        time.sleep(_EVERY_S)


def describe_states(states: States) -> str:
    """What each rank is doing, for people.

    Parameters
    ----------
    states : sequence of dict or None
        What `Engine.state` gives.
    """
    return "; ".join(_describe(state) for state in states)


def _describe(state: dict[str, Any] | None) -> str:
    if state is None:
        return "one does not answer"
    progress = state["progress"]
    what = f"runs {state['running']}" if state["running"] else "is idle"
    if progress:
        rounds = f" round {progress['round']}/{progress['rounds']}" if progress["rounds"] else ""
        what = f"is in {progress['verb']}{rounds}"
    return f"rank {state['rank']} (pid {state['pid']}) {what}"


def _free(ask: Ask, states: States, stranded: StalledRanks) -> None:
    text = f"{stranded.describe()}, and the notebook kernel that had begun it is gone"
    content = {"ask": "free", "why": text[0].upper() + text[1:], "advice": ADVICE}
    waiting = [state is not None and state["rank"] in stranded.waiting for state in states]
    ask([content if waits else {"ask": "state"} for waits in waiting])


def _busy(states: States, elapsed_s: float) -> ClusterError:
    return ClusterError(
        f"The ranks were still busy after {format_seconds(elapsed_s)}: {describe_states(states)}.",
        advice="Call attach again to wait longer; interrupting it ends what they do.",
    )
