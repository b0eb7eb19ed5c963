"""The backend for CPU ranks: numpy and Arrow columns, pandas frames at its edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from ..arrow import interop, named_arrays
from ..arrow.casting import cast_columns
from ..protocol.backend import DelimitedText, RowGroups, RowGroupWriter
from ..protocol.data import Columns, concat_columns, empty_columns, select_columns, slice_columns
from ..protocol.schema import Label, Schema, missing_in_tensor
from . import packing
from . import partition as partitioning
from .expressions import PandasRows
from .grouping import PandasGrouping
from .joining import PandasJoining
from .keys import hashing
from .packing import PlacedOutput
from .sorting import PandasSorting

R = TypeVar("R")


def _method(function: Callable[..., R]) -> Callable[..., R]:
    """A function of `Columns` as a method of `Backend`, whose data is of any backend."""
    return staticmethod(function)


class PandasBackend(PandasRows, PandasGrouping, PandasJoining, PandasSorting):
    """Implements `Backend`, which says what each method does; all data is `Columns`."""

    name = "pandas"
    on_gpu = False

    from_frame = _method(interop.from_frame)
    to_frame = _method(interop.to_frame)

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

    from_columns = _method(named_arrays.from_columns)

    def from_device_arrow(self, source: Any) -> Columns:
        raise NotImplementedError("host memory alone is read here")

    def to_device_arrow(self, data: Any) -> tuple[Any, Any]:
        raise NotImplementedError("rows are in host memory here")

    def as_tensor(self, array: Any, owner: object, *, own: bool = False) -> Any:
        view = interop.view_with_owner(array, owner)
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

    empty = _method(empty_columns)
    cast = _method(cast_columns)
    slice = _method(slice_columns)
    concat = _method(concat_columns)
    select = _method(select_columns)
    partition_ids = _method(hashing.partition_ids)
    bucket_ids = _method(hashing.bucket_ids)

    def new_ids(self, rows: int, n: int) -> partitioning.Ids:
        return np.empty(rows, dtype=hashing.id_dtype(n))

    partition = _method(partitioning.partition)
    deal = _method(partitioning.deal)
    count_ids = _method(partitioning.count_ids)
    variable_bytes = _method(partitioning.variable_bytes)
    widest_row_bytes = _method(partitioning.widest_row_bytes)
    partition_scratch_bytes = _method(partitioning.partition_scratch_bytes)
    fixed_views = _method(packing.fixed_views)
    pack_variable = _method(packing.pack_variable)
    packed_bytes = _method(packing.packed_bytes)
    new_message = _method(packing.new_message)
    pack = _method(packing.pack)
    unpack = _method(packing.unpack)

    def allocate(self, schema: Schema, rows: int) -> PlacedOutput:
        return PlacedOutput(schema, rows)
