"""Comparisons of text with numbers, and of numbers with times: pandas answers that nothing is equal. Here an error.

What was meant is a question of one more character, and no rows at all is the answer that nobody notices.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ...errors import ArgumentError
from ..protocol.expressions import Expression
from ..protocol.schema import Column, Schema

COMPARED = ("eq", "ne", "lt", "le", "gt", "ge", "between", "isin")
_KINDS = {
    "str": "text", "bool": "number", "int": "number", "float": "number", "decimal": "number",
    "date": "time", "datetime": "time", "timedelta": "time",
}  # fmt: skip
_CLASSES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("text", (str,)),
    ("time", (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)),
    ("number", (int, float, Decimal, np.number, np.bool_)),
)
_UNLIKE = ({"text", "number"}, {"number", "time"})  # texts are read as times where they are compared with them


def check_comparisons(expression: Any, schema: Schema) -> None:
    """Refuse to compare a column with what no value of it equals.

    Raises
    ------
    ArgumentError
        Naming the column and the value, and what to write.
    """
    if not isinstance(expression, Expression):
        return
    for argument in expression.arguments:
        check_comparisons(argument, schema)
    if expression.operation not in COMPARED:
        return
    columns = [schema[name] for argument in expression.arguments for name in _column(argument) if name in schema]
    for column in columns:
        mine = _kind_of(column)
        for other in columns:
            if {mine, _kind_of(other)} in _UNLIKE:
                raise ArgumentError(
                    f"{expression!r} compares {_said(column)} with {_said(other)}.",
                    advice="Convert one of them with astype before.",
                )
        for value in _values(expression.arguments):
            if {mine, kind_of_value(value)} in _UNLIKE:
                raise ArgumentError(
                    f"{expression!r} compares {_said(column)} with {value!r}.", advice=_advice(column, mine, value)
                )


def kind_of_value(value: Any) -> str:
    """What a value is compared as: text, number or time; "" where it is missing, or something else."""
    if not pd.api.types.is_scalar(value) or pd.isna(value):
        return ""
    return next((kind for kind, classes in _CLASSES if isinstance(value, classes)), "")


def _kind_of(column: Column) -> str:
    if column.kind == "category" and column.labels is not None:
        types = column.labels.type
        return "text" if pa.types.is_string(types) or pa.types.is_large_string(types) else ""
    return _KINDS.get(column.kind, "")


def _column(argument: Any) -> tuple[Any, ...]:
    return argument.arguments if isinstance(argument, Expression) and argument.operation == "col" else ()


def _values(arguments: Iterable[Any]) -> Iterable[Any]:
    for argument in arguments:
        if isinstance(argument, Expression):
            yield from argument.arguments if argument.operation == "lit" else ()
        elif isinstance(argument, list):  # of isin
            yield from argument
        else:
            yield argument


def _said(column: Column) -> str:
    return f"column {column.name!r} ({column.kind})"


def _advice(column: Column, kind: str, value: Any) -> str:
    if kind == "text":
        number = f"gl.col({column.name!r}).astype('float64')"
        return f"Compare with text in quotes, as it stands there; or, where all of it are numbers, compare {number}."
    if kind == "number" and isinstance(value, str):
        return "Compare with a number."
    return "Compare with a time, such as pd.Timestamp(...)." if kind == "time" else "Compare with a number."
