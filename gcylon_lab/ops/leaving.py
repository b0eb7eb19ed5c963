"""Rows that leave the device tier while a rank works on the next ones."""

from __future__ import annotations

from collections.abc import Sequence

from ..memory.budget import Reservation
from ..memory.lower import LowerFile, LowerRegion
from ..tables.backend import Data
from ..tables.schema import Schema
from .chunk import Chunk, stage
from .workspace import Workspace


class Leaving:
    """Stages what was made piece by piece. One piece may be leaving while the next is worked on, and no more.

    Texts are packed when they are staged, in memory that nobody has claimed: they are waited for.

    Parameters
    ----------
    workspace : Workspace
    schema : Schema
        Of what is staged.
    """

    def __init__(self, workspace: Workspace, schema: Schema) -> None:
        self._workspace = workspace
        self.beside = workspace.stages_beside(schema)
        self._regions: list[LowerRegion] = []
        self._piece = 0

    def stage(
        self, file: LowerFile, pieces: Sequence[Data], claim: Reservation | None, shared: object = None
    ) -> list[Chunk]:
        """Move rows to a tier below the device.

        Parameters
        ----------
        file : LowerFile
        pieces : sequence of Data
            Rows of one piece of work, perhaps a part of them; chunks are made of slices of them.
        claim : Reservation, optional
            On the memory of all rows of the piece. Kept until they have left, where they leave beside the work.
        shared : object, optional
            What else they must not outlive.

        Raises
        ------
        SpillError
            If the disk is full or cannot be written.
        """
        workspace, chunks = self._workspace, list[Chunk]()
        if self.beside and id(claim) != self._piece:
            for region in self._regions:
                region.wait()
            workspace.spill.poll()
            self._regions, self._piece = [], id(claim)
        for data in pieces:
            most = workspace.slice_bytes(workspace.budget.limit_bytes, data.schema)
            count = min(data.rows, -(-data.nbytes // most) or 1)
            for i in range(count):
                some = workspace.backend.slice(data, data.rows * i // count, data.rows * (i + 1) // count)
                chunks.append(stage(workspace, file, some, (claim, shared) if self.beside else None))
        if self.beside:
            self._regions += [chunk.region for chunk in chunks]
        else:
            workspace.spill.flush()
        return chunks
