"""What MPI leaves on a host when its mpiexec is killed: shared-memory segments, and a folder for temporary files.

Each engine writes into its cluster's folder which of them are its job's. They are removed once the engine and its
mpiexec have ended; what other jobs made is never looked at.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from .lease import Owner, write_private

_FILES = "mpi-*.json"
_SEGMENT = re.compile(r"/dev/shm/\S*sm_segment\S*")
_TEMPORARY = "PMIX_SERVER_TMPDIR"


def note(home: Path) -> None:
    """Write down what this process's MPI library has made; called by an engine once MPI runs.

    Parameters
    ----------
    home : Path
        The cluster's folder.
    """
    mpiexec = os.getppid()
    paths = [path for path in [*_segments(), *_temporary(mpiexec)] if _ours(path)]
    processes = [_process(pid) for pid in (os.getpid(), mpiexec) if pid > 1]
    known = {
        "host": socket.gethostname(),
        "processes": [[each.pid, each.started] for each in processes if each is not None],
        "paths": [[path, *_identity(path)] for path in paths],
    }
    write_private(home / _FILES.replace("*", str(os.getpid())), known)


def remove(home: Path) -> None:
    """Remove what jobs that have ended on this host left, by what their engines wrote down.

    Parameters
    ----------
    home : Path
        The cluster's folder.
    """
    for file in home.glob(_FILES):
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(file.read_text())
            if known["host"] != socket.gethostname():
                continue
            if any(Owner(known["host"], pid, started).is_alive() for pid, started in known["processes"]):
                continue
            for path, *identity in known["paths"]:
                _remove_one(path, identity)
            file.unlink()


def _segments() -> list[str]:
    with suppress(OSError):
        return sorted(set(_SEGMENT.findall(Path("/proc/self/maps").read_text())))
    return []


def _temporary(mpiexec: int) -> list[str]:
    """The folder of this job alone: it has the number of its mpiexec in its name."""
    path = os.environ.get(_TEMPORARY, "")
    return [path] if re.search(rf"\D{mpiexec}$", path) and Path(path).is_dir() else []


def _ours(path: str) -> bool:
    with suppress(OSError):
        return Path(path).lstat().st_uid == os.geteuid()
    return False


def _identity(path: str) -> list[int]:
    """Tells a file from a later one of the same name."""
    status = Path(path).lstat()
    return [status.st_dev, status.st_ino]


def _process(pid: int) -> Owner | None:
    with suppress(psutil.Error):
        return Owner(socket.gethostname(), pid, psutil.Process(pid).create_time())
    return None


def _remove_one(path: str, identity: list[Any]) -> None:
    with suppress(OSError):
        if not _ours(path) or _identity(path) != identity:
            return
        if Path(path).is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
