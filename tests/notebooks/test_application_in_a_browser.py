"""The application that Voila serves, in Chromium: start, choose a file and a verb, run, watch, end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from lab_page import LabPage, wait_for
from ports import free_port
from test_notebooks import APPLICATION

from gcylon_lab.cluster.processes import NANNY

pytest.importorskip("voila", reason="pip install '.[app]' brings Voila")
pytestmark = [pytest.mark.browser, pytest.mark.mpi, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def voila(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Its address, and its process."""
    port = free_port()
    folders = {
        name: str(tmp_path / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR")
    }
    command = [sys.executable, "-m", "voila", str(APPLICATION), "--no-browser", "--Voila.ip=127.0.0.1"]
    log = tmp_path / "voila.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, f"--port={port}"], cwd=tmp_path, env=os.environ | folders, stdout=out, stderr=out
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/voila/static/voila.js", process, log)
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.wait(60)


def engines(pid: int) -> list[int]:
    """MPI ranks below a process."""
    below = psutil.Process(pid).children(recursive=True)
    engines = [child for child in below if "gcylon_lab.cluster.launch.engine_process" in child.cmdline()]
    return [engine.pid for engine in engines if engine.name() not in ("mpiexec", NANNY)]


def test_a_person_uses_it(voila: tuple[str, int], page: Any, tmp_path: Path):
    url, pid = voila
    page.set_viewport_size({"width": 1366, "height": 768})
    lab = LabPage(page, Path(os.environ.get("GCYLON_SCREENSHOTS", tmp_path / "screenshots")) / "voila")
    page.goto(url, wait_until="domcontentloaded")
    page.wait_for_selector("text=Nothing runs yet")
    assert page.locator("text=import gcylon_lab").count() == 0, "an application shows no code"
    assert engines(pid) == []
    lab.use_application(lambda: engines(pid))
    lab.until(lambda: not engines(pid), "the engines to end")
