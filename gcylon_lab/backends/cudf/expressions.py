"""Rows on GPU ranks: the methods of `gcylon_lab.backends.protocol.relational.RowBackend`, computed with cuDF's series.

The dtype of what an expression makes is asked of pandas, with columns without rows.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import cudf
import cupy
import numpy as np
import pandas as pd
import pyarrow as pa
import pylibcudf as plc

from ...errors import ArgumentError
from ..arrow import interop
from ..expressions.computing import compute
from ..expressions.decimals import MOST_DIGITS, digits_of
from ..expressions.time_strings import with_times
from ..expressions.unlike_values import check_comparisons
from ..host.expressions import value_of
from ..protocol.data import empty_columns
from ..protocol.expressions import Expression
from ..protocol.promotion import fixed_column
from ..protocol.schema import Column, Label, Schema
from ..refusals import refused_argument
from . import elementwise  # noqa: F401 (kernels of one's own are run by it)
from .casting import cast
from .columns.data import Array, DeviceColumns, as_array, current_stream
from .columns.types import fixed_type, item_dtype, require_device_form
from .frames import _column_of, _order_after_cudf, _taken, _to_series, with_null
from .rows import take
from .zones import of_zone

_STEP_ROW_BYTES = 16
# What pandas' own dtypes answer with no, or yes for "ne", where a value is missing, and cuDF leaves open.
_TESTS = frozenset(
    ("eq", "ne", "lt", "le", "gt", "ge", "isin", "between", "str.startswith", "str.endswith", "str.contains")
)
_COMBINED = frozenset(("and_", "or_"))
_DATE, _ = interop._from_series("", pd.Series([], dtype="date32[day][pyarrow]"))  # what dt.date gives on CPU engines


class CudfRows:
    """Expressions and chosen rows."""

    def relabel(self, data: Any, schema: Schema) -> DeviceColumns:
        return DeviceColumns(schema, data.rows, data.arrays)

    def evaluate(self, data: Any, expressions: Sequence[tuple[Label, Expression]]) -> DeviceColumns:
        made = {name: _column(name, expression, data) for name, expression in expressions}
        columns, arrays = list(data.schema.columns), list(data.arrays)
        for name, (column, array) in made.items():
            if name in data.schema:
                place = data.schema.place(name)
                columns[place], arrays[place] = column, array
            else:
                columns.append(column)
                arrays.append(array)
        return DeviceColumns(Schema(columns), data.rows, tuple(arrays))

    def filter(self, data: Any, condition: Expression, columns: Sequence[Label] | None = None) -> DeviceColumns:
        kind = _by_pandas(condition, data.schema)
        if not pd.api.types.is_bool_dtype(kind.dtype):
            raise ArgumentError(
                f"Expected a condition, but {condition!r} gives {kind.dtype}.",
                advice="Compare, for example gl.col('x') > 0.",
            )
        series = _series(condition, data)
        mask = series.fillna(False).astype("bool").values
        cupy.cuda.Stream.null.synchronize()
        return take(data, cupy.flatnonzero(mask), data.schema.names if columns is None else columns)

    def evaluating_row_bytes(self, schema: Schema, expressions: Sequence[Expression]) -> int:
        return _STEP_ROW_BYTES * (sum(expression.steps() for expression in expressions) + 1)


def _series(expression: Expression, data: DeviceColumns) -> Any:
    """The series of an expression, made on cuDF's own stream."""
    cupy.cuda.get_current_stream().synchronize()
    check_comparisons(expression, data.schema)
    computing = _Computing(data)
    timed = with_times(expression, data.schema)
    value = compute(timed, computing.column, computing.as_pandas)
    return value if isinstance(value, cudf.Series) else cudf.Series([value]).repeat(data.rows).reset_index(drop=True)


def _with_its_times(step: Expression, schema: Schema) -> Expression:
    """A step with its dates and times as cuDF takes them; itself where there are none.

    Beside columns of dates, which are times at midnight to cuDF, a date is one too. Beside columns of times it stays a
    date, which pandas and cuDF take for something else.
    """
    if step.operation == "col":
        return step
    kinds = {schema[name].kind for name in step.columns() if name in schema}
    dates = "date" in kinds and "datetime" not in kinds
    dates = dates or any(isinstance(one, Expression) and one.operation == "dt.date" for one in step.arguments)
    arguments = [_as_time(argument, dates=dates, plain=step.operation == "where") for argument in step.arguments]
    if all(new is old for new, old in zip(arguments, step.arguments, strict=True)):
        return step
    return Expression(step.operation, *arguments)


