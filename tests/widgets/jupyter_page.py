"""A JupyterLab and a Chromium for one notebook, whose kernel imports what stands beside this file too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gcylon_lab.bench.dashboard.dashboard import KNOWN_LINES
from gcylon_lab.bench.dashboard.page import Kernel, Lab, Notebook, unknown_lines
from gcylon_lab.bench.dashboard.page import jupyter as serve

__all__ = ["KNOWN_LINES", "SELDOM", "SLIM", "Kernel", "Lab", "Notebook", "jupyter", "serve", "unknown_lines"]

# Before a cell with a dashboard that is not looked at for how it goes on: to draw ten times a second takes a core.
SELDOM = "from gcylon_lab.ui.live import live_widget\nlive_widget.UPDATE_EVERY_S = 1.0\n"

SLIM = str(Path(__file__).parents[1] / "slim")


@contextmanager
def jupyter(folder: Path, cells: list[str], *, dark: bool) -> Iterator[str]:
    """Serve a notebook of some cells under a theme; gives its address."""
    with serve(folder, cells, dark=dark, paths=[SLIM, str(Path(__file__).parent)]) as lab:
        yield lab.url
