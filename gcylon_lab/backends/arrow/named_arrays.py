"""Arrays by name, of whatever library, to columns: views of them where they are contiguous."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import ArgumentError, SchemaMismatch, UnsupportedDtype
from ..protocol.data import Array, Columns
from ..protocol.promotion import fixed_column, value_type
from ..protocol.schema import Column, Schema, shown_label
from .tables import from_arrow

_FIXED = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex", "M": "datetime", "m": "timedelta"}
_UNITS = ("s", "ms", "us", "ns")
_RAW = (bytes, bytearray)
_RAW_FORMATS = ("B", "b", "c")


def from_columns(given: Mapping[str, Any], schema: Any = None) -> Columns:
    """Columns of arrays by name; contiguous ones of this machine's byte order are not copied.

    Parameters
    ----------
    given : mapping of str to array
        With numpy's array interface or ``__array__``, the buffer protocol, DLPack in host memory, or Arrow's C
        interface; or bytes, which a schema says the type of.
    schema : pyarrow.Schema or mapping of str to dtype, optional
        Which dtype each column has; all of them, in the order of the result.

    Raises
    ------
    ArgumentError
        Naming the column: what is no array, is not one-dimensional, is of another length, or bytes that are no whole
        number of items.
    SchemaMismatch
        Naming the column, what it is and what the schema says.
    UnsupportedDtype
        Naming a column that no table holds.
    """
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"Expected arrays by name for from_columns, got a {type(given).__qualname__}.",
            advice="Give a dict, for example {'x': np.arange(3)}.",
        )
    pairs = {name: _column(name, given[name], type_) for name, type_ in wanted_types(schema, given).items()}
    rows = require_lengths({name: len(array) for name, (_, array) in pairs.items()})
    return Columns(Schema([column for column, _ in pairs.values()]), rows, tuple(a for _, a in pairs.values()))


def require_lengths(lengths: Mapping[str, int]) -> int:
    """The rows that all columns have.

    Raises
    ------
    ArgumentError
        Naming one that has others than the first.
    """
    first = next(iter(lengths), "")
    for name, length in lengths.items():
        if length != lengths[first]:
            raise ArgumentError(
                f"column {name!r} has {length:,} rows, expected {lengths[first]:,} as column {first!r} has.",
                advice="Give arrays of one length.",
            )
    return lengths.get(first, 0)


def wanted_types(schema: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The Arrow type of each column in the order of the result; None where nothing is said of it.

    Raises
    ------
    ArgumentError
        If the schema is none, or names other columns.
    """
    for name in given:
        if not isinstance(name, str):
            raise ArgumentError(f"Expected names for columns, got {name!r}.", advice="Give text as names.")
    if schema is None:
        return dict.fromkeys(given)
    said = {field.name: field.type for field in schema_of(schema)}
    missing, more = [n for n in said if n not in given], [n for n in given if n not in said]
    if missing or more:
        what = f"has no array for column {missing[0]!r}" if missing else f"says nothing of column {more[0]!r}"
        which = "from_columns" if missing else "schema"
        raise ArgumentError(f"{which} {what}.", advice="Name the same columns in both.")
    return said


def schema_of(given: Any) -> pa.Schema:
    """What a person says of columns, as Arrow's schema.

    Raises
    ------
    ArgumentError
        If it is none, or says what is no dtype.
    """
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, Mapping):
        return pa.schema([(name, _type(name, dtype)) for name, dtype in given.items()])
    raise ArgumentError(
        f"Expected a pyarrow.Schema or a dict for schema, got a {type(given).__qualname__}.",
        advice="Give for example {'x': 'int32'}.",
    )


def _type(name: str, dtype: Any) -> Any:
    if isinstance(dtype, pa.DataType):
        return dtype
    try:
        if isinstance(dtype, str) and dtype in ("str", "string"):
            return pa.string()
        return pa.from_numpy_dtype(np.dtype(dtype))
    except (TypeError, ValueError, pa.ArrowException):
        raise ArgumentError(
            f"schema says {dtype!r} of column {name!r}, which is no dtype of numpy or Arrow.",
            advice="Give for example 'int32', 'datetime64[us]' or pa.timestamp('us', 'UTC').",
        ) from None


def _column(name: str, value: Any, wanted: Any) -> tuple[Column, Array]:
    if isinstance(value, _RAW) or (isinstance(value, memoryview) and _is_raw(value, wanted)):
        return _of_bytes(name, value, wanted)
    if hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__"):
        return _of_arrow(name, value, wanted)
    array = as_one_dimension(name, host_array(name, value))
    return column_of(name, array.dtype, wanted), array


def column_of(name: str, dtype: np.dtype[Any], wanted: Any) -> Column:
    """The column that an array of a dtype makes, or that a schema says, where the array is of its type.

    Raises
    ------
    UnsupportedDtype, SchemaMismatch
        Naming the column and the dtype.
    """
    kind = _FIXED.get(dtype.kind)
    if kind is None or dtype.itemsize > (16 if kind == "complex" else 8):
        advice = "Give pa.array(values) of it." if dtype.kind in "OUST" else "Convert it, as astype('float64')."
        raise UnsupportedDtype(f"column {name!r} has dtype {dtype}, which is no plain number", advice=advice)
    if dtype.kind in "mM" and np.datetime_data(dtype) not in [(unit, 1) for unit in _UNITS]:
        raise UnsupportedDtype(
            f"column {name!r} has dtype {dtype}, whose unit no table holds",
            advice="Convert it to one of s, ms, us or ns, as astype('datetime64[s]').",
        )
    column = Column(name, kind, str(dtype), dtype=dtype)
    if wanted is None:
        return column
    plain = pa.timestamp(wanted.unit) if pa.types.is_timestamp(wanted) else wanted
    if kind == "complex" or value_type(column) != plain:
        raise SchemaMismatch(
            f"column {name!r} is {dtype}, and the schema says {wanted}",
            advice=f"Convert the array of {shown_label(name)} before, or say {dtype}.",
            column=name,
        )
    return fixed_column(name, wanted)


