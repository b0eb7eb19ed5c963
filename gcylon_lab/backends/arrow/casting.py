"""Bringing columns to an agreed schema: exact, or an error that names the column. Arrow and numpy only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import SchemaMismatch, UnsupportedDtype
from ..protocol.arrow_types import as_type
from ..protocol.data import Array, Columns, empty_array, one_array
from ..protocol.promotion import value_type
from ..protocol.schema import Column, Schema


def cast_columns(data: Columns, schema: Schema) -> Columns:
    """Bring data to a schema of the same names; ``data`` itself where nothing differs.

    Raises
    ------
    SchemaMismatch
        If a value cannot be represented, naming the column.
    """
    if data.schema == schema:
        return data
    arrays = tuple(
        _cast(data.schema[target.name], target, data.array(target.name), data.rows) for target in schema.columns
    )
    return Columns(schema, data.rows, arrays)


def _cast(source: Column, target: Column, array: Array, rows: int) -> Array:
    if source == target:
        return array
    if not rows:
        return empty_array(target)
    if source.kind == "null":
        return _all_null(target, rows)
    try:
        if target.dtype is None:
            return _to_variable(source, target, array)
        if target.kind == "category":
            return _recoded(source, target, array)
        if target.kind == "complex":
            return array.astype(target.dtype, casting="safe")
        return _to_fixed(source, target, array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, UnsupportedDtype) as error:
        raise _unfit(source, target, str(error)) from None


def _all_null(target: Column, rows: int) -> Array:
    if target.dtype is None:
        return pa.chunked_array([pa.nulls(rows, target.arrow)])
    if target.kind in ("bool", "int"):
        raise SchemaMismatch(f"column {target.name!r} has nulls, which {target.describe()} cannot hold")
    null: Any = np.nan if target.kind in ("float", "complex") else -1
    if target.dtype.kind in "mM":
        null = np.array("NaT", target.dtype)
    elif target.kind == "period":
        null = np.iinfo(np.int64).min
    return np.full(rows, null, target.dtype)


def _to_variable(source: Column, target: Column, array: Array) -> Array:
    chunked = pa.chunked_array([as_arrow(source, array)]) if source.fixed else array
    if source.kind == "category":
        chunked = pa.chunked_array([one_array(chunked).dictionary_decode()])
    return as_type(chunked, target.arrow)


def _recoded(source: Column, target: Column, codes: Array) -> Array:
    if source.kind != "category":
        raise TypeError("no rule turns it into a category")
    if source.labels.equals(target.labels):
        return codes.astype(target.dtype, copy=False)
    places = pc.index_in(source.labels.cast(target.labels.type), value_set=target.labels)
    if places.null_count:
        missing = source.labels.filter(places.is_null()).slice(0, 5).to_pylist()
        raise TypeError(f"the labels {missing} are not among the agreed ones")
    table = np.append(places.to_numpy(), -1).astype(target.dtype)  # code -1 finds the last
    return table[codes]


def _to_fixed(source: Column, target: Column, array: Array) -> Array:
    if source.fixed and source.kind == target.kind == "float":
        return array.astype(target.dtype, casting="safe")
    values = pa.chunked_array([as_arrow(source, array)]) if source.fixed else array
    type_ = value_type(target)
    return as_fixed(target, values if values.type == type_ else values.cast(type_))


def as_arrow(column: Column, array: Array, *, nan_is_null: bool = True) -> Any:
    """A fixed column's rows as one Arrow array; NaT and codes of -1 become nulls.

    Parameters
    ----------
    column : Column
    array : ndarray
    nan_is_null : bool
        Whether NaN becomes null too.

    Raises
    ------
    UnsupportedDtype
        If Arrow has no such type (complex, period).
    """
    if column.kind == "category":
        codes = pa.array(array, mask=array < 0)
        return pa.DictionaryArray.from_arrays(codes, column.labels, ordered=column.ordered)
    if column.kind in ("complex", "period"):
        raise UnsupportedDtype(
            f"column {column.name!r} ({column.describe()}) has no Arrow type",
            advice="Convert it to "
            + ("timestamps with .dt.to_timestamp()." if column.kind == "period" else "its real and imaginary parts."),
            column=column.name,
        )
    kind = array.dtype.kind
    # Arrow's own look for what is missing takes several times longer than to find that nothing is.
    if kind in "mM" and not _any_missing(array):
        plain = pa.array(array.view(np.int64)).view(pa.from_numpy_dtype(array.dtype))
    else:
        plain = pa.array(array, from_pandas=kind != "f" or (nan_is_null and _any_missing(array)))
    return plain.cast(value_type(column)) if column.tz else plain


def _any_missing(array: Array) -> bool:
    """Whether a NaN or NaT is among floats or times."""
    if not len(array):
        return False
    if array.dtype.kind == "f":
        return bool(np.isnan(array.min()))
    return bool(array.view(np.int64).min() == np.iinfo(np.int64).min)


def as_fixed(column: Column, chunked: Any) -> np.ndarray[Any, Any]:
    """The rows of a chunked Arrow array as a new numpy array of a fixed column; nulls become NaN or NaT.

    Raises
    ------
    TypeError
        If there are nulls and the numpy type has no place for them.
    """
    if chunked.null_count and column.kind in ("bool", "int"):
        raise TypeError(f"{column.describe()} cannot hold {chunked.null_count} nulls")
    result = np.empty(len(chunked), column.dtype)
    at = 0
    for chunk in chunked.chunks:
        result[at : at + len(chunk)] = _plain(chunk)
        at += len(chunk)
    return result


def as_view(column: Column, chunked: Any) -> np.ndarray[Any, Any] | None:
    """The rows of a chunked Arrow array as a numpy array over the same memory; None where that cannot be."""
    if chunked.num_chunks != 1 or chunked.null_count or column.kind == "bool":
        return None
    chunk = chunked.chunk(0)
    valid, *memory = chunk.buffers()
    if valid is not None:  # bits that say that nothing is missing would be kept, and nobody asks them
        chunk = pa.Array.from_buffers(chunk.type, len(chunk), [None, *memory], 0, chunk.offset)
    values = _plain(chunk)
    # Foreign memory may lie anywhere.
    return values if values.flags.aligned and values.dtype == column.dtype else None


def _plain(chunk: Any) -> np.ndarray[Any, Any]:
    if pa.types.is_timestamp(chunk.type):
        chunk = chunk.cast(pa.timestamp(chunk.type.unit))
    values: np.ndarray[Any, Any] = chunk.to_numpy(zero_copy_only=False)
    return values


def _unfit(source: Column, target: Column, why: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"column {source.name!r} ({source.describe()}) holds values that {target.describe()} cannot represent: {why}",
        advice=f"Give values that {target.describe()} holds, or convert the column to one dtype for all rows before.",
        column=source.name,
        rounds_ints=source.kind == "int" and target.kind == "float",
    )
