"""How wide each column is, as far as it is known without reading rows: verbs that use some columns send only these."""

from __future__ import annotations

from collections.abc import Sequence

from ...backends.protocol.schema import Label
from .part import Part
from .workspace import Workspace


def column_row_bytes(workspace: Workspace, part: Part) -> list[float]:
    """Mean bytes of a row in each column: of variable ones as in the largest chunk in memory, or else all alike."""
    schema, backend = part.schema, workspace.backend
    held = max((chunk for chunk in part.chunks if chunk.tier == "device"), key=lambda chunk: chunk.rows, default=None)
    alike = max(0.0, part.nbytes / max(part.rows, 1) - schema.row_bytes) / max(len(schema.variable), 1)
    widths = []
    for column in schema:
        if column.dtype is not None:
            widths.append(float(column.dtype.itemsize))
        elif held is not None:
            widths.append(backend.select(held.data, [column.name]).nbytes / held.rows)
        else:
            widths.append(alike)
    return widths


def keys_row_bytes(workspace: Workspace, part: Part, keys: Sequence[Label]) -> float:
    """About how many bytes the keys of a row take."""
    widths = column_row_bytes(workspace, part)
    return sum(widths[part.schema.place(key)] for key in keys)
