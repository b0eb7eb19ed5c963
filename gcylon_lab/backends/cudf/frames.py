"""cuDF and pandas frames to device columns, and back to cuDF frames."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import cudf
import cupy
import numpy as np
import pandas as pd
import pyarrow as pa
import pylibcudf as plc
from cudf.core.column import ColumnBase

from ...errors import ArgumentError, UnsupportedDtype
from ..arrow import interop
from ..protocol.arrow_types import held_type
from ..protocol.promotion import masked_name
from ..protocol.schema import Column, Label, Schema
from .columns.data import Array, DeviceColumns, as_array, as_column, current_stream, empty_array
from .columns.transfer import device_array, host_array, plain_arrow, to_device
from .columns.types import device_type, item_dtype, require_device_form, to_device_form

_NULL_TICKS = np.iinfo(np.int64).min


def from_frame(frame: Any) -> DeviceColumns:
    """Copy a cuDF or pandas frame into columns; its index is not carried.

    Raises
    ------
    UnsupportedDtype
        Naming the column and what it holds.
    DuplicateColumns
        Naming the repeated label.
    ArgumentError
        If it is no frame.
    """
    if isinstance(frame, pd.DataFrame):
        return to_device(interop.from_frame(frame))
    if not isinstance(frame, cudf.DataFrame):
        raise ArgumentError(
            f"expected a cuDF or pandas DataFrame, got a {type(frame).__module__}.{type(frame).__qualname__}",
            advice="Pass a DataFrame; a Series has .to_frame().",
        )
    _order_after_cudf()
    series = [frame.iloc[:, place] for place in range(frame.shape[1])]
    schema = _schema(list(frame.columns), series)
    require_device_form(schema)
    arrays = tuple(_taken(column, one) for column, one in zip(schema, series, strict=True))
    cupy.cuda.get_current_stream().synchronize()  # the user may change or free the frame now
    return DeviceColumns(schema, len(frame), arrays)


def _order_after_cudf() -> None:
    """Let the current stream wait for what cuDF has started on its own, the default stream."""
    cupy.cuda.get_current_stream().wait_event(cupy.cuda.Stream.null.record())


def _schema(labels: list[Any], series: list[Any]) -> Schema:
    """What pandas would hold, found from a pandas frame of the same dtypes without rows."""
    none = {
        place: pd.Series([], dtype=_pandas_dtype(label, one))
        for place, (label, one) in enumerate(zip(labels, series, strict=True))
    }
    frame = pd.DataFrame(none)
    frame.columns = pd.Index(labels, dtype=object, tupleize_cols=False) if labels else pd.RangeIndex(0)
    return interop.from_frame(frame).schema


def _column_of(label: Label, series: Any) -> Column:
    """The column of one series, as `_schema` finds it."""
    dtype = _pandas_dtype(label, series)
    known = _schema_of if isinstance(dtype, pd.CategoricalDtype) else _known_schema_of  # labels are kept by nobody
    return replace(known(dtype).columns[0], name=label)


def _schema_of(dtype: Any) -> Schema:
    return interop.from_frame(pd.DataFrame({"": pd.Series([], dtype=dtype)})).schema


_known_schema_of = lru_cache(maxsize=256)(_schema_of)


def _pandas_dtype(label: Label, series: Any) -> Any:
    dtype = series.dtype
    if isinstance(dtype, cudf.CategoricalDtype):
        return dtype.to_pandas()
    if isinstance(dtype, cudf.IntervalDtype):
        raise UnsupportedDtype(
            f"column {label!r} has dtype {dtype}, which cannot be distributed",
            advice="Convert it before, for example to two columns of its edges.",
            column=label,
        )
    if isinstance(dtype, (cudf.ListDtype, cudf.StructDtype)) or str(dtype).startswith("decimal"):
        return pd.ArrowDtype(held_type(dtype.to_arrow()))
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return pd.StringDtype(na_value=np.nan)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf" and series.to_pylibcudf()[0].null_count():
        return masked_name(dtype)
    return dtype


def _taken(column: Column, series: Any) -> Array:
    """A copy of a cuDF column's rows, as the schema's column is held."""
    plain = series.to_pylibcudf()[0]
    if not plain.size():
        return empty_array(column)
    if not column.fixed:
        if column.kind in ("list", "struct"):
            return device_array(column, host_array(column, plain))  # nested decimals may be narrower in cuDF
        wanted = plc.DataType.from_arrow(device_type(column.arrow))
        if column.kind == "str" or plain.type() == wanted:
            return plain.copy(stream=current_stream())
        return plc.unary.cast(plain, wanted, stream=current_stream())  # days, and narrow decimals
    if column.kind == "category":
        codes = as_array(plain, plain.type().typestr)
        return with_null(plain, codes.astype(item_dtype(column)), -1)
    return with_null(plain, as_array(plain, item_dtype(column)).copy(), _NULL_TICKS)


def with_null(plain: Any, values: Any, null: float) -> Any:
    """The values, with ``null`` in place of the column's nulls."""
    if plain.null_count():
        valid = as_array(plc.unary.is_valid(plain, stream=current_stream()), np.bool_)
        values[~valid] = null
    return values


