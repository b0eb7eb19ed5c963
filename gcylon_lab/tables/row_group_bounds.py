"""What the statistics of a parquet row group say of its columns' values. Where they may mislead, nothing is known."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from .row_filters import Bounds


def bounds_of(group: Any, leaf: int, type_: Any) -> Bounds | None:
    """Bounds of one flat column.

    Parameters
    ----------
    group : pyarrow.parquet.RowGroupMetaData
    leaf : int
        The column's place in it.
    type_ : pyarrow.DataType
        Of the column as it is read.
    """
    statistics = group.column(leaf).statistics
    if statistics is None:
        return None
    missing = not statistics.has_null_count or statistics.null_count > 0
    if not statistics.has_min_max:
        nothing = statistics.has_null_count and statistics.null_count == group.num_rows
        return Bounds(None, None) if nothing else None
    try:
        return _bounds(statistics.min, statistics.max, type_, missing=missing)
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        return None


def _bounds(low: Any, high: Any, type_: Any, *, missing: bool) -> Bounds | None:
    # NaN has no place in the statistics of floats, and counts as missing here.
    if pa.types.is_float64(type_):
        return Bounds(float(low), float(high), True, True)
    if pa.types.is_float32(type_):  # a value is brought to float32 before it is compared, which may round it
        low, high = (float(np.nextafter(np.float32(n), np.float32(to))) for n, to in ((low, -np.inf), (high, np.inf)))
        return Bounds(low, high)
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_):
        return Bounds(low, high, missing, True) if isinstance(low, int) else None
    if pa.types.is_timestamp(type_) and isinstance(low, (dt.datetime, pd.Timestamp, np.datetime64)):
        return Bounds(_time(low, type_.tz), _time(high, type_.tz), missing, True)
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return Bounds(low, high, missing) if isinstance(low, str) else None  # long ones are cut
    if pa.types.is_date32(type_) or pa.types.is_decimal(type_):
        return Bounds(low, high, missing, True) if isinstance(low, (dt.date, Decimal)) else None
    return None


def _time(value: Any, tz: str | None) -> pd.Timestamp:
    time = pd.Timestamp(value)
    if not tz:
        return time
    return (time.tz_localize("UTC") if time.tz is None else time).tz_convert(tz)


def bounds_of_value(value: Any) -> Bounds:
    """Bounds of a column that has one value in all rows, None where it is missing."""
    if value is None:
        return Bounds(None, None)
    known = pd.Timestamp(value) if isinstance(value, dt.datetime) else value
    return Bounds(known, known, False, True)
