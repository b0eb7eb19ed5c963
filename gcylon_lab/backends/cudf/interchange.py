"""Device memory in and out by other libraries' protocols: Arrow's device arrays, the CUDA array interface, tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cudf
import cupy
import numpy as np
import pyarrow as pa
import pylibcudf as plc

from ...errors import ArgumentError, UnsupportedDtype
from ..arrow.named_arrays import column_of, require_lengths, wanted_types
from ..arrow.named_arrays import from_columns as host_columns
from ..protocol.schema import Column, Label, Schema, missing_in_tensor, require_distinct
from .columns.data import Array, DeviceColumns, as_array, as_column
from .columns.transfer import to_device
from .columns.types import arrow_metadata, require_device_form
from .frames import from_frame, with_missing

_NULL_TICKS = np.iinfo(np.int64).min


def from_columns(given: Mapping[str, Any], schema: Any) -> DeviceColumns:
    """Arrays by name as columns: contiguous ones on the device are not copied, those of the host are sent there."""
    if not isinstance(given, Mapping) or not any(_on_device(value) for value in given.values()):
        return to_device(host_columns(given, schema))
    pairs, lengths, external = {}, {}, 0
    for name, wanted in wanted_types(schema, given).items():
        value = given[name]
        if not _on_device(value):
            sent = to_device(host_columns({name: value}, None if wanted is None else {name: wanted}))
            pairs[name], lengths[name] = (sent.schema[name], sent.arrays[0]), sent.rows
            continue
        array = cupy.asarray(value) if hasattr(value, "__cuda_array_interface__") else cupy.from_dlpack(value)
        if array.ndim != 1:
            raise ArgumentError(
                f"column {name!r} has shape {array.shape}, expected one dimension.",
                advice="Give each column an array of its own, as {'a': x[:, 0], 'b': x[:, 1]}.",
            )
        pairs[name] = column_of(name, array.dtype, wanted), cupy.ascontiguousarray(array)
        lengths[name] = len(array)
        external += array.nbytes if array.flags.c_contiguous else 0
    rows = require_lengths(lengths)
    made = Schema([column for column, _ in pairs.values()])
    require_device_form(made)
    return DeviceColumns(made, rows, tuple(array for _, array in pairs.values()), external)


def _on_device(value: Any) -> bool:
    if hasattr(value, "__cuda_array_interface__"):
        return True
    device = getattr(value, "__dlpack_device__", None)
    if device is None or hasattr(value, "__array_interface__") or isinstance(value, pa.Array | pa.ChunkedArray):
        return False  # Arrow's arrays of strings have the method, and refuse to be asked
    return bool(device()[0] == 2)


def from_device_arrow(source: Any) -> DeviceColumns:
    """Copy what has ``__arrow_c_device_array__`` into columns.

    Raises
    ------
    ArgumentError
        If it has no columns with names.
    UnsupportedDtype, DuplicateColumns
        Naming the column.
    """
    # Its schema is taken with the array, and both can be taken once: libcudf is given what was taken.
    taken = _Taken(*source.__arrow_c_device_array__())
    if not pa.types.is_struct(taken.type):
        raise ArgumentError(f"Expected columns with names, got Arrow data of {taken.type}.", advice="Give a table.")
    table = plc.Table.from_arrow(taken)
    series = {place: cudf.Series.from_pylibcudf(column) for place, column in enumerate(table.columns())}
    frame = cudf.DataFrame(series)
    names = [field.name or str(place) for place, field in enumerate(taken.type)]  # a table of pylibcudf has none
    require_distinct(names)
    frame.columns = names
    return from_frame(frame)


class _Taken:
    """The capsules of a device array, after a look at the schema."""

    def __init__(self, schema: Any, array: Any) -> None:
        # pyarrow takes the schema out of its capsule, so that libcudf is given another one of the same type.
        self.type = pa.DataType._import_from_c_capsule(schema)
        self._array = array

    def __arrow_c_device_array__(self, requested_schema: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        return self.type.__arrow_c_schema__(), self._array


def to_device_arrow(data: DeviceColumns) -> tuple[Any, Any]:
    """The capsules of a schema and a device array over the same memory, which is kept until they are released.

    Raises
    ------
    UnsupportedDtype
        Naming a category: its labels are in host memory.
    """
    columns, metadata = [], []
    for column, array in zip(data.schema, data.arrays, strict=True):
        if column.kind == "category":
            raise UnsupportedDtype(
                f"column {column.name!r} is a category, whose labels are in host memory",
                advice=f"Pass t.astype({{{column.name!r}: 'str'}}), or pa.table(t), which is in host memory.",
                column=column.name,
            )
        columns.append(_exported(column, array))
        described = plc.interop.ColumnMetadata() if column.fixed else arrow_metadata(column.arrow)
        described.name = str(column.name)
        metadata.append(described)
    cupy.cuda.get_current_stream().synchronize()  # who reads it knows nothing of this stream
    table = plc.Table(columns)
    return table._to_schema(metadata), table._to_device_array()


def _exported(column: Column, array: Array) -> Any:
    if not column.fixed:
        return array
    plain = as_column(column, array)
    return with_missing(plain, array != _NULL_TICKS) if column.kind in ("datetime", "timedelta") else plain


def as_tensor(array: Any, owner: object) -> Any:
    """An array over the same memory, which keeps an owner alive."""
    if not array.size:
        return array
    memory = cupy.cuda.UnownedMemory(array.data.ptr, array.nbytes, (array, owner))
    return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0), array.strides)


def new_tensor(rows: int, columns: int, dtype: Any) -> Any:
    """Room for a tensor of contiguous columns."""
    return cupy.empty((rows, columns), dtype, order="F")


def fill_tensor(target: Any, data: DeviceColumns, name: Label) -> None:
    """Copy a column of numbers into an array."""
    column, array = data.schema[name], data.array(name)
    if column.fixed:
        target[:] = array
        return
    if array.null_count():
        raise missing_in_tensor(column, array.null_count())
    dtype = np.dtype(column.arrow.to_pandas_dtype())
    target[:] = as_array(array, dtype)
    cupy.cuda.get_current_stream().synchronize()
