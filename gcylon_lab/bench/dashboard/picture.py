"""The picture that opens the README, of a real run: ``python -m gcylon_lab.bench.dashboard.picture FILE``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .page import Kernel, Notebook, chromium, jupyter

_CELLS = [
    "import gcylon_lab as gl\nfrom gcylon_lab.tutorials import make_tpch\n\nlab = gl.Cluster(2)\n"
    'files = make_tpch("data", scale=0.5)\nlab.config = gl.GcylonConfig(gpu_memory_limit="64MiB")\n'
    "items, orders = [lab.read_parquet(file) for file in files]",
    "dash = gl.Dashboard(lab)\ndash.dock()",
    "both = items.join(orders, left_on=\"l_orderkey\", right_on=\"o_orderkey\")\n"
    'ranked = both.sort_values("l_extendedprice", ascending=False)\nranked.head()',
]  # fmt: skip
_AT = "sort_values"  # what runs when the picture is taken
_PLOTS = "document.querySelectorAll('.gcylon-compact .js-plotly-plot').length"


def take(file: Path) -> None:
    """Run a join and a sort that are larger than their budget, and take a picture while they run."""
    with tempfile.TemporaryDirectory() as folder, jupyter(Path(folder), _CELLS) as lab, chromium() as browser:
        notebook = Notebook.of(browser, lab)
        page = notebook.page
        notebook.run_again(1)
        notebook.wait(lambda: page.evaluate(_PLOTS), "the docked dashboard", 300.0)
        page.keyboard.press("Control+b")  # the file browser goes
        notebook.run_again(2)
        running = page.locator(".gcylon-compact .gcylon-running").first
        notebook.wait(lambda: _AT in running.inner_text(), f"{_AT} to run", 300.0)
        page.wait_for_timeout(2500)
        file.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(file))
        kernel = Kernel(lab)
        kernel.run("lab.close()", 300.0)
        kernel.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
