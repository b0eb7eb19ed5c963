"""The controller's process: an end that is noticed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ipyparallel.error import CompositeError

import gcylon_lab as gl
from gcylon_lab.cluster.launch.launcher import Launcher
from gcylon_lab.errors import ClusterDegraded, ClusterStartError

pytestmark = pytest.mark.mpi

# One whose schedulers find no place to listen.
FAILING = """
from gcylon_lab.cluster.launch import controller
from ipyparallel.controller.app import IPController

def start(self):
    raise OSError("no place was left")

IPController.init_schedulers = start
controller.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["TERM", "KILL"])
def test_a_cell_ends_where_the_controller_is_gone(hurt: gl.Cluster, number: signal.Signals) -> None:
    """As verbs do: nobody would bring its answer."""
    controller = hurt._session.launcher.state()["controller_pid"]
    threading.Timer(0.2, os.kill, (controller, number)).start()
    began = time.monotonic()
    with pytest.raises(CompositeError, match="The process of the controller.* is gone"):
        hurt.view.execute("import time; time.sleep(30)", silent=False, block=True)
    assert time.monotonic() - began < 5
    with pytest.raises(ClusterDegraded):
        hurt.run(int, 1)
    hurt.restart()
    assert hurt.run(int, 1) == [1, 1]


def test_a_controller_that_ends_at_its_start_is_an_error_at_once(
    runtime_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    config = Launcher._config

    def with_failing_controller(self: Launcher) -> Any:
        made = config(self)
        made.LocalControllerLauncher.controller_cmd = [sys.executable, str(script)]
        return made

    monkeypatch.setattr(Launcher, "_config", with_failing_controller)
    began = time.monotonic()
    with pytest.raises(ClusterStartError, match="[Cc]ontroller (ended|stopped)") as caught:
        gl.Cluster(1, name="failing", progress=False)
    assert time.monotonic() - began < 60
    assert "no place was left" in str(caught.value)
