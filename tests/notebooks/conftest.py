"""JupyterLab and a real headless Chromium."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_page import wait_for
from ports import free_port
from test_notebooks import IN_CHROMIUM

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_SLIM = str(Path(__file__).parents[1] / "slim")
_FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "also run every tutorial in Chromium (minutes); only where tests/notebooks is named on the command line"
    parser.addoption("--all-browsers", action="store_true", help=text)
    kept = "run every tutorial in Chromium, and write what it shows into notebooks/"
    parser.addoption("--keep-outputs", action="store_true", help=kept)


@pytest.fixture
def asked_for(request: pytest.FixtureRequest) -> None:
    """Skip what runs only where all browsers are asked for."""
    if not any(request.config.getoption(name, default=False) for name in ("--all-browsers", "--keep-outputs")):
        pytest.skip("python -m pytest tests/notebooks --all-browsers runs it")


@pytest.fixture
def chosen(path: Path, request: pytest.FixtureRequest) -> None:
    """Skips a tutorial that neither runs always nor was asked for."""
    if path.stem not in IN_CHROMIUM:
        request.getfixturevalue("asked_for")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where Chromium is; without it browser tests are skipped, but never in CI."""
    if _CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs Chromium for the browser tests (apt-get install chromium)")
        pytest.skip("there is no Chromium here (apt-get install chromium)")
    return _CHROMIUM


@pytest.fixture
def jupyter(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address and the token of a JupyterLab that ``gcylon-lab lab`` has opened on a copy of the tutorials."""
    port = free_port()
    folder, log = tmp_path / "tutorials", (tmp_path / "jupyter.log").open("w")
    options = ["--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command = [sys.executable, "-m", "gcylon_lab", "lab", "--dir", str(folder), "--", *options]
    token = secrets.token_urlsafe(24)
    environment = os.environ | _settings(tmp_path) | {"JUPYTER_TOKEN": token}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_for(f"http://127.0.0.1:{port}/api", process, tmp_path / "jupyter.log")
        yield f"http://127.0.0.1:{port}", token
    finally:
        process.terminate()
        process.wait(60)
        log.close()


def _settings(folder: Path) -> dict[str, str]:
    """No news pop-up, cells that stay in the page when scrolled away, nothing written to the home folder."""
    _write(folder / "config/labconfig/page_config.json", {
        "disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}
    })  # fmt: skip
    _write(folder / "settings/@jupyterlab/notebook-extension/tracker.jupyterlab-settings", {"windowingMode": "none"})
    return {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": os.pathsep.join([_SLIM, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))


@pytest.fixture
def page(chromium: str, tmp_path: Path) -> Iterator[Any]:
    """A page of a fresh Chromium profile."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            str(tmp_path / "profile"), executable_path=chromium, headless=True, args=_FLAGS,
            viewport={"width": 1500, "height": 1100},
        )  # fmt: skip
        page = browser.new_page()
        page.set_default_timeout(150_000)  # a busy machine is slow; what never comes costs a failing test alone
        yield page
        browser.close()
