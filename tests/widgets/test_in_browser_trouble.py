"""Trouble, as a person sees it in JupyterLab and gets out of it: a rank stuck, a rank killed, a full disk."""

from __future__ import annotations

import ctypes
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_page import KNOWN_LINES, SELDOM, SLIM, Kernel, Lab, Notebook, serve, unknown_lines

pytestmark = [pytest.mark.browser, pytest.mark.mpi, pytest.mark.slow, pytest.mark.timeout(400)]

_CELLS = [
    f"{SELDOM}import gcylon_lab as gl, numpy as np, os, pandas as pd, signal\n"
    "frame = pd.DataFrame({'k': np.arange(400_000) % 999, 'v': np.arange(400_000) * 0.5})\n"
    "lab = gl.Cluster(2, name='trouble', grace_s=20, progress=False)\n"
    "trips = lab.from_pandas(frame)",
    "from IPython.display import display\ndashboard = gl.Dashboard(lab)\ndisplay(dashboard)",
]
_TRY = """
def attempt(what):
    try:
        print("RESULT", what())
    except gl.errors.GcylonError as error:
        print("ERROR", type(error).__name__, error)

def limit_files(nbytes):
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, resource.RLIM_INFINITY))

def endless(table):
    if gl.current().rank == 1:
        while True:
            pass
    return table.shuffle("k").num_rows
"""


@dataclass
class Desk:
    """The notebook with a dashboard in it, and a second client of its kernel."""

    notebook: Notebook
    kernel: Kernel
    lab: Lab
    folder: Path

    def shows(self, *texts: str, timeout_s: float = 30.0) -> None:
        """Wait until the dashboard shows some texts."""
        board = self.notebook.page.locator(".gcylon-dashboard")
        try:
            self.notebook.wait(lambda: all(t in board.inner_text() for t in texts), str(texts), timeout_s)
        except TimeoutError as error:
            self.keep("waited in vain")
            raise AssertionError(f"{error}; the dashboard shows {board.inner_text()[:600]}") from None

    def click(self, text: str) -> None:
        self.notebook.page.locator(f".gcylon-dashboard button:has-text('{text}')").first.click()

    def keep(self, name: str) -> None:
        folder = Path(os.environ.get("GCYLON_SCREENSHOTS", self.folder / "screenshots"))
        self.notebook.page.screenshot(path=str(folder / f"{name}.png"))


@pytest.fixture(scope="module")
def desk(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One server, one page and one cluster for all of these tests."""
    folder, dark = tmp_path_factory.mktemp("desk"), bool(os.environ.get("GCYLON_DARK"))
    with serve(folder, _CELLS, dark=dark, paths=[SLIM]) as lab:
        notebook = Notebook.of(browser, lab)
        kernel = Kernel(lab)
        kernel.run(_TRY)
        notebook.open_dashboard()
        yield Desk(notebook, kernel, lab, folder)
        kernel.run("lab.close()")
        kernel.close()


def test_a_stuck_rank_is_named_and_a_click_frees_all(desk: Desk) -> None:
    stuck = desk.kernel.start("attempt(lambda: lab.run(endless, trips))")
    desk.shows("waiting", "for rank 1")
    desk.keep("stuck")
    desk.click("interrupt")
    said = desk.kernel.result(stuck, 30)
    assert "ERROR Revoked" in said and "Interrupted: run stopped after" in said
    assert "RESULT 400000" in desk.kernel.run("attempt(lambda: trips.shuffle('k').num_rows)")
    desk.shows("○ idle")


@contextmanager
def little_disk(folder: Path, run: Callable[[str], str]) -> Iterator[Path]:
    """A folder on a disk of 1 MiB; where none may be mounted, ranks whose files end there."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir()
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=1m") == 0:
        try:
            yield folder
        finally:
            libc.umount2(os.fsencode(folder), 2)  # MNT_DETACH: an engine may have a file open still
        return
    run("lab.run(limit_files, 1 << 20)")
    yield folder
    run("lab.run(limit_files, -1)")


def test_a_full_disk_is_named_and_another_folder_helps(desk: Desk, tmp_path: Path) -> None:
    staged = "attempt(lambda: trips.shuffle('k', strategy='staged').num_rows)"
    with little_disk(tmp_path / "little", desk.kernel.run) as folder:
        desk.kernel.run(f"lab.config = lab.config.with_values(spill_dir={str(folder)!r})")
        said = desk.kernel.run(staged)
        assert "ERROR SpillError" in said and str(folder) in said and "Set spill_dir to" in said
        desk.shows("failed (SpillError): choose another spill folder under more settings")
        desk.keep("full disk")
        desk.click("more settings")
        another = desk.notebook.page.get_by_label("spill folder")
        assert another.input_value() == str(folder)
        another.fill(str(tmp_path / "mistyped"))
        another.press("Enter")
        desk.shows("there is no folder", "mistyped")
        another.fill(str(tmp_path))
        another.press("Enter")
        desk.shows("Set. The next operation will use it")
        desk.keep("another folder")
        assert "RESULT 400000" in desk.kernel.run(staged)
        assert str(tmp_path) in desk.kernel.run("print(lab.config.spill_dir)")
    desk.kernel.run("lab.config = lab.config.with_values(spill_dir='')")


def test_a_killed_rank_is_seen_and_a_restart_mends(desk: Desk) -> None:
    desk.kernel.run("os.kill(lab.ranks[1].pid, signal.SIGKILL)")
    desk.shows("✖ dead", "a rank is gone")
    desk.keep("killed")
    assert "ERROR ClusterDegraded" in desk.kernel.run("attempt(lambda: trips.shuffle('k').num_rows)")
    desk.click("restart")
    desk.click("lose tables?")
    known = "document.querySelector('.gcylon-dashboard').innerText.includes('dead')"
    desk.notebook.wait(lambda: not desk.notebook.page.evaluate(known), "the dead rank to go")
    desk.shows("2 ranks", "○ idle")
    assert "RESULT 400000" in desk.kernel.run("attempt(lambda: lab.from_pandas(frame).shuffle('k').num_rows)", 60)
    desk.shows("shuffle")


def test_neither_console_nor_log_has_a_word_of_it(desk: Desk) -> None:
    assert desk.notebook.complaints == []
    assert unknown_lines(desk.lab.log.splitlines(), KNOWN_LINES) == []


def test_closing_says_nothing_in_the_console(desk: Desk) -> None:
    desk.kernel.run("dashboard.close()")
    desk.notebook.page.wait_for_timeout(500)
    assert desk.notebook.complaints == []


def test_the_server_lets_nobody_in_without_its_token(desk: Desk) -> None:
    """The last one: the server's log tells of it."""
    contents = desk.lab.url.partition("/lab/")[0] + "/api/contents"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(contents, timeout=30)
    token = desk.lab.url.partition("token=")[2]
    with urllib.request.urlopen(f"{contents}?token={token}", timeout=30) as answer:
        assert answer.status == 200
    assert token not in desk.lab.log
    assert token not in " ".join(psutil.Process(desk.lab.process.pid).cmdline())
