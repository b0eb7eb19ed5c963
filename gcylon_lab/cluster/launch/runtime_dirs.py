"""The folders in which running clusters keep their files, one each, for this user only.

Beside its folder each cluster has one in shared memory, for what Open MPI makes, and one of a short name for its
sockets: where all of a cluster is killed, the next start knows by the first what to remove of the others.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from jupyter_core.paths import jupyter_runtime_dir

from ...errors import ClusterError
from .lease import LEASE_FILE, Lease, this_system, write_private
from .security import other_people

STATE_FILE = "cluster.json"
CONNECTION_FILE = "connection.json"
"""What ranks on another host than the notebook's need to speak to the controller, keys included."""

# A folder without a state file may be one that is just being made.
_YOUNG_S = 300.0
# An owner whose process cannot be looked up renews its lease every few seconds, and may sleep for a night.
_UNHEARD_S = 86400.0
_SWEPT = ".swept-"
_SOCKETS = "sockets"
_LONGEST_PLACE = 60  # bytes: a socket's name, with its folder's, may have 107
_ROOT, _UNMAPPED = 0, 65534  # in a container, the owner of what is not its own is "nobody"


def root() -> Path:
    """The folder of all clusters."""
    return Path(jupyter_runtime_dir()) / "gcylon_lab"


def new_home(label: str) -> Path:
    """Make a folder that only this user can enter.

    Raises
    ------
    ClusterError
        If another user can put something into its place.
    """
    # Jupyter's own, in which a server keeps a page with its token, as Jupyter makes it.
    root().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    root().mkdir(mode=0o700, exist_ok=True)
    check_root()
    home = root() / label
    home.mkdir(mode=0o700)
    return home


def renew_sockets(home: Path) -> None:
    """Make the folder in which the processes of a cluster listen, in the place of that of a controller before."""
    _remove_sockets(_with_link(home))
    place = tempfile.gettempdir()
    folder = tempfile.mkdtemp(prefix="gcylon_lab-", dir=place if len(os.fsencode(place)) <= _LONGEST_PLACE else "/tmp")
    (_with_link(home) / _SOCKETS).symlink_to(folder)


def sockets(home: Path) -> Path:
    """The folder in which the processes of a cluster listen, on Unix sockets: no other user can enter it."""
    return (_with_link(home) / _SOCKETS).readlink()


def check_root() -> None:
    """Refuse a folder of all clusters that another user can change, or put another into its place.

    Raises
    ------
    ClusterError
        Naming the folder, its owner and its mode.
    """
    check_own(root())
    above = root().parent
    real = above.resolve()
    # Whoever owns a folder can put another into the place of what lies there, also where its sticky bit is set; and
    # whoever owns a link can let it point elsewhere.
    for folder in dict.fromkeys((above, *above.parents, real, *real.parents)):
        status = os.lstat(folder)
        foreign = status.st_uid not in (os.geteuid(), _ROOT, _UNMAPPED)
        is_link = stat.S_ISLNK(status.st_mode)
        replaceable = not is_link and status.st_mode & 0o002 and not status.st_mode & stat.S_ISVTX
        if (foreign or replaceable) and other_people():  # a container's volume may be so, and nobody else be in it
            raise _refused(folder, status)


def check_own(folder: Path) -> None:
    """Refuse to believe what lies in a folder that another user can change; a link is none.

    Raises
    ------
    ClusterError
        Naming the folder, its owner and its mode.
    """
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise _refused(folder, status)


def _refused(folder: Path, status: os.stat_result) -> ClusterError:
    if stat.S_ISLNK(status.st_mode):
        what = f"is a symbolic link of user {status.st_uid}"
    elif not stat.S_ISDIR(status.st_mode):
        what = "is not a folder"
    else:
        what = f"belongs to user {status.st_uid} and has mode {stat.S_IMODE(status.st_mode):04o}"
    return ClusterError(
        f"{folder} {what}, while this is user {os.geteuid()}: another user could change what a cluster keeps there, "
        "which the ranks run.",
        advice="Set JUPYTER_RUNTIME_DIR to a folder of your own that nobody else can write, as `mktemp -d` makes one.",
    )


def shared_memory(home: Path) -> Path:
    """The folder for what Open MPI shares between the ranks of a cluster, on this host."""
    place = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
    return place / f"gcylon_lab-{os.geteuid()}-{home.name}"


def lease_path(home: Path) -> Path:
    """Where ranks on this host see whose they are."""
    far = far_lease(home)
    return far if far.exists() else home / LEASE_FILE


