"""The folders in which running clusters keep their files, one each, for this user only."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import psutil
from jupyter_core.paths import jupyter_runtime_dir

from ...errors import ClusterError
from . import leftovers
from .lease import LEASE_FILE, Lease, write_private

STATE_FILE = "cluster.json"

# A folder without a state file may be one that is just being made.
_YOUNG_S = 300.0


def root() -> Path:
    """The folder of all clusters."""
    return Path(jupyter_runtime_dir()) / "gcylon_lab"


def new_home(label: str) -> Path:
    """Make a folder that only this user can enter."""
    root().mkdir(mode=0o700, parents=True, exist_ok=True)
    home = root() / label
    home.mkdir(mode=0o700)
    return home


def write_state(home: Path, state: dict[str, Any]) -> None:
    """Write what `attach` needs to know, mode 0600."""
    write_private(home / STATE_FILE, state)


def read_state(home: Path) -> dict[str, Any] | None:
    """Return what `write_state` wrote; None where it is missing or unreadable."""
    try:
        state = json.loads((home / STATE_FILE).read_text())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None


def find_running(name: str) -> tuple[Path, dict[str, Any]]:
    """The newest cluster of a name that may be taken over: its folder and its state.

    Raises
    ------
    ClusterError
        If there is none, or another process still owns it.
    """
    states = [(home, read_state(home)) for home in root().glob("*")]
    found = [(home, state) for home, state in states if state is not None and state["name"] == name]
    alive = [(home, state) for home, state in found if _controller_runs(state)]
    if not alive:
        raise ClusterError(f"There is no running cluster named {name!r}.", advice="Start one with gl.Cluster(n).")
    home, state = max(alive, key=lambda pair: float(pair[1]["started"]))
    owner = Lease(home / LEASE_FILE).owner()
    if owner is not None and owner.is_here() and owner.is_alive() and owner.pid != os.getpid():
        raise ClusterError(
            f"The cluster {name!r} belongs to process {owner.pid}, which is alive.",
            advice="Close it or call detach() there first; or start another one under another name.",
        )
    return home, state


def sweep() -> None:
    """Remove folders whose cluster ended without doing so itself: nobody owns them and their controller is gone."""
    for home in root().glob("*"):
        owner = Lease(home / LEASE_FILE).owner()
        old = time.time() - home.stat().st_mtime > _YOUNG_S
        if owner is None:
            abandoned = old
        else:
            abandoned = owner.is_here() and not owner.is_alive() and not _controller_runs(read_state(home))
        if abandoned:
            leftovers.remove(home)
            shutil.rmtree(home, ignore_errors=True)


def _controller_runs(state: dict[str, Any] | None) -> bool:
    if state is None:
        return False
    try:
        command = psutil.Process(int(state["controller_pid"])).cmdline()
    except (psutil.Error, KeyError, ValueError):
        return False
    return any("gcylon_lab.cluster.launch.controller" in word for word in command)
