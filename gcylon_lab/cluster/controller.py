"""The controller's process: ipyparallel's own, which ends itself when nobody owns the cluster any more.

Run as ``python -m gcylon_lab.cluster.controller``; ``GCYLON_LAB_HOME`` names the
cluster's folder and ``GCYLON_LAB_GRACE_S`` the grace time.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

from .lease import Lease, Vigil

LEASE_FILE = "lease.json"
HOME_VARIABLE = "GCYLON_LAB_HOME"
GRACE_VARIABLE = "GCYLON_LAB_GRACE_S"

# Engines get this long to end after the owner is gone, before the launcher and the folder go.
_AFTER_ENGINES_S = 5.0


def watch(home: Path, grace_s: float) -> None:
    """End this process once the owner is gone, and take the cluster's folder with it."""
    vigil = Vigil(Lease(home / LEASE_FILE), grace_s)
    while not vigil.is_over():
        time.sleep(1.0)
    time.sleep(_AFTER_ENGINES_S)
    shutil.rmtree(home, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(3.0)
    os._exit(0)


def main() -> None:
    """Start the watching thread, then ipyparallel's controller."""
    from ipyparallel.controller.app import main as run_controller

    home, grace_s = Path(os.environ[HOME_VARIABLE]), float(os.environ[GRACE_VARIABLE])
    threading.Thread(target=watch, args=(home, grace_s), name="gcylon-vigil", daemon=True).start()
    run_controller()


if __name__ == "__main__":
    main()
