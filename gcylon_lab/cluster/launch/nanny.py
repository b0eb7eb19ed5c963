"""The process beside each engine: ipyparallel's own, which also says whether the engine's process is stopped.

Run as ``python -m gcylon_lab.cluster.launch.nanny`` by the engine. It runs on the engine's host, and answers
whatever the engine does: the engine itself says nothing while a long call holds its interpreter, which is no reason
to give it up.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import zmq
from ipyparallel.engine.nanny import KernelNanny

from ..messages import LOOK_REQUEST
from ..processes import HOME_VARIABLE, is_stopped
from . import runtime_dirs

_TOLD = "tcp://127.0.0.1:nanny-"  # what ipyparallel makes of the name, for a port's number


def bind_in(folder: Path) -> None:
    """Let the nanny of this process listen in a folder, on a Unix socket, and on no port."""

    def bind(self: Any, *_: Any, **__: Any) -> str:
        self.bind(f"ipc://{folder}/nanny-{os.getpid()}")
        return f"nanny-{os.getpid()}"

    zmq.Socket.bind_to_random_port = bind  # type: ignore[method-assign, assignment]


def place(told: str, folder: Path) -> str:
    """Where a nanny listens, from what it tells its engine."""
    return told.replace(_TOLD, f"ipc://{folder}/nanny-")


class Nanny(KernelNanny):  # type: ignore[misc]
    """Relays signals to an engine, notices its end, and sees whether it is stopped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.control_handlers[LOOK_REQUEST] = self._look

    def _look(self, content: dict[str, Any]) -> dict[str, Any]:
        return {"status": "ok", "stopped": is_stopped(self.parent_process)}


def main() -> None:
    """Read from the engine what to do, and do it."""
    bind_in(runtime_dirs.sockets(Path(os.environ[HOME_VARIABLE])))
    with os.fdopen(sys.stdin.fileno(), mode="rb") as file:
        options = pickle.load(file)
    Nanny.main(**options, pipe=sys.stdout)


if __name__ == "__main__":
    main()
