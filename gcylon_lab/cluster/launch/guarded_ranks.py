"""Ranks of this host that belong to no cluster, as the doctor and the benches start them: guarded as those of one."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from .mpiexec import OPENMPI, MpiExec, on_this_host
from .ports import PortGuard

# As `ports.announce`, without a package to import first; then it becomes what the rank runs.
_ANNOUNCE = """\
import os, sys
try:
    pipe = os.open(sys.argv[1], os.O_WRONLY | os.O_NONBLOCK)
    os.write(pipe, b"%d\\n" % os.getpid())
    os.close(pipe)
except OSError:
    pass
os.execv(sys.argv[2], sys.argv[2:])
"""


class GuardedRanks(AbstractContextManager["GuardedRanks"]):
    """What an mpiexec is started with so that its ranks listen on no port, and it hears them alone.

    Its process is given to `watch` at once: it waits for that. The ``with`` block ends after it.

    Parameters
    ----------
    mpi : MpiExec

    Attributes
    ----------
    mpi_arguments : list of str
        Of mpiexec.
    before : list of str
        What stands before the command of each rank, which is a program by its full path.
    environment : dict of str to str
    """

    def __init__(self, mpi: MpiExec) -> None:
        place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._mpi = mpi
        self._folder = tempfile.TemporaryDirectory(prefix="gcylon_lab-", dir=place, ignore_cleanup_errors=True)
        self._guard: PortGuard | None = None
        self.mpi_arguments, self.before = list(mpi.arguments), list[str]()
        self.environment = mpi.environment | on_this_host(mpi, Path(self._folder.name))
        if sys.platform == "linux" and mpi.flavour == OPENMPI:
            pipe = Path(self._folder.name) / "mpiexec"
            self._guard = PortGuard(pipe, reports=mpi.revocable)
            self.mpi_arguments += ["--report-uri", str(pipe)] if mpi.revocable else []
            self.before = [sys.executable, "-P", "-c", _ANNOUNCE, str(pipe)]

    def command(self, ranks: int, command: Sequence[str]) -> list[str]:
        """Return that of an mpiexec whose ranks run a command each."""
        return [self._mpi.path, *self.mpi_arguments, "-n", str(ranks), *self.before, *command]

    def watch(self, pid: int) -> None:
        """Guard the process of this number, which has just been started."""
        if self._guard is not None:
            self._guard.watch(pid)

    def close(self) -> None:
        """Let nobody connect any more, once all ranks have come. Idempotent."""
        if self._guard is not None:
            self._guard.close()

    def __exit__(self, *_: object) -> None:
        self.close()
        self._folder.cleanup()
