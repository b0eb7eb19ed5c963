"""Rows of all columns straight to where they belong, texts and missing values among them: see `cudf_scatter`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
import pylibcudf as plc

from ...host.column_buffers import OFFSET_BYTES, planes_of
from ...protocol.scattering import Plane
from ...protocol.schema import Schema
from ..columns.data import DeviceColumns, empty_array
from ..columns.transfer import Arriving, uploaded
from ..columns.types import device_type, item_dtype
from .partition import THREADS, bits_of, partition_module
from .scatter import DeviceScattering

Int64s = npt.NDArray[np.int64]

_TEXTS_A_LAUNCH = 8  # whose addresses are passed by value
_MASK_BYTES = 64


def has_missing(data: DeviceColumns) -> list[bool] | None:
    """In which columns rows lack values; None where a text has offsets that are too wide to be written."""
    found = []
    for column, array in zip(data.schema, data.arrays, strict=True):
        if not column.fixed and column.kind == "str" and array.num_children():
            if array.child(0).type().id() != plc.TypeId.INT32:
                return None
        found.append(not column.fixed and array.null_count() > 0)
    return found


class DeviceWriting(DeviceScattering):
    """Implements `gcylon_lab.backends.protocol.scattering.Writing`.

    Parameters
    ----------
    ids, n, edges
        As of `DeviceScattering`.
    schema : Schema
        Of all pieces; see `gcylon_lab.backends.host.column_buffers.can_write`.
    """

    def __init__(self, ids: Any, n: int, edges: Sequence[int], schema: Schema) -> None:
        super().__init__(ids, n, edges)
        self._texts = schema.texts
        self._pieces: list[DeviceColumns] = []
        self._planes: tuple[Plane, ...] = ()

    def weigh(self, piece: int, data: DeviceColumns) -> None:
        """Take a piece: they come in order. A view of what stays for longer than this."""
        assert piece == len(self._pieces)
        self._pieces.append(data)

    def chars(self) -> Int64s:
        """Characters' bytes of each piece, rank and text; shape (pieces, n, texts). All have been taken; waits."""
        texts, pieces, tiles = len(self._texts), len(self._edges) - 1, self._tile_edges[-1]
        if not texts or not tiles:
            return np.zeros((pieces, self._n, texts), np.int64)
        # One kernel for all pieces and texts, from a table of addresses: to start one for each would take longer.
        found = [[_text(data.arrays[place]) for place in self._texts] for data in self._pieces]
        self._text_sources = uploaded(np.array(found, np.uint64))
        self._bytes = cupy.empty(texts * self._n * tiles, np.int64)
        numbers = np.int32(self._n), bits_of(self._n), np.int64(tiles)
        kernel = partition_module().get_function("weigh_tiles")
        kernel((tiles, texts), (THREADS,), (self._ids, *self._tiles, *numbers, self._text_sources, self._bytes))
        cupy.cumsum(self._bytes, out=self._bytes)
        at_ends = Arriving(self._bytes.reshape(texts, self._n, tiles)[:, :, self._last_tiles]).wait()
        each = np.diff(at_ends.reshape(-1), prepend=0).reshape(texts, self._n, pieces)
        return np.ascontiguousarray(each.transpose(2, 1, 0))

    def aim_at(self, planes: Sequence[Plane], addresses: Int64s, chars: Int64s, first_chars: Int64s) -> None:
        """Say where rows go."""
        self._planes = tuple(plane for plane in planes if plane.kind != "text")
        sources = [_source(data, plane) for data in self._pieces for plane in self._planes]
        widths = [0 if plane.kind == "valid" else plane.width for plane in self._planes]
        tables = addresses.T, (chars + first_chars).T, first_chars.T, np.array(widths), np.array(sources)
        flat = uploaded(np.concatenate([table.astype(np.uint64).reshape(-1) for table in tables]))
        ends = np.cumsum([0, *(table.size for table in tables)]).tolist()
        self._targets, self._byte_targets, self._values, self._widths, self._sources = (
            flat[start:stop] for start, stop in pairwise(ends)
        )

    def put(self, piece: int, views: Sequence[DeviceColumns]) -> None:
        """Queue the writing of pieces, from one on, on the current stream."""
        first_tile, tiles, n = self._tile_edges[piece], self._tile_edges[-1], self._n
        blocks = self._tile_edges[piece + len(views)] - first_tile
        if not blocks:
            return
        numbers = np.int32(n), bits_of(n), np.int64(first_tile), np.int64(tiles)
        known = self._ids, *self._tiles, *numbers, self._ends
        if self._planes:
            kernel = partition_module().get_function("scatter_planes")
            by_row = self._targets, self._sources, self._widths, np.int32(len(self._planes))
            kernel((blocks,), (THREADS,), (*known, *by_row))
        if self._texts:
            kernel = partition_module().get_function("scatter_texts")
            offsets = self._targets[len(self._planes) * n :]
            texts = self._bytes, self._text_sources, offsets, self._byte_targets, self._values
            kernel((blocks, len(self._texts)), (THREADS,), (*known, *texts))


