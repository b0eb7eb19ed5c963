"""An engine's process: ipyparallel's own, with a nanny that also sees whether it is stopped.

Run as ``python -m gcylon_lab.cluster.launch.engine_process``. Where an ipyparallel starts its nannies in another way it
has those, and only what is stopped on other hosts than the notebook's is not noticed.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..processes import HOME_VARIABLE
from . import runtime_dirs
from .ports import announce


def main() -> None:
    """Run ipyparallel's engine."""
    import zmq
    from ipyparallel.engine import app, nanny

    from .nanny import limit_what_is_heard

    limit_what_is_heard()
    nanny.__name__ = "gcylon_lab.cluster.launch.nanny"  # it starts the module of this name
    # As all processes of a cluster: nothing is imported from the folder in which they start, where others may have put
    # a package of this name.
    popen = nanny.Popen
    nanny.Popen = lambda command, **options: popen([command[0], "-P", *command[1:]], **options)
    announce(runtime_dirs.announcements(Path(os.environ[HOME_VARIABLE])))  # ipyparallel starts MPI next
    # With keys of its own the engine talks encrypted to its nanny in any case: whoever else could connect to that would
    # get every second message.
    public, secret = zmq.curve_keypair()
    app.IPEngine.launch_instance(curve_publickey=public, curve_secretkey=secret)


if __name__ == "__main__":
    main()
