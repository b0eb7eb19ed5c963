"""The backend for CPU ranks: numpy and Arrow columns, pandas frames at its edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..arrow.casting import cast_columns
from ..arrow.exported import view_with_owner
from ..arrow.interop import from_frame, to_frame
from ..arrow.named_arrays import from_columns
from ..protocol.backend import DelimitedText, RowGroups, RowGroupWriter
from ..protocol.column import Label, missing_in_tensor
from ..protocol.data import Columns, concat_columns, empty_columns, select_columns, slice_columns
from ..protocol.schema import Schema
from . import packing
from .expressions import PandasRows
from .grouping import PandasGrouping
from .joining import PandasJoining
from .keys import hashing
from .packing import PlacedOutput
from .partition import (
    Ids,
    Int64s,
    count_ids,
    deal,
    partition,
    partition_scratch_bytes,
    variable_bytes,
    widest_row_bytes,
)
from .sorting import PandasSorting


class PandasBackend(PandasRows, PandasGrouping, PandasJoining, PandasSorting):
    """Implements `Backend`, which says what each method does; all data is `Columns`."""

    name = "pandas"
    on_gpu = False

    def from_frame(self, frame: Any) -> Columns:
        return from_frame(frame)

    def to_frame(self, data: Any) -> Any:
        return to_frame(data)

    def from_host(self, data: Any) -> Columns:
        held: Columns = data
        return held

    def to_host(self, data: Any) -> Columns:
        held: Columns = data
        return held

    def read_row_groups(self, work: RowGroups, pass_bytes: int) -> Iterator[Columns]:
        raise NotImplementedError("files are decoded in host memory here")

    def read_delimited(self, block: bytes | memoryview, work: DelimitedText) -> Columns | None:
        return None

    def row_group_writer(self, path: str, schema: Schema, notes: Mapping[str, str], compression: str) -> RowGroupWriter:
        raise NotImplementedError("files are encoded in host memory here")

    def from_columns(self, columns: Mapping[str, Any], schema: Any) -> Columns:
        return from_columns(columns, schema)

    def from_device_arrow(self, source: Any) -> Columns:
        raise NotImplementedError("host memory alone is read here")

    def to_device_arrow(self, data: Any) -> tuple[Any, Any]:
        raise NotImplementedError("rows are in host memory here")

    def as_tensor(self, array: Any, owner: object, *, own: bool = False) -> Any:
        view = view_with_owner(array, owner)
        if view.size:
            view.flags.writeable = own
        return view

    def new_tensor(self, rows: int, columns: int, dtype: Any) -> Any:
        return np.empty((rows, columns), dtype, order="F")

    def fill_tensor(self, target: Any, data: Any, name: Label) -> None:
        column, array = data.schema[name], data.array(name)
        if column.fixed:
            target[:] = array
            return
        if array.null_count:
            raise missing_in_tensor(column, array.null_count)
        start = 0
        for chunk in array.chunks:
            target[start : start + len(chunk)] = chunk.to_numpy(zero_copy_only=False)
            start += len(chunk)

    def empty(self, schema: Schema) -> Columns:
        return empty_columns(schema)

    def cast(self, data: Any, schema: Schema) -> Columns:
        return cast_columns(data, schema)

    def slice(self, data: Any, start: int, stop: int) -> Columns:
        return slice_columns(data, start, stop)

    def concat(self, pieces: Sequence[Any]) -> Columns:
        return concat_columns(pieces)

    def select(self, data: Any, columns: Sequence[Label]) -> Columns:
        return select_columns(data, columns)

    def partition_ids(self, data: Any, keys: Sequence[Label], n: int, into: Ids | None = None) -> Ids:
        return hashing.partition_ids(data, keys, n, into)

    def bucket_ids(self, data: Any, keys: Sequence[Label], size: int, buckets: int, into: Ids | None = None) -> Ids:
        return hashing.bucket_ids(data, keys, size, buckets, into)

    def new_ids(self, rows: int, n: int) -> Ids:
        return np.empty(rows, dtype=hashing.id_dtype(n))

    def partition(self, data: Any, ids: Ids, n: int) -> tuple[Columns, Int64s]:
        return partition(data, ids, n)

    def deal(self, data: Any, ids: Ids, n: int) -> tuple[Any, Int64s]:
        return deal(data, ids, n)

    def count_ids(self, ids: Ids, n: int) -> Int64s:
        return count_ids(ids, n)

    def variable_bytes(self, data: Any, ids: Ids, n: int) -> Int64s:
        return variable_bytes(data, ids, n)

    def widest_row_bytes(self, data: Any) -> int:
        return widest_row_bytes(data)

    def partition_scratch_bytes(self, rows: int, n: int) -> int:
        return partition_scratch_bytes(rows, n)

    def fixed_views(self, data: Any, start: int, stop: int) -> list[memoryview]:
        return packing.fixed_views(data, start, stop)

    def pack_variable(self, data: Any, start: int, stop: int) -> memoryview:
        return packing.pack_variable(data, start, stop)

    def packed_bytes(self, data: Any, start: int, stop: int) -> int:
        return packing.packed_bytes(data, start, stop)

    def new_message(self, nbytes: int) -> memoryview:
        return packing.new_message(nbytes)

    def pack(self, data: Any) -> list[packing.Buffer]:
        return packing.pack(data)

    def unpack(self, schema: Schema, rows: int, buffers: Sequence[memoryview]) -> Columns:
        return packing.unpack(schema, rows, buffers)

    def allocate(self, schema: Schema, rows: int) -> PlacedOutput:
        return PlacedOutput(schema, rows)
