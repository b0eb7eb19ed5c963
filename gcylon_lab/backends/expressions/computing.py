"""Expressions computed with the series of a library, which have the methods of pandas."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ..protocol.expressions import SYMBOLS, Expression
from ..protocol.methods.accessors import CALENDAR_ENDS, CALENDAR_UNITS, WEEKDAYS
from ..protocol.scalars import is_missing
from ..protocol.schema import Label

_LATER_DAYS = {"MS": 32, "QS": 93, "YS": 367}  # after its first day the next one has begun, and no later one
_MONTHS = {"MS": 1, "QS": 3, "YS": 12}
ROUNDED = ("floor", "ceil", "round")
_NUMPY_UNITS = {"min": "m"}
_SINCE_3_1 = {"weekday": "day_of_week", "dayofyear": "day_of_year"}


def compute(
    expression: Any, column: Callable[[Label], Any], shortcut: Callable[[Expression], Any] = lambda step: None
) -> Any:
    """Compute an expression with the series of a library; a value, where no column is in it.

    Parameters
    ----------
    expression : Expression or value
    column : callable
        Gives the series of a column.
    shortcut : callable, optional
        Gives the series of a step where there is a better way than that of the library, else None.
    """
    if not isinstance(expression, Expression):
        return expression
    made = shortcut(expression)
    if made is not None:
        return made
    operation, arguments = expression.operation, expression.arguments
    if operation == "col":
        return column(arguments[0])
    if operation == "lit":
        return arguments[0]
    if operation == "window":
        raise ArgumentError(
            f"{expression!r} looks at other rows, which is not known here.",
            advice="Make a column of it before, as t.assign(y=t.x.cumsum()).",
        )
    values = [compute(argument, column, shortcut) for argument in arguments]
    if operation == "kernel":
        return values[0].run(values[1:])
    if operation in SYMBOLS or operation in ("invert", "neg"):
        return getattr(operator, operation)(*values)
    if operation.startswith("dt."):
        if hasattr(values[0], "dtype") and not hasattr(values[0], "dt"):
            raise _no_times(arguments[0], values[0])
        return of_times(operation[3:], *values)
    if operation == "str.contains":
        options = values[2] if len(values) > 2 else {}
        return values[0].str.contains(values[1], **{"regex": False, **options})
    if operation == "bins":
        return _bins(*values)
    if operation.startswith("np."):
        return _of_numpy(operation[3:], values[0])
    if operation == "str.split":
        return _piece(*values)
    if operation == "str.extract":
        return values[0].str.extract(values[1], expand=False)
    if operation == "where" and not hasattr(values[0], "where") and hasattr(values[1], "where"):
        values[0] = _repeated(values[0], values[1], values[2])
    if operation == "str.replace":
        return values[0].str.replace(values[1], values[2], regex=len(values) > 3)
    if operation.startswith("str."):
        named = values.pop() if isinstance(values[-1], dict) else {}
        return getattr(values[0].str, operation[4:])(*values[1:], **named)
    if operation == "astype" and _are_timedeltas_to_floats(*values):
        return values[0].astype("int64").astype(values[1]).mask(values[0].isna())
    return getattr(values[0], operation)(*values[1:])


def _bins(series: Any, edges: list[float], how: dict[str, bool]) -> Any:
    """The number of the bin in which each value is, as a float; missing outside of all."""
    side = "left" if how["right"] else "right"
    found = type(series)(edges).searchsorted(series.astype("float64"), side=side)
    codes = type(series)(found).astype("float64") - 1
    if how["include_lowest"] and how["right"]:
        codes = codes.where(series != edges[0], 0.0)
    return codes.where((codes >= 0) & (codes < len(edges) - 1) & series.notna(), None)


def of_times(name: str, times: Any, *arguments: Any) -> Any:
    """A field of times, or what a method of them gives; of cuDF's series those of no zone, which has wrong tables."""
    if name == "floor" and arguments[0] in CALENDAR_UNITS:
        return _of_plain_times(times, _by_own_clock, lambda local: _calendar_floor(local, arguments[0]))
    if name == "span":
        return _of_plain_times(times, _span, *arguments)
    if name == "date":
        return _dates(times)
    if name == "week":
        return times.dt.isocalendar().week.astype("Int32" if times.hasnans else "int32")
    if name in ROUNDED and arguments[0][:1].isdigit() and not type(times).__module__.startswith("pandas"):
        return rounded(name, times, arguments[0])
    if name == "tz_localize":
        return _without_zone(times)
    newer = _SINCE_3_1.get(name, name)  # the old names warn there
    field = getattr(times.dt, newer if hasattr(times.dt, newer) else name)
    if not callable(field):
        return field
    try:
        return field(*arguments)
    except ValueError:
        if name not in ROUNDED or getattr(times.dtype, "tz", None) is None:
            raise
    return _rounded_in_zone(name, times, arguments[0])


