"""Window functions among the rows of one frame, of pandas or cuDF; a group's rows are one after the other there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..protocol.schema import Label

CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin", "ffill")
_SKIPPING = CUMULATIVE[:-1]
_NO_NUMBER = {"cumsum": (np.inf, -np.inf), "cumprod": (0.0, np.inf)}  # values that come to NaN, as all after them do


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
    dtype = frame[value].dtype
    if function in _SKIPPING and dtype.kind == "f" and not isinstance(dtype, np.dtype):
        # pandas has the largest finite values in the place of infinite ones there, and NaN beside missing values.
        plain = frame.assign(**{str(value): frame[value].astype(dtype.numpy_dtype)})
        return windowed(plain, keys, value, function, how, dropna=dropna).astype(dtype)
    if not keys:
        return _rolled(frame[value], how) if function == "rolling" else _of_all(frame[value], function, how)
    groups = frame.groupby(list(keys), sort=False, dropna=False)
    if function == "rolling":
        numbered = frame[value].groupby(groups.ngroup())  # pandas has no rows for a missing key of categories there
        made = _rolled(numbered, how).reset_index(level=0, drop=True).sort_index()
    elif function == "cumsum":
        made = _sums_of_groups(frame, groups, value)
    else:
        made = groups[value].shift(how["periods"]) if function == "shift" else getattr(groups[value], function)()
    has_key = frame[list(keys)].notna().all(axis=1)  # left out here: pandas has other extremes of times beside them
    return made if not dropna or has_key.all() else made.where(has_key)


def _rolled(of: Any, how: Mapping[str, Any]) -> Any:
    return getattr(of.rolling(how["window"], min_periods=how["min_periods"]), how["function"])()


def _of_all(of: Any, function: str, how: Mapping[str, Any]) -> Any:
    if function == "shift":
        return of.shift(how["periods"])
    with np.errstate(invalid="ignore"):
        return getattr(of, function)()


def _sums_of_groups(frame: Any, groups: Any, value: Label) -> Any:
    """The sums up to each row of its group. pandas has NaN for whatever comes after an infinite value."""
    of = frame[value]
    infinite = np.isinf(of) if of.dtype.kind == "f" else None
    if infinite is None or not infinite.any():
        return groups[value].cumsum()
    numbers = groups.ngroup()
    upto = [of.where(~infinite, 0.0), of == np.inf, of == -np.inf]
    finite, up, down = (one.groupby(numbers).cumsum() for one in upto)
    made = finite.mask(up > 0, np.inf).mask(down > 0, -np.inf).mask((up > 0) & (down > 0), np.nan)
    return made.where(of.notna())


def last_of(frame: Any, keys: Sequence[Label], value: Label, function: str, there: Any) -> Any:
    """What all rows of a frame come to for those after it: the last row of its last group whose value is there.

    Parameters
    ----------
    frame : DataFrame
        With what a function gives as its value.
    keys, value, function
        See `windowed`.
    there : Series of bool
        Whether a value was there before.

    Returns
    -------
    DataFrame
        Two rows where the group came to NaN, which as a missing value would be skipped.
    """
    last = frame.iloc[-1:]
    if not last[value].isna().any():
        return last
    if keys:
        numbers = frame.groupby(list(keys), sort=False, dropna=False).ngroup()
        frame = frame[numbers == numbers.iloc[-1]]
    is_here = frame[value].notna()
    ends = _NO_NUMBER.get(function)
    if ends and (there[frame.index] & ~is_here).any():
        return last.iloc[[0, 0]].assign(**{str(value): ends})
    return frame[is_here].iloc[-1:] if is_here.any() else last
