"""Rows on CPU ranks: the methods of `RowBackend`, computed with pandas series."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ...errors import ArgumentError
from ..arrow.interop import _from_series, _to_values, from_numbers
from ..expressions.computing import compute
from ..expressions.decimals import column_of, row_bytes
from ..expressions.object_columns import needs_no_objects, objects_made, plain_answer, without_objects
from ..expressions.time_strings import with_times
from ..expressions.unlike_values import check_comparisons
from ..protocol.data import Array, Columns, relabelled, select_columns, with_columns
from ..protocol.expressions import Expression
from ..protocol.schema import Column, Label, Schema
from .sorting import take_rows

# A step makes a series of 8 bytes a row and perhaps a mask; a value that is a Python object takes about so many.
_STEP_ROW_BYTES = 16
_OBJECT_ROW_BYTES = 96
_FEW = 2  # Arrow takes rows by their numbers faster than by a mask where less than half of them stay
_COMBINING = frozenset(("invert", "and_", "or_", "xor"))


class PandasRows:
    """Expressions and chosen rows."""

    def relabel(self, data: Any, schema: Schema) -> Columns:
        return relabelled(data, schema)

    def evaluate(self, data: Any, expressions: Sequence[tuple[Label, Expression]]) -> Columns:
        made = {
            name: column_of(name, expression, data, _mask_of(data)) or _made(name, _series(expression, data), data)
            for name, expression in expressions
        }
        return with_columns(data, made)

    def filter(self, data: Any, condition: Expression, columns: Sequence[Label] | None = None) -> Columns:
        mask = self.mask(data, condition)
        data = data if columns is None else select_columns(data, columns)
        if mask.all():
            return relabelled(data, data.schema)
        rows = np.flatnonzero(mask)  # to look through a mask takes numpy longer than to take
        if data.planes is not None and not data.schema.variable:
            return take_rows(data, rows)
        few = len(rows) < len(mask) // _FEW
        chosen = None if not data.schema.variable else pa.array(rows if few else mask)
        arrays = tuple(
            array.take(rows) if c.fixed else array.take(chosen) if few else array.filter(chosen)
            for c, array in _pairs(data)
        )
        return Columns(data.schema, len(rows), arrays)

    def mask(self, data: Columns, condition: Expression) -> npt.NDArray[np.bool_]:
        """Of which rows a condition holds."""
        plain = _plain_mask(_prepared(condition, data.schema).expression, data)
        return truth(_series(condition, data), repr(condition)) if plain is None else plain

    def evaluating_row_bytes(self, schema: Schema, expressions: Sequence[Expression]) -> int:
        expressions = [with_times(expression, schema) for expression in expressions]
        objects = len({name for expression in expressions for name in objects_made(expression, schema)})
        steps = sum(expression.steps() for expression in expressions)
        wide = sum(row_bytes(expression, schema) for expression in expressions)
        return _STEP_ROW_BYTES * (steps + 1) + _OBJECT_ROW_BYTES * objects * (steps + 1) + wide


def _made(name: Label, series: pd.Series[Any], data: Columns) -> tuple[Column, Array]:
    """A series as a column: numbers that were computed are kept as they are, those of another column are copied."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf" and series.dtype.isnative:
        values = series.to_numpy()
        if values.flags.c_contiguous and not any(np.may_share_memory(values, array) for array in _memory(data)):
            return from_numbers(name, values)
    return _from_series(name, series)


def _memory(data: Columns) -> Iterable[Any]:
    """The arrays in which fixed columns are."""
    if data.planes is not None:
        return (segment for segments in data.planes for segment in segments)
    return (array for column, array in _pairs(data) if column.fixed)


def _pairs(data: Columns) -> Iterable[tuple[Column, Array]]:
    return zip(data.schema.columns, data.arrays, strict=True)


def _series(expression: Expression, data: Columns) -> pd.Series[Any]:
    value = value_of(expression, data)
    return value if isinstance(value, pd.Series) else pd.Series(value, index=pd.RangeIndex(data.rows))