def to_frame(data: DeviceColumns) -> Any:
    """Copy columns into a cuDF frame, with the nearest dtypes that cuDF has and a RangeIndex."""
    series = {
        place: _to_series(column, array)
        for place, (column, array) in enumerate(zip(data.schema, data.arrays, strict=True))
    }
    cupy.cuda.get_current_stream().synchronize()  # cuDF goes on with them on its own stream
    frame = cudf.DataFrame(series, index=cudf.RangeIndex(data.rows))
    frame.columns = pd.Index(list(data.schema.names)) if len(data.schema) else pd.RangeIndex(0)
    return frame


def _to_series(column: Column, array: Array) -> Any:
    if not column.fixed:
        return _variable_series(column, array)
    if column.kind == "category":
        return _category_series(column, array)
    plain = as_column(column, array.copy())
    if column.kind not in ("datetime", "timedelta"):
        return cudf.Series.from_pylibcudf(plain)
    return _zoned(cudf.Series.from_pylibcudf(with_missing(plain, array != _NULL_TICKS)), column.tz)


def _variable_series(column: Column, array: Any) -> Any:
    if column.kind == "null":
        return cudf.Series.from_arrow(pa.nulls(array.size(), pa.string()))
    if column.kind == "decimal":  # its digits are not in libcudf's columns
        dtype = cudf.Decimal128Dtype(column.arrow.precision, column.arrow.scale)
        return cudf.Series._from_column(ColumnBase.create(array.copy(stream=current_stream()), dtype))
    if column.kind in ("list", "struct"):  # nor are their field names, and the digits of what is in them
        plain = plain_arrow(column, array) if array.size() else to_device_form(pa.array([], column.arrow))
        return cudf.Series.from_arrow(plain)
    if column.kind == "date":  # cuDF has no days
        array = plc.unary.cast(array, plc.DataType(plc.TypeId.TIMESTAMP_SECONDS), stream=current_stream())
    else:
        array = array.copy(stream=current_stream())
    return _zoned(cudf.Series.from_pylibcudf(array), column.tz)


def _zoned(series: Any, tz: str) -> Any:
    if not tz:
        return series
    cupy.cuda.get_current_stream().synchronize()
    aware = series.dt.tz_localize("UTC")
    try:
        return aware.dt.tz_convert(tz)
    except NotImplementedError:  # a fixed offset, which cuDF does not have: the same instants in UTC
        return aware


def with_missing(plain: Any, valid: Any) -> Any:
    """A column with nulls where ``valid`` is False."""
    bools = plc.Column(plc.DataType(plc.TypeId.BOOL8), valid.size, plc.gpumemoryview(valid), None, 0, 0, [])
    mask, nulls = plc.transform.bools_to_mask(bools, stream=current_stream())
    return plain.with_mask(mask, nulls) if nulls else plain


def _category_series(column: Column, codes: Any) -> Any:
    labels = interop._labels(column)
    if pa.types.is_date(column.labels.type):  # cuDF has no days
        labels = column.labels.cast(pa.timestamp("s")).to_pandas()
    dtype = cudf.CategoricalDtype(pd.Index(labels, dtype=getattr(labels, "dtype", None)), ordered=column.ordered)
    wanted = dtype._codes_dtype  # unsigned in cuDF, which has a mask for nulls
    unsigned = Column(column.name, "int", wanted.name, dtype=wanted)
    plain = as_column(unsigned, codes.astype(wanted))
    # cuDF has no public way to give codes and labels.
    return cudf.Series._from_column(ColumnBase.create(with_missing(plain, codes >= 0), dtype))
