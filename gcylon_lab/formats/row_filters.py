"""Conditions on the rows that are read: how they may be written, and where statistics say that none can hold."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ..backends.arrow.tables import EXACT_IN_FLOAT
from ..backends.host.expressions import PandasRows
from ..backends.protocol.data import Columns
from ..backends.protocol.expressions import Expression, col
from ..backends.protocol.schema import Label
from ..errors import ArgumentError, GcylonError, raised_as

Filters = Expression | Sequence[Any] | None

_ADVICE = (
    "Give an expression such as gl.col('x') > 3, or tuples such as [('x', '>', 3), ('s', 'in', ['a', 'b'])], all of "
    "which hold; a list of such lists holds where one of them does."
)
_COMPARED: dict[str, Callable[[Expression, Any], Expression]] = {
    "=": lambda c, v: (c == v) & c.notna(),
    "==": lambda c, v: (c == v) & c.notna(),
    "!=": lambda c, v: (c != v) & c.notna(),
    "<": lambda c, v: (c < v) & c.notna(),
    "<=": lambda c, v: (c <= v) & c.notna(),
    ">": lambda c, v: (c > v) & c.notna(),
    ">=": lambda c, v: (c >= v) & c.notna(),
    "in": lambda c, v: c.isin(v),
    "not in": lambda c, v: ~c.isin(v),
}


def condition_of(filters: Filters) -> Expression | None:
    """One condition for what a reader's ``filters`` may be.

    Raises
    ------
    ArgumentError
        If it is none of them.
    """
    if filters is None or isinstance(filters, Expression):
        if filters is not None and not filters.columns():
            raise ArgumentError(f"filters={filters!r} looks at no column.", advice=_ADVICE)
        return filters
    if not isinstance(filters, (list, tuple)) or not filters:
        raise ArgumentError(f"Expected a condition for filters, got {filters!r}.", advice=_ADVICE)
    alternatives = all(isinstance(item, list) and item and not isinstance(item[0], str) for item in filters)
    several = filters if alternatives else [filters]
    together = [reduce(lambda a, b: a & b, [_comparison(item) for item in some]) for some in several]
    return reduce(lambda a, b: a | b, together)


def _comparison(item: Any) -> Expression:
    if not isinstance(item, (list, tuple)) or len(item) != 3 or not isinstance(item[0], str):
        raise ArgumentError(f"Expected (column, operator, value) in filters, got {item!r}.", advice=_ADVICE)
    name, operator, value = item
    if operator not in _COMPARED:
        raise ArgumentError(
            f"Operator {operator!r} of {item!r} in filters is invalid.",
            advice=f"Expected one of {', '.join(_COMPARED)}.",
        )
    if operator.endswith("in") and (isinstance(value, str) or not isinstance(value, Iterable)):
        raise ArgumentError(f"Expected a list of values in {item!r} of filters, got {value!r}.", advice=_ADVICE)
    return _COMPARED[operator](col(name), value)


def read_columns(columns: Sequence[str] | None, condition: Expression | None) -> list[str] | None:
    """The columns to read: those asked for, and those that a condition looks at."""
    if columns is None or condition is None:
        return None if columns is None else list(columns)
    return list(dict.fromkeys([*columns, *map(str, condition.columns())]))


def filtered(
    pieces: Iterator[Columns], condition: Expression | None, columns: Sequence[str] | None
) -> Iterator[Columns]:
    """The rows of pieces of which a condition holds, as `gcylon_lab.Table.filter` gives them; of these columns alone.

    Raises
    ------
    ArgumentError
        If the condition cannot be computed.
    """
    if condition is None:
        yield from pieces
        return
    rows = PandasRows()
    for piece in pieces:
        with _computing(condition):
            kept = rows.filter(piece, condition)
        if columns is not None:
            schema = kept.schema.select(columns)
            kept = Columns(schema, kept.rows, tuple(kept.array(name) for name in columns))
        del piece
        yield kept
        del kept  # before the next one is read


def mask_of(piece: Columns, condition: Expression) -> npt.NDArray[np.bool_]:
    """Of which rows a condition holds.

    Raises
    ------
    ArgumentError
        If it cannot be computed.
    """
    with _computing(condition):
        return PandasRows().mask(piece, condition)


def _computing(condition: Expression) -> raised_as:
    """Around computing a condition: what it cannot be computed for is told."""

    def other(error: Exception) -> Exception | None:
        if isinstance(error, GcylonError | MemoryError):
            return None
        told = ArgumentError(
            f"{condition!r} cannot be computed: {type(error).__name__}: {error}.",
            advice="Look at the columns' dtypes.",
        )
        told.__cause__ = error
        return told

    return raised_as(other)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of the values of a column: all that are there lie in [low, high].

    Attributes
    ----------
    low, high
        None where there is no value at all.
    missing : bool
        Whether values may be missing.
    exact : bool
        Whether both are values that stand there.
    """

    low: Any
    high: Any
    missing: bool = True
    exact: bool = False


