"""Rows that leave the device tier while a rank works on the next ones."""

from __future__ import annotations

from ...backends.protocol.data import Data
from ...backends.protocol.schema import Schema
from ...memory.budget import Reservation
from ...memory.tiers.staging_tier import StagingFile, StagingRegion
from .chunk import Chunk, stage_slices
from .workspace import Workspace


class AsyncStager:
    """Stages what was made piece by piece. One piece may be leaving while the next is worked on, and no more.

    Texts are packed when they are staged, in memory that nobody has claimed: they are waited for.

    Parameters
    ----------
    workspace : Workspace
    schema : Schema
        Of what is staged.
    """

    def __init__(self, workspace: Workspace, schema: Schema) -> None:
        self._workspace, self._schema = workspace, schema
        self.beside = workspace.stages_beside(schema)
        self._regions: list[StagingRegion] = []
        self._piece = 0

    def stage(self, file: StagingFile, data: Data, claim: Reservation, shared: object = None) -> list[Chunk]:
        """Move rows to a tier below the device.

        Parameters
        ----------
        file : StagingFile
        data : Data
            Rows of one piece of work, perhaps a part of them.
        claim : Reservation
            On the memory of all rows of the piece. Kept until they have left, where they leave beside the work.
        shared : object, optional
            What else they must not outlive.

        Raises
        ------
        SpillError
            If the disk is full or cannot be written.
        """
        workspace = self._workspace
        if self.beside and id(claim) != self._piece:
            for region in self._regions:
                region.wait()
            workspace.spill.poll()
            self._regions, self._piece = [], id(claim)
        count = -(-data.nbytes // workspace.slice_bytes(workspace.budget.limit_bytes))
        held = (claim, shared) if self.beside else None
        chunks = list(stage_slices(workspace, file, data, count, held))
        for chunk in chunks:  # a piece's own schema, of as many columns, would be kept for each
            chunk.schema = self._schema
        if self.beside:
            self._regions += [chunk.region for chunk in chunks]
        else:
            workspace.spill.flush()
        return chunks
