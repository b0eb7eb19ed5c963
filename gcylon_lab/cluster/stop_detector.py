"""Sees processes that are stopped, by a signal or a debugger: they exist, do nothing, and may go on at any time."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from ..errors import ClusterDegraded, GcylonError, RankStopped
from .processes import belongs_to, is_stopped
from .rank_info import RankRecord

STOPPED_S = 3.0
"""So long a process is stopped before nobody waits for it any more; a debugger that only looks takes less."""

_FRESH_S = 1.5  # who was last looked at longer ago may have run meanwhile
_ASK_AGAIN_S = 0.5
_SAID_S = 3.0  # an answer is of use so long, and one that has not come is asked for again
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


class _Elsewhere:
    """What the nanny of an engine last said, which is asked again and never waited for."""

    def __init__(self, engine: int, ask: Callable[[int], Any]) -> None:
        self._engine = engine
        self._ask = ask
        self._asked_at = 0.0
        self._asked: Any = None
        self._said = (0.0, False)

    def says_stopped(self, now: float) -> bool:
        if self._asked is not None and self._asked.done():
            with contextlib.suppress(Exception):  # it was cancelled, as the client was closed
                self._said = now, bool(self._asked.result()["content"].get("stopped"))
            self._asked = None
        if (self._asked is None and now - self._asked_at > _ASK_AGAIN_S) or now - self._asked_at > _SAID_S:
            self._asked, self._asked_at = self._ask(self._engine), now
        at, stopped = self._said
        return stopped and now - at < _SAID_S


class StopDetector:
    """Looks at the processes of a cluster: itself on this host, by their nannies elsewhere.

    Parameters
    ----------
    ranks : sequence of RankRecord
    controller_pid : int or None
    home : str
        The cluster's folder, which its processes have in their environment: a process that has another is none of it,
        as one of the same number on another host of this name.
    ask : callable, optional
        Asks the nanny of an engine, by the engine's id, and gives the future of its answer; None where that is gone.
    """

    def __init__(
        self,
        ranks: Sequence[RankRecord],
        controller_pid: int | None,
        home: str,
        ask: Callable[[int], Any] = lambda engine: None,
    ) -> None:
        host = socket.gethostname()
        here = [record.rank for record in ranks if record.host == host and belongs_to(record.pid, home)]
        self._names = {record.rank: (record.describe(), record.pid) for record in ranks}
        if controller_pid is not None and belongs_to(controller_pid, home):
            here.append(_CONTROLLER)
            self._names[_CONTROLLER] = (f"the controller (host {host}, pid {controller_pid})", controller_pid)
        self._processes: dict[int, psutil.Process] = {}
        for who in here:
            with contextlib.suppress(psutil.Error):
                self._processes[who] = psutil.Process(self._names[who][1])
        self._elsewhere = {
            record.rank: _Elsewhere(record.engine_id, ask) for record in ranks if record.rank not in here
        }
        self._since: dict[int, float] = {}
        self._looked_at = 0.0
        self._turn = threading.Lock()

    def look(self, patience_s: float = STOPPED_S) -> Stop | None:
        """Look once: who has been stopped for so long, as far as was looked."""
        with self._turn:
            now = time.monotonic()
            known = self._since if now - self._looked_at < _FRESH_S else {}
            self._looked_at = now
            stopped = [who for who, process in self._processes.items() if is_stopped(process)]
            stopped += [rank for rank, nanny in self._elsewhere.items() if nanny.says_stopped(now)]
            self._since = {who: known.get(who, now) for who in stopped}
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
