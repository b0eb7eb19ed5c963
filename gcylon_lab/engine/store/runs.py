"""Rows that were staged in order of their buckets, many buckets in one region: of a bucket its rows alone are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...backends.host.packing import (
    bands,
    byte_view,
    message_pieces,
    read_planes,
    unpack_variable,
)
from ...backends.protocol.data import Columns, Data, Dealt, chosen_planes, concat_arrays, segments_of, view_of_planes
from ...backends.protocol.schema import Label, Schema
from ...memory.tiers.disk_tier import SpillFile, SpillRegion
from ...profiling import span
from .chunk import Chunk, read_fixed
from .workspace import Workspace

_COPIES = 2  # of some planes of a bucket, which nobody has claimed


class Runs:
    """Regions of rows of one schema, each in order of their buckets. A bucket has there the values of its rows, one
    fixed column after the other (block by block where there are blocks), and then a message of the variable ones.

    Parameters
    ----------
    workspace : Workspace
    file : SpillFile
    schema : Schema
    buckets : int
    """

    def __init__(self, workspace: Workspace, file: SpillFile, schema: Schema, buckets: int) -> None:
        self.schema = schema
        self.regions: list[SpillRegion] = []
        self._workspace, self._file, self._buckets = workspace, file, buckets
        self._edges: list[npt.NDArray[np.int32]] = []
        self._begins: list[npt.NDArray[np.int64]] = []

    def add(self, data: Columns | Dealt, offsets: npt.NDArray[np.int64]) -> None:
        """Write rows, perhaps dealt to the buckets; those of bucket b are [offsets[b], offsets[b + 1])."""
        schema, edges = self.schema, offsets.tolist()
        fixed = self._fixed(data)
        begins = offsets * schema.row_bytes
        with span("stage", "io", bytes=data.nbytes) as moving:
            bounds = list(zip(edges, edges[1:], strict=False))
            texts = data.variable if isinstance(data, Dealt) else data
            messages = [message_pieces(texts, *ends) if schema.variable else [] for ends in bounds]
            begins[1:] += np.cumsum([sum([piece.nbytes for piece in pieces]) for pieces in messages])

            def vectors() -> Iterator[memoryview]:
                if isinstance(data, Dealt) and len(data.planes) == 1 and not schema.variable:
                    yield view_of_planes(data.planes[0])
                    return
                for (start, stop), pieces in zip(bounds, messages, strict=True):
                    if stop > start:
                        yield from fixed(start, stop)
                    yield from (piece for piece in pieces if piece.nbytes)

            copied = bool(schema.blocks) and not isinstance(data, Dealt)
            how = {"at_once": _COPIES} if copied else {}
            region = self._file.append_as_one(vectors, int(begins[-1]), **how)
            moving.tier = region.tier
        record = self._workspace.recorder.active
        if record is not None:
            record.staged_bytes += region.nbytes
        self.regions.append(region)
        self._edges.append(offsets.astype(np.int32))
        self._begins.append(begins)

    def _fixed(self, data: Columns | Dealt) -> Callable[[int, int], Iterator[memoryview]]:
        """What gives the values of the fixed columns of the rows of a bucket."""
        if isinstance(data, Dealt):
            sizes = [len(block.places) for block in data.schema.blocks]
            views = [(view_of_planes(p), p.itemsize * n) for p, n in zip(data.planes, sizes, strict=True)]
        elif data.schema.blocks:
            every = segments_of(data)
            return lambda start, stop: (
                view for segments in every for view in bands(tuple([some[:, start:stop] for some in segments]))
            )
        else:
            arrays = [array for column, array in zip(self.schema, data.arrays, strict=True) if column.fixed]
            views = [(byte_view(array, 0, data.rows), array.itemsize) for array in arrays]
        return lambda start, stop: (view[start * width : stop * width] for view, width in views)

    def chunks(self, most_bytes: int) -> list[list[Chunk]]:
        """The rows of each bucket, in the order in which they were added, in as few chunks as are about no larger than
        so many bytes."""
        if not self.regions:
            return [[] for _ in range(self._buckets)]
        self.edges, self.begins = np.stack(self._edges, axis=1), np.stack(self._begins, axis=1)
        sizes = np.cumsum(np.diff(self.begins, axis=0), axis=1)
        made: list[list[Chunk]] = []
        for bucket, held in enumerate(sizes):
            # A chunk ends with the last run that begins in its share.
            ends = np.flatnonzero(np.diff(np.maximum(held - 1, 0) // most_bytes, append=-1)) + 1
            firsts = [0, *ends[:-1].tolist()]
            some = [RunsChunk(self, bucket, *edges) for edges in zip(firsts, ends.tolist(), strict=True)]
            made.append([chunk for chunk in some if chunk.rows])
        return made


class RunsChunk(Chunk):
    """The rows that some runs hold of one bucket. They are read straight into one array a column.

    Parameters
    ----------
    runs : Runs
    bucket : int
    first, end : int
        Runs [first, end).
    """

    __slots__ = ("_bucket", "_end", "_first", "_runs")

    def __init__(self, runs: Runs, bucket: int, first: int, end: int) -> None:
        self._runs, self._bucket, self._first, self._end = runs, bucket, first, end
        rows, nbytes = self._sum(runs.edges), self._sum(runs.begins)
        super().__init__(runs.schema, rows, nbytes, region=runs.regions[first])

    def _sum(self, edges: npt.NDArray[Any]) -> int:
        here = slice(self._first, self._end)
        return int((edges[self._bucket + 1, here] - edges[self._bucket, here]).sum())

    @property
    def _message_bytes(self) -> int:
        return self.nbytes - self.rows * self.schema.row_bytes

    def loaded_bytes(self, names: Sequence[Label] | None = None) -> int:
        """Bytes that `load` takes: variable columns are read, and then joined."""
        schema = self.schema if names is None else self.schema.select(names)
        messages = self._message_bytes * (2 if self._end - self._first > 1 else 1) if schema.variable else 0
        return self.rows * schema.row_bytes + messages

    def fills(self, names: Sequence[Label]) -> bool:
        """Whether `fill` can be called: no column is variable."""
        return not self.schema.variable or all(self.schema[name].fixed for name in names)

    def fill(self, workspace: Workspace, names: Sequence[Label], arrays: Sequence[Any], start: int) -> None:
        """Read fixed columns into arrays, from a row on."""
        nbytes = self.rows * sum(array.itemsize for array in arrays)
        with span("unstage", "io", bytes=nbytes, tier=self.tier):
            if not self.schema.blocks and tuple(names) == tuple(column.name for column in self.schema.fixed):
                self._fill_all(arrays, start)
            else:
                self._fill_some(names, arrays, start)
        workspace.count_unstaged(nbytes)

    def fill_planes(self, workspace: Workspace, names: Sequence[Label], planes: Sequence[Any], start: int) -> None:
        """Read some fixed columns, which make blocks, into their planes, from a row on."""
        schema, blocks = self.schema.select(names), self.schema.blocks
        before = [0, *accumulate([block.row_bytes for block in blocks])]
        nbytes = self.rows * sum([out.itemsize * len(out) for out in planes])
        with span("unstage", "io", bytes=nbytes, tier=self.tier):
            for region, begin, count in self._places():
                for out, runs in zip(planes, chosen_planes(self.schema, schema), strict=True):
                    first = 0
                    for run in runs if count else ():
                        end = first + run.stop - run.first
                        at = begin + count * (before[run.block] + run.first * out.itemsize)
                        read_planes(region.read_into, at, out[first:end, start : start + count])
                        first = end
                start += count
        workspace.count_unstaged(nbytes)

    def _places(self) -> Any:
        """Of each run its region, the byte at which the bucket begins there, and its rows."""
        here, bucket, runs = slice(self._first, self._end), self._bucket, self._runs
        rows = (runs.edges[bucket + 1, here] - runs.edges[bucket, here]).tolist()
        return zip(runs.regions[here], runs.begins[bucket, here].tolist(), rows, strict=True)

    def _fill_all(self, arrays: Sequence[Any], start: int) -> None:
        views = [(byte_view(array, start, start + self.rows), array.itemsize) for array in arrays]
        first = 0
        for region, begin, count in self._places():
            if count:
                end = first + count
                region.read_into(begin, [view[first * width : end * width] for view, width in views])
                first = end

    def _fill_some(self, names: Sequence[Label], arrays: Sequence[Any], start: int) -> None:
        for name, array in zip(names, arrays, strict=True):
            first = start
            for region, begin, count in self._places():
                if count:
                    view = byte_view(array, first, first + count)
                    region.read_into(begin + self.schema.packed_before(name) * count, [view])
                    first += count

    def read(self, workspace: Workspace, names: Sequence[Label] | None = None) -> Data:
        """Give the rows, perhaps of some columns only, without a reservation."""
        schema = self.schema if names is None else self.schema.select(names)
        return read_fixed(workspace, self, schema, self._variable(workspace) if schema.variable else {})

    def _variable(self, workspace: Workspace) -> dict[Label, Any]:
        columns, bucket = self.schema.variable, self._bucket
        pieces: list[list[Any]] = [[] for _ in columns]
        ends = self._runs.begins[bucket + 1, self._first : self._end].tolist()
        for (region, begin, count), end in zip(self._places(), ends, strict=True):
            if count:
                begin += count * self.schema.row_bytes
                message = np.empty(end - begin, np.uint8).data
                region.read_into(begin, [message])
                for piece, array in zip(pieces, unpack_variable(self.schema, message), strict=True):
                    piece.append(array)
        workspace.count_unstaged(self._message_bytes)
        return {column.name: _one(column, arrays) for column, arrays in zip(columns, pieces, strict=True)}


def as_one(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    """The same rows in one chunk, where all are of one bucket and follow each other."""
    first, last = chunks[0], chunks[-1]
    if len(chunks) == 1 or not isinstance(first, RunsChunk) or not isinstance(last, RunsChunk):
        return chunks
    return [RunsChunk(first._runs, first._bucket, first._first, last._end)]


def _one(column: Any, arrays: list[Any]) -> Any:
    chunked = [pa.chunked_array([array], type=column.arrow) for array in arrays]
    return chunked[0] if len(chunked) == 1 else concat_arrays(column, chunked)
