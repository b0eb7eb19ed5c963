"""A JupyterLab and a Chromium for one notebook."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def find_chromium() -> str | None:
    """Where Chromium is."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def jupyter(folder: Path, cells: list[str], *, dark: bool) -> Iterator[str]:
    """Serve a notebook of some cells under a theme; gives its address."""
    theme = {"theme": "JupyterLab Dark" if dark else "JupyterLab Light"}
    _write(folder / "settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings", theme)
    _write(folder / "settings/@jupyterlab/notebook-extension/tracker.jupyterlab-settings", {"windowingMode": "none"})
    off = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    _write(folder / "config/labconfig/page_config.json", off)
    _write(folder / "work/live.ipynb", _notebook(cells))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        "JUPYTER_CONFIG_DIR": str(folder / "config"), "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"), "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])]),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
        "--IdentityProvider.token=", "--ServerApp.password=", f"--notebook-dir={folder / 'work'}",
    ]  # fmt: skip
    with (folder / "jupyter.log").open("w") as log:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log)
        try:
            _wait(f"http://127.0.0.1:{port}/api", process)
            yield f"http://127.0.0.1:{port}/lab/tree/live.ipynb?reset"
        finally:
            process.terminate()
            process.wait(30)


def _notebook(cells: list[str]) -> dict[str, Any]:
    made = [
        {"cell_type": "code", "id": f"c{i}", "source": s, "metadata": {}, "outputs": [], "execution_count": None}
        for i, s in enumerate(cells)
    ]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": made, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"JupyterLab does not answer (exit status {process.poll()})")
