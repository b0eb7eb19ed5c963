"""The seam for sorting: what a key is, which columns can be one, and what is asked of a dataframe library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...errors import UnsupportedDtype
from .data import Columns, Data, Ids, Int64s
from .schema import Label, Schema

_UNSORTABLE = ("list", "struct", "map")
# On GPUs: the words of a key; keys and row numbers twice, as a radix sort needs them; the order.
_DEVICE_ROW_BYTES = 8 + 2 * (8 + 4) + 4
_DEVICE_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to sort by. NaN, NaT and null are one missing value, before or after all others whatever the direction.

    Numbers and times are ordered by value, text by code point, categories by the order of their labels.
    """

    name: Label
    ascending: bool = True
    nulls_first: bool = False


class SortingBackend(Protocol):
    """Order of the rows of one rank."""

    # Whether rows are sorted before they are sent: where merging sorted runs is much cheaper than sorting.
    sorts_before_sending: bool

    def sort_order(self, data: Data, keys: Sequence[SortKey], *, runs: bool = False) -> Ids:
        """Row numbers in sorted order; rows with equal keys keep theirs.

        Parameters
        ----------
        data : Data
        keys : sequence of SortKey
        runs : bool, default False
            Whether the rows are a few sorted runs, one after the other, so that merging is enough.
        """
        ...

    def take(self, data: Data, rows: Ids) -> Data:
        """Rows by number, copied."""
        ...

    def reorder(self, held: list[Data], order: Ids) -> Data:
        """As `take`, column by column; what ``held`` holds is taken out of it, and each column freed in its turn. Its
        memory is nobody else's: it may be used for the result."""
        ...

    def split_ids(self, data: Data, keys: Sequence[SortKey], splitters: Columns, cuts: Int64s) -> Ids:
        """Between which splitters each row falls.

        Parameters
        ----------
        data : Data
        keys : sequence of SortKey
        splitters : Columns
            The key columns of the splitters, sorted, in host memory; same dtypes as in ``data``.
        cuts : ndarray of int64, shape (splitters,)
            A row whose keys equal a splitter's comes after it if its number is at least this. Among equal
            splitters they ascend.

        Returns
        -------
        array of shape (rows,)
            How many splitters come before each row, of the dtype that `partition_ids` gives for one more id.
        """
        ...

    def sort_scratch_bytes(self, rows: int, variable_bytes: int) -> int:
        """Temporary bytes of ordering so many rows, beside the rows; ``variable_bytes`` are of variable columns."""
        ...


def device_scratch_bytes(rows: int, variable_bytes: int) -> int:
    """Temporary bytes of ordering so many rows on a GPU, beside the rows."""
    return _DEVICE_ROW_BYTES * rows + _DEVICE_BLOCK_BYTES + variable_bytes


def require_sortable(schema: Schema, keys: Sequence[SortKey]) -> None:
    """Refuse keys whose values have no order.

    Raises
    ------
    UnsupportedDtype
        Naming the column and its dtype.
    """
    for key in keys:
        column = schema[key.name]
        if column.kind in _UNSORTABLE:
            raise UnsupportedDtype(
                f"column {column.name!r} ({column.describe()}) cannot be sorted by: its values have no order",
                advice="Sort by another column; this one can travel as payload.",
                column=column.name,
            )
