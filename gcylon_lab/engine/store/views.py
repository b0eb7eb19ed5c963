"""Some columns of a part, or several parts as one, without a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...backends.protocol.data import Data
from ...backends.protocol.schema import Column, Label, Schema
from ...memory.budget import Reservation
from .chunk import Chunk, Eviction
from .part import Part, Partitioning
from .workspace import Workspace


def renamed(schema: Schema, names: Mapping[Label, Label]) -> Schema:
    """Some columns of a schema in the order given, under their new names; the same object for the same ones, as each
    of many chunks has it."""
    return _renamed(schema, tuple(names.items()))


@lru_cache(maxsize=8)
def _renamed(schema: Schema, names: tuple[tuple[Label, Label], ...]) -> Schema:
    return Schema([replace(schema[old], name=new) for old, new in names])


class ChunkView(Chunk):
    """Some columns of a chunk: a view of its rows on the device tier; of a staged one they alone are read back.

    The chunk's reservation lives as long as a view of it.

    Parameters
    ----------
    whole : Chunk
    names : mapping of label to label
        The columns, and what they are called here.
    workspace : Workspace
    """

    __slots__ = ("_names", "_whole")

    def __init__(self, whole: Chunk, names: Mapping[Label, Label], workspace: Workspace) -> None:
        schema = renamed(whole.schema, names)
        self._whole = whole
        self._names = list(names)
        if whole.tier == "device":
            data = workspace.backend.relabel(workspace.backend.select(whole.data, self._names), schema)
            super().__init__(schema, whole.rows, data.nbytes, data=data, reservation=whole.claim)
        else:  # as large as what is read back
            widest = whole.widest_row_bytes(workspace) if schema.variable else 0
            nbytes = whole.loaded_bytes(self._names)
            super().__init__(schema, whole.rows, nbytes, region=whole.region, widest_row_bytes=widest)

    @property
    def copy_bytes(self) -> int:
        """What a copy of the rows takes: how wide variable columns are is not known of staged ones."""
        return self.nbytes if self.schema.variable else self.rows * self.schema.row_bytes

    def loaded_bytes(self, names: Sequence[Label] | None = None) -> int:
        """Bytes that `load` reads back: of some columns, or all."""
        return self._whole.loaded_bytes(self._behind(names))

    def fills(self, names: Sequence[Label]) -> bool:
        """Whether `fill` can be called."""
        return self._whole.fills(self._behind(names))

    def fill(self, workspace: Workspace, names: Sequence[Label], arrays: Sequence[Any], start: int) -> None:
        """Put the rows of fixed columns into arrays, from a row on."""
        self._whole.fill(workspace, self._behind(names), arrays, start)

    def fill_planes(self, workspace: Workspace, names: Sequence[Label], planes: Sequence[Any], start: int) -> None:
        """Put the rows of fixed columns into planes, from a row on."""
        self._whole.fill_planes(workspace, self._behind(names), planes, start)

    def read(self, workspace: Workspace, names: Sequence[Label] | None = None) -> Data:
        """Give the rows, perhaps of some columns only, without a reservation."""
        if self._region is None:
            return super().read(workspace, names)
        schema = self.schema if names is None else self.schema.select(names)
        return workspace.backend.relabel(self._whole.read(workspace, self._behind(names)), schema)

    @property
    def leaves_texts(self) -> bool:
        """Whether variable columns are read back, as they are packed together, that are not among these."""
        whole, chosen = self._whole, set(self._names)
        further = isinstance(whole, ChunkView) and whole.leaves_texts
        return further or any(not column.fixed and column.name not in chosen for column in whole.schema)

    def _behind(self, names: Sequence[Label] | None) -> list[Label]:
        """What columns are called in the whole chunk."""
        if names is None or tuple(names) == self.schema.names:
            return self._names
        known = dict(zip(self.schema.names, self._names, strict=True))
        return [known[name] for name in names]


class MarkedChunk(Chunk):
    """A chunk with further columns, which have one value in all rows, or none: made at once where its rows are on the
    device tier, and whenever they are read back otherwise.

    Parameters
    ----------
    whole : Chunk
    marks : sequence of (Column, int or None)
        Fixed columns of one item, or columns in which all values are missing.
    workspace : Workspace
    claim : callable
        Reserves bytes.
    """

    __slots__ = ("_marks", "_whole")

    def __init__(
        self,
        whole: Chunk,
        marks: Sequence[tuple[Column, int | None]],
        workspace: Workspace,
        claim: Callable[[int], Reservation],
    ) -> None:
        schema = Schema([*whole.schema, *(column for column, _ in marks)])
        self._whole, self._marks = whole, tuple(marks)
        more = whole.rows * sum(1 if c.dtype is None else c.dtype.itemsize for c, _ in marks)
        if whole.tier == "device":
            held = claim(more)
            data = self._marked(workspace, whole.data, schema)
            held.resize(max(0, data.nbytes - whole.nbytes))
            super().__init__(schema, whole.rows, data.nbytes, data=data, reservation=(whole.claim, held))
        else:
            widest = whole.widest_row_bytes(workspace)
            super().__init__(schema, whole.rows, whole.nbytes + more, region=whole.region, widest_row_bytes=widest)

    def loaded_bytes(self, names: Sequence[Label] | None = None) -> int:
        """Bytes that `load` reads back and makes: all, whatever columns are asked for."""
        return 0 if self._region is None else self.nbytes

    def fills(self, names: Sequence[Label]) -> bool:
        """Not before its marks are made."""
        return self._region is None and super().fills(names)

    def read(self, workspace: Workspace, names: Sequence[Label] | None = None) -> Data:
        """Give the rows, perhaps of some columns only, without a reservation."""
        if self._region is None:
            return super().read(workspace, names)
        data = self._marked(workspace, self._whole.read(workspace), self.schema)
        return data if names is None else workspace.backend.select(data, names)

    def _marked(self, workspace: Workspace, data: Data, schema: Schema) -> Data:
        backend, parts = workspace.backend, [data]
        for column, value in self._marks:
            if value is None:
                parts.append(backend.lacking(Schema([column]), data.rows))
            else:
                parts.append(backend.constant(column, value, data.rows))
        return backend.beside(parts, schema)


class ShownPart(Part):
    """Parts that show the chunks of others, as they are now: when they are evicted, they are evicted there.

    Parameters
    ----------
    workspace : Workspace
    schema : Schema
        Of what is shown; chunks are brought to it when they are used.
    sources : sequence of Part
        Their rows follow each other.
    show : callable
        What stands here for a chunk of a source, of which the number is given.
    partitioning : Partitioning, optional
    """

    def __init__(
        self,
        workspace: Workspace,
        schema: Schema,
        sources: Sequence[Part],
        show: Callable[[int, Chunk], Chunk],
        partitioning: Partitioning | None = None,
    ) -> None:
        self.sources = tuple(sources)
        self._show = show
        self._seen: list[list[Chunk]] = [[] for _ in sources]
        self._shown: list[list[Chunk]] = [[] for _ in sources]
        super().__init__(workspace, schema, (), partitioning)
        workspace.parts.discard(self)  # only the parts behind it hold memory

    @property
    def behind(self) -> tuple[Part, ...]:
        """The parts that hold the memory."""
        return tuple(part for one in self.sources for part in (one.behind if isinstance(one, ShownPart) else (one,)))

    @property
    def chunks(self) -> list[Chunk]:
        """What is shown."""
        for place, source in enumerate(self.sources):
            if source.chunks != self._seen[place]:  # by identity: chunks have no other equality
                before = dict(zip(map(id, self._seen[place]), self._shown[place], strict=True))
                shown = [before.get(id(chunk)) or self._show(place, chunk) for chunk in source.chunks]
                self._seen[place], self._shown[place] = list(source.chunks), shown
        return [chunk for shown in self._shown for chunk in shown]

    @chunks.setter
    def chunks(self, chunks: list[Chunk]) -> None:
        if chunks:
            raise ValueError("a view has no chunks of its own")
        self._seen, self._shown = [[] for _ in self.sources], [[] for _ in self.sources]

    def stage(self, workspace: Workspace, wanted_bytes: int, slice_bytes: int, *, one_limit: int | None = None) -> int:
        """Move chunks of the parts behind down, one part after the other."""
        freed = 0
        for place, source in enumerate(self.sources):
            if freed < wanted_bytes:
                self._seen[place], self._shown[place] = [], []
                freed += source.stage(workspace, wanted_bytes - freed, slice_bytes, one_limit=one_limit)
        return freed

    @property
    def evictions(self) -> dict[Eviction, list[Chunk]]:
        """Of the parts behind, which hold the memory."""
        found: dict[Eviction, list[Chunk]] = {}
        for source in self.sources:
            found |= source.evictions
        return found

    def return_evicted(self, workspace: Workspace, limit_bytes: int) -> None:
        """Bring back chunks of the parts behind."""
        for source in self.sources:
            source.return_evicted(workspace, limit_bytes)

    def cut(self, workspace: Workspace) -> None:
        """Cut large staged chunks of the parts behind."""
        for source in self.sources:
            source.cut(workspace)


class PartView(ShownPart):
    """Some columns of another part.

    Parameters
    ----------
    workspace : Workspace
    source : Part
    names : sequence of labels
        At least one.
    """

    def __init__(self, workspace: Workspace, source: Part, names: Sequence[Label]) -> None:
        same = {name: name for name in names}

        def show(place: int, chunk: Chunk) -> Chunk:
            return ChunkView(chunk, same, workspace)

        super().__init__(workspace, source.schema.select(names), (source,), show, source.partitioning)


def view_of(workspace: Workspace, part: Part, names: Sequence[Label]) -> Part:
    """Some columns of a part; the part itself where they are all of its columns, in order."""
    return part if tuple(names) == part.schema.names else PartView(workspace, part, names)
