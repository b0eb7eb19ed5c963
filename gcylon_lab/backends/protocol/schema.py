"""The columns of a table, and how all ranks come to one schema. Pure: values in, values out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ColumnMissing, DuplicateColumns
from .column import Column, Label, from_plain, instead_of, labels_digest, listed_labels, to_plain
from .promotion import promote

__all__ = ["Block", "Column", "Label", "Schema", "agree_schemas"]


MANY_COLUMNS = 64  # columns: what is done for each by itself takes longer than what is done with its rows
_KEPT_SELECTIONS = 8  # of a schema's columns: the same few are asked for of every piece


@dataclass(frozen=True, slots=True)
class Block:
    """Fixed columns of one width, which can be planes of one array of shape (columns, rows).

    Attributes
    ----------
    items : numpy dtype
        Of the array: as wide as the columns' own.
    places : tuple of int
        Of the columns in the schema.
    stretches : tuple of (int, int, numpy dtype)
        From which plane to which before another they are of one dtype, and that.
    """

    items: np.dtype[Any]
    places: tuple[int, ...]
    stretches: tuple[tuple[int, int, Any], ...]

    @property
    def row_bytes(self) -> int:
        """Of all planes."""
        return self.items.itemsize * len(self.places)


class Schema:
    """An ordered set of columns with distinct names. Never changed once made.

    Parameters
    ----------
    columns : sequence of Column

    Raises
    ------
    DuplicateColumns
        Naming the repeated label.
    """

    __slots__ = (
        "_bytes", "_digest", "_hash", "_index", "_packed", "_planes", "_selected", "blocks", "columns", "fixed",
        "names", "row_bytes", "texts", "variable",
    )  # fmt: skip

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self._index = {column.name: place for place, column in enumerate(self.columns)}
        self.names: tuple[Label, ...] = tuple([column.name for column in self.columns])
        self._bytes: bytes | None = None
        self._digest: int | None = None
        self._hash: int | None = None
        self._packed: dict[Label, int] | None = None
        self._planes: tuple[tuple[int, int], ...] | None = None
        self._selected: dict[tuple[Label, ...], Schema] = {}
        # Asked for in every round: the columns held as numpy arrays, as Arrow arrays, and bytes of a row of the former.
        self.fixed = tuple(column for column in self.columns if column.fixed)
        self.variable = tuple(column for column in self.columns if not column.fixed)
        # The places of columns whose characters kernels write.
        self.texts = tuple([at for at, c in enumerate(self.columns) if c.kind == "str" and not c.fixed])
        self.row_bytes = sum(column.dtype.itemsize for column in self.columns if column.dtype is not None)
        self.blocks: tuple[Block, ...] = _blocks(self.columns) if len(self.fixed) >= MANY_COLUMNS else ()
        if len(self._index) != len(self.columns):
            require_distinct([column.name for column in self.columns])

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def place(self, name: Label) -> int:
        """Position of a column.

        Raises
        ------
        ColumnMissing
            If there is none of this name.
        """
        found = self._index.get(name)
        if found is None:
            raise ColumnMissing(
                f"there is no column {name!r}",
                advice=instead_of(name, self.names),
                column=name,
            )
        return found

    def __getitem__(self, name: Label) -> Column:
        return self.columns[self.place(name)]

    def select(self, names: Sequence[Label]) -> Schema:
        """Only these columns, in this order."""
        chosen = tuple(names)
        if self.names == chosen:
            return self
        found = self._selected.get(chosen)
        if found is None:
            if len(self._selected) >= _KEPT_SELECTIONS:
                self._selected = {}  # anew: another thread may be looking
            found = self._selected[chosen] = Schema([self[name] for name in chosen])
        return found

    def plane(self, place: int) -> tuple[int, int]:
        """In which of the blocks a fixed column is, and which of its planes it is."""
        if self._planes is None:
            found = {at: (number, i) for number, block in enumerate(self.blocks) for i, at in enumerate(block.places)}
            self._planes = tuple([found.get(at, (-1, -1)) for at in range(len(self.columns))])
        return self._planes[place]

    def packed_before(self, name: Label) -> int:
        """Bytes of a row that come before a fixed column where all are packed one after the other, block by block where
        there are blocks."""
        if self._packed is None:
            columns = [self.columns[at] for block in self.blocks for at in block.places] or self.fixed
            before, self._packed = 0, {}
            for column in columns:
                self._packed[column.name] = before
                before += column.dtype.itemsize if column.dtype is not None else 0
        return self._packed[name]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Schema) or self.columns != other.columns:
            return False
        self.columns = other.columns  # the same objects: chunks of one table are compared in every round
        return True

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.columns)
        return self._hash

    def __repr__(self) -> str:
        return "Schema(" + ", ".join(f"{c.name!r}: {c.describe()}" for c in self.columns) + ")"

    def __reduce__(self) -> tuple[object, ...]:
        return (Schema.from_bytes, (self.to_bytes(),))

    def to_bytes(self) -> bytes:
        """The schema as bytes, the same for equal schemas."""
        if self._bytes is None:
            plain = [to_plain(column) for column in self.columns]
            self._bytes = json.dumps({"version": 1, "columns": plain}, separators=(",", ":")).encode()
        return self._bytes

    @staticmethod
    def from_bytes(data: bytes | memoryview) -> Schema:
        """Rebuild the schema that `to_bytes` wrote."""
        return Schema([from_plain(plain) for plain in json.loads(bytes(data))["columns"]])

    def digest(self) -> int:
        """A signed 64-bit number, equal where schemas are equal."""
        if self._digest is None:
            plain = json.dumps([to_plain(column, labels_digest) for column in self.columns], separators=(",", ":"))
            made = hashlib.blake2b(plain.encode(), digest_size=8).digest()
            self._digest = int.from_bytes(made, "little", signed=True)
        return self._digest


def plane_items(width: int) -> np.dtype[Any]:
    """What planes of columns of a width are made of."""
    return np.dtype(f"{'u' if width <= 8 else 'V'}{width}")


def _blocks(columns: Sequence[Column]) -> tuple[Block, ...]:
    """The fixed columns by width, in the order in which widths are met."""
    places: dict[int, list[int]] = {}
    for place, column in enumerate(columns):
        if column.dtype is not None:
            places.setdefault(column.dtype.itemsize, []).append(place)
    return tuple(
        Block(plane_items(width), tuple(found), _stretches([columns[p] for p in found]))
        for width, found in places.items()
    )


def _stretches(fixed: Sequence[Column]) -> tuple[tuple[int, int, Any], ...]:
    starts = [i for i, column in enumerate(fixed) if i == 0 or column.dtype != fixed[i - 1].dtype]
    stops = [*starts[1:], len(fixed)]
    return tuple((start, stop, fixed[start].dtype) for start, stop in zip(starts, stops, strict=True))


def require_distinct(names: Sequence[object]) -> None:
    """Refuse labels that name several columns.

    Raises
    ------
    DuplicateColumns
        Naming the repeated label.
    """
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise DuplicateColumns(
                f"the label {name!r} names {list(names).count(name)} columns of {listed_labels(names, name)}",
                advice="Give each column a name of its own.",
                column=str(name),
            )
        seen.add(name)


def agree_schemas(schemas: Sequence[Schema], rows: Sequence[int] | None = None) -> Schema:
    """Bring the schemas of all ranks to one.

    Parameters
    ----------
    schemas : sequence of Schema, shape (ranks,)
        What each rank holds.
    rows : sequence of int, shape (ranks,), optional
        How many rows each rank holds. A rank without rows gives way where its dtype is of another kind. Without
        it every rank counts as holding rows.

    Returns
    -------
    Schema
        Rank 0's column order, with dtypes that hold every rank's values exactly; labels of categories are the
        union in rank order.

    Raises
    ------
    ColumnMissing
        If the ranks hold different columns, naming a rank and a column.
    SchemaMismatch
        If dtypes cannot be brought together, naming the column, the dtypes and the ranks.
    """
    first = schemas[0]
    if all(schema == first for schema in schemas[1:]):
        return first
    _require_same_columns(schemas)
    counts = list(rows) if rows is not None else [1] * len(schemas)
    return Schema([promote([schema[name] for schema in schemas], counts) for name in first.names])


def _require_same_columns(schemas: Sequence[Schema]) -> None:
    every = dict.fromkeys(name for schema in schemas for name in schema.names)
    # Rank 0's columns first: where one rank differs, it is the one that is named.
    for name in every:
        for rank, schema in enumerate(schemas):
            if name not in schema:
                holder = next(r for r, s in enumerate(schemas) if name in s)
                raise ColumnMissing(
                    f"rank {rank} has no column {name!r}, which rank {holder} has; rank {rank} holds "
                    f"{listed_labels(schema.names, name)}",
                    advice="Give every rank the same columns; a rank without rows needs them too.",
                    rank=rank,
                    column=name,
                )
