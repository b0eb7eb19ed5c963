"""Pure: what the dashboard's bench makes of its readings."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Sequence
from typing import Any

Draw = tuple[float, list[float]]
"""When a draw was on the screen, by the wall's clock, and the newest sample of each rank in it."""

# Of a long run: up to here everything fills up and warms up; after it nothing may grow.
_WARM = 0.4
_ENDS = 0.2


def arrival_figures(draws: Sequence[Draw], samples: Sequence[Sequence[float]], wall_s: float) -> dict[str, Any]:
    """How long samples were on their way to the screen.

    Parameters
    ----------
    draws : sequence of (float, list of float)
        In order.
    samples : sequence of sequence of float
        When each rank was sampled, in seconds on the figure's axis. Each counts, not only a draw's newest.
    wall_s : float
        Where that axis begins, on the clock of the draws.

    Returns
    -------
    dict
        median_ms, p95_ms, max_ms, samples; those that never arrived are in ``missing``.
    """
    took: list[float] = []
    missing = 0
    for rank, times in enumerate(samples):
        newest = [draw[1][rank] for draw in draws]
        for t in times:
            # The figure's values are rounded to a tenth of a millisecond.
            first = bisect.bisect_left(newest, t - 1e-3)
            if first == len(draws):
                missing += 1
            else:
                took.append(1e3 * (draws[first][0] - wall_s - t))
    cuts = statistics.quantiles(took, n=20)
    return {
        "median_ms": statistics.median(took), "p95_ms": cuts[-1], "max_ms": max(took), "samples": len(took),
        "missing": missing,
    }  # fmt: skip


def draw_figures(draws: Sequence[Draw]) -> dict[str, Any]:
    """How often was drawn, and how often for nothing."""
    times = [draw[0] for draw in draws]
    span = max(times[-1] - times[0], 1e-9)
    most = max(i + 1 - bisect.bisect_right(times, t - 1.0) for i, t in enumerate(times))
    again = sum(now[1] == before[1] for before, now in zip(draws, draws[1:], strict=False))
    return {
        "draws": len(draws), "draws_per_s": (len(draws) - 1) / span, "most_in_a_second": most, "drawn_again": again,
        "longest_gap_s": max((b - a for a, b in zip(times, times[1:], strict=False)), default=0.0),
    }  # fmt: skip


def turn_figures(taken: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """What the open dashboard adds: medians over pairs of neighbours, as a share of the operation's CPU time."""
    pairs = list(zip(taken["closed"], taken["open"], strict=True))
    engines = [(o["engines_s"] - c["engines_s"]) / c["engines_s"] for c, o in pairs]
    # A second of each: an operation that waits for the browser's cores takes longer, and all threads do more meanwhile.
    beside = [
        (o["engines_beside_s"] / o["seconds"] - c["engines_beside_s"] / c["seconds"]) / (c["engines_s"] / c["seconds"])
        for c, o in pairs
    ]
    kernel = {state: [one["kernel_s"] / one["seconds"] for one in turns] for state, turns in taken.items()}
    return {
        "engines_added": statistics.median(engines), "beside_added": statistics.median(beside),
        "engines_pairs": engines, "beside_pairs": beside,
        "kernel_open": statistics.median(kernel["open"]), "kernel_closed": statistics.median(kernel["closed"]),
        "turns": taken,
    }  # fmt: skip


def flatness(seen: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The medians of the first and the last fifth of the time after the warm-up."""
    end_s = seen[-1]["at_s"]
    from_s = _WARM * end_s
    figures: dict[str, Any] = {"from_s": from_s}
    for name in ("rss", "heap", "nodes"):
        key = name if name == "nodes" else f"{name}_bytes"
        first = [s[key] for s in seen if from_s <= s["at_s"] <= from_s + _ENDS * end_s]
        last = [s[key] for s in seen if s["at_s"] >= (1 - _ENDS) * end_s]
        figures |= {f"{name}_first": statistics.median(first), f"{name}_last": statistics.median(last)}
    return figures


def by_minute(seen: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """The medians of each minute."""
    minutes: dict[int, list[dict[str, float]]] = {}
    for one in seen:
        minutes.setdefault(int(one["at_s"] // 60.0), []).append(one)
    return [
        {key: statistics.median(one[key] for one in of_minute) for key in ("rss_bytes", "heap_bytes")}
        for of_minute in minutes.values()
    ]
