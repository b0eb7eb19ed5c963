"""Rows of one part that are together in one tier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...backends.host.packing import byte_view, read_planes
from ...backends.protocol.data import (
    Columns,
    Data,
    chosen_planes,
    new_planes,
    over_planes,
    put_rows,
    select_columns,
)
from ...backends.protocol.schema import Label, Schema
from ...memory.tiers.kept_copies import KeptCopy
from ...memory.tiers.staging_tier import StagingFile, StagingRegion
from ...profiling import span
from .aliasing import EXTERNAL

if TYPE_CHECKING:
    from .workspace import Workspace


View = tuple[memoryview, int]  # the bytes of a column, and of an item
_LARGER = 1.25  # than slices are made, by what pads them and by texts that are longer in some: used as they are


@dataclass(frozen=True, slots=True, eq=False)
class Eviction:
    """Why slices of one chunk are staged: for an operation whose limit was lower than the live one. They come back
    when the table is next used under a larger limit."""

    limit_bytes: int


class Chunk:
    """Rows of one part, on the device tier (with their reservation) or below. Never changed once made, so what came
    back to the device tier may still have its copy below.

    The reservation is held and no more: of rows that share memory with another chunk's, it is that chunk's too.
    """

    __slots__ = ("_data", "_kept", "_region", "_reservation", "_widest", "eviction", "nbytes", "rows", "schema")

    def __init__(
        self,
        schema: Schema,
        rows: int,
        nbytes: int,
        *,
        data: Data | None = None,
        reservation: object = None,
        region: StagingRegion | None = None,
        widest_row_bytes: int | None = None,
    ) -> None:
        self.schema = schema
        self.rows = rows
        self.nbytes = nbytes
        self._data = data
        self._reservation = reservation
        self._region = region
        self._widest = widest_row_bytes
        self._kept: KeptCopy | None = None
        self.eviction: Eviction | None = None

    def widest_row_bytes(self, workspace: Workspace) -> int:
        """About how many bytes the variable columns of that row take in which they take most: 0 if it is not known."""
        if self._widest is None:
            looked = self._data is not None and bool(self.schema.variable)
            self._widest = workspace.backend.widest_row_bytes(self.data) if looked else 0
        return self._widest

    @property
    def tier(self) -> str:
        """``device``, ``pinned`` or ``disk``."""
        return "device" if self._region is None else self._region.tier

    @property
    def is_held(self) -> bool:
        """Whether it is on the device tier."""
        return self._region is None

    @property
    def copy_bytes(self) -> int:
        """What a copy of the rows takes, at the most."""
        return self.nbytes

    @property
    def claim(self) -> object:
        """What pays for a chunk on the device tier."""
        return self._reservation

    @property
    def region(self) -> StagingRegion:
        """Where the rows of a staged chunk are."""
        if self._region is None:
            raise ValueError("the chunk is on the device tier")
        return self._region

    @property
    def data(self) -> Data:
        """The rows of a chunk that is on the device tier."""
        if self._data is None:
            raise ValueError("the chunk is staged; load it")
        return self._data

    def give_up(self) -> tuple[Data, object]:
        """Hand on the rows of a chunk on the device tier, with the claim on them; it is empty afterwards."""
        data, reservation = self.data, self._reservation
        self.rows, self._data, self._reservation, self._kept = 0, None, None, None
        return data, reservation

    def keep(self, workspace: Workspace, slices: Sequence[Chunk]) -> Chunk:
        """Keep the staged slices that these rows were read from, as long as there is room below; returns this chunk."""
        if all(type(one) is Chunk for one in slices):  # others are parts of regions that hold more
            self._kept = workspace.spill.kept.keep([one._again() for one in slices])
        return self

    @property
    def kept(self) -> dict[str, int]:
        """Bytes by tier of the copy that a chunk on the device tier still has below."""
        return {} if self._kept is None else self._kept.tiers

    def kept_slices(self, slice_bytes: int) -> list[Chunk]:
        """That copy, to be the rows from now on; none where it is gone, or in slices that are too large."""
        slices = () if self._kept is None else self._kept.slices
        return [one._again() for one in slices] if all(one.nbytes <= _LARGER * slice_bytes for one in slices) else []

    def _again(self) -> Chunk:
        """The same staged rows as a chunk of its own, which is in no part yet."""
        return Chunk(self.schema, self.rows, self.nbytes, region=self.region, widest_row_bytes=self._widest)

    def loaded_bytes(self, names: Sequence[Label] | None = None) -> int:
        """Bytes that `load` reads back: of some columns, or all; 0 of a chunk on the device tier."""
        if self._region is None:
            return 0
        if names is None:
            return self.nbytes
        if self._in_planes:
            wanted = self.schema.select(names)
            message = self._region.bytes_of([len(self.schema.blocks)]) if wanted.variable else 0
            return self.rows * wanted.row_bytes + message
        return self._region.bytes_of(buffers_of(self.schema, names))

    @property
    def _in_planes(self) -> bool:
        """Whether the fixed columns of a staged chunk are one buffer a block, one after the other."""
        return bool(self.schema.blocks) and len(cast("Any", self.region).lengths) < len(self.schema.fixed)

    @contextmanager
    def load(self, workspace: Workspace, names: Sequence[Label] | None = None) -> Iterator[Data]:
        """Give the rows, perhaps of some columns only; a staged chunk is read back under a reservation of its own, and
        stays staged.

        Raises
        ------
        BudgetExceeded
            If a staged chunk does not fit.
        SpillError
            If it cannot be read.
        """
        if self._region is None:
            yield self.read(workspace, names)
            return
        with workspace.budget.reserve(self.loaded_bytes(names), "Reading a staged chunk"):
            yield self.read(workspace, names)

    def fills(self, names: Sequence[Label]) -> bool:
        """Whether `fill` can be called for fixed columns: on CPU engines."""
        return isinstance(self._data, Columns) or hasattr(self._region, "read_parts")

    def fill(self, workspace: Workspace, names: Sequence[Label], arrays: Sequence[Any], start: int) -> None:
        """Put the rows of fixed columns into arrays, from a row on, without a reservation: nothing else is needed."""
        stop = start + self.rows
        if self._region is None:
            for name, array in zip(names, arrays, strict=True):
                array[start:stop] = cast("Columns", self.data).array(name)
            return
        schema = self.schema
        if self._in_planes:
            numbers = [schema.plane(schema.place(name)) for name in names]
        else:
            known = {column.name: place for place, column in enumerate(schema.fixed)}
            numbers = [(known[name], 0) for name in names]
        views = [(byte_view(array, 0, len(array)), array.itemsize) for array in arrays]
        self.fill_views(workspace, numbers, views, start)

    def fill_views(
        self, workspace: Workspace, numbers: Sequence[tuple[int, int]], views: Sequence[View], start: int
    ) -> None:
        """Put the rows of a staged chunk into fixed columns, given by their bytes; ``numbers`` are those of buffers,
        and of planes in these."""
        stop = start + self.rows
        parts = [
            (number, plane * self.rows * w, view[start * w : stop * w])
            for (number, plane), (view, w) in zip(numbers, views, strict=True)
        ]
        self._read_parts(workspace, parts, sum([view.nbytes for _, _, view in parts]))

    def fill_planes(self, workspace: Workspace, names: Sequence[Label], planes: Sequence[Any], start: int) -> None:
        """Put the rows of some fixed columns, which make blocks, into their planes, from a row on, without a
        reservation."""
        schema = self.schema.select(names)
        if self._region is None:
            put_rows(select_columns(cast("Columns", self.data), schema.names), planes, start)
            return
        if not self._in_planes:
            every = over_planes(schema, planes[0].shape[1], planes)
            self.fill(workspace, schema.names, every.arrays, start)
            return
        stop = start + self.rows
        for out, runs in zip(planes, chosen_planes(self.schema, schema), strict=True):
            first = 0
            for run in runs:
                end = first + run.stop - run.first

                def read(begin: int, views: list[memoryview], number: int = run.block) -> None:
                    self._read_parts(workspace, [(number, begin, views[0])], views[0].nbytes)

                read_planes(read, run.first * self.rows * out.itemsize, out[first:end, start:stop])
                first = end

    def _read_parts(self, workspace: Workspace, parts: Sequence[tuple[int, int, memoryview]], nbytes: int) -> None:
        region = self.region
        with span("unstage", "io", bytes=nbytes, tier=region.tier):
            cast("Any", region).read_parts(parts)
        workspace.count_unstaged(nbytes)

    def read(self, workspace: Workspace, names: Sequence[Label] | None = None) -> Data:
        """Give the rows, perhaps of some columns only, without a reservation: for rows that leave the budget."""
        backend, region = workspace.backend, self._region
        if region is None:
            return self.data if names is None else backend.select(self.data, names)
        if names is not None and tuple(names) == self.schema.names:
            names = None
        if names is None:
            only, schema, nbytes = None, self.schema, region.nbytes
        elif self._in_planes:
            return self._read_planes(workspace, names)
        else:
            only, schema = buffers_of(self.schema, names), _unpacked_with(self.schema, names)
            nbytes = region.bytes_of(only)
        with span("unstage", "io", bytes=nbytes, tier=region.tier):
            workspace.count_unstaged(nbytes)
            data = backend.unpack(schema, self.rows, region.read(only))
        return data if names is None else backend.select(data, names)

    def _read_planes(self, workspace: Workspace, names: Sequence[Label]) -> Data:
        """Some columns of which the fixed ones are parts of a buffer a block."""
        region, schema, last = cast("Any", self.region), self.schema.select(names), len(self.schema.blocks)
        variable: dict[Label, Any] = {}
        if schema.variable:
            with span("unstage", "io", bytes=region.bytes_of([last]), tier=region.tier):
                every = Schema(self.schema.variable)
                message = cast("Columns", workspace.backend.unpack(every, self.rows, region.read([last])))
            variable = {name: message.array(name) for name in every.names}
        return read_fixed(workspace, self, schema, variable)


def stage_slices(
    workspace: Workspace, file: StagingFile, data: Data, count: int, held: object = None
) -> Iterator[Chunk]:
    """Move rows below the device tier in so many slices, or as many as there are rows; see `stage`."""
    count = max(1, min(count, data.rows))
    for i in range(count):
        start, stop = data.rows * i // count, data.rows * (i + 1) // count
        if stop > start:
            piece, made = workspace.backend.slice(data, start, stop), None
            try:
                made = stage(workspace, file, piece, held)
            except workspace.out_of_memory:
                workspace.spill.flush()  # what is on its way keeps what it was packed into
            if made is not None:
                yield made
            else:
                yield from _in_halves(workspace, file, piece, held)


def _in_halves(workspace: Workspace, file: StagingFile, data: Data, held: object) -> Iterator[Chunk]:
    """Stage rows, in halves where there is no room to pack them at once."""
    made = None
    try:
        made = stage(workspace, file, data, held)
    except workspace.out_of_memory:
        if data.rows < 2:
            raise
    if made is not None:
        yield made
        return
    for start, stop in ((0, data.rows // 2), (data.rows // 2, data.rows)):
        yield from _in_halves(workspace, file, workspace.backend.slice(data, start, stop), held)


def buffers_of(schema: Schema, names: Sequence[Label]) -> list[int]:
    """The buffers in which some columns are, of those that rows of a schema are packed into: one for each fixed column,
    and one that holds all others."""
    wanted = set(names)
    found = [place for place, column in enumerate(schema.fixed) if column.name in wanted]
    return [*found, len(schema.fixed)] if any(not schema[name].fixed for name in wanted) else found


def _unpacked_with(schema: Schema, names: Sequence[Label]) -> Schema:
    """What is in the buffers of some columns."""
    wanted = set(names)
    variable = any(not schema[name].fixed for name in wanted)
    return Schema([c for c in schema if c.name in wanted or (variable and not c.fixed)])


def hold(workspace: Workspace, data: Data, what: str) -> Chunk:
    """Make a chunk on the device tier of rows that exist already.

    Raises
    ------
    BudgetExceeded
        If they do not fit.
    """
    claim: Any = workspace.budget.reserve(data.nbytes, what)
    external = getattr(data, "external_bytes", 0)  # of a test's own data it is not told
    if external:
        claim = (claim.split(external, EXTERNAL), claim)
    return Chunk(data.schema, data.rows, data.nbytes, data=data, reservation=claim)


def stage(workspace: Workspace, file: StagingFile, data: Data, held: object = None) -> Chunk:
    """Move rows to a tier below the device and make a chunk of them.

    Where the move goes on after this returns, ``held`` is kept until it is done.

    Raises
    ------
    SpillError
        If the disk is full or cannot be written.
    """
    with span("stage", "io", bytes=data.nbytes) as moving:
        region = file.append(workspace.backend.pack(data), held)
        moving.tier = region.tier
    record = workspace.recorder.active
    if record is not None:
        record.staged_bytes += region.nbytes
    widest = workspace.backend.widest_row_bytes(data) if data.schema.variable else 0
    return Chunk(data.schema, data.rows, region.nbytes, region=region, widest_row_bytes=widest)


def count_restaged(workspace: Workspace, slices: Sequence[Chunk]) -> None:
    """Count rows that left the device tier for a copy that was there already."""
    record = workspace.recorder.active
    if record is not None:
        record.restaged_bytes += sum(one.nbytes for one in slices)


def fill_together(chunks: Sequence[Chunk], names: Sequence[Label]) -> bool:
    """Whether several chunks can be read straight into one array a column: no chunk is in memory twice then."""
    schema = chunks[0].schema
    if schema.variable and not all(schema[name].fixed for name in names):
        return False
    return all(chunk.fills(names) and (chunk.schema is schema or chunk.schema == schema) for chunk in chunks)


def filled(workspace: Workspace, chunks: Sequence[Chunk], names: Sequence[Label]) -> Data:
    """The rows of chunks that `fill_together`, one after the other, without a reservation."""
    schema, rows, start = chunks[0].schema, sum(chunk.rows for chunk in chunks), 0
    whole = tuple(names) == schema.names
    schema = schema if whole else schema.select(names)
    if schema.blocks:
        planes = new_planes(schema, rows)
        for chunk in chunks:
            chunk.fill_planes(workspace, names, planes, start)
            start += chunk.rows
        return over_planes(schema, rows, planes)
    arrays = tuple([np.empty(rows, column.dtype) for column in schema])
    views = [(byte_view(array, 0, rows), array.itemsize) for array in arrays] if whole else []
    numbers = [(number, 0) for number in range(len(views))]
    for chunk in chunks:
        if whole and type(chunk) is Chunk and not chunk.is_held:
            chunk.fill_views(workspace, numbers, views, start)
        else:
            chunk.fill(workspace, names, arrays, start)
        start += chunk.rows
    return Columns(schema, rows, arrays)


def read_fixed(workspace: Workspace, chunk: Chunk, schema: Schema, variable: Mapping[Label, Any]) -> Columns:
    """Some columns of a chunk, of which the variable ones are there: the others are read into new memory."""
    if schema.blocks:
        planes = new_planes(schema, chunk.rows)
        chunk.fill_planes(workspace, [column.name for column in schema.fixed], planes, 0)
        return over_planes(schema, chunk.rows, planes, [variable[column.name] for column in schema.variable])
    arrays = {column.name: np.empty(chunk.rows, column.dtype) for column in schema.fixed}
    if arrays:
        chunk.fill(workspace, list(arrays), list(arrays.values()), 0)
    return Columns(schema, chunk.rows, tuple([(arrays if c.fixed else variable)[c.name] for c in schema.columns]))
