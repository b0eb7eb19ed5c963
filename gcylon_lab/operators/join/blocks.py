"""What a block of a join's result is made of: the same for all in which rows of the same sides may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from ...backends.protocol.join_columns import JoinColumns, Output
from ...backends.protocol.schema import Label, Schema


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a block.

    Attributes
    ----------
    schema : Schema
    complete : str
        A side of which no row is missing: keys are of that.
    taken : dict of str to (list of label, Schema)
        What is taken from each side, and as which columns.
    """

    schema: Schema
    complete: str
    taken: dict[str, tuple[list[Label], Schema]]


class Layouts:
    """The layouts of a join's blocks, each of which is made once.

    Parameters
    ----------
    columns : JoinColumns
    """

    def __init__(self, columns: JoinColumns) -> None:
        self._columns = columns
        self._made: dict[tuple[tuple[str, bool], ...], Layout] = {}

    def of(self, lacking: Mapping[str, bool]) -> Layout:
        """The layout of a block of these sides, where rows of some may be missing."""
        kind = tuple(lacking.items())
        if kind not in self._made:
            self._made[kind] = self._make(lacking)
        return self._made[kind]

    def _make(self, lacking: Mapping[str, bool]) -> Layout:
        columns = self._columns
        schema = columns.schema(lacking.get("left", False), lacking.get("right", False))
        order = ("right", "left") if columns.spec.how == "right" else ("left", "right")
        complete = next(side for side in order if side in lacking and not lacking[side])
        taken: dict[str, tuple[list[Label], Schema]] = {}
        for side in lacking:
            outputs = [o for o in columns.outputs if o.side == side or (o.side == "key" and side == complete)]
            taken[side] = [_source(o, side) for o in outputs], Schema([schema[o.column.name] for o in outputs])
        return Layout(schema, complete, taken)


def _source(output: Output, side: str) -> Label:
    return cast(Label, output.left if side == "left" else output.right)
