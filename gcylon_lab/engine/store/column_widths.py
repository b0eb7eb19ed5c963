"""How wide each column is, as far as it is known without reading rows: verbs that use some columns send only these."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

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


def some_columns(infos: Sequence[Mapping[str, Any]], names: Collection[Label]) -> list[Mapping[str, Any]]:
    """What every rank would tell of some of a table's columns, in its ``Table.info()``.

    They are a view: the whole table stays in use. Of what is staged they alone are read back, variable ones together.
    """
    places = [place for place, name in enumerate(infos[0]["columns"]) if name in set(names)]
    if len(places) == len(infos[0]["columns"]) or not all("column_row_bytes" in info for info in infos):
        return list(infos)
    return [_narrowed(info, places) for info in infos]


def _narrowed(info: Mapping[str, Any], places: Sequence[int]) -> dict[str, Any]:
    means, fixed = ([info[name][place] for place in places] for name in ("column_row_bytes", "fixed_column_bytes"))
    whole = max(sum(info["column_row_bytes"]), 1)
    device = int(info["tiers"]["device"] * sum(means) / whole)
    of_columns = list(zip(info["column_row_bytes"], info["fixed_column_bytes"], strict=True))
    packed = 0.0 if all(fixed) else sum(mean for mean, of_fixed in of_columns if not of_fixed)
    below = (sum(fixed) + packed) / whole  # of what is staged
    staged = int((info["nbytes"] - info["tiers"]["device"]) * below)
    return {
        **info,
        "columns": [info["columns"][place] for place in places],
        "dtypes": [info["dtypes"][place] for place in places],
        "row_bytes": sum(fixed),
        "column_row_bytes": means,
        "fixed_column_bytes": fixed,
        "nbytes": staged + device,
        "tiers": {"device": device, "disk": staged},
        "largest_staged_bytes": int(info["largest_staged_bytes"] * below),
        "null_columns": min(info.get("null_columns", -1), len(places)),
        "texts": min(info.get("texts", 0), len(places)),
    }
