"""Several tables in one operation: their columns brought together, and their rows seen as those of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.protocol.data import Data
from ...backends.protocol.join_columns import with_missing
from ...backends.protocol.promotion import in_one_zone, promote
from ...backends.protocol.schema import Column, Label, Schema, instead_of
from ...errors import ColumnMissing, GcylonError, SchemaMismatch
from ..store.part import Part, Partitioning
from .agreement import AgreementKind, agreed
from .operation import Int64s, Operation


@dataclass(frozen=True, slots=True)
class Sides:
    """Tables of one operation, as all ranks know them.

    Attributes
    ----------
    schemas : tuple of Schema
        Each table's, agreed.
    rows : ndarray of int64, shape (tables, size)
        On each rank.
    nbytes : ndarray of int64, shape (tables, size)
        On each rank, in all tiers.
    """

    schemas: tuple[Schema, ...]
    rows: Int64s
    nbytes: Int64s

    @property
    def totals(self) -> list[int]:
        """Rows of each table."""
        return [int(n) for n in self.rows.sum(axis=1)]


def agree_sides(operation: Operation, parts: Sequence[Part]) -> Sides:
    """Collective: all ranks call it. Learn the columns and sizes of all tables of an operation, its inputs in order."""
    schemas, sizes = [operation.schema], [operation.input_sizes]
    if operation.other is not None:  # of the first two the opening has told
        schemas.append(operation.other[0])
        sizes.append(operation.other[1])
    for part in parts[2:]:
        answers = operation.agree(AgreementKind.COUNT, (part.schema.digest(), part.rows, part.nbytes))
        schemas.append(operation._agree_schema(part.schema, answers[:, 0], answers[:, 1]))
        sizes.append(answers[:, 1:3])
    rows, nbytes = np.array(sizes).transpose(2, 0, 1)
    return Sides(tuple(schemas), rows, nbytes)


def common_schema(sides: Sides, what: Sequence[str], *, join: str = "") -> Schema:
    """The columns that all tables are brought to, in the order in which they come; an error is raised by all alike.

    Parameters
    ----------
    sides : Sides
    what : sequence of str
        What each table is called in errors.
    join : {"", "outer", "inner"}
        What becomes of columns that not all tables have: an error, missing values, or nothing.

    Raises
    ------
    ColumnMissing
        If a table lacks a column that another one has.
    SchemaMismatch
        If the dtypes of a column cannot be brought together.
    """
    try:
        return schema_of_all(sides.schemas, sides.totals, what, join)
    except GcylonError as error:
        raise agreed(error) from None


def schema_of_all(schemas: Sequence[Schema], rows: Sequence[int], what: Sequence[str], join: str = "") -> Schema:
    """As `common_schema`, of tables with so many rows; what it raises is told to no rank."""
    every = dict.fromkeys(name for schema in schemas for name in schema.names)
    if not join:
        require_same_names([schema.names for schema in schemas], what)
    columns = []
    for name in every:
        if join == "outer" or all(name in schema for schema in schemas):
            columns.append(_common_column(schemas, rows, what, name))
    return Schema(columns)


def require_same_names(names: Sequence[Sequence[Label]], what: Sequence[str]) -> None:
    """Refuse tables that do not have the same columns, in whatever order.

    Parameters
    ----------
    names : sequence of sequence of labels
        Of each table.
    what : sequence of str
        What each is called.

    Raises
    ------
    ColumnMissing
        Naming the first column that one lacks.
    """
    for name in dict.fromkeys(name for some in names for name in some):
        lacking = [place for place, some in enumerate(names) if name not in some]
        if lacking:
            has = next(place for place, some in enumerate(names) if name in some)
            there = instead_of(name, names[lacking[0]], "Its")
            raise ColumnMissing(
                f"{what[lacking[0]].capitalize()} has no column {name!r}, which {what[has]} has.",
                advice=f"{there} Rename or select columns before, so that all tables have the same.",
                column=str(name),
            )


def _common_column(schemas: Sequence[Schema], totals: Sequence[int], what: Sequence[str], name: Label) -> Column:
    there = [place for place, schema in enumerate(schemas) if name in schema]
    columns = [schemas[place][name] for place in there]
    try:
        column = promote(in_one_zone(columns), [totals[place] for place in there])
    except SchemaMismatch:
        held: dict[str, list[str]] = {}
        for place, one in zip(there, columns, strict=True):
            held.setdefault(one.describe(), []).append(what[place])
        texts = "; ".join(f"{text} in {', '.join(places)}" for text, places in held.items())
        raise SchemaMismatch(
            f"Column {name!r} cannot be brought to one dtype: {texts}.",
            advice=f"Convert it before, for example with astype({{{name!r}: ...}}), so that all tables hold one dtype.",
            column=str(name),
        ) from None
    absent = any(totals[place] for place in range(len(totals)) if place not in there)
    return with_missing(column) if absent else column


def spread_of(parts: Sequence[Part], size: int) -> Partitioning | None:
    """How the rows of several tables are spread together, where all are spread alike: hashes know no dtypes."""
    spread = parts[0].partitioning
    if spread is None or spread.size != size or any(part.partitioning != spread for part in parts):
        return None
    return spread


def new_label(taken: Sequence[Label], name: str) -> str:
    """A label for a column that a result does not have, which no other column has."""
    while name in taken:
        name += "'"
    return name


def first_rows(operation: Operation, data: Data, count: int) -> list[dict[Any, Any]]:
    """Some rows as plain values, for texts."""
    from ...backends.arrow.interop import to_frame

    frame = to_frame(operation.workspace.backend.to_host(operation.workspace.backend.slice(data, 0, count)))
    records: list[dict[Any, Any]] = frame.to_dict("records")
    return records
