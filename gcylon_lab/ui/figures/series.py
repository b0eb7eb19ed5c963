"""Pure arithmetic on time series: cleaning, decimation that keeps maxima, a common grid, units of an axis."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ...units import GIB, KIB, MIB, format_bytes

Floats = npt.NDArray[np.float64]

MAX_POINTS = 600


def clean(t: Iterable[float], y: Iterable[float]) -> tuple[Floats, Floats]:
    """Return two arrays of equal length, in order of time, without what is not finite (it is no JSON)."""
    times, values = np.asarray(list(t), dtype=np.float64), np.asarray(list(y), dtype=np.float64)
    length = min(len(times), len(values))
    times, values = times[:length], values[:length]
    keep = np.isfinite(times) & np.isfinite(values)
    times, values = times[keep], values[keep]
    if len(times) > 1 and np.any(np.diff(times) < 0):
        order = np.argsort(times, kind="stable")
        times, values = times[order], values[order]
    return times, values


def decimate(t: Floats, y: Floats, points: int = MAX_POINTS) -> tuple[Floats, Floats]:
    """Return at most ``points`` points: the first, the last, and the largest of each stretch between them.

    A peak is never lost, whatever the number of points; valleys may be.
    """
    if len(t) <= points:
        return t, y
    inner = len(t) - 2
    width = -(-inner // (points - 2))
    rows = -(-inner // width)
    padded = np.full(rows * width, -np.inf)
    padded[:inner] = y[1:-1]
    picked = 1 + np.arange(rows) * width + padded.reshape(rows, width).argmax(axis=1)
    index = np.concatenate(([0], picked, [len(t) - 1]))
    return t[index], y[index]


def on_grid(t: Floats, y: Floats, edges: Floats) -> Floats:
    """Return the largest value in each cell of a grid, carried forward through empty cells.

    Parameters
    ----------
    t, y : ndarray of float64
        The series, in order of time.
    edges : ndarray of float64, shape (cells + 1,)
        Where cells begin and end.

    Returns
    -------
    ndarray of float64, shape (cells,)
        Before the first sample 0.
    """
    cells = len(edges) - 1
    before, inside = t < edges[0], (t >= edges[0]) & (t <= edges[-1])
    place = np.clip(np.searchsorted(edges, t[inside], side="right") - 1, 0, cells - 1)
    largest, last = np.full(cells, -np.inf), np.zeros(cells)
    np.maximum.at(largest, place, y[inside])
    last[place] = y[inside]
    filled = np.isfinite(largest)
    source = np.maximum.accumulate(np.where(filled, np.arange(cells), -1))
    first = float(y[before][-1]) if before.any() else 0.0
    carried = np.where(source >= 0, last[source], first)
    return np.where(filled, largest, carried)


def steps(t: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return only the points where a step function changes, and its ends."""
    if len(t) < 2:
        return t, y
    changed = np.flatnonzero(np.diff(y) != 0) + 1
    index = np.unique(np.concatenate(([0], changed, [len(t) - 1])))
    return t[index], y[index]


def memory_unit(largest: float) -> tuple[float, str]:
    """Return the one unit of a memory axis: its bytes and its name, by the largest value shown."""
    for size, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if largest >= size:
            return float(size), name
    return 1.0, "B" if 0 < largest < KIB else "MiB"


def readable(n: float) -> str:
    """Show bytes in text, as `units.format_bytes` does, without figures that say nothing (``64.0``)."""
    return re.sub(r"\.0+(?= )", "", format_bytes(n))


def percent(share: float) -> str:
    """Show a share, such as ``97%``; what is not nothing is not shown as nothing."""
    return "under 1%" if 0 < share < 0.005 else f"{share:.0%}"


def few_of(count: int, most: int = 8) -> list[int]:
    """Return evenly spaced places from 0 on, at most so many, for the ticks of an axis with as many ranks."""
    return list(range(0, count, max(1, -(-count // most))))


def rank_ticks(count: int, starts: Sequence[int], most: int = 8) -> list[int]:
    """Return ticks for so many ranks: the first ones of hosts where there are several, of many hosts of some."""
    firsts = [0, *starts] if starts else list(range(count))
    return [firsts[place] for place in few_of(len(firsts), most)]


def round_step(largest: float, most: int = 3) -> float:
    """Return a step of 1, 2 or 5 times a power of ten, of which at most so many reach ``largest``."""
    if largest <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(largest / most))
    return float(next(power * k for k in (1, 2, 5, 10) if power * k * most >= largest))


def merge_intervals(intervals: Sequence[tuple[float, float]], gap: float) -> list[tuple[float, float, float]]:
    """Return (start, end, covered) in order, joined where no more than ``gap`` lies between two.

    Thousands of short rounds cannot be told apart on a screen; joined they can
    be drawn, and ``covered`` is the part of (0, 1] that was really spent there.
    """
    merged: list[list[float]] = []
    for start, end in sorted(intervals):
        if merged and start - merged[-1][1] <= gap:
            last = merged[-1]
            last[2] += max(0.0, end - max(start, last[1]))
            last[1] = max(end, last[1])
        else:
            merged.append([start, end, end - start])
    return [(a, b, min(1.0, spent / (b - a)) if b > a else 1.0) for a, b, spent in merged]
