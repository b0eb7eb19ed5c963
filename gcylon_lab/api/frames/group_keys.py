"""Keys of groups: labels, what is computed of columns, and spans of time as pandas' ``Grouper`` and ``resample`` have
them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ...backends.protocol.expressions import Expression, col
from ...backends.protocol.schema import Label
from ...engine.exec.keys import listed
from ...errors import ArgumentError

_UNITS = ("W", "MS", "QS", "YS", "D", "h", "min", "s", "ms")
_SAME = {"W-SUN": "W", "QS-JAN": "QS", "QS-OCT": "QS", "YS-JAN": "YS", "AS": "YS", "H": "h", "T": "min", "S": "s"}
_WEEK = timedelta(days=6)  # pandas names a week by its last day


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
            keys.append(one.key if one.freq is None else span_of_time(one.key, one.freq))
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


def span_of_time(key: Any, rule: Any) -> Expression:
    """The span in which each time of a column is, as pandas names it: by where it begins, a week by its last day.

    Raises
    ------
    ArgumentError
        If there is no such span.
    """
    text = str(getattr(rule, "freqstr", rule))
    unit = _SAME.get(text, text)
    plain = unit.lstrip("0123456789")
    if key is None or plain not in _UNITS or (plain in _UNITS[:4] and plain != unit):
        raise ArgumentError(
            f"Rows are not grouped by {text!r} of {key!r}.",
            advice=f"Give a column of times, and one of {', '.join(_UNITS)}, the last five also with a number, as "
            "resample('15min', on='time').",
        )
    floor = col(key).dt.floor(unit)
    span: Expression = floor + _WEEK if unit == "W" else floor
    return span


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
