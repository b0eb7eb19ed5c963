"""The control channel: what engines answer also while they work."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures import wait
from typing import Any

from ..errors import from_message
from .messages import CONTROL_REQUEST, LOOK_REQUEST
from .stop_detector import StopDetector

CONTROL_S = 5.0
"""How long to wait for an answer, which takes milliseconds where a rank's process runs at all."""

_FRESH_S = 0.5
_LOOK_S = 0.25


class Control:
    """Asks ranks beside their requests: answers come from a thread of their own.

    Parameters
    ----------
    client : ipyparallel.Client
    engine_ids : list of int
        In the order of their MPI ranks.
    stops : StopDetector
    """

    def __init__(self, client: Any, engine_ids: list[int], stops: StopDetector) -> None:
        self._client = client
        self._engine_ids = engine_ids
        self._stops = stops
        self._told: tuple[float, list[dict[str, Any] | None]] = (-_FRESH_S, [])

    def ask(self, content: dict[str, Any], timeout_s: float = CONTROL_S) -> list[dict[str, Any] | None]:
        """Ask all ranks the same on the control channel, as `ask_each`."""
        return self.ask_each([content] * len(self._engine_ids), timeout_s)

    def ask_each(self, contents: Sequence[dict[str, Any]], timeout_s: float = CONTROL_S) -> list[dict[str, Any] | None]:
        """Ask every rank its own on the control channel, also while they work; None for one that does not answer.

        Raises
        ------
        GcylonError
            If a rank refuses, for example a setting above its ceiling.
        """
        futures = [self.send(*pair) for pair in zip(self._engine_ids, contents, strict=True)]
        deadline = time.monotonic() + timeout_s
        sent = [future for future in futures if future is not None]
        # Nobody waits longer for a rank that is stopped.
        while not wait(sent, max(min(_LOOK_S, deadline - time.monotonic()), 0.0)).not_done == set():
            if time.monotonic() > deadline or self._stops.look() is not None:
                break
        return [_reply_of(future, 0.0) for future in futures]

    def states(self, timeout_s: float) -> list[dict[str, Any] | None]:
        """What every rank is doing, by `Engine.state`: asked for, unless the ranks have told it with something else."""
        at, states = self._told
        return states if time.monotonic() - at < _FRESH_S else self.ask({"ask": "state"}, timeout_s)

    def told(self, states: list[dict[str, Any] | None]) -> None:
        """The ranks have just told their states: nobody need ask them for a moment."""
        self._told = (time.monotonic(), states)

    def send(self, engine: int, content: dict[str, Any]) -> Any:
        """Send a question, and return the future of its answer; None where the engine is gone."""
        if engine not in self._client.ids:
            return None
        ident = self._client._engines[engine].encode()
        return self._client._send(self._client._control_stream, CONTROL_REQUEST, content=content, ident=ident)


def ask_nanny(client: Any, engine: int) -> Any:
    """Ask the nanny of an engine whether that is stopped; the future of its answer, None where the engine is gone."""
    if engine not in client.ids or client._closed:
        return None
    ident = client._engines[engine].encode()
    return client._send(client._control_stream, LOOK_REQUEST, content={}, ident=ident)


def _reply_of(future: Any, timeout_s: float) -> dict[str, Any] | None:
    """Wait for an answer on the control channel; None without one, and the rank's own error where it refused."""
    if future is None:
        return None
    try:
        message = future.result(max(timeout_s, 0.0))
    except FutureTimeout:
        return None
    # ipyparallel's future is in a cycle with its callbacks: what it holds stays until a collection of all generations.
    content = message.pop("content")
    if content["status"] == "failed":
        raise from_message(content["error"])
    reply: dict[str, Any] = content["reply"]
    return reply
