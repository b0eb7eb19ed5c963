"""pandas frames to columns and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ...errors import ArgumentError, UnsupportedDtype
from ..protocol.arrow_types import TypeClash, as_type, held_type, kind_of
from ..protocol.data import Array, Columns, copied_together, one_array
from ..protocol.promotion import fixed_column
from ..protocol.schema import ARROW_DTYPE, MANY_COLUMNS, Column, Label, Schema, code_dtype, require_distinct
from .casting import as_arrow, as_fixed
from .objects import column_of_objects, objects_of

_FIXED = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex", "M": "datetime", "m": "timedelta"}
_MASKED = {f"{sign}{bits}" for sign in ("Int", "UInt") for bits in (8, 16, 32, 64)} | {"Float32", "Float64", "boolean"}
_ADVICE = {
    "interval": "Convert it before, for example .astype(str), or two columns of .array.left and .array.right.",
    "Sparse": "Convert it before with .sparse.to_dense().",
}


def from_frame(frame: Any) -> Columns:
    """Copy a frame into columns; its index is not carried.

    Raises
    ------
    UnsupportedDtype
        Naming the column and what it holds.
    DuplicateColumns
        Naming the repeated label.
    ArgumentError
        If it is no frame.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ArgumentError(
            f"expected a pandas DataFrame, got a {type(frame).__module__}.{type(frame).__qualname__}",
            advice="Pass a DataFrame; a Series has .to_frame().",
        )
    labels = [_label(label) for label in frame.columns]
    require_distinct(labels)
    many = len(labels) >= MANY_COLUMNS
    pairs = (_from_series(label, frame.iloc[:, place], copy=not many) for place, label in enumerate(labels))
    if many:
        return copied_together(pairs, len(frame), len(labels))
    held = list(pairs)
    return Columns(Schema([column for column, _ in held]), len(frame), tuple([array for _, array in held]))


def to_frame(data: Columns, *, copy: bool = True) -> pd.DataFrame:
    """Columns as a frame with the schema's dtypes and a RangeIndex; without ``copy`` it may keep their memory."""
    index = pd.RangeIndex(data.rows)
    series = {
        place: _to_values(column, array)
        for place, (column, array) in enumerate(zip(data.schema.columns, data.arrays, strict=True))
    }
    frame = pd.DataFrame(series, index=index, copy=copy)
    frame.columns = pd.Index(list(data.schema.names)) if len(data.schema) else pd.RangeIndex(0)
    return frame


def _label(label: Any) -> Label:
    if isinstance(label, str):
        return str(label)
    if isinstance(label, (int, np.integer)) and not isinstance(label, bool):
        return int(label)
    raise UnsupportedDtype(
        f"the column label {label!r} is a {type(label).__name__}; labels may be str or int",
        advice="Rename the column, for example frame.columns = frame.columns.map(str).",
        column=str(label),
    )


def _from_series(name: Label, series: pd.Series[Any], *, copy: bool = True) -> tuple[Column, Array]:
    dtype: Any = series.dtype
    if isinstance(dtype, np.dtype):
        return _from_numpy(name, series.to_numpy(), copy=copy)
    if isinstance(dtype, pd.CategoricalDtype):
        return _from_category(name, series)
    if isinstance(dtype, pd.DatetimeTZDtype):
        utc = np.array(series.dt.tz_convert(None).to_numpy(), copy=True)
        return fixed_column(name, pa.timestamp(dtype.unit, pa.lib.tzinfo_to_string(dtype.tz))), utc
    if isinstance(dtype, pd.PeriodDtype):
        ordinals = np.array(pd.PeriodIndex(series).asi8, copy=True)
        return Column(name, "period", str(dtype), dtype=np.dtype(np.int64)), ordinals
    if isinstance(dtype, (pd.StringDtype, pd.ArrowDtype)) or str(dtype) in _MASKED:
        return _from_arrow_backed(name, dtype, series)
    kind = next((kind for kind in _ADVICE if str(dtype).startswith(kind)), "")
    raise UnsupportedDtype(
        f"column {name!r} has dtype {dtype}, which cannot be distributed",
        advice=_ADVICE.get(kind, "Convert it to a dtype of numpy, pandas or Arrow before."),
        column=name,
    )


def _from_numpy(name: Label, values: np.ndarray[Any, Any], *, copy: bool) -> tuple[Column, Array]:
    if values.dtype.kind == "O":
        return column_of_objects(name, values, np.asarray(pd.isna(values)))
    kind = _FIXED.get(values.dtype.kind)
    if kind is None or values.dtype.itemsize > (16 if kind == "complex" else 8):
        raise UnsupportedDtype(
            f"column {name!r} has dtype {values.dtype}, which cannot be distributed",
            advice="Convert it before, for example .astype('float64').",
            column=name,
        )
    native = values.dtype.newbyteorder("=")
    own = np.array(values, dtype=native, copy=True, order="C") if copy else values.astype(native, copy=False)
    return Column(name, kind, str(own.dtype), dtype=own.dtype), own


def from_numbers(name: Label, values: np.ndarray[Any, Any]) -> tuple[Column, Array]:
    """The column of numbers of at most 64 bits that nothing else refers to, which are not copied."""
    return Column(name, _FIXED[values.dtype.kind], str(values.dtype), dtype=values.dtype), values


