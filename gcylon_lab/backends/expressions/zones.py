"""What clocks of a time zone show, and which instants they mean: for arrays of numpy, or of cupy, which is like it.

cuDF looks up its own tables of a zone as though they were in order, which they are not: it has wrong hours where a zone
had other rules than it has now, as of Sao Paulo in 2017.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY = 86_400
_FROM, _RULES, _TO = (int(np.datetime64(f"{year}-01-01", "s").astype(np.int64)) for year in (1800, 2090, 2800))
_CYCLE = _DAY * 146_097  # 400 years, after which days of the week and dates are the same again
# Days between two looks at a zone: no zone had an offset for less than 3.9 (Freetown in 1939), nor has by its rules.
_STEP, _STEP_OF_RULES = 3, 20

Seconds = npt.NDArray[np.int64]


@lru_cache(maxsize=64)
def changes_of(zone: str) -> tuple[Seconds, Seconds]:
    """When the clocks of a zone change, in seconds of UTC, and by how many seconds they are before UTC, one more.

    Parameters
    ----------
    zone : str
        As Arrow calls it: "Europe/Berlin", "+01:00".
    """
    tz = pd.DatetimeTZDtype("s", zone).tz
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

    def offset(second: int) -> int:
        at = (epoch + datetime.timedelta(seconds=second)).astimezone(tz).utcoffset()
        assert at is not None
        return round(at.total_seconds())

    looks = [*range(_FROM, _RULES, _STEP * _DAY), *range(_RULES, _TO, _STEP_OF_RULES * _DAY), _TO]
    found = [offset(look) for look in looks]
    changes, offsets = [], [found[0]]
    for before, after, old, new in zip(looks, looks[1:], found, found[1:], strict=False):
        if old == new:
            continue
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if offset(middle) == old else (before, middle)
        changes.append(after)
        offsets.append(new)
    return np.array(changes, np.int64), np.array(offsets, np.int64)


def on_clocks(ticks: Any, unit: str, zone: str, xp: Any = np) -> Any:
    """What clocks show at instants.

    Parameters
    ----------
    ticks : array of int64
        In UTC.
    unit : {"s", "ms", "us", "ns"}
    zone : str
    xp : module, default numpy
        Of the array.
    """
    changes, offsets = changes_of(zone)
    seconds = ticks // PER_SECOND[unit]
    place = xp.searchsorted(xp.asarray(changes), seconds - _cycles(seconds, xp), side="right")
    return ticks + xp.asarray(offsets)[place] * PER_SECOND[unit]


def instants(shown: Any, unit: str, zone: str, xp: Any = np) -> Any:
    """When clocks show something: the first time, where they do so twice, and the next instant, where they never do.

    Parameters
    ----------
    shown : array of int64
        Ticks that clocks show.
    unit, zone, xp
        See `on_clocks`.
    """
    changes, offsets = changes_of(zone)
    # Until when clocks go on as before, as they show it themselves: that is not later than what they show next.
    ends = np.maximum.accumulate(changes + offsets[:-1]) if len(changes) else changes
    starts = np.concatenate([[np.iinfo(np.int64).min], changes])
    seconds = shown // PER_SECOND[unit]
    cycles = _cycles(seconds, xp)
    place = xp.searchsorted(xp.asarray(ends), seconds - cycles, side="right")
    utc = xp.maximum(seconds - cycles - xp.asarray(offsets)[place], xp.asarray(starts)[place]) + cycles
    return shown + (utc - seconds) * PER_SECOND[unit]


def _cycles(seconds: Any, xp: Any) -> Any:
    """Whole cycles of a calendar by which seconds are beyond those that are known."""
    return xp.maximum((seconds - _TO) // _CYCLE + 1, 0) * _CYCLE
