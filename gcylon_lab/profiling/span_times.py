"""Times of spans by name, category and rank: those of this package, and one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gcylon_lab.errors import ArgumentError

from .snapshot import RankSnapshot, take_snapshot
from .spans import current_recorder

if TYPE_CHECKING:
    import pandas as pd


def by_span(snapshots: Sequence[RankSnapshot] | None = None) -> pd.DataFrame:
    """How often each span ran, and how long it took.

    Parameters
    ----------
    snapshots : sequence of RankSnapshot, optional
        One a rank; what this rank has recorded by default.

    Returns
    -------
    pandas.DataFrame
        One row for each name, category and rank (the index): count, and in seconds total_s, mean_s, p50_s, p95_s,
        max_s, of whole spans, with those inside them. It is of the spans that are kept, the latest;
        ``attrs["dropped_events"]`` says how many events were dropped before.

    Raises
    ------
    ArgumentError
        If no snapshots are given where nothing is recorded.

    Examples
    --------
    >>> from gcylon_lab.profiling import Recorder, by_span, recording, span
    >>> @span("load", "io")
    ... def load(n):
    ...     return sum(range(n))
    >>> with recording(Recorder()):
    ...     _ = [load(n) for n in range(10)]
    ...     times = by_span()
    >>> times.index.tolist(), times["count"].tolist()
    ([('load', 'io', 0)], [10])
    """
    import pandas as pd

    if snapshots is None:
        recorder = current_recorder()
        if recorder is None:
            raise ArgumentError(
                "This thread records nothing.",
                advice="Call it on a rank (%px), after gl.initialize(), or give it lab.snapshots().",
            )
        snapshots = [take_snapshot(recorder, None, recorder.rank, "")]
    rows = [(s[0], s[1], snapshot["rank"], (s[3] - s[2]) / 1e9) for snapshot in snapshots for s in snapshot["spans"]]
    spans = pd.DataFrame(rows, columns=["name", "category", "rank", "seconds"])
    by = spans.groupby(["name", "category", "rank"])["seconds"]
    frame = pd.DataFrame(
        {
            "count": by.count(), "total_s": by.sum(), "mean_s": by.mean(),
            "p50_s": by.quantile(0.5), "p95_s": by.quantile(0.95), "max_s": by.max(),
        }
    )  # fmt: skip
    frame.attrs["dropped_events"] = sum(snapshot["dropped_events"] for snapshot in snapshots)
    return frame
