"""What an engine listens to while its main thread is busy or stuck: signals, and whether anybody still owns it."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from ..launch.lease import LeaseMonitor

_TICK_S = 0.5
_SPREAD_S = 0.02
_PATIENCE_S = 1.5
_LEAVE_S = 3.0
_MARK = b"\xff"  # no signal has this number

log = logging.getLogger(__name__)


class InterruptGuard:
    """RequestQueue a SIGINT into at most one KeyboardInterrupt per request, and only where it does no harm.

    IPython's own handler may raise while a reply is being made; that reply is
    then never sent, and its caller waits for ever. Inside an operation nothing is
    raised at first: the watcher revokes, and the operation ends at its next agreement
    with all that it holds given back. Only if that takes long is it cut short.

    Parameters
    ----------
    in_operation : callable
        Whether an operation runs.
    """

    def __init__(self, in_operation: Callable[[], bool]) -> None:
        self._in_operation = in_operation
        self._armed = False
        self._second: threading.Timer | None = None

    def install(self) -> None:
        """Take over SIGINT; from the main thread."""
        signal.signal(signal.SIGINT, self._on_signal)

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        """Let a SIGINT raise inside the block."""
        self._armed = True
        try:
            yield
        finally:
            self.disarm()

    def disarm(self) -> None:
        """From here on a SIGINT raises nothing."""
        self._armed = False
        if self._second is not None:
            self._second.cancel()
            self._second = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._armed:
            return
        if self._second is None and self._in_operation():
            self._second = threading.Timer(_PATIENCE_S, os.kill, (os.getpid(), signal.SIGINT))
            self._second.daemon = True
            self._second.start()
            return
        self.disarm()
        raise KeyboardInterrupt


class SignalThread:
    """A thread woken by signals, also while the main thread is inside an MPI call.

    Parameters
    ----------
    interrupt : callable
        Called on a SIGINT.
    revoke : callable
        Frees all ranks from their collectives, before the process ends.
    spread : callable
        Helps the news of a revoke along, which MPI sends only while it is at work; says whether there is any.
    vigil : LeaseMonitor
        Looked at twice a second; when it is over, the process ends.
    """

    def __init__(
        self,
        interrupt: Callable[[], None],
        revoke: Callable[[], None],
        spread: Callable[[], bool],
        vigil: LeaseMonitor,
    ) -> None:
        self._interrupt = interrupt
        self._revoke = revoke
        self._spread = spread
        self._looked_at = 0.0
        self._settled = threading.Event()
        self._vigil = vigil
        self._reader, self._writer = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="gcylon-watcher", daemon=True)

    def start(self) -> None:
        """Listen; from the main thread."""
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._thread.start()

    def settle(self, timeout_s: float = 1.0) -> None:
        """Return once every signal that was sent to this process has had its effect; from another thread."""
        deadline = time.monotonic() + timeout_s
        while signal.SIGINT in signal.sigpending() and time.monotonic() < deadline:
            time.sleep(0.001)
        self._settled.clear()
        self._writer.send(_MARK)
        self._settled.wait(max(deadline - time.monotonic(), 0.01))

    def _run(self) -> None:
        while True:
            try:
                self._look()
            except Exception:
                # Without this thread an interrupt frees nobody, so nothing may end it.
                log.exception("The watcher goes on after an error.")
                time.sleep(_TICK_S)

    def _look(self) -> None:
        wait_s = _SPREAD_S if self._spread() else _TICK_S
        readable, _, _ = select.select([self._reader], [], [], wait_s)
        numbers = set(self._reader.recv(4096)) if readable else set()
        if signal.SIGINT in numbers:
            self._interrupt()
        if _MARK[0] in numbers:
            self._settled.set()
        if signal.SIGTERM in numbers:
            self._leave()
        if self._is_time_to_look() and self._vigil.is_over():
            log.warning("The owner of this cluster is gone: the engine ends.")
            os.kill(os.getpid(), signal.SIGTERM)
            self._leave()

    def _is_time_to_look(self) -> bool:
        now = time.monotonic()
        if now - self._looked_at < _TICK_S:
            return False
        self._looked_at = now
        return True

    def _leave(self) -> None:
        """Somebody else handles SIGTERM here: free the main thread for that, and end the process if it does not end."""
        self._revoke()
        time.sleep(_LEAVE_S)
        os.kill(os.getpid(), signal.SIGKILL)
