"""``gcylon-lab bench dashboard``: is it live, what does it cost, does it stay within bounds; in a real browser."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ...errors import ArgumentError, GcylonError
from ..harness.reports import tell
from .figures import arrival_figures, by_minute, draw_figures, flatness, turn_figures
from .page import PLOT, Kernel, Lab, Notebook, chromium, jupyter, unknown_lines

_CELLS = (
    "from gcylon_lab.bench.dashboard.kernel import Work, tell\nwork = Work({ranks}, {rows})",
    "from IPython.display import display\ndisplay(work.show())",
)
# The browser and the server have these to say whatever is in the notebook.
KNOWN_LINES = (
    r"\[I .*",
    r"\[W .* ServerApp\] Notebook live\.ipynb is not trusted",
    r"\[W .* ServerApp\] The websocket_ping_timeout \(90000\) cannot be longer than the "
    r"websocket_ping_interval \(30000\)\.",
    r"    Setting websocket_ping_timeout=30000",
    r"\[W .* ServerApp\] A `_jupyter_server_extension_points` function was not found in \w+\. Instead, a "
    r"`_jupyter_server_extension_paths` function was found and will be used for now\. .*",
    r".*/traitlets\.py:\d+: DeprecationWarning: ServerApp\.token config is deprecated in jupyter-server 2\.0\. .*",
    r"  return self\._get_trait_default_generator\(names\[0\]\)\(self\)  # type:ignore\[no-any-return\]",
    r"\[IPKernelApp\] WARNING \| Kernel is running over TCP without encryption\. .*",
)  # fmt: skip
_CHUNK = "4MiB"
_SHUFFLE = f"work.shuffle('staged', '{_CHUNK}')"
# Every draw: when it reached the screen, and up to when ranks had been sampled that were in it.
_PROBE = f"""() => {{
  const plot = {PLOT}, draws = window.gcylonDraws = [];
  plot.on("plotly_afterplot", () => {{
    const newest = plot.data.filter((t) => /^rank\\d+$/.test(t.meta)).map((t) => t.x[t.x.length - 1]);
    requestAnimationFrame(() => draws.push([Date.now() / 1000, newest]));
  }});
}}"""
_SAMPLE_EVERY_S = 5.0


@dataclass
class Session:
    """All that the bench holds: server, page, kernel."""

    lab: Lab
    notebook: Notebook
    kernel: Kernel

    def figures(self, code: str, timeout_s: float = 300.0) -> Any:
        """Run an expression in the kernel, and return its value."""
        return self.read(self.kernel.start(f"tell({code})"), timeout_s)

    def read(self, sent: str, timeout_s: float = 300.0) -> Any:
        """Wait for what was started, and return its value."""
        return json.loads(self.kernel.result(sent, timeout_s))["figures"]


def run(ranks: int, rows: int, turns: int, minutes: float, say: Callable[[str], None] = tell) -> dict[str, Any]:
    """Open a dashboard in JupyterLab, let ranks work, and look from the page, the kernel and the system.

    Parameters
    ----------
    ranks : int
    rows : int
        On each rank.
    turns : int
        Shuffles with the dashboard open, and as many without, in turn.
    minutes : float
        How long to watch memory; 0 leaves that out.
    say : callable
        Gets lines of progress.

    Returns
    -------
    dict
        Plain values: ``live``, ``cost``, ``memory``, ``freed``, and ``complaints`` of the page and the server's log.
    """
    with open_session(ranks, rows) as session:
        say("JupyterLab, Chromium and the ranks have started")
        live = _live(session)
        say(f"points arrived within {live['median_ms']:.0f} ms, median")
        memory = _memory(session, minutes * 60.0, say) if minutes else {}
        left = session.figures("work.close_dashboard()")
        cost = _cost(session, turns)
        complaints = session.notebook.complaints + unknown_lines(session.lab.log.splitlines(), KNOWN_LINES)
        session.figures("work.close()")
    return {
        "bench": "dashboard",
        "case": {"ranks": ranks, "rows": rows, "turns": turns, "minutes": minutes},
        "live": live, "cost": cost, "memory": memory, "left": left, "complaints": complaints,
    }  # fmt: skip


@contextmanager
def open_session(ranks: int, rows: int) -> Iterator[Session]:
    """Start JupyterLab, a page and ranks with a table, open a dashboard on the page; end them."""
    cells = [cell.format(ranks=ranks, rows=rows) for cell in _CELLS]
    with (
        tempfile.TemporaryDirectory(prefix="gcylon-lab-bench-", ignore_cleanup_errors=True) as folder,
        chromium() as browser,
        jupyter(Path(folder), cells) as lab,
    ):
        notebook = Notebook.of(browser, lab)
        kernel = Kernel(lab)
        session = Session(lab, notebook, kernel)
        session.figures("work.lab.n")
        notebook.open_dashboard()
        yield session
        kernel.close()


def _live(session: Session) -> dict[str, Any]:
    """One long shuffle, looked at from the page."""
    session.figures(_SHUFFLE)  # a warm-up, which brings all panels their first lines
    session.notebook.page.evaluate(_PROBE)
    done = session.figures(_SHUFFLE)
    session.notebook.page.wait_for_timeout(1000)
    draws = session.notebook.page.evaluate("window.gcylonDraws")
    clock = session.figures("work.clock()")
    samples = session.figures(f"work.samples({done['began_s']}, {done['ended_s']})")
    arrivals = arrival_figures(draws, samples, clock["wall_s"])
    during = [d for d in draws if done["began_s"] <= d[0] - clock["wall_s"] <= done["ended_s"]]
    if len(during) < 2:
        raise GcylonError(
            f"The shuffle took {done['seconds']:.2f} s, with {len(during)} drawings: too few to tell.",
            advice="Give more rows, with --rows.",
        )
    shares = {"kernel_share": done["kernel_s"] / done["seconds"]}
    return {**arrivals, **draw_figures(during), **shares, **done}


def _memory(session: Session, seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Work for a long time with the dashboard open; what kernel and page hold, again and again."""
    page = session.notebook.page
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")
    kernel = psutil.Process(session.figures("__import__('os').getpid()"))
    sent, began = session.kernel.start(f"tell(work.work({seconds}, '{_CHUNK}'))"), time.monotonic()
    seen: list[dict[str, float]] = []
    while (at_s := time.monotonic() - began) < seconds:
        devtools.send("HeapProfiler.collectGarbage")
        metrics = {m["name"]: m["value"] for m in devtools.send("Performance.getMetrics")["metrics"]}
        heap, nodes = metrics["JSHeapUsedSize"], metrics["Nodes"]
        seen.append({"at_s": at_s, "rss_bytes": kernel.memory_info().rss, "heap_bytes": heap, "nodes": nodes})
        page.wait_for_timeout(1000 * _SAMPLE_EVERY_S)
        session.kernel.listen()
        if len(seen) % 12 == 0:
            say(f"{at_s:.0f} s: kernel {seen[-1]['rss_bytes'] / 2**20:.0f} MiB, page {heap / 2**20:.1f} MiB")
    operations = session.read(sent, 300.0)
    buffers = session.figures("work.buffers()")
    figures = flatness(seen) | {"minutes": by_minute(seen), "seen": seen}
    return figures | {"operations": operations, "buffers": buffers}