def _is_raw(value: memoryview, wanted: Any) -> bool:
    return value.format in _RAW_FORMATS and wanted is not None and wanted not in (pa.uint8(), pa.int8())


def _of_bytes(name: str, value: Any, wanted: Any) -> tuple[Column, Array]:
    """Little-endian items one after the other."""
    view = memoryview(value)
    if wanted is None:
        raise ArgumentError(
            f"column {name!r} is {view.nbytes:,} bytes, of which nothing says what they are.",
            advice=f"Give schema={{{name!r}: 'int32'}}, or another dtype.",
        )
    try:
        column = fixed_column(name, wanted)
    except (TypeError, ValueError, NotImplementedError, pa.ArrowException):
        column = None
    if column is None or column.dtype is None or not pa.types.is_primitive(wanted):
        raise ArgumentError(
            f"column {name!r} is bytes, and the schema says {wanted}, whose items have no fixed width.",
            advice="Give pa.array(values) for it.",
        )
    dtype = np.dtype(column.dtype)
    if view.nbytes % dtype.itemsize:
        raise ArgumentError(
            f"column {name!r} has {view.nbytes:,} bytes, expected a whole number of {dtype} ({dtype.itemsize} bytes "
            f"each): {view.nbytes % dtype.itemsize} are left over.",
            advice="Give all bytes of the last item, or another dtype.",
        )
    items = np.frombuffer(view.cast("B") if view.c_contiguous else view.tobytes(), np.uint8)
    if column.kind == "bool" and items.size and int(items.max()) > 1:
        raise ArgumentError(
            f"column {name!r} has the byte {int(items.max())}, expected 0 or 1 for bools.",
            advice="Say uint8 of it, or give bytes of 0 and 1.",
        )
    stored = dtype.newbyteorder("<") if sys.byteorder == "big" else dtype
    return column, _frozen(items.view(stored).astype(dtype, copy=False))


def _of_arrow(name: str, value: Any, wanted: Any) -> tuple[Column, Array]:
    try:
        # An array of Arrow has both: the stream gives all chunks.
        stream = hasattr(value, "__arrow_c_stream__") and not hasattr(value, "__arrow_c_array__")
        chunked = pa.chunked_array(value) if stream else pa.chunked_array([pa.array(value)])
    except Exception as error:
        raise ArgumentError(
            f"column {name!r} cannot be read as one Arrow array: {error}", advice="Give one array for each column."
        ) from error
    if wanted is not None and chunked.type != wanted:
        raise SchemaMismatch(
            f"column {name!r} is {chunked.type}, and the schema says {wanted}",
            advice=f"Cast the array of {shown_label(name)} before, or say {chunked.type}.",
            column=name,
        )
    data = from_arrow(pa.table([chunked], names=[name]), nullable=True, share=True)
    return data.schema[name], data.arrays[0]


def host_array(name: str, value: Any) -> np.ndarray[Any, Any]:
    """A numpy array over what is in host memory; of DLPack where there is nothing else.

    Raises
    ------
    ArgumentError
        If it is no array, or in the memory of a GPU.
    """
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__cuda_array_interface__") or _is_on_device(value):
        raise ArgumentError(
            f"column {name!r} is in the memory of a GPU, and here only host memory is read.",
            advice="Bring it to the host before, as .get() of cupy or .cpu() of PyTorch, or use GPU engines.",
        )
    try:
        if hasattr(value, "__array_interface__"):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        if hasattr(value, "__array__") or not isinstance(value, (str, list, tuple, set, Mapping)):
            return np.asarray(value if hasattr(value, "__array__") else memoryview(value))
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise ArgumentError(
            f"column {name!r} is a {type(value).__qualname__}, which gives no array: {error}",
            advice="Give an array of numpy, or what has a buffer, __array_interface__ or __dlpack__.",
        ) from error
    raise ArgumentError(
        f"column {name!r} is a {type(value).__qualname__}, expected an array.",
        advice="Give np.array(values) of numbers, or pa.array(values) of anything else.",
    )


def _is_on_device(value: Any) -> bool:
    device = getattr(value, "__dlpack_device__", None)
    return device is not None and not hasattr(value, "__array_interface__") and device()[0] not in (1, 3, 11)


def as_one_dimension(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A column's array, contiguous and of this machine's byte order: copied only where it is not.

    Raises
    ------
    ArgumentError
        If it has another number of dimensions.
    """
    if array.ndim != 1:
        raise ArgumentError(
            f"column {name!r} has shape {array.shape}, expected one dimension.",
            advice="Give each column an array of its own, as {'a': x[:, 0], 'b': x[:, 1]}.",
        )
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    aligned = native if native.flags.aligned else native.copy()
    return _frozen(np.ascontiguousarray(aligned))


def _frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A view that nobody writes through."""
    view = array.view()
    view.flags.writeable = False
    return view
