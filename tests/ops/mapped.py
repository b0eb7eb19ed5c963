"""Ranks of threads whose "kernels", in numpy, write by address into the results of others, as those of GPUs do.

They do it only in `drain` and `finish`, so that what looks at a result before sees zeros.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from worlds import run_over

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.host.column_buffers import planes_of
from gcylon_lab.backends.protocol.data import Columns
from gcylon_lab.backends.protocol.scattering import Plane
from gcylon_lab.backends.protocol.schema import Schema
from gcylon_lab.comm.device_overlay import QueuedOverlay
from gcylon_lab.comm.transport import Receive, Send, Window
from gcylon_lab.errors import BudgetExceeded
from gcylon_lab.runtime.context import current


class Queued(threading.local):
    """What this rank's "kernels" have still to do."""

    def __init__(self) -> None:
        self.puts: list[tuple[int, Any]] = []


queued = Queued()


class NoWaits:
    def for_streams(self) -> None:
        pass


class Mapped(QueuedOverlay):
    """Windows are known by address; what was queued happens in `drain` and `finish`."""

    def __init__(self, base: Any) -> None:
        super().__init__(base, NoWaits())  # type: ignore[arg-type]
        self._exposed: list[Any] = []  # what others may write into until the next `finish`, also after an error

    def expose(self, buffers: Sequence[Any]) -> Window:
        self._exposed.append(buffers)
        return super().expose(buffers)

    def places(self, window: Window) -> Any:
        mine = [np.frombuffer(buffer, np.uint8).ctypes.data if buffer.nbytes else 0 for buffer in window.buffers]
        return np.array(mine, dtype=np.int64)

    def open_window(self, window: Window, places: Any) -> Window:
        return Window(window.buffers, places)

    def exchange(self, window: Any, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        if window is None or window.addresses is None:
            self.base.exchange(window, sends, receives)
            return
        assert not receives  # the places are known
        for send in sends:
            target = int(window.addresses[send.rank, send.buffer]) + send.offset
            put_later(target, np.frombuffer(send.view, np.uint8))
        self._take_queued()

    @contextmanager
    def writing(self) -> Iterator[None]:
        self.base.check()
        try:
            yield
        finally:  # what was queued before an error will be done
            self._take_queued()

    def _take_queued(self) -> None:
        self._kept.extend(queued.puts)
        queued.puts = []

    def drain(self) -> None:
        for target, items in self._kept:
            if items.nbytes:
                ctypes.memmove(target, items.ctypes.data, items.nbytes)
        self._kept.clear()
        super().drain()

    def finish(self, values: Any) -> Any:
        self.drain()
        found = super().finish(values)
        self._exposed.clear()
        return found


class NumpyScattering:
    def __init__(self, ids: Any, n: int, edges: Sequence[int], ids_each: int) -> None:
        assert all(start < stop for start, stop in pairwise(edges)) and edges[-1] == len(ids)
        self._pieces = [ids[start:stop].astype(np.int64) for start, stop in pairwise(edges)]
        counts = [np.bincount(piece, minlength=n * ids_each) for piece in self._pieces]
        self._take_counts(np.array(counts, dtype=np.int64).reshape(-1, ids_each, n))

    def _take_counts(self, counts: Any) -> None:
        self.counts: Any = counts
        self.rows: Any = counts.sum(axis=1)
        self._counts = counts.reshape(len(counts), -1)
        self._addresses: Any = None

    def chosen(self, first: int, last: int) -> Any:
        some, n = copy(self), self.rows.shape[1]
        some._pieces = [piece - first * n for piece in self._pieces]
        some._take_counts(self.counts[:, first:last])
        return some

    @property
    def aimed(self) -> bool:
        return self._addresses is not None

    def aim(self, addresses: Any, widths: Sequence[int]) -> None:
        n = len(addresses)
        each = self._counts.sum(axis=0).reshape(-1, n)
        before = (np.cumsum(each, axis=0) - each)[:, :, None] * np.array(widths)
        self._addresses = (addresses + before).reshape(-1, len(widths))

    def put(self, piece: int, views: Sequence[Any]) -> None:
        for place, data in enumerate(views, piece):
            self._put(place, data)

    def _put(self, piece: int, data: Any) -> None:
        before = self._counts[:piece].sum(axis=0)
        arrays = [array for column, array in zip(data.schema, data.arrays, strict=True) if column.fixed]
        order = np.argsort(self._pieces[piece], kind="stable")
        ones = np.flatnonzero(self._counts[piece])
        first = np.searchsorted(self._pieces[piece][order], ones)
        stop = first + self._counts[piece][ones]
        for column, array in enumerate(arrays):
            items, targets = array[order], self._addresses[ones, column] + before[ones] * array.dtype.itemsize
            for target, start, end in zip(targets.tolist(), first.tolist(), stop.tolist(), strict=True):
                put_later(target, items[start:end])


class ScatteringPandas(PandasBackend):
    def scattering(self, ids: Any, n: int, edges: Sequence[int], *, ids_each: int = 1) -> NumpyScattering:
        context = current()
        context.made = getattr(context, "made", 0) + 1  # type: ignore[attr-defined]
        return NumpyScattering(ids, n, edges, ids_each)


class NumpyWriting(NumpyScattering):
    def __init__(self, ids: Any, n: int, edges: Sequence[int], schema: Schema) -> None:
        super().__init__(ids, n, edges, 1)
        self._n, self._texts = n, schema.texts
        self._bytes = np.zeros((len(edges) - 1, n, len(self._texts)), np.int64)

    def weigh(self, piece: int, data: Any) -> None:
        for text, place in enumerate(self._texts):
            lengths = lengths_of(data.arrays[place])
            self._bytes[piece, :, text] = np.bincount(self._pieces[piece], lengths, self._n)

    def chars(self) -> Any:
        return self._bytes

    def aim_at(self, planes: Sequence[Plane], addresses: Any, chars: Any, first_chars: Any) -> None:
        self._planes, self._addresses, self._chars, self._first = planes, addresses, chars, first_chars

    def _put(self, piece: int, data: Any) -> None:
        rows_before, bytes_before = self._counts[:piece].sum(axis=0), self._bytes[:piece].sum(axis=0)
        for one in np.flatnonzero(self._counts[piece]):
            mine = self._pieces[piece] == one
            for number, plane in enumerate(self._planes):
                column, array = data.schema.columns[plane.column], data.arrays[plane.column]
                if plane.kind == "text":
                    text = self._texts.index(plane.column)
                    first = int(self._first[one, text] + bytes_before[one, text])
                    lengths = lengths_of(array)[mine]
                    items = (first + np.cumsum(lengths) - lengths).astype(np.int32)
                    letters = b"".join(str(v).encode() for v in array.filter(pa.array(mine)).drop_null().to_pylist())
                    put_later(int(self._chars[one, text]) + first, np.frombuffer(letters, np.uint8))
                elif plane.kind == "valid":
                    items = array.is_valid().to_numpy()[mine].astype(np.uint8)
                else:
                    items = array[mine] if column.fixed else items_of(array, plane.width)[mine]
                put_later(
                    int(self._addresses[one, number] + rows_before[one] * plane.width), np.ascontiguousarray(items)
                )


def put_later(target: int, items: Any) -> None:
    queued.puts.append((target, items.view(np.uint8).reshape(-1)))


def lengths_of(array: Any) -> Any:
    return pc.fill_null(pc.binary_length(array), 0).to_numpy().astype(np.int64)


def items_of(array: Any, width: int) -> Any:
    """The items of an Arrow array; shape (rows, width), of bytes."""
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    if pa.types.is_boolean(array.type):
        return pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(np.uint8)[:, None]
    every = np.frombuffer(array.buffers()[1], np.uint8)
    return every[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


class NumpyOutput:
    def __init__(self, schema: Schema, rows: int, nulls: Sequence[bool], chars: Sequence[int]) -> None:
        self.schema, self.rows, self.planes, self._ends = schema, rows, planes_of(schema, nulls), chars
        sizes = [(rows + (plane.kind == "text")) * plane.width for plane in self.planes]
        self.buffers = [np.zeros(nbytes, np.uint8) for nbytes in (*sizes, *chars)]

    def finish(self) -> Columns:
        found = {(p.column, p.kind): buffer for p, buffer in zip(self.planes, self.buffers, strict=False)}
        letters = dict(zip(self.schema.texts, self.buffers[len(self.planes) :], strict=True))
        ends = dict(zip(self.schema.texts, self._ends, strict=True))
        arrays = []
        for place, column in enumerate(self.schema):
            if column.fixed:
                arrays.append(found[place, "items"].view(column.dtype))
                continue
            valid = found.get((place, "valid"))
            mask = None if valid is None else pa.array(valid.astype(bool)).buffers()[1]
            if place in letters:
                offsets = found[place, "text"].view(np.int32)
                offsets[-1] = ends[place]
                buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(letters[place])]
                array = pa.Array.from_buffers(pa.string(), self.rows, buffers).cast(column.arrow)
            elif pa.types.is_boolean(column.arrow):
                items = found[place, "items"].astype(bool)
                array = pa.array(items, mask=None if valid is None else valid == 0)
            else:
                array = pa.Array.from_buffers(column.arrow, self.rows, [mask, pa.py_buffer(found[place, "items"])])
            arrays.append(pa.chunked_array([array]))
        return Columns(self.schema, self.rows, tuple(arrays))


class WritingPandas(ScatteringPandas):
    def writing(self, ids: Any, n: int, edges: Sequence[int], schema: Schema) -> NumpyWriting:
        context = current()
        context.made = getattr(context, "made", 0) + 1  # type: ignore[attr-defined]
        return NumpyWriting(ids, n, edges, schema)

    def has_missing(self, data: Any) -> list[bool] | None:
        pairs = zip(data.schema, data.arrays, strict=True)
        return [not column.fixed and array.null_count > 0 for column, array in pairs]

    def allocate_written(self, schema: Schema, rows: int, nulls: Sequence[bool], chars: Sequence[int]) -> NumpyOutput:
        return NumpyOutput(schema, rows, nulls, chars)


def refuse_on_rank_1(claim: str) -> None:
    """Let rank 1 have no memory for what a claim names, whatever the plan says."""
    context, reserve = current(), current().budget.reserve

    def refusing(nbytes: int, what: str = "") -> Any:
        if what == claim:
            raise BudgetExceeded("planted")
        return reserve(nbytes, what)

    if context.rank == 1:
        context.budget.reserve = refusing  # type: ignore[method-assign]


def run_mapped(size: int, body: Callable[..., Any], *arguments: Any, backend: Any = ScatteringPandas) -> list[Any]:
    return run_over(size, Mapped, body, *arguments, backend=backend)