def _cost(session: Session, turns: int) -> dict[str, Any]:
    """The same shuffle with the dashboard open and without, in turn."""
    taken: dict[str, list[dict[str, Any]]] = {"open": [], "closed": []}
    for _ in range(turns):
        taken["closed"].append(session.figures(_SHUFFLE))
        session.notebook.open_dashboard()
        taken["open"].append(session.figures(_SHUFFLE))
        session.figures("work.close_dashboard()")
    return turn_figures(taken)


def check(ranks: int, rows: int, turns: int, minutes: float) -> None:
    """Refuse numbers that cannot be used.

    Raises
    ------
    ArgumentError
        If one is out of range.
    """
    if min(ranks, rows, turns) < 1 or minutes < 0:
        raise ArgumentError("ranks, rows and turns are at least 1, minutes is at least 0.")


def format_dashboard(report: dict[str, Any]) -> str:
    """The bench as text."""
    live, cost, memory, case = report["live"], report["cost"], report["memory"], report["case"]
    lines = [
        f"dashboard, {case['ranks']} ranks, {case['rows']:,} rows a rank, JupyterLab in headless Chromium",
        "",
        f"a sample is on the screen after {live['median_ms']:.0f} ms (median), {live['p95_ms']:.0f} ms (95th "
        f"percentile), {live['max_ms']:.0f} ms (worst of {live['samples']}), in a shuffle of {live['seconds']:.1f} s",
        f"{live['draws_per_s']:.1f} draws a second, at most {live['most_in_a_second']} in any second; "
        f"{live['drawn_again']} of {live['draws']} brought nothing newer",
        f"kernel: {live['kernel_share']:.1%} of a core meanwhile",
        f"engines: {cost['beside_added']:+.1%} CPU time a second with it in the threads that answer (median of "
        f"{case['turns']} pairs); {cost['engines_added']:+.1%} in an operation as a whole",
    ]
    if memory:
        lines.append(
            f"over {case['minutes']:g} minutes ({memory['operations']} operations), from {memory['from_s']:.0f} s on: "
            f"kernel {memory['rss_first'] / 2**20:.0f} to {memory['rss_last'] / 2**20:.0f} MiB, "
            f"page {memory['heap_first'] / 2**20:.1f} to {memory['heap_last'] / 2**20:.1f} MiB, "
            f"nodes {memory['nodes_first']:.0f} to {memory['nodes_last']:.0f}"
        )
        for name, key in (("kernel", "rss_bytes"), ("page", "heap_bytes")):
            values = " ".join(f"{minute[key] / 2**20:.0f}" for minute in memory["minutes"])
            lines.append(f"{name} by minute, MiB: {values}")
        lines.append("kept at most: " + ", ".join(f"{count:,} {name}" for name, count in memory["buffers"].items()))
    left = {name: count for name, count in report["left"].items() if count}
    lines.append(f"closed: {'nothing is left' if not left else f'left are {left}'}")
    complaints = report["complaints"]
    lines += [f"console and log: {len(complaints)} lines", *(f"  {line}" for line in complaints)]
    return "\n".join(lines)
