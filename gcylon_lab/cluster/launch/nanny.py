"""The process beside each engine: ipyparallel's own, which also says whether the engine's process is stopped.

The engine forks it. It runs on the engine's host, and answers whatever the engine does: the engine itself says nothing
while a long call holds its interpreter, which is no reason to give it up.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import zmq
from ipyparallel.engine.nanny import KernelNanny

from ..messages import LOOK_REQUEST
from ..processes import NANNY, is_stopped

_PR_SET_NAME = 15  # of prctl(2)


def fork_nanny(folder: Path) -> Callable[..., tuple[str, TextIO]]:
    """Fork the nanny of this process, and return what tells it what to do, in place of ipyparallel's `start_nanny`.

    It has what this process has loaded, which a process of its own would load again. So it begins before MPI and
    threads do, and waits.

    Parameters
    ----------
    folder : Path
        In which it listens, on a Unix socket.
    """
    told, tell = os.pipe()
    heard, hear = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(tell)
            os.close(heard)
            _run(_url(folder, os.getpid()), os.fdopen(told, "rb"), os.fdopen(hear, "w", buffering=1))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(told)
    os.close(hear)
    answers = os.fdopen(heard)

    def start_nanny(**options: Any) -> tuple[str, TextIO]:
        with os.fdopen(tell, "wb") as file:
            pickle.dump(options | {"pid": os.getpid()}, file)
        if not answers.readline():  # of a port, where it would have one
            raise RuntimeError("the nanny ended at its start")
        return _url(folder, pid), answers  # kept open: where it closes, the nanny ends

    return start_nanny


def _url(folder: Path, pid: int) -> str:
    return f"ipc://{folder}/nanny-{pid}"


def _run(url: str, told: BinaryIO, pipe: TextIO) -> None:
    """Be the nanny."""
    gc.freeze()  # all this is the engine's, too
    gc.enable()
    os.setsid()  # signals of the engine's group are not for it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, NANNY.encode())
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):  # the engine's, which end with it
        os.dup2(null, number)
    try:
        options = pickle.load(told)
    except EOFError:
        return  # the engine ended at its start

    def bind(self: Any, *_: Any, **__: Any) -> str:
        self.bind(url)
        return ""

    zmq.Socket.bind_to_random_port = bind  # type: ignore[method-assign, assignment]
    Nanny.main(**options, pipe=pipe)


class Nanny(KernelNanny):  # type: ignore[misc]
    """Relays signals to an engine, notices its end, and sees whether it is stopped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.control_handlers[LOOK_REQUEST] = self._look

    def _look(self, content: dict[str, Any]) -> dict[str, Any]:
        return {"status": "ok", "stopped": is_stopped(self.parent_process)}
