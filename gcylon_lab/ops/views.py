"""Some columns of a part, without a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..tables.backend import Data
from ..tables.schema import Label, Schema
from .part import Chunk, Part
from .workspace import Workspace


def renamed(schema: Schema, names: Mapping[Label, Label]) -> Schema:
    """Some columns of a schema in the order given, under their new names."""
    return Schema([replace(schema[old], name=new) for old, new in names.items()])


class ChunkView(Chunk):
    """Some columns of a chunk: a view of its rows on the device tier, or read back whole and cut down.

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
            super().__init__(schema, whole.rows, whole.nbytes, region=whole.region)

    def read(self, workspace: Workspace) -> Data:
        """Give the rows without a reservation."""
        if self._region is None:
            return self.data
        backend = workspace.backend
        return backend.relabel(backend.select(self._whole.read(workspace), self._names), self.schema)


class PartView(Part):
    """Some columns of another part, whose chunks it shows as they are now: when they give way, they give way there.

    Parameters
    ----------
    workspace : Workspace
    source : Part
    names : sequence of labels
        At least one.
    """

    def __init__(self, workspace: Workspace, source: Part, names: Sequence[Label]) -> None:
        self.source = source
        self._workspace = workspace
        self._names = list(names)
        self._seen: list[Chunk] = []
        self._shown: list[Chunk] = []
        super().__init__(workspace, source.schema.select(names), (), source.partitioning)
        workspace.parts.discard(self)  # only the part behind it holds memory

    @property
    def chunks(self) -> list[Chunk]:
        """Views of the other part's chunks."""
        if self.source.chunks != self._seen:  # by identity: chunks have no other equality
            same = {name: name for name in self._names}
            self._seen = list(self.source.chunks)
            self._shown = [ChunkView(chunk, same, self._workspace) for chunk in self._seen]
        return self._shown

    @chunks.setter
    def chunks(self, chunks: list[Chunk]) -> None:
        if chunks:
            raise ValueError("a view has no chunks of its own")

    def stage(self, workspace: Workspace, wanted_bytes: int, slice_bytes: int) -> int:
        """Move chunks of the part behind down."""
        self._seen, self._shown = [], []
        return self.source.stage(workspace, wanted_bytes, slice_bytes)


def view_of(workspace: Workspace, part: Part, names: Sequence[Label]) -> Part:
    """Some columns of a part; the part itself where they are all of its columns, in order."""
    return part if tuple(names) == part.schema.names else PartView(workspace, part, names)
