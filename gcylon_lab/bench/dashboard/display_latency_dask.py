"""dask's dashboard as a contender: two worker processes, its page of their memory, and what that shows when."""

from __future__ import annotations

import logging
import time
from typing import Any

from ...errors import GcylonError
from ..dask_cluster import dask_cluster
from ..harness.worker_processes import Answer, serve
from .display_latency import HOLD_S, NBYTES, PAUSE_S
from .page import chromium

# The page has one source of data: each worker's memory in pieces that make up a bar. "width" are the pieces.
_PROBE = """() => {
  const seen = window.gcylonSeen = [];
  const look = (source) => requestAnimationFrame(() => {
    const widths = Array.from(source.data.width), workers = source.data.worker;
    const first = workers[0];
    const sum = widths.reduce((all, width, i) => all + (workers[i] === first ? width : 0), 0);
    seen.push([Date.now() / 1000, sum]);
  });
  let found = 0;
  for (const document of Bokeh.documents) {
    for (const model of document.all_models) {
      if (model.type !== "ColumnDataSource" || !("width" in model.data)) continue;
      found += 1;
      model.properties.data.change.connect(() => look(model));
      model.patching.connect(() => look(model));
    }
  }
  return found;
}"""


def take(nbytes: int, seconds: float) -> float:
    """Take memory, and hold it for a time; say when it was there."""
    import numpy as np

    held = np.ones(nbytes // 8)
    taken = time.time()
    time.sleep(seconds)
    del held
    return taken


def main() -> None:
    """Serve the bench: one step is all repetitions."""
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.ERROR)
    cluster = dask_cluster(2, dashboard_address="127.0.0.1:0")
    with cluster, Client(cluster) as client, chromium() as browser:
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.goto(cluster.dashboard_link.replace("/status", "/individual-workers-memory"))
        page.wait_for_function("window.Bokeh?.documents?.length > 0")
        page.wait_for_timeout(2000)
        sources = page.evaluate(_PROBE)
        if sources != 1:
            raise GcylonError(
                f"The page of dask's dashboard has {sources} sources with widths of bars, not 1.",
                advice="Take the dask that notebooks/figures.md names.",
            )

        def step(repeats: int) -> Answer:
            steps = []
            for number in range(repeats + 1):
                page.evaluate("window.gcylonSeen.length = 0")
                taken = _take(client, page)
                page.wait_for_timeout(1000 * PAUSE_S)
                if number:
                    steps.append([taken, page.evaluate("window.gcylonSeen")])
            return {"steps": steps}

        serve(step)


def _take(client: Any, page: Any) -> float:
    worker = page.evaluate("Array.from(Bokeh.documents[0].all_models).find((m) => m.data?.worker).data.worker[0]")
    taken: float = client.submit(take, NBYTES, HOLD_S, workers=[worker], pure=False).result()
    return taken


if __name__ == "__main__":
    main()
