"""`gcylon-lab lab`: what other users of the host can reach of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from ports import free_port

from gcylon_lab.tutorials import open_lab, private_kernels

TOKEN = "a-token-of-this-test"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        yield Path(short)


def ask(port: int, path: str, method: str = "GET") -> Any:
    headers = {"Authorization": f"token {TOKEN}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read())


def what_is_printed(connection: Path) -> str:
    """What a kernel prints once it is there."""
    until = time.monotonic() + 60
    while True:
        try:
            return _what_is_printed(connection)
        except RuntimeError:  # it is just starting
            assert time.monotonic() < until


def _text(message: dict[str, Any]) -> str:
    return str(message["content"].get("text", ""))


def _what_is_printed(connection: Path) -> str:
    client = BlockingKernelClient(connection_file=str(connection))
    client.load_connection_file()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=20)
        texts: list[str] = []
        client.execute_interactive("print(6 * 7)", timeout=60, output_hook=lambda m: texts.append(_text(m)))
        return "".join(texts)
    finally:
        client.stop_channels()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_no_other_user_can_listen_to_what_cells_print(folder: Path) -> None:
    port, runtime = free_port(), folder / "runtime"
    environment = os.environ | {"JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_TOKEN": TOKEN}
    options = ["--no-browser", f"--port={port}", "--ServerApp.port_retries=0"]
    command = [sys.executable, "-m", "gcylon_lab", "lab", "--dir", str(folder / "work"), "--", *options]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 90
        while True:
            try:
                ask(port, "/api/status")
                break
            except OSError:
                assert time.monotonic() < until and server.poll() is None, (folder / "log").read_text()
                time.sleep(0.2)
        shown = ask(port, "/lab/api/settings/@jupyterlab/docmanager-extension:plugin")["schema"]["properties"]
        assert shown["defaultViewers"]["default"] == {"markdown": "Markdown Preview"}, "pages are not shown as source"
        made = ask(port, "/api/kernels", "POST")["id"]
        connection = runtime / f"kernel-{made}.json"
        assert what_is_printed(connection) == "42\n"
        kernel = next(one for one in psutil.Process(server.pid).children() if str(connection) in one.cmdline())
        # ipykernel has one port in any case: it hears what forked processes print, by a secret, and says nothing.
        assert len([one for one in kernel.net_connections("inet") if one.status == psutil.CONN_LISTEN]) <= 1
        assert json.loads(connection.read_text())["transport"] == "ipc" and connection.stat().st_mode & 0o077 == 0
        assert runtime.stat().st_mode & 0o777 == 0o700
        ask(port, f"/api/kernels/{made}/restart", "POST")
        assert what_is_printed(connection) == "42\n"
    finally:
        server.terminate()
        server.wait(30)


def test_kernels_stay_on_ports_where_one_says_so_or_names_would_be_too_long(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, command: started.append(command))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(folder))
    for arguments in ([], ["--KernelManager.transport=tcp"]):
        open_lab(str(folder / "work"), arguments)
    assert all("--LabApp.default_url=/lab/tree/index.md" in command for command in started)
    assert "--KernelManager.transport=ipc" in started[0] and "--KernelManager.transport=ipc" not in started[1]
    assert private_kernels(Path("/" + "x" * 55)) and not private_kernels(Path("/" + "x" * 56))
