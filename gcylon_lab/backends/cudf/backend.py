"""The backend for GPU ranks: cupy arrays and libcudf columns in device memory, cuDF or pandas frames at its edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cupy
import numpy as np
import pandas as pd

from ..host.keys.hashing import id_dtype
from ..host.partition import Int64s
from ..protocol.backend import DelimitedText, RowGroups, RowGroupWriter
from ..protocol.data import Columns
from ..protocol.scattering import device_partition_bytes
from ..protocol.schema import Label, Schema
from . import interchange, packing
from .casting import cast
from .columns.data import (
    DeviceColumns,
    concat_columns,
    empty_columns,
    slice_columns,
    use_rmm_for_cupy,
)
from .columns.transfer import to_device, to_host
from .expressions import CudfRows
from .files import delimited, parquet
from .frames import from_frame, to_frame
from .grouping import CudfGrouping
from .joining import CudfJoining
from .kernels import partition as cudf_partition
from .kernels.hashing import partition_ids
from .kernels.remote_write import DeviceWriting, RemoteWriteOutput, has_missing
from .kernels.scatter import DeviceScattering
from .packing import DeviceOutput
from .sorting import CudfSorting

__all__ = ["CudfBackend", "DeviceColumns", "use_rmm_for_cupy"]


class CudfBackend(CudfRows, CudfGrouping, CudfJoining, CudfSorting):
    """Implements `Backend`, which says what each method does; all data is `DeviceColumns`.

    Ids, views and messages are cupy arrays, the latter two of uint8; counts and offsets are on the host. Everything
    runs on cupy's current stream.
    """

    name = "cudf"
    on_gpu = True

    def warm_up(self) -> None:
        """Compile what every exchange uses, so that the first operation does not pay for it."""
        few = pd.DataFrame({"k": np.arange(64), "s": pd.Series(["a"] * 64, dtype="str"), "v": np.zeros(64)})
        data = self.from_frame(few)
        for keys in (["k"], ["s"]):
            ids = self.partition_ids(data, keys, 2)
        self.variable_bytes(data, ids, 2)
        parted, _ = self.partition(data, ids, 2)
        message = self.pack_variable(parted, 0, 64)
        self.unpack(parted.schema, 64, [*self.fixed_views(parted, 0, 64), message])
        fixed = self.select(data, ["k", "v"])
        output = self.allocate(fixed.schema, 128)
        scattering = self.scattering(ids, 2, [0, 64])
        views = [output.fixed_views(first, first + 64) for first in (0, 64)]
        scattering.aim(np.array([[view.data.ptr for view in one] for one in views], np.int64), [8, 8])
        scattering.put(0, [fixed])
        cupy.cuda.get_current_stream().synchronize()

    def from_frame(self, frame: Any) -> DeviceColumns:
        return from_frame(frame)

    def to_frame(self, data: Any) -> Any:
        return to_frame(data)

    def from_host(self, data: Columns) -> DeviceColumns:
        return to_device(data)

    def read_row_groups(self, work: RowGroups, pass_bytes: int) -> Iterator[DeviceColumns]:
        return parquet.read_row_groups(work, pass_bytes)

    def read_delimited(self, block: bytes | memoryview, work: DelimitedText) -> DeviceColumns | None:
        return delimited.read_delimited(block, work)

    def row_group_writer(self, path: str, schema: Schema, notes: Mapping[str, str], compression: str) -> RowGroupWriter:
        return parquet.FileWriter(path, schema, notes, compression)

    def from_columns(self, columns: Mapping[str, Any], schema: Any) -> DeviceColumns:
        return interchange.from_columns(columns, schema)

    def from_device_arrow(self, source: Any) -> DeviceColumns:
        return interchange.from_device_arrow(source)

    def to_device_arrow(self, data: Any) -> tuple[Any, Any]:
        return interchange.to_device_arrow(data)

    def as_tensor(self, array: Any, owner: object, *, own: bool = False) -> Any:
        return interchange.as_tensor(array, owner)

    def new_tensor(self, rows: int, columns: int, dtype: Any) -> Any:
        return interchange.new_tensor(rows, columns, dtype)

    def fill_tensor(self, target: Any, data: Any, name: Label) -> None:
        interchange.fill_tensor(target, data, name)

    def to_device(self, columns: Columns) -> DeviceColumns:
        """Copy the CPU's columns to the device, dtype for dtype."""
        return to_device(columns)

    def to_host(self, data: Any) -> Columns:
        """Copy columns to the host, as the CPU's backend holds them."""
        return to_host(data)

    def empty(self, schema: Schema) -> DeviceColumns:
        return empty_columns(schema)

    def cast(self, data: Any, schema: Schema) -> DeviceColumns:
        return cast(data, schema)

    def slice(self, data: Any, start: int, stop: int) -> DeviceColumns:
        return slice_columns(data, start, stop)

    def concat(self, pieces: Sequence[Any]) -> DeviceColumns:
        return concat_columns(pieces)

    def select(self, data: Any, columns: Sequence[Label]) -> DeviceColumns:
        return DeviceColumns(data.schema.select(columns), data.rows, tuple(data.array(name) for name in columns))

    def partition_ids(self, data: Any, keys: Sequence[Label], n: int, into: Any = None) -> Any:
        return partition_ids(data, keys, n, into=into)

    def bucket_ids(self, data: Any, keys: Sequence[Label], size: int, buckets: int, into: Any = None) -> Any:
        return partition_ids(data, keys, size * buckets, buckets, into=into)

    def new_ids(self, rows: int, n: int) -> Any:
        return cupy.empty(rows, dtype=id_dtype(n))

    def partition(self, data: Any, ids: Any, n: int, offsets: Int64s | None = None) -> tuple[DeviceColumns, Int64s]:
        """Reorder rows by id; with ``offsets`` known from counting, fixed columns are reordered without a wait."""
        return cudf_partition.partition(data, ids, n, offsets)

    def count_ids(self, ids: Any, n: int) -> Int64s:
        return cudf_partition.count_ids(ids, n)

    def variable_bytes(self, data: Any, ids: Any, n: int) -> Int64s:
        return cudf_partition.variable_bytes(data, ids, n)

    def widest_row_bytes(self, data: Any) -> int:
        return cudf_partition.widest_row_bytes(data)

    def partition_scratch_bytes(self, rows: int, n: int) -> int:
        return device_partition_bytes(rows, n)

    def scattering(self, ids: Any, n: int, edges: Sequence[int], *, ids_each: int = 1) -> DeviceScattering:
        """Find the places of all rows of a part, so that kernels can write them into other ranks' memory."""
        return DeviceScattering(ids, n, edges, ids_each=ids_each)

    def writing(self, ids: Any, n: int, edges: Sequence[int], schema: Schema) -> DeviceWriting:
        """As `scattering`, for all columns of a schema."""
        return DeviceWriting(ids, n, edges, schema)

    def has_missing(self, data: Any) -> list[bool] | None:
        return has_missing(data)

    def allocate_written(
        self, schema: Schema, rows: int, nulls: Sequence[bool], chars: Sequence[int]
    ) -> RemoteWriteOutput:
        return RemoteWriteOutput(schema, rows, nulls, chars)

    def fixed_views(self, data: Any, start: int, stop: int) -> list[Any]:
        return packing.fixed_views(data, start, stop)

    def pack_variable(self, data: Any, start: int, stop: int) -> Any:
        return packing.pack_variable(data, start, stop)

    def deal(self, data: Any, ids: Any, n: int) -> tuple[Any, Any]:
        raise NotImplementedError("columns are sent one by one here")

    def packed_bytes(self, data: Any, start: int, stop: int) -> int:
        return 0

    def new_message(self, nbytes: int) -> Any:
        return cupy.empty(nbytes, dtype=cupy.uint8)

    def pack(self, data: Any) -> list[Any]:
        return packing.pack(data)

    def unpack(self, schema: Schema, rows: int, buffers: Sequence[Any]) -> DeviceColumns:
        return packing.unpack(schema, rows, buffers)

    def allocate(self, schema: Schema, rows: int) -> DeviceOutput:
        return DeviceOutput(schema, rows)
