"""Dates and decimals in expressions: pandas holds them as Python objects, which to make takes longer than all else.

What is asked of them most is computed without any: dates are compared, and their fields read, as datetimes; decimals
are computed by `decimals`. A missing value is as in a column of datetimes: different from every value, and neither
less nor greater. All else is computed with the objects.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ..protocol.data import Columns, one_array
from ..protocol.expressions import Expression
from ..protocol.schema import Column, Schema
from .computing import compute
from .decimals import Truth, as_ints, compared, computed, is_computed

_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge", "between")
_MISSING = ("isna", "notna")
_FIRST_DAY = datetime.date(1970, 1, 1)


def is_held_as_objects(column: Column) -> bool:
    """Whether pandas has a Python object for each value of a column."""
    return not column.fixed and (column.pandas == "object" or column.kind in ("list", "struct", "map"))


def needs_no_objects(expression: Expression, schema: Schema) -> bool:
    """Whether a step of an expression is computed by `without_objects`: all columns in it are dates, or it is one of
    `decimals`."""
    if is_computed(expression, schema):
        return True
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
    dates = all(is_held_as_objects(schema[name]) and schema[name].kind == "date" for name in columns)
    operation = expression.operation
    if not columns or not dates or operation in _MISSING:
        return bool(columns) and dates
    values = values[0] if operation == "isin" else values
    return operation.startswith("dt.") or (operation in (*_COMPARED, "isin") and all(map(_is_date, values)))


def _is_date(value: Any) -> bool:
    return isinstance(value, datetime.date) and getattr(value, "tzinfo", None) is None


def plain_answer(expression: Expression, data: Columns) -> npt.NDArray[np.bool_] | None:
    """A comparison of numbers, dates or decimals, none of which is missing; None of all else."""
    if expression.operation not in _COMPARED:
        return None
    sides = _as_days(expression.arguments, data) or as_ints(expression.arguments, data)
    sides = sides or _as_numbers(expression.arguments, data)
    return None if sides is None else compared(expression.operation, *sides)


def _name_or_value(side: Any) -> Any:
    """The name of a column, or a value; of what is computed it is an expression."""
    return side.arguments[0] if isinstance(side, Expression) and side.operation in ("col", "lit") else side


def _as_numbers(sides: Sequence[Any], data: Columns) -> list[Any] | None:
    """Columns of ints of one width, and ints; None where another side is among them."""
    found: list[Any] = []
    dtypes = set()
    for side in sides:
        plain = _name_or_value(side)
        if isinstance(side, Expression) and side.operation == "col":
            column = data.schema[plain] if plain in data.schema else None
            if column is None or column.kind != "int" or column.dtype is None:
                return None
            dtypes.add(column.dtype)
            found.append(data.array(plain))
        elif type(plain) is int and abs(plain) < 1 << 31:
            found.append(plain)
        else:
            return None
    signed = len(dtypes) == 1 and all(dtype.kind == "i" and dtype.itemsize >= 4 for dtype in dtypes)
    return found if signed else None


def without_objects(expression: Expression, data: Columns, truth: Truth) -> pd.Series[Any]:
    """Compute a step for which `needs_no_objects` holds."""
    if is_computed(expression, data.schema):
        return computed(expression, data, truth)
    if expression.operation in _COMPARED:
        days = _as_days(expression.arguments, data)
        if days is not None:
            return pd.Series(compared(expression.operation, *days), copy=False)
    arguments: list[Any] = []
    for argument in expression.arguments:
        if not isinstance(argument, Expression):
            arguments.append(_plain(argument))
        elif argument.operation == "col":
            dates = data.array(argument.arguments[0]).cast("date32")
            arguments.append(pd.Series(dates.cast("timestamp[s]").to_numpy()))
        else:
            arguments.append(_plain(argument.arguments[0]))
    found: pd.Series[Any] = compute(Expression(expression.operation, *arguments), lambda name: None)
    return found


def _as_days(sides: Sequence[Any], data: Columns) -> list[Any] | None:
    """Columns of dates without missing values, and dates, as days since 1970, which are compared in less time than
    datetimes; None where a value has a time of day, or one is missing."""
    found: list[Any] = []
    for side in sides:
        plain = _name_or_value(side)
        if isinstance(side, Expression) and side.operation == "col":
            column = data.schema[plain] if plain in data.schema else None
            if column is None or column.kind != "date" or not is_held_as_objects(column):
                return None
            array = data.array(plain)
            if array.null_count:
                return None
            days = one_array(array if pa.types.is_date32(array.type) else array.cast("date32"))
            found.append(days.view("int32").to_numpy())
        elif type(plain) is datetime.date:
            found.append((plain - _FIRST_DAY).days)
        else:
            return None
    return found if any(isinstance(one, np.ndarray) for one in found) else None


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
