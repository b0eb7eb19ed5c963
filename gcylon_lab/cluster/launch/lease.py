"""Whose cluster it is: a file that says which process owns the engines.

Engines and controller look at it and end themselves once the owner has been
gone for the grace time. A new owner (`Cluster.attach`) writes its own name.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from ...whole_files import write_whole

LEASE_FILE = "lease.json"

_JOIN_S = 2.0  # to write a small file


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told apart from a later one with the same number by its start."""

    host: str
    pid: int
    started: float
    closed: bool = False

    @classmethod
    def this_process(cls) -> Owner:
        """The calling process."""
        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time())

    def is_here(self) -> bool:
        """Whether it runs on this host, so that it can be looked up."""
        return self.host == socket.gethostname()

    def is_alive(self) -> bool:
        """Whether the process still runs on this host; one that was killed but not yet reaped does not."""
        try:
            process = psutil.Process(self.pid)
            same = abs(float(process.create_time()) - self.started) < 2
            return same and bool(process.status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False


def write_private(path: Path, values: dict[str, Any]) -> None:
    """Write JSON that only this user may read, so that readers see the old or the new text and nothing between."""
    write_whole(path, json.dumps(values))


class Lease:
    """The owner's claim, as a file.

    Parameters
    ----------
    path : Path
        Where it lies.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, *, closed: bool = False) -> None:
        """Say that this process owns the engines, or that nobody needs them any more."""
        owner = asdict(Owner.this_process())
        write_private(self.path, owner | {"closed": closed})

    def give_to(self, owner: Owner) -> None:
        """Say that another process owns the engines, as it did before."""
        write_private(self.path, asdict(owner))

    def owner(self) -> Owner | None:
        """Who owns the engines; None where the file is missing or cannot be read."""
        try:
            return Owner(**json.loads(self.path.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def age_s(self) -> float:
        """Seconds since the owner last renewed it."""
        try:
            return time.time() - self.path.stat().st_mtime
        except OSError:
            return float("inf")


class LeaseHeartbeat:
    """Renews a lease from a thread for as long as its process lives.

    Parameters
    ----------
    lease : Lease
    every_s : float
        Time between renewals.
    """

    def __init__(self, lease: Lease, every_s: float) -> None:
        self._lease = lease
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gcylon-lease", daemon=True)

    def start(self) -> None:
        """Claim the lease, and go on renewing it."""
        self._lease.claim()
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing, for good once this returns: nobody's later claim is written over. Idempotent."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._lease.claim()
            except OSError:
                pass  # a full disk or a folder swept away: owners on this host are looked up by process anyway


class LeaseMonitor:
    """Tells when the owner has been gone for the grace time.

    Parameters
    ----------
    lease : Lease
    grace_s : float
        How long to wait for a new owner.
    """

    def __init__(self, lease: Lease, grace_s: float) -> None:
        self._lease = lease
        self._grace_s = grace_s
        self._gone_since: float | None = None

    def is_over(self) -> bool:
        """Look once; call it every second or so."""
        owner = self._lease.owner()
        if owner is not None and owner.closed:
            return True
        if owner is not None and self._is_present(owner):
            self._gone_since = None
            return False
        now = time.monotonic()
        if self._gone_since is None:
            self._gone_since = now
        return now - self._gone_since >= self._grace_s

    def _is_present(self, owner: Owner) -> bool:
        if owner.is_here():
            return owner.is_alive()
        # The file lies on a file system that hosts share: a renewed claim is all that can be seen of its owner.
        return self._lease.age_s() < max(self._grace_s / 2, 30.0)