def _text(column: Any) -> tuple[int, int]:
    """The address of the first row's offset in a text column, 0 where all rows are null, and that of its characters."""
    if not column.num_children():
        return 0, 0
    offsets, data = column.child(0), column.data()
    first = offsets.data().ptr + (offsets.offset() + column.offset()) * OFFSET_BYTES
    return first, 0 if data is None else data.ptr


def _source(data: DeviceColumns, plane: Plane) -> int:
    """The address of a plane's first item; of a mask that of its first bit, in bits, or 0 where there is none."""
    column, array = data.schema.columns[plane.column], data.arrays[plane.column]
    if plane.kind == "valid":
        mask = array.null_mask()
        return 0 if mask is None else int(mask.ptr) * 8 + int(array.offset())
    if column.fixed:
        return int(array.data.ptr)
    return int(array.data().ptr) + int(array.offset()) * plane.width


class RemoteWriteOutput:
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
        self._end_texts()

    def _end_texts(self) -> None:
        """Say where the last value of each text ends, which none of the writers knows."""
        first = len(self.planes) - len(self._chars)
        last = [buffer.data.ptr + self._rows * OFFSET_BYTES for buffer in self.buffers[first : len(self.planes)]]
        for start in range(0, len(last), _TEXTS_A_LAUNCH):
            padding = [0] * (_TEXTS_A_LAUNCH - len(last[start : start + _TEXTS_A_LAUNCH]))
            addresses = [np.uint64(one) for one in last[start : start + _TEXTS_A_LAUNCH] + padding]
            ends = [np.int32(one) for one in list(self._chars[start : start + _TEXTS_A_LAUNCH]) + padding]
            partition_module().get_function("end_texts")((1,), (1,), (*addresses, *ends))

    def _masks(self) -> dict[int, tuple[Any, int]]:
        """By a column's place a mask of bits, and how many rows it lacks, of what says so in bytes; waits."""
        valid = [(p.column, b) for p, b in zip(self.planes, self.buffers, strict=False) if p.kind == "valid"]
        if not valid:
            return {}
        # libcudf pads masks to so many bytes, and may read them to their end.
        masks = [cupy.empty(-(-self._rows // (8 * _MASK_BYTES)) * _MASK_BYTES, np.uint8) for _ in valid]
        addresses = np.array(
            [(b.data.ptr, mask.data.ptr) for (_, b), mask in zip(valid, masks, strict=True)], np.uint64
        )
        nulls = cupy.zeros(len(valid), np.uint64)
        blocks = -(-8 * masks[0].size // THREADS)
        kernel = partition_module().get_function("pack_valid")
        kernel((blocks, len(valid)), (THREADS,), (np.int64(self._rows), uploaded(addresses), nulls))
        counts = Arriving(nulls).wait().tolist()
        return {place: (mask, int(n)) for (place, _), mask, n in zip(valid, masks, counts, strict=True)}

    def finish(self) -> DeviceColumns:
        """The result, once all rows have been written."""
        schema, rows = self._schema, self._rows
        if not rows:
            return DeviceColumns(schema, 0, tuple(map(empty_array, schema.columns)))
        by_kind = {(plane.column, plane.kind): buffer for plane, buffer in zip(self.planes, self.buffers, strict=False)}
        chars = dict(zip(schema.texts, self.buffers[len(self.planes) :], strict=True))
        masks = self._masks()
        arrays = []
        for place, column in enumerate(schema):
            if column.fixed:
                arrays.append(by_kind[place, "items"].view(item_dtype(column)))
                continue
            if place in chars:
                offsets = by_kind[place, "text"].view(np.int32)
                child = plc.Column(plc.DataType(plc.TypeId.INT32), rows + 1, plc.gpumemoryview(offsets), None, 0, 0, [])
                type_, items, children = plc.DataType(plc.TypeId.STRING), chars[place], [child]
            else:
                type_ = plc.DataType.from_arrow(device_type(column.arrow))
                items, children = by_kind[place, "items"], []
            mask, nulls = masks.get(place, (None, 0))
            view = plc.gpumemoryview(mask) if nulls else None
            arrays.append(plc.Column(type_, rows, plc.gpumemoryview(items), view, nulls, 0, children))
        return DeviceColumns(schema, rows, tuple(arrays))
