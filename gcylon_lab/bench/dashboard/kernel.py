"""What ``gcylon-lab bench dashboard`` runs in the notebook's kernel: a cluster, work on it, and what it costs."""

from __future__ import annotations

import gc
import json
import os
import time
import weakref
from typing import Any

import psutil
from ipyparallel import AsyncResult

import gcylon_lab as gl

from ...cluster.client.cluster import Cluster
from ...cluster.handles.handle import DistTable
from ...ui.dashboard import Dashboard

# What every rank makes its part of, in a cell on all of them.
_PART = """
import numpy as np, pandas as pd, gcylon_lab as gl
_rng = np.random.default_rng(gl.current().rank)
bench_part = gl.from_local(pd.DataFrame({{"k": _rng.integers(0, 1 << 40, {rows})}}
                                        | {{name: _rng.random({rows}) for name in "abc"}}))
"""


class Work:
    """A cluster with a table, whose shuffles are what the dashboard looks at.

    Parameters
    ----------
    ranks : int
    rows : int
        On each rank, of one int64 and three float64 columns.
    """

    def __init__(self, ranks: int, rows: int) -> None:
        self.lab = Cluster(ranks, name=f"bench_dashboard_{os.getpid()}", progress=False)
        self.lab.view.execute(_PART.format(rows=rows), silent=False)
        self.table: DistTable = self.lab.table("bench_part")
        self.dashboard: Dashboard | None = None

    def show(self) -> Dashboard:
        """A dashboard, to be displayed by the cell that asks for it."""
        self.dashboard = Dashboard(self.lab)
        return self.dashboard

    def shuffle(self, strategy: str, chunk: str) -> dict[str, Any]:
        """Shuffle once; return its time, and the CPU time of engines and kernel meanwhile.

        The engines' main threads do the operation; what the others use more of while
        somebody looks is the answering.
        """
        config = self.lab.config.with_values(chunk_size_bytes=chunk, min_chunk_rows=64)
        origin = self.clock()["origin_s"]
        before, began = self._cpu(), time.monotonic()
        self.table.shuffle("k", strategy=strategy, config=config).release()
        seconds = time.monotonic() - began
        times = {"seconds": seconds, "began_s": began - origin, "ended_s": began + seconds - origin}
        return times | {name: now - before[name] for name, now in self._cpu().items()}

    def _cpu(self) -> dict[str, float]:
        engines = [psutil.Process(record.pid) for record in self.lab.ranks]
        threads = [t for engine in engines for t in engine.threads()]
        mains = {engine.pid for engine in engines}
        kernel = psutil.Process().cpu_times()
        return {
            "engines_s": sum(sum(engine.cpu_times()[:2]) for engine in engines),
            "engines_beside_s": sum(t.user_time + t.system_time for t in threads if t.id not in mains),
            "kernel_s": kernel.user + kernel.system,
        }

    def work(self, seconds: float, chunk: str) -> int:
        """Shuffle for so long, into memory and to disk in turn; return how often."""
        until, done = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            self.shuffle(("chunked", "staged")[done % 2], chunk)
            done += 1
        return done

    def clock(self) -> dict[str, float]:
        """Where the figure's axis begins, on the wall's clock, in seconds.

        Samples carry the monotonic clock of rank 0's process, which all processes of a host share; the page
        knows only the wall's. The two are read together here, at the time of measuring: the wall's may be set
        or slewed while a page is open.
        """
        origin_ns = 0 if self.dashboard is None or self.dashboard._origin is None else self.dashboard._origin[1]
        readings = []
        for _ in range(9):
            before, wall, after = time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
            readings.append((after - before, wall - (before + after) // 2))
        return {"origin_s": origin_ns / 1e9, "wall_s": (min(readings)[1] + origin_ns) / 1e9}

    def samples(self, begin_s: float, end_s: float) -> list[list[float]]:
        """Of each rank when it was sampled between two times, in seconds on the figure's axis."""
        origin = self.clock()["origin_s"]
        times = [[t / 1e9 - origin for t in s["samples"]["t_ns"]] for s in self.lab.snapshots()]
        return [[t for t in of_rank if begin_s <= t <= end_s] for of_rank in times]

    def buffers(self) -> dict[str, int]:
        """How long what is kept has become: the longest of any rank, and of the figures; and of all requests."""
        snapshots = self.lab.snapshots()
        longest = {name: max(len(s[name]) for s in snapshots) for name in ("spans", "marks", "operations")}
        points = drawn = 0
        if self.dashboard is not None:
            drawn = max(len(rank._sums) for rank in self.dashboard._thinner._ranks.values())
            points = max(len(t.x or ()) for live in self.dashboard.lives for t in live.widget.data)
        gc.collect()
        requests = sum(isinstance(one, AsyncResult) for one in gc.get_objects())
        return {
            "samples": max(len(s["samples"]["t_ns"]) for s in snapshots), **longest, "points": points,
            "drawn spans": drawn, "requests": requests, "digests": len(self.lab._session.client.session.digest_history),
        }  # fmt: skip

    def draws(self) -> dict[str, int]:
        """How often the dashboard was drawn, and how many messages the figure took."""
        assert self.dashboard is not None
        return {"draws": self.dashboard.draws, "messages": sum(live.messages for live in self.dashboard.lives)}

    def close_dashboard(self) -> dict[str, int]:
        """Close the dashboard; say what of it is still there."""
        from ipywidgets.widgets import widget as widgets

        made, self.dashboard = self.dashboard, None
        assert made is not None
        kept: dict[str, weakref.ref[Any]] = {
            "dashboard": weakref.ref(made), "figure": weakref.ref(made.live.widget),
            "tuner": weakref.ref(made.tuner), "page": weakref.ref(made.page),
        }  # fmt: skip
        made.close()
        del made
        gc.collect()
        left = {name: int(reference() is not None) for name, reference in kept.items()}
        return left | {"widgets": len(widgets._instances)}

    def close(self) -> None:
        """End the cluster."""
        self.lab.close()


def tell(figures: Any) -> None:
    """Print what the bench reads."""
    print(json.dumps({"version": gl.__version__, "pid": os.getpid(), "figures": figures}))
