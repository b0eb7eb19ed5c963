"""A notebook in a real JupyterLab, open in a real headless Chromium, and its kernel within reach."""

from __future__ import annotations

import json
import os
import queue
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ...errors import GcylonError
from ...tutorials import private_kernels

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PLOT = "document.querySelector('.gcylon-dashboard .js-plotly-plot')"
_START_S = 90.0


def find_chromium() -> str | None:
    """Where Chromium is."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a headless Chromium, and end it.

    Raises
    ------
    GcylonError
        If there is none, or nothing to drive it with.
    """
    where = find_chromium()
    if where is None:
        raise GcylonError("There is no Chromium here.", advice="Install it, for example apt-get install chromium.")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise GcylonError("playwright is not installed.", advice="pip install playwright") from None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=where, headless=True, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Lab:
    """A JupyterLab that serves one notebook: its address, its folder, the process, its log."""

    url: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        """What the server and its kernels wrote so far."""
        return (self.folder / "jupyter.log").read_text(errors="replace")


@contextmanager
def jupyter(folder: Path, cells: Sequence[str], *, dark: bool = False, paths: Sequence[str] = ()) -> Iterator[Lab]:
    """Serve a notebook of some cells under a theme, with settings and files of its own in a folder.

    Parameters
    ----------
    folder : Path
    cells : sequence of str
    dark : bool
        JupyterLab's dark theme, or its light one.
    paths : sequence of str
        Where the kernel imports from, beside this package.
    """
    _write_settings(folder, dark=dark)
    _write(folder / "work/live.ipynb", _notebook(cells))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-P", "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
        f"--notebook-dir={folder / 'work'}", "--ServerApp.port_retries=0",
        *private_kernels(folder / "runtime"),
    ]  # fmt: skip
    # Without a token any user of this host gets a terminal as this one; all can read a command line.
    token = secrets.token_urlsafe(24)
    environment = os.environ | _environment(folder, paths) | {"JUPYTER_TOKEN": token}
    with (folder / "jupyter.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _wait(f"http://127.0.0.1:{port}/api", process, folder)
            yield Lab(f"http://127.0.0.1:{port}/lab/tree/live.ipynb?reset&token={token}", folder, process)
        finally:
            process.terminate()
            process.wait(30)


def _environment(folder: Path, paths: Sequence[str]) -> dict[str, str]:
    return {
        "JUPYTER_CONFIG_DIR": str(folder / "config"), "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"), "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "PYTHONPATH": os.pathsep.join([*paths, str(Path(__file__).parents[3])]),
    }  # fmt: skip


def _write_settings(folder: Path, *, dark: bool) -> None:
    theme = {"theme": "JupyterLab Dark" if dark else "JupyterLab Light"}
    _write(folder / "settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings", theme)
    _write(folder / "settings/@jupyterlab/notebook-extension/tracker.jupyterlab-settings", {"windowingMode": "none"})
    off = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    _write(folder / "config/labconfig/page_config.json", off)


def _notebook(cells: Sequence[str]) -> dict[str, Any]:
    made: list[dict[str, Any]] = [
        {"cell_type": "code", "id": f"c{i}", "source": s, "metadata": {}, "outputs": [], "execution_count": None}
        for i, s in enumerate(cells)
    ]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": made, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def _listens(pid: int, port: int | None) -> bool:
    """Whether a port is a process's own."""
    ports = psutil.Process(pid).net_connections("inet")
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in ports)


