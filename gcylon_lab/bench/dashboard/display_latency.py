"""``gcylon-lab bench seen``: how long after a rank took memory its page shows it; beside dask's dashboard."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ArgumentError, GcylonError
from ..harness.reports import tell
from ..harness.statistics import Series
from ..harness.worker_processes import Contender
from .page import PLOT

NBYTES = 400_000_000
HOLD_S = 2.5
PAUSE_S = 1.5

# In the notebook's kernel: rank 0 takes memory, says when, and holds it; a request runs all that time.
_TAKE = f"""
def take():
    import time
    import numpy as np, pandas as pd, gcylon_lab as gl
    rows = {NBYTES} // 8 if gl.current().rank == 0 else 0
    held = gl.from_local(pd.DataFrame({{"x": np.ones(rows)}}))
    taken = time.time()
    time.sleep({HOLD_S})
    return taken
"""
# What the page shows of rank 0 at each draw, once that is on the screen. The axis has a unit of its own.
_PROBE = f"""() => {{
  const plot = {PLOT}, seen = window.gcylonSeen = [];
  plot.on("plotly_afterplot", () => {{
    const line = plot.data.find((t) => t.meta === "rank0");
    requestAnimationFrame(() => seen.push([Date.now() / 1000, line.y[line.y.length - 1]]));
  }});
}}"""


def run(repeats: int, say: Callable[[str], None] = tell, *, peers: bool = True) -> dict[str, Any]:
    """Let a rank, and a worker of dask's, take memory again and again while a page shows their dashboard.

    Parameters
    ----------
    repeats : int
    say : callable
        Gets lines of progress.
    peers : bool
        Whether dask takes part; it needs bokeh.

    Returns
    -------
    dict
        Plain values: for each contender a `Series` as a dict, in seconds.

    Raises
    ------
    ArgumentError
        If ``repeats`` is less than 1.
    GcylonError
        If a page does not show what was taken before it was given back, or something is not installed.
    """
    if repeats < 1:
        raise ArgumentError(f"repeats is {repeats}, and has to be 1 at least.")
    if peers and not all(importlib.util.find_spec(name) for name in ("distributed", "bokeh")):
        raise GcylonError(
            "dask's dashboard needs dask and bokeh.",
            advice="pip install 'dask[distributed]' bokeh, or give --no-peers.",
        )
    contenders = {"ours": Series(tuple(_ours(repeats, say)))}
    if peers:
        command = [sys.executable, "-P", "-m", "gcylon_lab.bench.dashboard.display_latency_dask"]
        with Contender("dask", command, 1, step_s=60.0 + 2 * (repeats + 1) * (HOLD_S + PAUSE_S)) as dask:
            steps = dask.step(repeats=repeats)[0]["steps"]
        contenders["dask"] = Series(tuple(first_seen(*step) for step in steps))
        say("dask done")
    return {
        "bench": "seen",
        "case": {"repeats": repeats, "nbytes": NBYTES},
        "contenders": {name: series.as_dict() for name, series in contenders.items()},
    }


def first_seen(taken_s: float, draws: Sequence[Sequence[float]]) -> float:
    """Return how many seconds after memory was taken the page first showed most of it, whatever its unit.

    Parameters
    ----------
    taken_s : float
        On the wall's clock, as the draws' times.
    draws : sequence of (float, float)
        When each was on the screen, and what it showed.

    Raises
    ------
    GcylonError
        If none did.
    """
    base = min((value for _, value in draws), default=0.0)
    most = max((value for _, value in draws), default=0.0)
    for at_s, value in draws:
        if at_s > taken_s and value > base + 0.9 * (most - base) > 1.5 * base:
            return at_s - taken_s
    raise GcylonError(
        f"Of {len(draws)} drawings none showed what was taken, although it was held for {HOLD_S:g} s.",
        advice="Run it on a machine that does nothing else.",
    )


def _ours(repeats: int, say: Callable[[str], None]) -> list[float]:
    from .dashboard import open_session

    took = []
    with open_session(ranks=2, rows=1000) as opened:
        say("JupyterLab, Chromium and the ranks have started")
        opened.kernel.run(_TAKE)
        page = opened.notebook.page
        page.evaluate(_PROBE)
        for number in range(repeats + 1):
            page.evaluate("window.gcylonSeen.length = 0")
            taken = opened.figures("work.lab.run(take)")[0]
            page.wait_for_timeout(1000 * PAUSE_S)
            draws = page.evaluate("window.gcylonSeen")
            if number:  # the first is a warm-up
                took.append(first_seen(taken, draws))
        opened.figures("work.close()")
    return took


def format_seen(report: dict[str, Any]) -> str:
    """The bench as text."""
    case = report["case"]
    lines = [
        f"{case['nbytes'] / 1e6:g} MB taken {case['repeats']} times, 2 ranks; until headless Chromium showed it",
        "",
    ]
    for name, one in report["contenders"].items():
        lines.append(f"{name}: {one['median_s']:.2f} s (median; {one['min_s']:.2f} to {one['max_s']:.2f})")
    return "\n".join(lines)
