"""The process beside each engine: ipyparallel's own, which also says whether the engine's process is stopped.

Run as ``python -m gcylon_lab.cluster.launch.nanny`` by the engine. It runs on the engine's host, and answers
whatever the engine does: the engine itself says nothing while a long call holds its interpreter, which is no reason
to give it up.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import zmq
from ipyparallel.engine.nanny import KernelNanny

from ..messages import LOOK_REQUEST
from ..processes import is_stopped

_MOST_BYTES = 16 << 20


def limit_what_is_heard() -> None:
    """Let the ports of engines and nannies, which hear pings and answers of the control channel, hear no long messages.

    Before it knows who speaks, ZeroMQ keeps what has come of a message, which may say that it is of any length.
    """
    bind = zmq.Socket.bind_to_random_port

    def bind_limited(self: Any, *arguments: Any, **options: Any) -> int:
        self.maxmsgsize = _MOST_BYTES
        return bind(self, *arguments, **options)

    zmq.Socket.bind_to_random_port = bind_limited  # type: ignore[method-assign]


class Nanny(KernelNanny):  # type: ignore[misc]
    """Relays signals to an engine, notices its end, and sees whether it is stopped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.control_handlers[LOOK_REQUEST] = self._look

    def _look(self, content: dict[str, Any]) -> dict[str, Any]:
        return {"status": "ok", "stopped": is_stopped(self.parent_process)}


def main() -> None:
    """Read from the engine what to do, and do it."""
    limit_what_is_heard()
    with os.fdopen(sys.stdin.fileno(), mode="rb") as file:
        options = pickle.load(file)
    Nanny.main(**options, pipe=sys.stdout)


if __name__ == "__main__":
    main()
