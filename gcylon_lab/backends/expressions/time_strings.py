"""Dates and times that a condition says as text: ``col("day") >= "2024-03-01"``, as pandas takes them. Pure.

Libraries differ in what they make of such a text, and dates are objects to pandas; so it becomes a value before
anything is computed. What is no time stays a text: nothing equals it, and there is no order with it.
"""

from __future__ import annotations

import datetime
from typing import Any

import pandas as pd

from ..protocol.expressions import Expression
from ..protocol.schema import ARROW_DTYPE, Column, Schema

_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge", "between")
_KINDS = ("date", "datetime", "timedelta")


def with_times(expression: Any, schema: Schema) -> Any:
    """An expression in which texts that are compared with columns of times are times too; itself where none is.

    Parameters
    ----------
    expression : Expression or value
    schema : Schema
        Of the columns.
    """
    if not isinstance(expression, Expression):
        return expression
    column = _compared_with(expression, schema)
    made = tuple(
        with_times(argument, schema) if column is None else _valued(argument, column)
        for argument in expression.arguments
    )
    if all(new is old for new, old in zip(made, expression.arguments, strict=True)):
        return expression
    return Expression(expression.operation, *made)


def _compared_with(expression: Expression, schema: Schema) -> Column | None:
    """The column of times that a comparison is with."""
    if expression.operation not in _COMPARED:
        return None
    for argument in expression.arguments:
        if isinstance(argument, Expression) and argument.operation == "col" and argument.arguments[0] in schema:
            column = schema[argument.arguments[0]]
            return column if column.kind in _KINDS else None
    return None


def _valued(argument: Any, column: Column) -> Any:
    if isinstance(argument, Expression):
        inner = argument.arguments[0] if argument.operation == "lit" else None
        value = _valued(inner, column)
        return argument if value is inner else value
    if not isinstance(argument, str):
        return argument
    try:
        return _time(argument, column)
    except (ValueError, OverflowError):
        return argument


def _time(text: str, column: Column) -> Any:
    if column.kind == "timedelta":
        return pd.Timedelta(text)
    time = pd.Timestamp(text)
    if column.tz:
        return time.tz_localize(column.tz) if time.tz is None else time.tz_convert(column.tz)
    if column.kind == "date" and column.pandas == ARROW_DTYPE:
        return time.date() if time.tz is None and time.time() == datetime.time() else text
    return time