_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_BOTH = (True, True)


def may_hold(condition: Expression, bounds: Callable[[Label], Bounds | None]) -> bool:
    """Whether a condition may hold of some row.

    Parameters
    ----------
    condition : Expression
    bounds : callable
        Gives those of a column; None where nothing is known.
    """
    return _outcomes(condition, bounds)[0]


def _outcomes(of: Any, bounds: Callable[[Label], Bounds | None]) -> tuple[bool, bool]:
    """Whether it may be true of a row, and whether it may be something else."""
    if not isinstance(of, Expression):
        return _BOTH
    if of.operation in ("and_", "or_"):
        (a, not_a), (b, not_b) = (_outcomes(part, bounds) for part in of.arguments)
        return (a and b, not_a or not_b) if of.operation == "and_" else (a or b, not_a and not_b)
    if of.operation == "invert":
        true, other = _outcomes(of.arguments[0], bounds)
        return other, true
    operation, *arguments = (of.operation, *of.arguments)
    if operation in _FLIPPED and not _is_column(arguments[0]):
        operation, arguments = _FLIPPED[operation], arguments[::-1]
    if not _is_column(arguments[0]):
        return _BOTH
    known = bounds(arguments[0].arguments[0])
    if known is None:
        return _BOTH
    try:
        return _of_column(operation, known, [_value(argument) for argument in arguments[1:]])
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        return _BOTH  # what cannot be compared is told where it is computed


def _is_column(of: Any) -> bool:
    return isinstance(of, Expression) and of.operation == "col"


def _value(of: Any) -> Any:
    if isinstance(of, Expression):
        if of.operation != "lit":
            raise TypeError("not a value")
        return of.arguments[0]
    return of


def _of_column(operation: str, known: Bounds, values: list[Any]) -> tuple[bool, bool]:
    none = known.low is None
    if operation == "isna":
        return known.missing, not none
    if operation == "notna":
        return not none, known.missing
    if operation == "isin":
        wanted = [_like(known, value) for value in values[0]]
        if any(pd.isna(value) for value in values[0]):
            return _BOTH
        return not none and any(known.low <= value <= known.high for value in wanted), True
    if operation == "between":
        low, high = (_like(known, value) for value in values)
        return not none and not (high < known.low or known.high < low), True
    if operation not in _FLIPPED:
        return _BOTH
    if none:
        return operation == "ne", True
    return _compared(operation, known, _like(known, values[0]))


def _compared(operation: str, known: Bounds, value: Any) -> tuple[bool, bool]:
    low, high, missing = known.low, known.high, known.missing
    if operation in ("eq", "ne"):
        some = bool(low <= value <= high)
        others = not (known.exact and low == high == value) or missing
        return (some, others) if operation == "eq" else (others, some or missing)
    true, false = {
        "lt": (low < value, high >= value), "le": (low <= value, high > value),
        "gt": (high > value, low <= value), "ge": (high >= value, low < value),
    }[operation]  # fmt: skip
    return bool(true), bool(false) or missing


def _like(known: Bounds, value: Any) -> Any:
    """A value as the column's are compared with it."""
    if isinstance(value, (list, dict, set, np.ndarray)) or pd.isna(value):
        raise TypeError("no plain value")
    if isinstance(known.low, pd.Timestamp):
        if not isinstance(value, (str, dt.date, np.datetime64)):
            raise TypeError("no time")
        return pd.Timestamp(value)
    plain = value.item() if isinstance(value, np.generic) else value
    floats = isinstance(known.low, float) or isinstance(plain, float)
    if floats and any(abs(n) > EXACT_IN_FLOAT for n in (known.low, known.high, plain) if isinstance(n, int)):
        raise ValueError("compared as floats, which round it")
    return plain
