"""Dates and decimals in expressions: pandas holds them as Python objects, which to make takes longer than all else.

What is asked of them most is computed without any: dates are compared, and their fields read, as datetimes, and
decimals are compared exactly, and converted to float64, by Arrow. A missing value is as in a column of datetimes:
different from every value, and neither less nor greater. All else is computed with the objects.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from ..protocol.column import Column
from ..protocol.data import Columns
from ..protocol.expressions import Expression, compute
from ..protocol.schema import Schema

_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge", "between")
_MISSING = ("isna", "notna")


def is_held_as_objects(column: Column) -> bool:
    """Whether pandas has a Python object for each value of a column."""
    return not column.fixed and (column.pandas == "object" or column.kind in ("list", "struct", "map"))


def needs_no_objects(expression: Expression, schema: Schema) -> bool:
    """Whether a step of an expression is computed by `without_objects`: all columns in it are dates, or decimals."""
    columns: list[Any] = []
    values: list[Any] = []
    for argument in expression.arguments:
        if isinstance(argument, Expression):
            if argument.operation not in ("col", "lit"):
                return False
            (columns if argument.operation == "col" else values).append(argument.arguments[0])
        else:
            values.append(argument)
    if expression.operation in ("col", "lit") or not all(name in schema for name in columns):
        return False
    kinds = {schema[name].kind if is_held_as_objects(schema[name]) else "" for name in columns}
    return len(kinds) == 1 and _is_able(kinds.pop(), expression.operation, values)


def _is_able(kind: str, operation: str, values: list[Any]) -> bool:
    if operation in _MISSING:
        return kind in ("date", "decimal")
    if kind == "date":
        values = values[0] if operation == "isin" else values
        return operation.startswith("dt.") or operation in (*_COMPARED, "isin") and all(map(_is_date, values))
    if kind == "decimal" and operation == "astype":
        return values[0] is float or str(values[0]) == "float64"
    exact = all(isinstance(value, (Decimal, int, np.integer)) and not isinstance(value, bool) for value in values)
    return kind == "decimal" and operation in _COMPARED and exact


def _is_date(value: Any) -> bool:
    return isinstance(value, datetime.date) and getattr(value, "tzinfo", None) is None


def without_objects(expression: Expression, data: Columns) -> Any:
    """Compute a step for which `needs_no_objects` holds.

    Returns
    -------
    pandas.Series
    """
    arguments: list[Any] = []
    for argument in expression.arguments:
        if not isinstance(argument, Expression):
            arguments.append(_plain(argument))
        elif argument.operation == "col":
            name = argument.arguments[0]
            arguments.append(_series(data.schema[name], data.array(name)))
        else:
            arguments.append(_plain(argument.arguments[0]))
    if expression.operation == "astype":
        return pd.Series(arguments[0].array.__arrow_array__().cast("float64").to_numpy(zero_copy_only=False))
    result = compute(Expression(expression.operation, *arguments), lambda name: None)
    if isinstance(result.dtype, pd.ArrowDtype):
        return result.fillna(expression.operation == "ne").astype(bool)
    return result


def _series(column: Column, array: Any) -> Any:
    if column.kind == "date":
        return pd.Series(array.cast("date32").cast("timestamp[s]").to_numpy())
    return pd.Series(pd.arrays.ArrowExtensionArray(array))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return pd.Timestamp(value) if isinstance(value, datetime.date) else value


def objects_made(expression: Expression, schema: Schema) -> Iterator[Any]:
    """The columns of which a Python object is made for each row."""
    if expression.operation == "col":
        name = expression.arguments[0]
        if name in schema and is_held_as_objects(schema[name]):
            yield name
    elif not needs_no_objects(expression, schema):
        for argument in expression.arguments:
            if isinstance(argument, Expression):
                yield from objects_made(argument, schema)
