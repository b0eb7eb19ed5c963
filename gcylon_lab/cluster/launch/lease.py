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
_LEAST_SILENCE_S = 30.0
_START, _TICKS_S = 22, 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 1.0  # of proc_pid_stat(5)


def this_system() -> str:
    """Where process numbers mean the same as here: the host's name, its boot, and the namespace of its processes.

    Containers may share a folder and a host's name, and each has a process 57.
    """
    return " ".join([socket.gethostname(), *_numbered_by()])


def _numbered_by() -> list[str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return [boot, str(os.stat("/proc/self/ns/pid").st_ino)]
    except OSError:  # not Linux
        return []


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told apart from a later one with the same number by its start.

    ``host`` is its `this_system`.
    """

    host: str
    pid: int
    started: float
    closed: bool = False

    @classmethod
    def this_process(cls) -> Owner:
        """The calling process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Owner:
        """A process of this system."""
        return cls(this_system(), pid, _started(pid))

    def is_here(self) -> bool:
        """Whether its number is one of this system, so that it can be looked up."""
        return self.host == this_system()

    def is_alive(self) -> bool:
        """Whether the process still runs on this system; one that was killed but not yet reaped does not."""
        try:
            same = abs(_started(self.pid) - self.started) < 2
            return same and bool(psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False


def _started(pid: int) -> float:
    """When a process began: on Linux by the seconds since the boot, which no change of the clock moves."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
        return int(after_name.split()[_START - 3]) * _TICKS_S
    except OSError:
        return float(psutil.Process(pid).create_time())


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

    def renewed_at(self) -> float:
        """When the owner last renewed it, by the clock of the file system; 0 where it is missing."""
        try:
            return self.path.stat().st_mtime
        except OSError:
            return 0.0


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
        self._renewed_at, self._heard_at = 0.0, time.monotonic()

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
        # The file lies where other hosts or containers see it: a renewed claim is all that can be seen of its owner,
        # and their clocks differ.
        now, renewed_at = time.monotonic(), self._lease.renewed_at()
        if renewed_at != self._renewed_at:
            self._renewed_at, self._heard_at = renewed_at, now
        return now - self._heard_at < max(self._grace_s / 2, _LEAST_SILENCE_S)
