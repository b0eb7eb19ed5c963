"""What operations ask of a dataframe library beside moving rows: work on the rows of one rank.

Each kind of work is a Protocol of its own; a `Backend` is all of them. Everything here is a function of the rows
given: nothing is kept, nothing is known of other ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .aggregation import Kernel
from .data import Data, Words
from .expressions import Expression
from .joining import JoiningBackend
from .schema import Label, Schema
from .sorting import SortingBackend


class Folding(Protocol):
    """Groups of rows that come piece by piece, in one table whose size is known before; read out once, at the end."""

    @property
    def nbytes(self) -> int:
        """Bytes of the table, which takes them from `begin` on."""
        ...

    def reading_bytes(self, groups: float) -> int:
        """Bytes that reading out so many groups takes beside the table, at the most, the result among them."""
        ...

    def begin(self) -> None:
        """Take the memory."""
        ...

    def add(self, data: Data) -> None:
        """Add rows; they may still be read from when this returns, by what the device does next."""
        ...

    def groups(self) -> int | None:
        """How many groups there are so far. None where what was added is lost: they did not fit, or a sum may have
        passed what its column holds."""
        ...

    def made(self, groups: int, *, in_order: bool = True) -> Data:
        """What `GroupingBackend.aggregate` gives of all rows; the table is given up.

        Parameters
        ----------
        groups : int
            As `groups` has just said.
        in_order : bool, default True
            Whether they are wanted in the order of their keys; otherwise they may be in any.
        """
        ...


class GroupingBackend(Protocol):
    """Rows with equal keys: equal as values, all missing ones alike, -0.0 as 0.0."""

    def aggregate(
        self,
        data: Data,
        keys: Sequence[Label],
        kernels: Sequence[Kernel],
        *,
        dropna: bool,
        state: Data | None = None,
        merge: Sequence[Kernel] = (),
    ) -> Data:
        """One row for each key, in the order in which they begin: keys, then the outputs of the kernels.

        Parameters
        ----------
        data : Data
        keys : sequence of labels
            Without any, all rows are one group.
        kernels : sequence of Kernel
            What is computed of the rows of each group, in their order.
        dropna : bool
            Whether rows with a missing key are left out.
        state : Data, optional
            A result of before, for rows that came before these; its groups come first.
        merge : sequence of Kernel
            How a kernel's results are brought together with those of before.

        Raises
        ------
        UnsupportedDtype
            If there is no such function of a column here.
        """
        ...

    def finish(self, data: Data, keys: Sequence[Label], kernels: Sequence[Kernel]) -> Data:
        """The last step of each function, row by row: keys, then one column a kernel."""
        ...

    def distinct(self, data: Data, keys: Sequence[Label], *, keep: str) -> Data:
        """The first or the last row of each key, whole, in the order of rows."""
        ...

    def count_distinct(self, data: Data, keys: Sequence[Label]) -> int:
        """How many different keys rows have; a missing one is one."""
        ...

    def folding(
        self, schema: Schema, keys: Sequence[Label], kernels: Sequence[Kernel], rows: int, groups: float
    ) -> Folding | None:
        """A table for so many rows of a schema, which come piece by piece and are expected to have so many keys.

        None where there is none for such keys and kernels, or would be none for so many. Rows with a missing key are
        not known to it: there are none of these.
        """
        ...

    def grouping_table_bytes(self, schema: Schema, keys: Sequence[Label], kernels: Sequence[Kernel]) -> int:
        """Bytes of a table in which rows are grouped in one pass, which takes nothing else; 0 where there is none."""
        ...

    def grouping_row_bytes(self, kernels: Sequence[Kernel]) -> int:
        """Temporary bytes a row of grouping and computing, at the most, beside the rows, once more, and the result."""
        ...


class RowBackend(Protocol):
    """Rows for themselves."""

    def relabel(self, data: Data, schema: Schema) -> Data:
        """The same columns under other names, without a copy."""
        ...

    def evaluate(self, data: Data, expressions: Sequence[tuple[Label, Expression]]) -> Data:
        """The columns, and those that expressions make: in the place of a column of that name, or after them.

        Each expression sees the columns as they were. Dtypes and missing values are as pandas has them. Columns that
        are not made anew are the same arrays.
        """
        ...

    def filter(self, data: Data, condition: Expression, columns: Sequence[Label] | None = None) -> Data:
        """The rows of which a condition holds, copied, in order; perhaps some columns of them alone.

        Raises
        ------
        ArgumentError
            If it is none.
        """
        ...

    def evaluating_row_bytes(self, schema: Schema, expressions: Sequence[Expression]) -> int:
        """Temporary bytes a row of computing expressions, at the most, beside the rows and the result."""
        ...


class SelectingBackend(Protocol):
    """Values in their order."""

    def order_words(self, data: Data, name: Label) -> Words:
        """The values of a column of numbers or times, as words on the host; see `order_preserving`."""
        ...


class RepeatingBackend(Protocol):
    """Rows as often as is asked for."""

    def repetitions(self, data: Data, times: Label) -> Any:
        """How many rows there are, up to and with each, where each stands as often as a column of ints says.

        They are the library's own array, of which ``int(ends[-1])`` is the number of all.
        """
        ...

    def repeated(self, data: Data, ends: Any, start: int, stop: int) -> Data:
        """Rows [start, stop) of the repeated ones, copied; ``ends`` are of `repetitions`."""
        ...


class RelationalBackend(
    RowBackend, GroupingBackend, SelectingBackend, RepeatingBackend, JoiningBackend, SortingBackend, Protocol
):
    """All local work."""
