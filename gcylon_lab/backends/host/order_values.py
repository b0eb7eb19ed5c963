"""From words that order values back to the values, as pandas has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrow.interop import to_frame
from ..protocol.column import Column
from ..protocol.data import Array, Columns
from ..protocol.schema import Schema
from .group_kernels import between
from .keys.key_groups import plain_values
from .keys.order_preserving import from_bits
from .take import as_column


def value_at(column: Column, result: Column, low: int | None, high: int | None, part: float) -> Any:
    """The value at a part of the way between two values of a column.

    Parameters
    ----------
    column, result : Column
        What the words are of, and what the value is of.
    low, high : int or None
        Words; None where the column has no value.
    part : float

    Returns
    -------
    scalar
        As an item of a pandas series; missing where there is none.
    """
    array = array_at(column, result, low, high, part)
    if result.kind == "float" and result.fixed:
        return array[0]
    return to_frame(Columns(Schema([result]), 1, (array,))).iloc[0, 0]


def array_at(column: Column, result: Column, low: int | None, high: int | None, part: float) -> Array:
    """As `value_at`, as the array of the result's column, with one row."""
    words = np.array([low or 0, high or 0], np.uint64)
    values = from_bits(words, _plain_kind(column))
    middle = between(column, values[:1], values[1:], np.array([part]))
    return as_column(result, middle, np.array([low is not None]))


def _plain_kind(column: Column) -> str:
    from ..protocol.data import empty_array

    return str(plain_values(column, empty_array(column))[0].dtype.kind)