def _from_category(name: Label, series: pd.Series[Any]) -> tuple[Column, Array]:
    try:
        labels, values = _from_series(name, pd.Series(series.cat.categories))
        array = as_arrow(labels, values) if labels.fixed else one_array(values)
    except UnsupportedDtype as error:
        raise UnsupportedDtype(
            f"column {name!r} is a category whose labels have dtype {series.cat.categories.dtype}, which cannot be "
            "distributed",
            advice=error.advice,
            column=name,
        ) from None
    code = code_dtype(len(array))
    column = Column(
        name, "category", "category", dtype=code, labels=array, label_pandas=labels.pandas,
        ordered=bool(series.cat.ordered),
    )  # fmt: skip
    return column, np.array(series.cat.codes.to_numpy(), dtype=code, copy=True)


def _from_arrow_backed(name: Label, dtype: Any, series: pd.Series[Any]) -> tuple[Column, Array]:
    chunked = pa.chunked_array(_chunks(pa.array(series.array)))
    given = chunked.type
    try:
        if pa.types.is_dictionary(given):
            chunked = chunked.cast(given.value_type)
        type_ = held_type(chunked.type)
    except TypeClash:
        raise UnsupportedDtype(
            f"column {name!r} has dtype {dtype}, which cannot be distributed",
            advice="Cast it to a plain Arrow type before.",
            column=name,
        ) from None
    chunked = as_type(chunked, type_)
    kind = kind_of(type_) or ""
    tz = (type_.tz or "") if kind == "datetime" else ""
    if isinstance(dtype, pd.ArrowDtype):
        column = Column(name, kind, ARROW_DTYPE, arrow=type_, tz=tz, restore=given if given != type_ else None)
    else:
        column = Column(name, kind, _string_text(dtype) or str(dtype), arrow=type_)
    return column, _owned(chunked)


def _chunks(array: Any) -> list[Any]:
    if isinstance(array, pa.ChunkedArray):
        return list(array.chunks) or [pa.array([], type=array.type)]
    return [array]


def _owned(chunked: Any) -> Any:
    """A copy: Arrow may have taken the frame's own memory, which its owner can write to."""
    return pa.chunked_array([pa.concat_arrays(chunked.chunks)] if len(chunked) else [], type=chunked.type)


def _string_text(dtype: Any) -> str:
    if not isinstance(dtype, pd.StringDtype):
        return ""
    if dtype.na_value is pd.NA:
        return f"string[{dtype.storage}]"
    return "str" if dtype.storage == "pyarrow" else "str[python]"


def _to_values(column: Column, array: Array) -> Any:
    if column.kind == "category":
        labels = _labels(column)
        index = pd.Index(labels, dtype=getattr(labels, "dtype", None))
        return pd.Categorical.from_codes(array, dtype=pd.CategoricalDtype(index, ordered=column.ordered))
    if column.kind == "period":
        period: Any = pd.PeriodDtype.construct_from_string(column.pandas)
        index_type: Any = pd.PeriodIndex
        return index_type.from_ordinals(array, freq=period.freq)
    if column.kind == "datetime" and column.fixed and column.tz:
        zone = pa.lib.string_to_tzinfo(column.tz)
        return pd.DatetimeIndex(array.copy()).tz_localize("UTC").tz_convert(zone)
    if column.fixed:
        return array
    return _from_storage(column, array)


def _from_storage(column: Column, chunked: Any) -> Any:
    if column.pandas == "object":
        # A Series, as a frame infers other dtypes from an array.
        return pd.Series(objects_of(column.kind, chunked), dtype=object)
    if column.pandas == ARROW_DTYPE:
        wanted = column.restore if column.restore is not None else column.arrow
        dictionary = pa.types.is_dictionary(wanted)
        chunked = chunked.dictionary_encode() if dictionary else chunked
        return pd.arrays.ArrowExtensionArray(as_type(chunked, wanted))
    return _extension_dtype(column.pandas).__from_arrow__(chunked)


def _extension_dtype(text: str) -> Any:
    if text.startswith("str") and not text.startswith("string"):
        return pd.StringDtype("python" if text == "str[python]" else "pyarrow", na_value=np.nan)
    return pd.api.types.pandas_dtype(text)


def _labels(column: Column) -> Any:
    type_ = column.labels.type
    kind = kind_of(type_) or ""
    chunked = pa.chunked_array([column.labels])
    as_numpy = column.label_pandas.startswith(("int", "uint", "float", "bool", "datetime64", "timedelta64"))
    if as_numpy:
        label = fixed_column(column.name, type_)
        return _to_values(label, as_fixed(label, chunked))
    return _from_storage(Column(column.name, kind, column.label_pandas, arrow=type_), chunked)


class _Owned:
    """An array's memory by numpy's interface, with what shall live as long."""

    def __init__(self, array: np.ndarray[Any, Any], owner: object) -> None:
        self._kept = array, owner
        self.__array_interface__ = array.__array_interface__


def view_with_owner(array: np.ndarray[Any, Any], owner: object) -> np.ndarray[Any, Any]:
    """The same memory as another array, which keeps an owner alive."""
    if not array.size:
        return array
    ticks = array.view(np.int64) if array.dtype.kind in "mM" else array
    return np.asarray(_Owned(ticks, owner)).view(array.dtype)


def with_owner(table: Any, owner: object) -> Any:
    """An Arrow table over the same memory, whose columns keep an owner alive. Nested ones do not."""
    arrays = [pa.chunked_array([_array(c, owner) for c in column.chunks], column.type) for column in table.columns]
    return pa.table(arrays, schema=table.schema) if arrays else table


def _array(array: Any, owner: object) -> Any:
    if pa.types.is_dictionary(array.type):
        indices = _array(array.indices, owner)
        return pa.DictionaryArray.from_arrays(indices, array.dictionary, ordered=array.type.ordered)
    if pa.types.is_nested(array.type) or pa.types.is_null(array.type):
        return array
    buffers = [None if b is None else pa.foreign_buffer(b.address, b.size, (b, owner)) for b in array.buffers()]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count, array.offset)
