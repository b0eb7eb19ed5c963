"""The controller's process: ports that nobody takes away, and an end that is noticed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import gcylon_lab as gl
from gcylon_lab.cluster.launch.launcher import Launcher
from gcylon_lab.errors import ClusterStartError

pytestmark = pytest.mark.mpi

HOLDING = """
import socket
import zmq
from ipyparallel import util
from gcylon_lab.cluster.launch.controller import hold_ports

hold_ports()
held = set(util.select_random_ports(40))
others = set()
for _ in range(20_000):
    with socket.socket() as other:
        other.bind(("", 0))
        others.add(other.getsockname()[1])
assert len(held) == 40 and len(others) > 1000 and not held & others
context = zmq.Context()
for port in held:
    server, client = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    server.bind(f"tcp://127.0.0.1:{port}")
    client.connect(f"tcp://127.0.0.1:{port}")
    client.send(b"hello")
    assert server.poll(20_000)
print("all bound")
context.destroy(0)
"""

# ipyparallel's own, whose schedulers find their ports taken.
FAILING = """
from gcylon_lab.cluster.launch import controller
from ipyparallel.controller.app import IPController

def start(self):
    raise OSError("no port was left")

IPController.init_schedulers = start
controller.main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ports can be held so on Linux alone")
def test_a_port_that_was_picked_is_given_to_nobody_else() -> None:
    done = subprocess.run([sys.executable, "-c", HOLDING], capture_output=True, text=True, timeout=100)
    assert done.stdout == "all bound\n", done.stderr


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
    assert "no port was left" in str(caught.value)
