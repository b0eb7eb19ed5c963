"""Columns as planes: arrays of one width by row, and the characters of texts, which kernels write each by itself. Pure.

Texts are written as their offsets, by row, and their characters; whether a row holds a value as a byte, where a column
lacks some on any rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.scattering import Plane
from ..protocol.schema import Column, Schema

OFFSET_BYTES = 4
MOST_CHARS = 2**31 - 1  # that such offsets reach, of a column on a rank
_ITEMS = ("bool", "int", "float", "date", "datetime", "timedelta", "decimal")
_WIDTHS = (1, 2, 4, 8, 16)


def can_write(schema: Schema) -> bool:
    """Whether all columns have planes."""
    return all(column.fixed or column.kind == "str" or _width(column) in _WIDTHS for column in schema)


def planes_of(schema: Schema, nulls: Sequence[bool]) -> tuple[Plane, ...]:
    """The planes of a schema that `can_write` allows, those of texts last.

    Parameters
    ----------
    schema : Schema
    nulls : sequence of bool
        Whether rows of each column lack a value, on any rank.
    """
    planes: list[Plane] = []
    for place, column in enumerate(schema):
        if column.kind != "str" or column.fixed:
            planes.append(Plane(place, "items", _width(column)))
        if not column.fixed and nulls[place]:
            planes.append(Plane(place, "valid", 1))
    return (*planes, *(Plane(place, "text", OFFSET_BYTES) for place in schema.texts))


def held_row_bytes(schema: Schema, nulls: Sequence[bool]) -> float:
    """Bytes of a row of a result, but for characters: a byte says of eight rows whether they hold a value."""
    return sum(1 / 8 if plane.kind == "valid" else plane.width for plane in planes_of(schema, nulls))


def _width(column: Column) -> int:
    """Bytes of an item on the device; 0 where it has no width."""
    if column.dtype is not None:
        return column.dtype.itemsize
    if column.kind not in _ITEMS:
        return 0
    return 1 if column.kind == "bool" else int(column.arrow.bit_width) // 8