def far_lease(home: Path) -> Path:
    """The lease on another host than the notebook's, as long as the notebook is heard there."""
    return shared_memory(home) / LEASE_FILE


def announcements(home: Path) -> Path:
    """Where mpiexec writes that it listens, and ranks on this host that they are about to call it."""
    return shared_memory(home) / "mpiexec"


def renew_shared_memory(home: Path) -> Path:
    """Make that folder, for this user only and with nothing in it from ranks that have ended.

    Raises
    ------
    ClusterError
        If another user has put something into its place.
    """
    folder = shared_memory(home)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    try:
        check_own(folder)
    except ClusterError:
        owner = os.lstat(folder).st_uid
        raise ClusterError(
            f"{folder} is there already, of user {owner}: it was to hold what ranks share.",
            advice="Start a new cluster, which takes another name; or remove it.",
        ) from None
    for path in folder.iterdir():  # its name stays taken
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return folder


def remove(home: Path) -> None:
    """Remove the folders of a cluster that has ended. Idempotent."""
    remove_on_host(home)
    shutil.rmtree(home, ignore_errors=True)


def remove_on_host(home: Path, *, far: bool = False) -> None:
    """Remove the folders that a cluster has on every host; `far` on another than the notebook's. Idempotent."""
    _remove_sockets(shared_memory(home) if far else home)
    shutil.rmtree(shared_memory(home), ignore_errors=True)


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
        If there is none, another process still owns it, or another user can change it.
    """
    states = [(home, read_state(home)) for home in _homes()]
    found = [(home, state) for home, state in states if state is not None and state["name"] == name]
    for home, _ in found:
        check_own(home)
    alive = [(home, state) for home, state in found if _controller_runs(state)]
    elsewhere = [
        str(state.get("system", "")) for home, state in found if not _is_here(state) and not _is_abandoned(home)
    ]
    if not alive and any(elsewhere):
        host = max(elsewhere).partition(" ")[0]
        where = f"on host {host}" if host != this_system().partition(" ")[0] else "in another container of this host"
        raise ClusterError(f"The cluster {name!r} was started {where}.", advice="Attach to it there.")
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
    """Remove folders whose cluster ended without doing so itself: nobody owns them and their controller is gone.

    Several processes may do so at once: whoever renames a folder removes it.
    """
    for home in _homes():
        if home.name.startswith(_SWEPT):
            shutil.rmtree(home, ignore_errors=True)
            continue
        with suppress(OSError):
            if home.is_symlink() or not _is_abandoned(home):
                continue
            swept = home.with_name(_SWEPT + secrets.token_hex(8))
            remove_on_host(home)
            os.rename(home, swept)
            shutil.rmtree(swept, ignore_errors=True)


def _remove_sockets(with_link: Path) -> None:
    with suppress(OSError):
        shutil.rmtree((with_link / _SOCKETS).readlink(), ignore_errors=True)
        (with_link / _SOCKETS).unlink()


def _with_link(home: Path) -> Path:
    """Where the link to the sockets is: another host than the notebook's, which may see its folder, has its own."""
    folder = shared_memory(home)
    return folder if (folder / CONNECTION_FILE).exists() else home


def _is_abandoned(home: Path) -> bool:
    """Whether it is certain that nobody is left of a cluster, or nobody has been heard of for very long."""
    lease, state = Lease(home / LEASE_FILE), read_state(home)
    owner = lease.owner()
    if owner is None:
        return _now_in(home.parent) - home.stat().st_mtime > _YOUNG_S
    if owner.is_here() and _is_here(state):
        return not owner.is_alive() and not _controller_runs(state)
    grace_s = float((state or {}).get("grace_s", 0.0))
    return _now_in(home.parent) - lease.renewed_at() > _UNHEARD_S + grace_s


def _now_in(folder: Path) -> float:
    """The time by the clock of a folder's file system, which may be another host's."""
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_mtime


def _is_here(state: dict[str, Any] | None) -> bool:
    """Whether processes of a cluster can be looked up; a cluster without a state has not started all of them."""
    return state is None or state.get("system") == this_system()


def _homes() -> list[Path]:
    """The folders of all clusters."""
    if not os.path.lexists(root()):
        return []
    check_root()
    return [path for path in root().glob("*") if path.is_dir()]


def _controller_runs(state: dict[str, Any] | None) -> bool:
    if state is None or not _is_here(state):
        return False
    try:
        command = psutil.Process(int(state["controller_pid"])).cmdline()
    except (psutil.Error, KeyError, ValueError):
        return False
    return any("gcylon_lab.cluster.launch.controller" in word for word in command)
