"""Keys of groups: labels, what is computed of columns, and spans of time as pandas' ``Grouper`` and ``resample`` have
them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ...backends.protocol.expressions import Expression, col
from ...backends.protocol.methods.accessors import CALENDAR_ENDS, CALENDAR_UNITS, WEEKDAYS
from ...backends.protocol.schema import Label
from ...engine.exec.invocation import listed
from ...errors import ArgumentError

_CALENDAR = (*CALENDAR_UNITS, *CALENDAR_ENDS, *(f"W-{day}" for day in WEEKDAYS))
_SHORT = ("D", "h", "min", "s", "ms")
_UNITS = (*_CALENDAR, *_SHORT)
_MOST_OF_CALENDAR = 1000  # weeks to years together
_SAME = {
    "W-SUN": "W", "QS-JAN": "QS", "QS-OCT": "QS", "YS-JAN": "YS", "AS": "YS", "H": "h", "T": "min", "S": "s",
    "M": "ME", "Q": "QE", "Y": "YE", "A": "YE", "QE-DEC": "QE", "YE-DEC": "YE", "mo": "MS", "q": "QS", "y": "YS",
    "w": "W", "d": "D",
}  # fmt: skip
_DAY = timedelta(days=1)
_NOTHING = timedelta(0)


def listed_keys(name: str, given: Any) -> list[Label | Expression]:
    """Keys of a group-by in one form: labels, or expressions.

    Raises
    ------
    ArgumentError
        If they are none.
    """
    several = list(given) if isinstance(given, (list, tuple)) else [given]
    keys: list[Label | Expression] = []
    for one in several:
        if isinstance(one, Expression):
            keys.append(one.arguments[0] if one.operation == "col" else one)
        elif hasattr(one, "freq") and hasattr(one, "key"):  # pandas' Grouper
            keys.append(one.key if one.freq is None else span_of_time(one.key, _plain_rule(one)))
        elif isinstance(given, (list, tuple)):
            keys += listed(one, name)
        else:
            keys += listed(given, name)
    labels = [one for one in keys if not isinstance(one, Expression)]
    if not keys or len(set(labels)) != len(labels):
        raise ArgumentError(
            f"{name}={given!r} is empty or names a column twice.", advice="Give one or more columns, each once."
        )
    return keys


def _plain_rule(grouper: Any) -> Any:
    """The frequency of a Grouper, unless it asks for other spans than those that `span_of_time` has."""
    usual = type(grouper)(key=grouper.key, freq=grouper.freq)
    options = ("closed", "label", "origin", "offset")
    changed = [name for name in options if getattr(grouper, name, None) != getattr(usual, name, None)]
    if changed:
        said = ", ".join(f"{name}={getattr(grouper, name)!r}" for name in changed)
        raise ArgumentError(
            f"Grouper has {said}, which is not computed here.",
            advice="Spans begin at midnight of the first day, and are closed where they begin: leave it out.",
        )
    return grouper.freq


def span_of_time(key: Any, rule: Any) -> Expression:
    """The span in which each time of a column is, as pandas names it: by where it begins, a week and what ends with E
    by its last day. It can be computed once `with_origins` has found where spans begin to count.

    Raises
    ------
    ArgumentError
        If there is no such span.
    """
    text = str(getattr(rule, "freqstr", rule))
    plain = text.lstrip("0123456789")
    number = text.removesuffix(plain)
    plain = _SAME.get(plain, plain)
    number = "" if number == "1" and plain in _CALENDAR else number
    unit = f"{number}{plain}"
    far = plain in _CALENDAR and number and int(number) > _MOST_OF_CALENDAR
    if key is None or plain not in _UNITS or far or (number and not int(number)):
        known = ", ".join((*CALENDAR_UNITS, *CALENDAR_ENDS, *_SHORT))
        raise ArgumentError(
            f"Rows are not grouped by {text!r} of {key!r}.",
            advice=f"Give a column of times, and one of {known}, or W-MON to W-SAT for other last days of weeks; also "
            f"with a number, of W to YE up to {_MOST_OF_CALENDAR}, as resample('15min', on='time').",
        )
    return Expression("dt.span", col(key), unit, None)


def with_origins(table: Any, keys: Sequence[Label | Expression]) -> list[Label | Expression]:
    """Collective: all ranks call it. Keys that can be computed: spans of time with the midnight from which they count.

    It is that of the first day of the whole table, as pandas has it; the least time is asked for where days are not
    whole numbers of spans, or days of a zone can be shorter and longer.

    Raises
    ------
    ArgumentError
        If a column holds no times.
    """
    return [
        _with_origin(table, one) if isinstance(one, Expression) and one.operation == "dt.span" else one for one in keys
    ]


def _with_origin(table: Any, key: Expression) -> Expression:
    import pandas as pd

    times, rule, _ = key.arguments
    column = table.schema[times.arguments[0]]
    if column.kind not in ("datetime", "date"):
        raise ArgumentError(
            f"Rows are not grouped by {rule!r} of {column.name!r}, which holds {column.pandas}.",
            advice="Give a column of times, or make one before, as in assign(time=...).",
        )
    if rule in _CALENDAR:
        return key  # these count from the calendar
    if rule.lstrip("0123456789") in _SHORT:
        floor: Expression = times.dt.floor(rule)
        step = pd.Timedelta(rule if rule[0].isdigit() else f"1{rule}")
        if column.kind == "datetime" and not column.tz and _DAY % step == _NOTHING:
            return floor  # every midnight is a multiple
    least: Any = pd.Timestamp(table.min(column.name))
    if pd.isna(least):  # there are no times, and no spans
        least = pd.Timestamp(0)
    midnight = least.tz_localize(None).normalize().as_unit("s")
    if column.tz:
        midnight = midnight.tz_localize(column.tz, ambiguous=True, nonexistent="shift_forward")
    return Expression("dt.span", times, rule, midnight)


def key_labels(keys: Sequence[Label | Expression], columns: Sequence[Label]) -> list[Label]:
    """What keys are called among the columns of the table that has them all."""
    taken = [*columns, *(one for one in keys if not isinstance(one, Expression))]
    labels: list[Label] = []
    for one in keys:
        label: Label = own_name(one) if isinstance(one, Expression) else one
        if isinstance(one, Expression):
            while label in taken:
                label = f"{label}_key"
            taken.append(label)
        labels.append(label)
    return labels


def own_name(expression: Expression) -> Label:
    """What something computed is called: as the column that it is computed of, where it is one."""
    names = list(expression.columns())
    return names[0] if len(names) == 1 else "key"