def _wait(url: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until the server itself answers: another program that took the port first gets no token."""
    until = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=5):
                if _listens(process.pid, urllib.parse.urlsplit(url).port):
                    return
        except OSError:
            time.sleep(0.2)
    said = (folder / "jupyter.log").read_text(errors="replace")[-2000:]
    raise GcylonError(f"JupyterLab does not answer (exit status {process.poll()}): {said}")


class Kernel:
    """A second client of the notebook's kernel, as a console on it would be: runs code while the page looks on.

    Parameters
    ----------
    lab : Lab
        Whose only kernel it is.
    """

    def __init__(self, lab: Lab) -> None:
        from jupyter_client.blocking.client import BlockingKernelClient

        self._client: Any = BlockingKernelClient(connection_file=str(_connection_file(lab)))
        self._client.load_connection_file()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_START_S)
        self._printed: dict[str, str] = {}  # by what was started here; a page's messages are of no interest
        self._ended: set[str] = set()

    def run(self, code: str, timeout_s: float = 120.0) -> str:
        """Run code as a cell; return what it printed. An error in it is an error here."""
        return self.result(self.start(code), timeout_s)

    def start(self, code: str) -> str:
        """Begin to run code, and return at once."""
        sent = str(self._client.execute(code, store_history=False))
        self._printed[sent] = ""
        return sent

    def result(self, sent: str, timeout_s: float = 120.0) -> str:
        """Wait for the end of what was started; return what it printed."""
        until = time.monotonic() + timeout_s
        while sent not in self._ended:
            self._take(self._client.get_iopub_msg(timeout=max(until - time.monotonic(), 0.01)))
        self._ended.remove(sent)
        return self._printed.pop(sent)

    def listen(self) -> None:
        """Take what has come: where nobody does for long, messages pile up in the kernel, and the last are lost."""
        with suppress(queue.Empty):
            while True:
                self._take(self._client.get_iopub_msg(timeout=0))

    def _take(self, message: dict[str, Any]) -> None:
        sent, kind, content = message["parent_header"].get("msg_id", ""), message["msg_type"], message["content"]
        if sent not in self._printed:
            return
        if kind == "stream":
            self._printed[sent] += content["text"]
        elif kind == "error":
            raise RuntimeError(f"{content['ename']}: {content['evalue']}")
        elif kind == "status" and content["execution_state"] == "idle":
            self._ended.add(sent)

    def close(self) -> None:
        """Leave the kernel to the page."""
        self._client.stop_channels()


def _connection_file(lab: Lab) -> Path:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        found = sorted((lab.folder / "runtime").glob("kernel-*.json"))
        if found and found[0].stat().st_size:
            return found[0]
        time.sleep(0.1)
    raise GcylonError(f"JupyterLab started no kernel. Its log ends: {lab.log[-2000:]}")


@dataclass
class Notebook:
    """The notebook in a page of the browser, and all that the page complained of."""

    page: Any
    complaints: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, browser: Any, lab: Lab) -> Notebook:
        """Open the notebook in a page of a laptop's size, and run its first cell."""
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.set_default_timeout(90_000)
        notebook = cls(page)
        notebook.open(lab)
        notebook.run_again(0)
        return notebook

    def open(self, lab: Lab) -> None:
        """Open the notebook, and wait until its kernel is idle."""
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        self.page.on("requestfailed", lambda r: self.complaints.append(f"failed: {r.url} {r.failure}"))
        self.page.goto(lab.url, wait_until="domcontentloaded")
        self.page.wait_for_selector(".jp-NotebookPanel-toolbar [data-status='idle']", state="attached")

    def _heard(self, message: Any) -> None:
        if message.type in ("warning", "error"):
            self.complaints.append(f"{message.type}: {message.text}")

    def run_again(self, number: int) -> None:
        """Run a cell. A notebook says idle a moment before it takes its first one, and what came then is lost."""
        cell = self.page.locator(".jp-Notebook .jp-CodeCell").nth(number)
        prompt = cell.locator(".jp-InputArea-prompt").first
        before = prompt.inner_text()

        def taken() -> bool:
            if prompt.inner_text() == before:
                cell.locator(".cm-content").click()
                self.page.keyboard.press("Control+Enter")
                self.page.wait_for_timeout(400)
            return bool(prompt.inner_text() != before)

        self.wait(taken, f"cell {number} to be taken")

    def wait(self, condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> None:
        """Wait until something is so."""
        until = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError(f"waited {timeout_s:g} s for {what}")
            self.page.wait_for_timeout(100)

    def shows_figure(self) -> bool:
        """Whether a dashboard is there with points in its figure."""
        return bool(self.page.evaluate(f"({PLOT}?.data?.[0]?.x?.length || 0) > 0"))

    def open_dashboard(self) -> None:
        """Run the second cell, which shows a dashboard, and bring that onto the screen."""
        self.run_again(1)
        self.wait(self.shows_figure, "a figure with points")
        self.look_at_dashboard()

    def look_at_dashboard(self) -> None:
        """Bring the dashboard onto the screen."""
        self.page.locator(".gcylon-dashboard").last.evaluate("node => node.scrollIntoView()")


def unknown_lines(lines: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the lines that none of the known patterns matches as a whole."""
    return [line for line in lines if line.strip() and not any(re.fullmatch(p, line) for p in known)]