class _Prepared:
    """An expression that was looked at once for all pieces of one schema.

    Raises
    ------
    ArgumentError
        If it compares what no value equals.
    """

    def __init__(self, expression: Expression, schema: Schema) -> None:
        check_comparisons(expression, schema)
        self.given, self.schema = expression, schema
        self.expression = with_times(expression, schema)
        self._known: dict[int, bool] = {}  # of its steps, which it keeps

    def needs_no_objects(self, step: Expression) -> bool:
        known = self._known.get(id(step))
        if known is None:
            known = self._known[id(step)] = needs_no_objects(step, self.schema)
        return known


_latest: deque[_Prepared] = deque(maxlen=16)


def _prepared(expression: Expression, schema: Schema) -> _Prepared:
    for one in tuple(_latest):
        if one.given is expression and (one.schema is schema or one.schema == schema):
            return one
    made = _Prepared(expression, schema)
    _latest.append(made)
    return made


def value_of(expression: Expression, data: Columns) -> Any:
    """What an expression gives: a series, or a value where no column is in it."""
    kept: dict[Label, pd.Series[Any]] = {}

    def column(name: Label) -> pd.Series[Any]:
        if name not in kept:
            values = _to_values(data.schema[name], data.array(name))
            kept[name] = pd.Series(values, index=pd.RangeIndex(data.rows), copy=False)  # nothing writes into it
        return kept[name]

    prepared = _prepared(expression, data.schema)

    def shortcut(step: Expression) -> Any:
        if prepared.needs_no_objects(step):
            return without_objects(step, data, _mask_of(data))
        return _combined(step, column, shortcut) if step.operation in _COMBINING else None

    return compute(prepared.expression, column, shortcut)


def _plain_mask(step: Any, data: Columns) -> npt.NDArray[np.bool_] | None:
    """A condition made of comparisons that `plain_answer` knows, without a series for each of them; else None."""
    if not isinstance(step, Expression):
        return None
    if step.operation not in _COMBINING:
        return plain_answer(step, data)
    values = []
    for argument in step.arguments:
        values.append(_plain_mask(argument, data))
        if values[-1] is None:
            return None
    found: npt.NDArray[np.bool_] = getattr(operator, step.operation)(*values)
    return found


def _combined(step: Expression, column: Any, shortcut: Any) -> Any:
    """``~ & | ^`` of bools that pandas holds as objects, because some are missing: it has no answer, or a number."""
    values = [compute(argument, column, shortcut) for argument in step.arguments]
    if all(isinstance(value, pd.Series) and value.dtype == np.bool_ for value in values):
        found = getattr(operator, step.operation)(*(value.to_numpy() for value in values))
        return pd.Series(found, index=values[0].index, copy=False)
    return compute(Expression(step.operation, *map(_flags, values)), column)


def _flags(value: Any) -> Any:
    """Bools that are held as objects, in a dtype that knows them and has place for missing ones; else as they are."""
    if not isinstance(value, pd.Series) or value.dtype != object:
        return value
    return value.astype("boolean") if pd.api.types.infer_dtype(value) in ("boolean", "empty") else value


def _mask_of(data: Columns) -> Callable[[Expression], npt.NDArray[np.bool_]]:
    return lambda condition: truth(_series(condition, data), repr(condition))


def truth(series: Any, what: str) -> npt.NDArray[np.bool_]:
    """A series of conditions as a mask; a missing one does not hold.

    Raises
    ------
    ArgumentError
        If they are no conditions.
    """
    series = _flags(series)
    if series.dtype == np.bool_:
        plain: npt.NDArray[np.bool_] = series.to_numpy()
        return plain
    if not pd.api.types.is_bool_dtype(series.dtype) and len(series.dropna()):
        raise ArgumentError(
            f"Expected a condition, but {what} gives {series.dtype}.", advice="Compare, for example gl.col('x') > 0."
        )
    mask: npt.NDArray[np.bool_] = series.fillna(False).to_numpy(dtype=np.bool_)
    return mask
