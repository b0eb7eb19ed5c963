"""What a join asks of a dataframe library: the keys of one side as an index, and rows gathered by number.

Numbers of rows and masks are the library's own arrays. They can be cut as ``rows[start:stop]`` and masks joined with
``|=``; a number of -1 stands for a row that is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .data import Data
from .key_forms import KeyForm
from .schema import Column, Label, Schema

Rows = Any
Mask = Any


class Matches(Protocol):
    """The pairs of some rows with those of an index."""

    @property
    def pairs(self) -> int:
        """How many there are, rows without a partner among them where those were asked for."""
        ...

    @property
    def found(self) -> Mask:
        """Which rows have a partner."""
        ...

    @property
    def lacking(self) -> bool:
        """Whether a row without a partner is among the pairs."""
        ...

    def rows(self, start: int, stop: int) -> tuple[Rows, Rows]:
        """Numbers of the rows and of the index's rows of pairs [start, stop), which are not empty."""
        ...


class KeyIndex(Protocol):
    """The keys of one side, in which those of the other side are looked up."""

    @property
    def rows(self) -> int:
        """How many it holds."""
        ...

    @property
    def hashed_once(self) -> bool:
        """Whether what is looked up piece by piece costs no more than at once."""
        ...

    @property
    def duplicates(self) -> int:
        """How many rows have a key that stands before them already."""
        ...

    def match(self, keys: Data, *, keep: bool, mark: bool) -> Matches:
        """Pair rows of the other side with rows of this one.

        Parameters
        ----------
        keys : Data
            Only the other side's keys, in the order of the forms.
        keep : bool
            Whether rows without a partner make a pair with none.
        mark : bool
            Whether to remember which rows of this side have been found.
        """
        ...

    def unseen(self) -> Rows:
        """The rows of this side that no marked match has found."""
        ...


class JoiningBackend(Protocol):
    """Joining the rows of one rank."""

    def key_index(self, keys: Data, forms: Sequence[KeyForm], more_bytes: int = 0) -> KeyIndex:
        """Index rows by their keys, of which ``keys`` holds nothing else, in the order of the forms; it may take
        ``more_bytes`` of what `faster_index_bytes` says beside `index_bytes`."""
        ...

    def crossing(self, rows: int, others: int) -> Matches:
        """Pair each of some rows with each of the other side's."""
        ...

    def places(self, mask: Mask) -> Rows:
        """The numbers of the rows that a mask has."""
        ...

    def no_places(self, rows: int) -> Mask:
        """A mask of no row."""
        ...

    def gather(self, data: Data, names: Sequence[Label], rows: Rows, schema: Schema, *, complete: bool = False) -> Data:
        """Copy rows of some columns, as the columns of a schema, which has a place for missing rows where there are.

        ``complete`` says that there are none: on a GPU looking for them is a wait.

        Raises
        ------
        SchemaMismatch
            If a value has no place there, naming the column.
        """
        ...

    def lacking(self, schema: Schema, rows: int) -> Data:
        """So many rows of which all values are missing."""
        ...

    def constant(self, column: Column, value: int, rows: int) -> Data:
        """One fixed column of one item."""
        ...

    def by_presence(self, column: Column, rows: Rows, present: int, absent: int) -> Data:
        """One fixed column of one item where a row is there, and of another where it is missing."""
        ...

    def beside(self, parts: Sequence[Data], schema: Schema) -> Data:
        """The columns of several parts as one, in the order of a schema."""
        ...

    def index_bytes(self, keys: Data) -> int:
        """Bytes of an index at the most, while it is made."""
        ...

    def faster_index_bytes(self, keys: Data, looked_up: int) -> int:
        """Bytes beside these with which looking up so many rows is faster, where they are free; 0 where none help."""
        ...

    def index_row_bytes(self, schema: Schema) -> int:
        """The same a row, where the keys have this schema and are not known yet."""
        ...

    def match_row_bytes(self, schema: Schema) -> int:
        """Bytes a row of looking up keys of this schema, and of what is found."""
        ...

    def pair_bytes(self) -> int:
        """Bytes a pair of its numbers of rows."""
        ...

    def held_pair_bytes(self) -> int:
        """Bytes of each pair of a piece that are held while rows are made of all of them, block by block."""
        ...
