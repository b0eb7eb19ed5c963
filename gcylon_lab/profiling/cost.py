"""What recording itself costs, measured where it runs."""

from __future__ import annotations

import functools
from statistics import median
from time import thread_time_ns

from .events import Recorder
from .spans import operation, recording, span


def measure_event_cost(batches: int = 9, spans: int = 250) -> int:
    """Time spans inside an operation, as the layers emit them.

    Returns
    -------
    int
        CPU time of one span in ns; of several batches the median.
    """
    with recording(Recorder(capacity=spans)), operation("measure", 0):
        return round(median(_one_batch(spans) for _ in range(batches)) / spans)


def _one_batch(spans: int) -> int:
    start = thread_time_ns()
    for _ in range(spans):
        with span("compute", "algorithm", bytes=1, tier="device"):
            pass
    return thread_time_ns() - start


@functools.cache
def event_cost_ns() -> int:
    """As `measure_event_cost`, measured once a process."""
    return measure_event_cost()
