"""Sees processes that are stopped, by a signal or a debugger: they exist, do nothing, and may go on at any time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from ..errors import ClusterDegraded, GcylonError, RankStopped
from .identity import RankRecord
from .processes import belongs_to, is_stopped

STOPPED_S = 3.0
"""So long a process is stopped before nobody waits for it any more; a debugger that only looks takes less."""

_FRESH_S = 1.5  # who was last looked at longer ago may have run meanwhile
_CONTROLLER = -1  # in the place of a rank


@dataclass(frozen=True, slots=True)
class Stop:
    """Processes that are stopped.

    Attributes
    ----------
    ranks : tuple of int
        None where it is the controller.
    text : str
        "Rank 1 (host node1, pid 4711) is stopped"
    advice : str
    """

    ranks: tuple[int, ...]
    text: str
    advice: str

    def error(self, what: str = "") -> GcylonError:
        """The error for who asked for something, or waits for it."""
        given_up = f" {what} was given up." if what else ""
        if not self.ranks:
            return ClusterDegraded(f"{self.text}.{given_up}", advice=self.advice)
        error = RankStopped(f"{self.text}.{given_up}", advice=self.advice, stopped_ranks=list(self.ranks))
        error.rank = self.ranks[0]
        return error


class StopDetector:
    """Looks at the processes of a cluster that run on this host.

    Parameters
    ----------
    ranks : sequence of RankRecord
    controller_pid : int or None
    home : str
        The cluster's folder, which its processes have in their environment: a process that has another is none of it,
        as one of the same number on another host of this name.
    """

    def __init__(self, ranks: Sequence[RankRecord], controller_pid: int | None, home: str) -> None:
        host = socket.gethostname()
        names = {record.rank: (record.describe(), record.pid) for record in ranks if record.host == host}
        if controller_pid is not None:
            names[_CONTROLLER] = (f"the controller (host {host}, pid {controller_pid})", controller_pid)
        self._names = {who: (name, pid) for who, (name, pid) in names.items() if belongs_to(pid, home)}
        self._processes: dict[int, psutil.Process] = {}
        for who, (_, pid) in self._names.items():
            with contextlib.suppress(psutil.Error):
                self._processes[who] = psutil.Process(pid)
        self._since: dict[int, float] = {}
        self._looked_at = 0.0
        self._turn = threading.Lock()

    def look(self, patience_s: float = STOPPED_S) -> Stop | None:
        """Look once: who has been stopped for so long, as far as was looked."""
        with self._turn:
            now = time.monotonic()
            known = self._since if now - self._looked_at < _FRESH_S else {}
            self._looked_at = now
            self._since = {who: known.get(who, now) for who, process in self._processes.items() if is_stopped(process)}
            return self._describe([who for who, since in self._since.items() if now - since >= patience_s])

    def now(self) -> Stop | None:
        """Who is stopped, however short."""
        return self.look(0.0)

    def _describe(self, stopped: Sequence[int]) -> Stop | None:
        if not stopped:
            return None
        names = " and ".join(self._names[who][0] for who in sorted(stopped))
        pids = " ".join(str(self._names[who][1]) for who in sorted(stopped))
        through = ", through which all requests go," if _CONTROLLER in stopped else ""
        are = "are" if len(stopped) > 1 else "is"
        text = f"{names}{through} {are} stopped, by a signal or a debugger"
        advice = f"Let it go on (kill -CONT {pids}): then the next operation works. Or call restart() for new engines."
        return Stop(tuple(sorted(set(stopped) - {_CONTROLLER})), text[0].upper() + text[1:], advice)
