"""The first rows of a table in global order."""

from __future__ import annotations

import numpy as np

from .part import Chunk, Part, hold
from .workspace import Workspace


def take_head(workspace: Workspace, part: Part, limit: int | None) -> Part:
    """Collective: all ranks call it. Give this rank's share of the first ``limit`` rows.

    Parameters
    ----------
    workspace, part
        This rank's means and rows.
    limit : int or None
        Rows in all; None gives the part itself.

    Returns
    -------
    Part
        Views where the rows are on the device tier: their bytes stay with ``part``.
    """
    if limit is None:
        return part
    rows = workspace.transport.agree(np.array([part.rows], dtype=np.int64))[:, 0]
    left = max(0, min(part.rows, limit - int(rows[: workspace.transport.rank].sum())))
    chunks: list[Chunk] = []
    for chunk in part.chunks:
        if left == 0:
            break
        take = min(left, chunk.rows)
        left -= take
        with chunk.load(workspace) as data:
            piece = workspace.backend.slice(data, 0, take)
            if chunk.tier == "device":
                chunks.append(Chunk(piece.schema, take, piece.nbytes, data=piece))
            else:
                chunks.append(hold(workspace, workspace.backend.concat([piece]), "The first rows"))
    return Part(workspace, part.schema, chunks)
