"""An engine's process: ipyparallel's own, with a nanny that also sees whether it is stopped.

Run as ``python -m gcylon_lab.cluster.launch.engine_process``.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from ..processes import HOME_VARIABLE
from . import runtime_dirs
from .ports import announce


def main() -> None:
    """Run ipyparallel's engine."""
    gc.disable()  # what is loaded stays: `engine.start` collects again
    # ipykernel would load a debugger's server, which no engine can be asked for.
    sys.modules["debugpy.server"] = None  # type: ignore[assignment]
    import ipykernel.debugger  # noqa: F401
    from ipyparallel.engine import app

    from .nanny import fork_nanny

    del sys.modules["debugpy.server"]
    home = Path(os.environ[HOME_VARIABLE])
    find_connection(home)
    app.start_nanny = fork_nanny(runtime_dirs.sockets(home))
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
