"""Of which expressions the dtype follows from the columns' dtypes alone: of others it depends on the values too.

pandas gives ``a // b`` as floats where a divisor is 0, ``where`` the dtype of the other value only where it is needed,
and fields of times as floats where a time is missing. What is not listed here counts as such.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import numpy as np

from ..protocol.expressions import Expression
from ..protocol.schema import Column, Schema
from .decimals import MOST_DIGITS, digits_of, is_computed
from .object_columns import needs_no_objects

_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_COMBINED = ("and_", "or_", "xor")
_NUMBERS = ("int", "float")
_NUMERIC = (*_NUMBERS, "number")
_TIME_NUMBERS = (
    "year", "month", "day", "hour", "minute", "second", "microsecond", "nanosecond", "weekday", "quarter", "dayofyear",
    "days_in_month",
)  # fmt: skip
_TO_TEXT = ("lower", "upper", "strip", "lstrip", "rstrip", "slice", "title", "capitalize")
_OF_TEXT = ("startswith", "endswith", "contains")
_FLOATS = ("float64", "float32")
_INTS = ("int64", "int32", "int16", "int8")
_ALIKE = {float: "float64", int: "int64"}
_MOST_INT = 2**62


def known_kind(expression: Any, schema: Schema) -> str:
    """What an expression gives whatever the values are: "bool", "int", "float", "decimal", "str" or "time"; "number"
    where these decide between ints and floats; "" where it depends on them in another way, or is not known.

    Parameters
    ----------
    expression : Expression or value
    schema : Schema
        Of the columns, as CPU engines hold them.
    """
    if not isinstance(expression, Expression):
        return _of_value(expression)
    operation, arguments = expression.operation, expression.arguments
    if operation == "col":
        return _of_column(schema[arguments[0]]) if arguments[0] in schema else ""
    if operation == "lit":
        return _of_value(arguments[0])
    digits = digits_of(expression, schema)
    if digits is not None:  # with more of them the column is as narrow as its values let it be
        return "decimal" if digits.precision <= MOST_DIGITS else ""
    if operation in (*_COMPARED, "between", "isin", "isna", "notna") and needs_no_objects(expression, schema):
        return "bool"
    if is_computed(expression, schema):
        return "float" if operation == "astype" else ""
    return _of_step(operation, arguments, schema)


def _of_step(operation: str, arguments: tuple[Any, ...], schema: Schema) -> str:
    kinds = [known_kind(one, schema) for one in arguments]
    first, *others = kinds
    if operation in ("add", "sub", "mul", "truediv") and all(kind in _NUMERIC for kind in kinds):
        return "float" if operation == "truediv" or "float" in kinds else "number" if "number" in kinds else "int"
    if operation in ("neg", "abs") and first in _NUMERIC:
        return first
    if operation.startswith("dt."):
        return _of_time(operation[3:], first)
    if operation in (*_COMPARED, "between"):
        alike = all(kind in _NUMERIC for kind in kinds) or all(kind == "str" for kind in kinds)
        return "bool" if alike and operation != "between" or alike and first != "str" else ""
    if operation in (*_COMBINED, "invert"):
        return "bool" if all(kind == "bool" for kind in kinds) else ""
    if operation in ("isna", "notna"):
        return "bool" if first else ""
    if operation == "isin":
        return "bool" if first in (*_NUMERIC, "str") else ""
    if operation == "astype":
        return _converted(first, arguments[1])
    if operation == "round" or operation.startswith("np."):
        return "float" if first == "float" else ""
    if operation.startswith("str."):
        return _of_text(operation[4:], first)
    if operation in ("where", "mask"):
        alike = others[0] == "bool" and others[1] == first and _is_wide(arguments[0], schema)
        return first if alike and _are_of_one_dtype((arguments[0], arguments[2]), schema) else ""
    if operation == "fillna":
        return first if first in ("float", "str") and others[0] == first and _is_wide(arguments[0], schema) else ""
    return ""


def _of_value(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if type(value) is int:
        return "int" if abs(value) < _MOST_INT else ""
    if isinstance(value, float):  # np.float64 too, as reductions give it
        return "float"
    if isinstance(value, Decimal):
        return ""
    return "str" if type(value) is str else ""


def _of_column(column: Column) -> str:
    if column.fixed:
        return "time" if column.kind == "datetime" else column.kind if column.kind in ("bool", "int", "float") else ""
    return "str" if _is_text(column) else ""


def _is_text(column: Column) -> bool:
    """Whether pandas has texts of a column in its own dtype for them, of which methods give that again."""
    return column.kind == "str" and column.pandas == "str"


def _converted(kind: str, dtype: Any) -> str:
    name = _ALIKE.get(dtype) or str(dtype)
    if kind in ("bool", "int", "float") and name in _FLOATS:
        return "float"
    return "int" if kind in ("bool", "int") and name in _INTS else ""


def _of_text(method: str, kind: str) -> str:
    if kind != "str":
        return ""
    return "str" if method in _TO_TEXT else "bool" if method in _OF_TEXT else ""


def _of_time(field: str, kind: str) -> str:
    if kind != "time":
        return ""
    return "number" if field in _TIME_NUMBERS else "bool" if field.startswith("is_") else ""


def _are_of_one_dtype(expressions: Iterable[Any], schema: Schema) -> bool:
    """Whether values of one kind that meet stay as they are: uint64 and negative numbers become floats then, and times
    of two units the finer one."""
    names = [name for one in expressions if isinstance(one, Expression) for name in one.columns() if name in schema]
    columns = [schema[name] for name in names]
    times = {(column.dtype, column.tz) for column in columns if column.kind == "datetime"}
    return len(times) < 2 and not any(column.dtype is not None and column.dtype.kind == "u" for column in columns)


def _is_wide(expression: Any, schema: Schema) -> bool:
    """Whether every value of its kind has a place in it: a narrow one may become wider for a value."""
    if not isinstance(expression, Expression) or expression.operation == "lit":
        return True
    widths = {schema[name].dtype for name in expression.columns() if name in schema and schema[name].fixed}
    narrow = [part for part in expression.parts() if part.operation == "astype" and str(part.arguments[1]) != "float64"]
    return not narrow and all(dtype is None or dtype.kind not in "iuf" or dtype.itemsize == 8 for dtype in widths)