def _as_time(value: Any, *, dates: bool, plain: bool) -> Any:
    if isinstance(value, list):
        made = [_as_time(one, dates=dates, plain=plain) for one in value]
        return value if all(new is old for new, old in zip(made, value, strict=True)) else made
    if isinstance(value, Expression):
        inner = value.arguments[0] if value.operation == "lit" else None
        new = _as_time(inner, dates=dates, plain=plain)
        return value if new is inner else Expression("lit", new)
    if dates and isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = pd.Timestamp(value)
    if plain and isinstance(value, (pd.Timestamp, pd.Timedelta)) and getattr(value, "tz", None) is None:
        return value.to_numpy()  # of others cuDF knows no dtype there
    return value


def _column_of_dates(expression: Expression, schema: Schema) -> Column | None:
    """The column of dates whose dtype the values of an expression have, which are times to cuDF."""
    if expression.operation in ("fillna", "where", "clip") and isinstance(expression.arguments[0], Expression):
        return _column_of_dates(expression.arguments[0], schema)
    if expression.operation == "dt.date":
        return _DATE
    if expression.operation != "col":
        return None
    column = schema[expression.arguments[0]]
    return column if column.kind == "date" else None


class _Computing:
    """The columns of one expression, and its steps of which cuDF knows less than pandas.

    (Functions that call themselves would keep device memory until the next collection of cycles.)
    """

    def __init__(self, data: DeviceColumns) -> None:
        self._data = data
        self._kept: dict[Label, Any] = {}

    def column(self, name: Label) -> Any:
        """The series of a column."""
        if name not in self._kept:
            self._kept[name] = _to_series(self._data.schema[name], self._data.array(name))
        return self._kept[name]

    def as_pandas(self, step: Expression) -> Any:
        """A condition where values may be missing, as pandas answers it, and what is of times of a zone; None for
        other steps."""
        if step.operation.startswith("dt."):
            zone = self._zone(step.arguments[0])
            times = compute(step.arguments[0], self.column, self.as_pandas) if zone else None
            return None if times is None else of_zone(step.operation[3:], times, zone, *step.arguments[1:])
        if step.operation == "astype" and getattr(pd.api.types.pandas_dtype(step.arguments[1]), "tz", None):
            raise refused_argument("to a time zone", f"astype({str(step.arguments[1])!r})")
        if step.operation == "astype" and pd.api.types.is_string_dtype(step.arguments[1]):
            if zone := self._zone(step.arguments[0]):  # cuDF leaves out by how much they are before UTC
                times = compute(step.arguments[0], self.column, self.as_pandas).to_pandas()
                return cudf.Series(times.dt.tz_convert(zone).astype(step.arguments[1]))
        if step.operation == "abs" and _by_pandas(step.arguments[0], self._data.schema).dtype.kind == "m":
            value = compute(step.arguments[0], self.column, self.as_pandas)  # cuDF has no abs of it
            return value.astype("int64").abs().astype(value.dtype)
        own = _with_its_times(step, self._data.schema)
        if step.operation not in _TESTS and step.operation not in _COMBINED:
            return None if own is step else compute(own, self.column, self.as_pandas)
        values = [compute(argument, self.column, self.as_pandas) for argument in own.arguments]
        if step.operation in _COMBINED and all(_is_condition(value) for value in values):
            return _combined(step.operation, *values)
        if step.operation == "str.contains":
            made = _contains(*values[:2], **dict(*values[2:]))
        else:
            made = compute(Expression(step.operation, *values), self.column)
        open_times = _times_with_nulls(values)
        if not isinstance(made, cudf.Series) or not (made.has_nulls or open_times):
            return made
        if _by_pandas(step, self._data.schema).dtype == np.bool_:
            return made.fillna(step.operation == "ne")
        for times in open_times:  # cuDF has answered for them as of numpy's dtypes
            made = made.where(times.notna(), None)
        return made

    def _zone(self, times: Any) -> str:
        """The time zone of what an expression gives, "" where it has none."""
        return interop._from_series("", _by_pandas(times, self._data.schema))[0].tz


def _contains(texts: Any, pattern: str, *, regex: bool = False, case: bool = True, na: bool | None = None) -> Any:
    """cuDF takes ``case`` for plain text only, and which values are missing may be gone from its answer."""
    if regex:
        found = texts.str.contains(pattern, regex=True, flags=0 if case else re.IGNORECASE)
    else:
        found = texts.str.contains(pattern, regex=False, case=case)
    return found.where(texts.notna(), na)


