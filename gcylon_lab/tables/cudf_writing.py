"""Rows of all columns straight to where they belong, texts and missing values among them: see `cudf_scatter`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
import pylibcudf as plc

from .cudf_data import DeviceColumns, as_array, current_stream, empty_array, offsets_of
from .cudf_partition import THREADS, bits_of, partition_module
from .cudf_rows import masked
from .cudf_scatter import DeviceScattering
from .cudf_transfer import Arriving, uploaded
from .cudf_types import device_type, item_dtype
from .planes import Plane, planes_of, text_places
from .schema import Schema

Int64s = npt.NDArray[np.int64]


def lacks_values(data: DeviceColumns) -> list[bool] | None:
    """In which columns rows lack values; None where a text has offsets that are too wide to be written."""
    found = []
    for column, array in zip(data.schema, data.arrays, strict=True):
        if not column.fixed and column.kind == "str" and array.num_children():
            if array.child(0).type().id() != plc.TypeId.INT32:
                return None
        found.append(not column.fixed and array.null_count() > 0)
    return found


class DeviceWriting(DeviceScattering):
    """Implements `gcylon_lab.tables.scattering.Writing`.

    Parameters
    ----------
    ids, n, edges
        As of `DeviceScattering`.
    schema : Schema
        Of all pieces; see `gcylon_lab.tables.planes.can_write`.
    """

    def __init__(self, ids: Any, n: int, edges: Sequence[int], schema: Schema) -> None:
        super().__init__(ids, n, edges)
        self._schema, self._texts = schema, text_places(schema)
        self._bytes = cupy.empty((len(self._texts), n, self._tile_edges[-1]), np.int64)
        self._planes: tuple[Plane, ...] = ()

    def weigh(self, piece: int, data: DeviceColumns) -> None:
        """Queue the counting of a piece's characters."""
        ids = self._ids[self._edges[piece] : self._edges[piece + 1]]
        first_tile, tiles = self._tile_edges[piece], self._tile_edges[-1]
        kernel = partition_module().get_function("weigh_tiles")
        numbers = np.int64(data.rows), np.int32(self._n), bits_of(self._n), np.int64(first_tile), np.int64(tiles)
        for sums, place in zip(self._bytes, self._texts, strict=True):
            blocks = self._tile_edges[piece + 1] - first_tile
            kernel((blocks,), (THREADS,), (ids, *numbers, _text(data.arrays[place])[0], sums))

    def chars(self) -> Int64s:
        """Characters' bytes of each piece, rank and text; shape (pieces, n, texts). All have been weighed; waits."""
        texts, pieces = len(self._texts), len(self._edges) - 1
        if not texts or not self._tile_edges[-1]:
            return np.zeros((pieces, self._n, texts), np.int64)
        for sums in self._bytes:
            flat = sums.reshape(-1)
            cupy.cumsum(flat, out=flat)
        last = uploaded(np.array(self._tile_edges[1:], np.int64) - 1)
        at_ends = Arriving(self._bytes[:, :, last]).wait()  # of each text, id and piece
        flat = at_ends.reshape(texts, -1)
        each = np.diff(flat, axis=1, prepend=0).reshape(texts, self._n, pieces)
        return np.ascontiguousarray(each.transpose(2, 1, 0))

    def aim_at(self, planes: Sequence[Plane], addresses: Int64s, chars: Int64s, first_chars: Int64s) -> None:
        """Say where rows go."""
        self.aim(addresses, [plane.width for plane in planes])
        self._planes = tuple(planes)
        self._byte_targets = uploaded(np.ascontiguousarray((chars + first_chars).T.astype(np.uint64)))
        self._values = uploaded(np.ascontiguousarray(first_chars.T))

    def put(self, piece: int, data: DeviceColumns) -> None:
        """Queue the writing of a piece on the current stream."""
        if not data.rows:
            return
        kept: list[Any] = []
        sources = [_source(data, plane, kept) for plane in self._planes if plane.kind != "text"]
        self._put(piece, data.rows, sources)
        ids = self._ids[self._edges[piece] : self._edges[piece + 1]]
        first_tile, tiles = self._tile_edges[piece], self._tile_edges[-1]
        numbers = np.int64(data.rows), np.int32(self._n), bits_of(self._n), np.int64(first_tile), np.int64(tiles)
        kernel = partition_module().get_function("scatter_texts")
        for text, place in enumerate(self._texts):
            offsets, chars = _text(data.arrays[place])
            targets = self._targets[len(sources) + text], self._byte_targets[text], self._values[text]
            arguments = ids, *numbers, self._ends, self._bytes[text], offsets, chars, *targets
            kernel((self._tile_edges[piece + 1] - first_tile,), (THREADS,), arguments)