def _without_zone(times: Any) -> Any:
    """What clocks of the zone show, as times without one."""
    return _of_plain_times(times, lambda plain: plain.dt.tz_localize(None), keep=False)


def _rounded_in_zone(name: str, times: Any, rule: str) -> Any:
    """Times at multiples of a unit where clocks show some of them twice or never, which pandas refuses: the first such
    midnight, of hours and less that beside which the time is itself, and what comes next where there is none."""
    local = times.dt.tz_localize(None)
    made = getattr(local.dt, name)(rule)
    placed = _by_own_clock(times, lambda _: made)
    if _step_of(rule)[1] == "D":
        return placed
    beside = times + (made - local)
    return beside.where(beside.dt.tz_localize(None) == made, placed)


def rounded(name: str, times: Any, rule: str) -> Any:
    """Times without a zone at multiples of a unit, of which cuDF has the unit alone: floor, ceil or round."""
    step, unit = _step_of(rule)
    own = np.datetime_data(times.dtype)[0]
    if step.astype(f"m8[{own}]") != step:  # of seconds those that are whole are no multiples of 700 ms
        return rounded(name, times.astype(f"datetime64[{unit}]"), rule)
    every = int(step.astype(f"m8[{own}]").astype(np.int64))
    ticks = times.astype("int64")
    rest = ticks % every
    below = ticks - rest
    if name == "ceil":
        below = below.where(rest == 0, below + every)
    elif name == "round":  # halves to even multiples, as pandas does
        above = (rest * 2 > every) | ((rest * 2 == every) & ((below // every) % 2 == 1))
        below = below.where(~above, below + every)
    return below.astype(times.dtype).where(times.notna(), None)


def _step_of(rule: str) -> tuple[Any, str]:
    """How long "90min" is, and its unit as numpy calls it."""
    number, unit = _several(rule)
    short: Any = _NUMPY_UNITS.get(unit, unit)
    return np.timedelta64(number, short), short


def _of_plain_times(times: Any, function: Callable[..., Any], *arguments: Any, keep: bool = True) -> Any:
    """A function that gives times, of a series that may hold times of Arrow, which have not all operators."""
    arrow = getattr(times.dtype, "pyarrow_dtype", None)
    if arrow is None:
        return function(times, *arguments)
    unit, zone = getattr(arrow, "unit", "s"), getattr(arrow, "tz", None)  # dates have neither
    made = function(times.astype(f"datetime64[{unit}, {zone}]" if zone else f"datetime64[{unit}]"), *arguments)
    return made.astype(times.dtype) if keep and hasattr(arrow, "tz") else made


def _dates(times: Any) -> Any:
    """The day of each time, by its own clock; its midnight where a library has no dates."""
    local = _without_zone(times)
    if not type(times).__module__.startswith("pandas"):
        return local.dt.floor("D").astype("datetime64[s]")
    return local.astype("date32[day][pyarrow]")


def _by_own_clock(times: Any, function: Callable[[Any], Any]) -> Any:
    """A function that gives midnights, of times as clocks of their zone show them: days of a zone can be 23 hours."""
    zone = getattr(times.dtype, "tz", None)
    if zone is None:
        return function(times)
    local = function(times.dt.tz_localize(None))
    # Where it is midnight twice or never, as pandas names spans.
    return local.dt.tz_localize(zone, ambiguous=np.ones(len(local), dtype=bool), nonexistent="shift_forward")


def _span(times: Any, rule: str, origin: Any) -> Any:
    """What pandas calls the span of each time: by where it begins, counted from a midnight; a week by its last day, as
    months, quarters and years where their ends are asked for."""
    number, unit = _several(rule)
    if unit[0] == "W":
        return _by_own_clock(times, lambda local: _week_end(local, unit, number, origin))
    if unit in CALENDAR_UNITS or unit in CALENDAR_ENDS:
        return _by_own_clock(times, lambda local: _months_from(local, unit, number, origin))
    step, unit = _step_of(rule)
    step = step.astype("timedelta64[ms]" if unit == "ms" else "timedelta64[s]")
    if unit == "D":
        midnight = origin.tz_localize(None).to_numpy()
        return _by_own_clock(times, lambda local: local - (local - midnight) % step)
    return times - (times - (origin.to_numpy() if origin.tz is None else origin)) % step


def _no_times(expression: Any, series: Any) -> ArgumentError:
    """Make the error for ``.dt`` of what is no time."""
    import pandas as pd

    name = expression.arguments[0] if expression.operation == "col" else None
    what = f"column {name!r}" if name is not None else f"{expression!r}"
    # Of objects pandas looks at the values; cuDF has texts alone as objects.
    if not pd.api.types.is_string_dtype(series if isinstance(series, pd.Series) else series.dtype):
        return ArgumentError(f"{what} is {series.dtype}: .dt is of times.", advice="Give a column of times.")
    column = repr(name) if name is not None else "columns"
    return ArgumentError(
        f"{what} is text: .dt is of times.",
        advice=f"Read it as times, read_csv(path, parse_dates=[{column}]), or convert it before: "
        f"{expression.text()}.astype('datetime64[us]').dt",
    )


def _calendar_floor(times: Any, unit: str) -> Any:
    """The day at which the week, month, quarter or year began."""
    days = times.dt.floor("D")
    if unit == "W":
        return days - _days(of_times("weekday", times))
    if unit == "YS":
        return days - _days(of_times("dayofyear", times) - 1)
    months = days - _days(times.dt.day - 1)
    for _ in range(2 if unit == "QS" else 0):
        before = months - _days(1)
        before = before - _days(before.dt.day - 1)
        months = months.where(months.dt.month % 3 == 1, before)
    return months


def _several(rule: str) -> tuple[int, str]:
    """How many of which unit: "2W-WED" are 2 of "W-WED"."""
    unit = rule.lstrip("0123456789")
    return int(rule.removesuffix(unit) or 1), unit


def _week_end(times: Any, unit: str, number: int, origin: Any) -> Any:
    """The last day of the weeks, so many together, of which the first ones end with that of the origin."""
    last = WEEKDAYS.index(unit[2:] or "SUN")
    ends = times.dt.floor("D") + _days((last + 7 - of_times("weekday", times)) % 7)
    if number == 1:
        return ends
    day = origin.tz_localize(None)
    first = (day + timedelta(days=(last - day.weekday()) % 7)).to_numpy()
    step = np.timedelta64(7 * number, "D").astype("timedelta64[s]")
    return ends + (step - (ends - first) % step) % step


def _months_from(times: Any, unit: str, number: int, origin: Any) -> Any:
    """The first day of the months, quarters or years, so many together, counted from that of the origin; or the last
    day, where they are named by it."""
    start = CALENDAR_ENDS.get(unit, unit)
    begun = _calendar_floor(times, start)
    if number > 1:
        each = _MONTHS[start]
        first = origin.year * 12 + (origin.month - 1) // each * each
        behind = (begun.dt.year * 12 + begun.dt.month - 1 - first) // each % number
        steps = (number - behind) % number if unit in CALENDAR_ENDS else behind
        for step in range(1, number):
            near = _next(begun, start) if unit in CALENDAR_ENDS else _calendar_floor(begun - _days(1), start)
            begun = begun.where(steps < step, near)
    return _next(begun, start) - _days(1) if unit in CALENDAR_ENDS else begun


def _next(begun: Any, unit: str) -> Any:
    """Where the month, quarter or year after one begins."""
    return _calendar_floor(begun + _days(_LATER_DAYS[unit]), unit)


def _days(number: Any) -> Any:
    if isinstance(number, int):
        return np.timedelta64(number, "D")
    return (number.fillna(0).astype("int64") * 86400).astype("timedelta64[s]")


def _of_numpy(name: str, series: Any) -> Any:
    """A function of numpy of a series, or a value; decimals are converted before."""
    from pandas.api.types import is_numeric_dtype

    if hasattr(series, "dtype") and (not is_numeric_dtype(series.dtype) or "decimal" in str(series.dtype).lower()):
        series = series.astype("float64")
    with np.errstate(all="ignore"):  # of zeros and negative numbers: -inf and NaN, as libraries have them
        return getattr(np, name)(series)


def _piece(texts: Any, separator: str, place: int) -> Any:
    pieces = texts.str.split(separator, regex=False)
    if hasattr(pieces, "list"):  # cuDF
        return pieces.list.get(place, default=None)
    return pieces.str.get(place).astype(texts.dtype)


def _repeated(value: Any, condition: Any, other: Any) -> Any:
    """A series of one value, to choose by a condition between it and another; in the dtype of the other where a
    missing value would make objects of all, and an int floats of large ones."""
    dtype = getattr(other, "dtype", None) if type(condition).__module__.startswith("pandas") else None
    if is_missing(value):
        kept = dtype is not None and not (isinstance(dtype, np.dtype) and dtype.kind in "biu")
    else:
        kept = str(dtype) in ("uint64", "UInt64") and type(value) is int and 0 <= value < 2**64
    made = type(condition)([value], dtype=dtype) if kept else type(condition)([value])
    return made.repeat(len(condition)).reset_index(drop=True)


def _are_timedeltas_to_floats(series: Any, dtype: Any) -> bool:
    """Whether libraries refuse, or do differently with NaT, what `Expression.astype` promises."""
    from pandas.api.types import is_float_dtype

    return getattr(getattr(series, "dtype", None), "kind", "") == "m" and is_float_dtype(dtype)
