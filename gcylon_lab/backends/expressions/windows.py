"""Window functions among the rows of one frame, of pandas or cuDF; a group's rows are one after the other there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..protocol.schema import Label

CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin", "ffill")


def windowed(
    frame: Any, keys: Sequence[Label], value: Label, function: str, how: Mapping[str, Any], *, dropna: bool
) -> Any:
    """The series of a window function.

    Parameters
    ----------
    frame : DataFrame
    keys : sequence of labels
        Of groups; without any all rows are one.
    value : label
    function : str
        One of `CUMULATIVE`, "shift" or "rolling".
    how : mapping
        periods of "shift"; window, min_periods and function of "rolling".
    dropna : bool
        Whether rows with a missing key have no answer.
    """
    of = frame.groupby(list(keys), sort=False, dropna=dropna)[value] if keys else frame[value]
    if function == "shift":
        return of.shift(how["periods"])
    if function != "rolling":
        return getattr(of, function)()
    if keys and dropna and not frame[list(keys)].notna().all(axis=1).any():  # pandas fails without any group
        return frame[value].astype("float64") * float("nan")
    rolled = getattr(of.rolling(how["window"], min_periods=how["min_periods"]), how["function"])()
    if not keys:
        return rolled
    rolled = rolled.reset_index(level=list(range(len(keys))), drop=True)
    return rolled.sort_index() if len(rolled) == len(frame) else rolled.reindex(frame.index)


def last_of(frame: Any, keys: Sequence[Label], value: Label) -> Any:
    """The last row of a frame, with the last value of its group that is there."""
    last = frame.iloc[-1:]
    if not last[value].isna().any():
        return last
    if not keys:
        there = frame[value].dropna().iloc[-1:]
        return last if not len(there) else there.to_frame()
    found = frame.groupby(list(keys), sort=False, dropna=False)[value].last().iloc[-1:]
    return last.assign(**{str(value): found.to_numpy()}) if found.notna().all() else last
