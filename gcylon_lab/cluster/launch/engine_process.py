"""An engine's process: ipyparallel's own, with a nanny that also sees whether it is stopped.

Run as ``python -m gcylon_lab.cluster.launch.engine_process``. Where an ipyparallel starts its nannies in another way it
has those, and only what is stopped on other hosts than the notebook's is not noticed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..processes import HOME_VARIABLE
from . import runtime_dirs
from .ports import announce


def main() -> None:
    """Run ipyparallel's engine."""
    from ipyparallel.engine import app, nanny

    from .nanny import place

    home = Path(os.environ[HOME_VARIABLE])
    find_connection(home)
    nanny.__name__ = "gcylon_lab.cluster.launch.nanny"  # it starts the module of this name
    # As all processes of a cluster: nothing is imported from the folder in which they start, where others may have put
    # a package of this name.
    popen = nanny.Popen
    nanny.Popen = lambda command, **options: popen([command[0], "-P", *command[1:]], **options)
    start = app.start_nanny

    def start_nanny(**options: Any) -> tuple[str, Any]:
        told, process = start(**options)
        return place(told, runtime_dirs.sockets(home)), process

    app.start_nanny = start_nanny
    announce(runtime_dirs.announcements(home))  # ipyparallel starts MPI next
    app.IPEngine.launch_instance()


def find_connection(home: Path) -> None:
    """On another host than the notebook's, take the keys, and keep files, where `far_host` has prepared it."""
    folder = runtime_dirs.shared_memory(home)
    file = folder / runtime_dirs.CONNECTION_FILE
    if not file.exists():
        return
    runtime_dirs.check_own(folder)
    os.environ |= {"IPP_CONNECTION_INFO": file.read_text(), "IPP_PROFILE_DIR": str(folder)}


if __name__ == "__main__":
    main()
