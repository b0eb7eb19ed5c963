"""Rows that were staged in order of their buckets, many buckets in one region: of a bucket its rows alone are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ..memory.lower import LowerFile
from ..profiling import span
from ..tables.backend import Data
from ..tables.data import Columns, concat_arrays
from ..tables.packing import byte_view, fixed_views, pack_variable, unpack_variable
from ..tables.schema import Label, Schema
from .chunk import Chunk
from .workspace import Workspace


class Run(NamedTuple):
    """One region.

    Attributes
    ----------
    region : object
        Which holds each fixed column whole, and then a message of the variable columns for each bucket.
    edges : list of int
        Bucket b is rows [edges[b], edges[b + 1]).
    messages : list of int
        Bytes of these messages; empty where no column is variable.
    """

    region: Any
    edges: list[int]
    messages: list[int]

    def bytes_of(self, bucket: int, schema: Schema) -> int:
        """Bytes of the rows of a bucket."""
        fixed = (self.edges[bucket + 1] - self.edges[bucket]) * schema.row_bytes
        return fixed + (self.messages[bucket] if self.messages else 0)


def stage_run(workspace: Workspace, file: LowerFile, data: Columns, edges: list[int]) -> Run:
    """Write rows that are in order of their buckets, all at once."""
    with span("stage", "io", bytes=data.nbytes) as moving:
        messages: list[memoryview] = []
        if data.schema.variable:
            messages = [pack_variable(data, start, stop) for start, stop in zip(edges, edges[1:], strict=False)]
        region = file.append([*fixed_views(data, 0, data.rows), *messages])
        moving.tier = region.tier
    record = workspace.recorder.active
    if record is not None:
        record.staged_bytes += region.nbytes
    return Run(region, edges, [message.nbytes for message in messages])


def chunks_of(runs: Sequence[Run], bucket: int, schema: Schema, most_bytes: int) -> list[Chunk]:
    """The rows of a bucket in as few chunks as are no larger than so many bytes, in the order of runs."""
    chunks: list[Chunk] = []
    some: list[Run] = []
    held = 0
    for run in runs:
        nbytes = run.bytes_of(bucket, schema)
        if some and held + nbytes > most_bytes:
            chunks.append(RunsChunk(schema, some, bucket))
            some, held = [], 0
        if run.edges[bucket + 1] > run.edges[bucket]:
            some.append(run)
            held += nbytes
    if some:
        chunks.append(RunsChunk(schema, some, bucket))
    return chunks


class RunsChunk(Chunk):
    """The rows that some runs hold of one bucket. They are read straight into one array a column.

    Parameters
    ----------
    schema : Schema
    runs : sequence of Run
    bucket : int
    """

    __slots__ = ("_bucket", "_runs")

    def __init__(self, schema: Schema, runs: Sequence[Run], bucket: int) -> None:
        self._runs, self._bucket = tuple(runs), bucket
        rows = sum(run.edges[bucket + 1] - run.edges[bucket] for run in runs)
        nbytes = sum(run.bytes_of(bucket, schema) for run in runs)
        super().__init__(schema, rows, nbytes, region=runs[0].region)

    def loaded_bytes(self, names: Sequence[Label] | None = None) -> int:
        """Bytes that `load` takes: variable columns are read, and then joined."""
        schema = self.schema if names is None else self.schema.select(names)
        messages = sum(run.messages[self._bucket] for run in self._runs) if schema.variable else 0
        return self.rows * schema.row_bytes + messages * (2 if len(self._runs) > 1 else 1)

    def fills(self, names: Sequence[Label]) -> bool:
        """Whether `fill` can be called: no column is variable."""
        return all(self.schema[name].fixed for name in names)

    def fill(self, workspace: Workspace, names: Sequence[Label], arrays: Sequence[Any], start: int) -> None:
        """Read fixed columns into arrays, from a row on."""
        numbers = {column.name: place for place, column in enumerate(self.schema.fixed)}
        wanted = [(numbers[name], array, array.dtype.itemsize) for name, array in zip(names, arrays, strict=True)]
        bucket = self._bucket
        nbytes = self.rows * sum(width for _, _, width in wanted)
        with span("unstage", "io", bytes=nbytes, tier=self.tier):
            for run in self._runs:
                first, end = run.edges[bucket], run.edges[bucket + 1]
                count = end - first
                run.region.read_parts(
                    [(number, first * width, byte_view(array, start, start + count)) for number, array, width in wanted]
                )
                start += count
        record = workspace.recorder.active
        if record is not None:
            record.unstaged_bytes += nbytes

    def read(self, workspace: Workspace, names: Sequence[Label] | None = None) -> Data:
        """Give the rows, perhaps of some columns only, without a reservation."""
        schema = self.schema if names is None else self.schema.select(names)
        arrays = {column.name: np.empty(self.rows, column.dtype) for column in schema.fixed}
        if arrays:
            self.fill(workspace, list(arrays), list(arrays.values()), 0)
        variable = self._variable(workspace) if schema.variable else {}
        return Columns(schema, self.rows, tuple({**arrays, **variable}[column.name] for column in schema))

    def _variable(self, workspace: Workspace) -> dict[Label, Any]:
        columns, bucket = self.schema.variable, self._bucket
        number = len(self.schema.fixed) + bucket
        pieces: list[list[Any]] = [[] for _ in columns]
        for run in self._runs:
            message = run.region.read([number])[0]
            for piece, array in zip(pieces, unpack_variable(self.schema, message), strict=True):
                piece.append(array)
        record = workspace.recorder.active
        if record is not None:
            record.unstaged_bytes += sum(run.messages[bucket] for run in self._runs)
        return {column.name: _one(column, arrays) for column, arrays in zip(columns, pieces, strict=True)}


def _one(column: Any, arrays: list[Any]) -> Any:
    chunked = [pa.chunked_array([array], type=column.arrow) for array in arrays]
    return chunked[0] if len(chunked) == 1 else concat_arrays(column, chunked)