def _times_with_nulls(values: Sequence[Any]) -> list[Any]:
    return [one for one in values if isinstance(one, cudf.Series) and one.dtype.kind in "mM" and one.has_nulls]


def _is_condition(value: Any) -> bool:
    return isinstance(value, cudf.Series) and value.dtype.kind == "b"


def _combined(operation: str, left: Any, right: Any) -> Any:
    """``&`` or ``|`` where a missing value may be either: False and it is False, True or it is True (Kleene)."""
    made = left & right if operation == "and_" else left | right
    if not made.has_nulls:
        return made
    if operation == "and_":
        return made.mask(~(left.fillna(True) & right.fillna(True)), False)
    return made.mask(left.fillna(False) | right.fillna(False), True)


class _Alike:
    """An expression that equals others of the same steps and values; expressions themselves make one by ``==``."""

    __slots__ = ("_steps", "expression")

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self._steps = _steps_of(expression)

    def __hash__(self) -> int:
        return hash(self._steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Alike) and self._steps == other._steps


def _steps_of(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Expression):
        return (value.operation, *map(_steps_of, value.arguments))
    if isinstance(value, (list, tuple)):
        return (type(value), *map(_steps_of, value))
    if isinstance(value, dict):
        return (dict, *((name, _steps_of(one)) for name, one in value.items()))
    return type(value), value if isinstance(value, Hashable) else id(value)


def _by_pandas(expression: Expression, schema: Schema) -> pd.Series[Any]:
    """What CPU engines make of columns without rows; nobody changes it."""
    return _asked_of_pandas(_Alike(expression), schema)


@lru_cache(maxsize=256)
def _asked_of_pandas(alike: _Alike, schema: Schema) -> pd.Series[Any]:
    value = value_of(alike.expression, empty_columns(schema))
    return value if isinstance(value, pd.Series) else pd.Series([value]).iloc[:0]


def _column(name: Label, expression: Expression, data: DeviceColumns) -> tuple[Column, Array]:
    series = _series(expression, data)
    dates = _column_of_dates(expression, data.schema)
    schema = Schema([_column_of(name, series) if dates is None else replace(dates, name=name)])
    require_device_form(schema)
    _order_after_cudf()
    made = DeviceColumns(schema, len(series), (_taken(schema[name], series),))
    cupy.cuda.get_current_stream().synchronize()
    if dates is not None:
        return made.schema[name], made.arrays[0]
    digits = digits_of(expression, data.schema)
    if digits is not None and digits.precision <= MOST_DIGITS and made.schema[name].arrow.scale == digits.scale:
        return Column(name, "decimal", "object", arrow=pa.decimal128(*digits)), made.arrays[0]  # as CPU engines have it
    wanted, _ = interop._from_series(name, _by_pandas(expression, data.schema))
    if wanted.fixed and wanted.kind == "int" and not made.schema[name].fixed and expression.operation != "astype":
        wanted = fixed_column(name, pa.float64())  # of pandas' own dtypes that of ints with missing ones
    if wanted.fixed and wanted.kind == "float" and made.schema[name].kind == "int":
        return wanted, _as_floats(series, wanted)
    if wanted.kind not in ("null", "category") and wanted != schema[name]:
        made = cast(_without_nulls(made, wanted), Schema([wanted]))
    return made.schema[name], made.arrays[0]


def _as_floats(series: Any, wanted: Column) -> Array:
    """Ints, some of which may be missing, as the nearest floats: expressions round as pandas does."""
    _order_after_cudf()
    plain = plc.unary.cast(series.to_pylibcudf()[0], fixed_type(wanted), stream=current_stream())
    values = with_null(plain, as_array(plain, item_dtype(wanted)).copy(), np.nan)
    cupy.cuda.get_current_stream().synchronize()
    return values


def _without_nulls(made: DeviceColumns, wanted: Column) -> DeviceColumns:
    """Conditions that cuDF leaves open where pandas says no."""
    if wanted.kind != "bool" or not wanted.fixed or made.schema.columns[0].fixed:
        return made
    series = _to_series(made.schema.columns[0], made.arrays[0]).fillna(False)
    schema = Schema([wanted])
    _order_after_cudf()
    filled = DeviceColumns(schema, made.rows, (_taken(wanted, series),))
    cupy.cuda.get_current_stream().synchronize()
    return filled