def _text(column: Any) -> tuple[Any, Any]:
    """Offsets of a text column's rows, and the address of the first of its characters."""
    if not column.num_children():  # all rows are null
        return cupy.zeros(column.size() + 1, np.int32), np.uint64(0)
    data = column.data()
    return offsets_of(column), np.uint64(0 if data is None else data.ptr)


def _source(data: DeviceColumns, plane: Plane, kept: list[Any]) -> tuple[int, int]:
    """The address of a plane's first item, and its width; what is made for it is kept."""
    column, array = data.schema.columns[plane.column], data.arrays[plane.column]
    if plane.kind == "valid":
        if array.null_mask() is None:
            made = cupy.ones(data.rows, np.uint8)
        else:
            made = as_array(plc.unary.is_valid(array, stream=current_stream()), np.uint8)
        kept.append(made)
        return made.data.ptr, 1
    if column.fixed:
        return array.data.ptr, plane.width
    return array.data().ptr + array.offset() * plane.width, plane.width


class WrittenOutput:
    """A result whose planes others write.

    Parameters
    ----------
    schema : Schema
    rows : int
    nulls : sequence of bool
        Whether rows of each column lack values, on any rank.
    chars : sequence of int
        Bytes of the characters of each text.
    """

    def __init__(self, schema: Schema, rows: int, nulls: Sequence[bool], chars: Sequence[int]) -> None:
        self._schema, self._rows, self._chars = schema, rows, chars
        self.planes = planes_of(schema, nulls)
        # Of a text one offset more than rows: where the last one ends.
        sizes = [(rows + (plane.kind == "text")) * plane.width for plane in self.planes]
        self.buffers = [cupy.empty(nbytes, np.uint8) for nbytes in (*sizes, *chars)]

    def finish(self) -> DeviceColumns:
        """The result, once all rows have been written."""
        schema, rows = self._schema, self._rows
        if not rows:
            return DeviceColumns(schema, 0, tuple(map(empty_array, schema.columns)))
        by_kind = {(plane.column, plane.kind): buffer for plane, buffer in zip(self.planes, self.buffers, strict=False)}
        chars = dict(zip(text_places(schema), self.buffers[len(self.planes) :], strict=True))
        ends = dict(zip(text_places(schema), self._chars, strict=True))
        arrays = []
        for place, column in enumerate(schema):
            if column.fixed:
                arrays.append(by_kind[place, "items"].view(item_dtype(column)))
                continue
            if place in chars:
                offsets = by_kind[place, "text"].view(np.int32)
                offsets[rows] = ends[place]
                child = plc.Column(plc.DataType(plc.TypeId.INT32), rows + 1, plc.gpumemoryview(offsets), None, 0, 0, [])
                type_, items, children = plc.DataType(plc.TypeId.STRING), chars[place], [child]
            else:
                type_ = plc.DataType.from_arrow(device_type(column.arrow))
                items, children = by_kind[place, "items"], []
            plain = plc.Column(type_, rows, plc.gpumemoryview(items), None, 0, 0, children)
            valid = by_kind.get((place, "valid"))
            arrays.append(plain if valid is None else masked(plain, valid.view(np.bool_)))
        return DeviceColumns(schema, rows, tuple(arrays))
