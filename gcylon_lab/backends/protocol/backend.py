"""The seam between operations and a dataframe library.

Operations know a table only as `Data` (columns of equal length with a schema,
never changed once made) and reach it only through a `Backend`. Columns are of
two kinds. *Fixed* ones are contiguous arrays of one item size: rows
[start, stop) of them are a plain view, which can be sent, received into and
read from disk as it is. *Variable* ones (strings, lists, structs, decimals,
nullable) travel packed, one message for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .data import Columns, Data, Ids, Int64s
from .relational import RelationalBackend
from .schema import Label, Schema


@dataclass(frozen=True, slots=True)
class DelimitedText:
    """How lines of text become rows.

    Attributes
    ----------
    types : mapping of str to pyarrow type
        Of all columns, in the order of a line's values: int64, float64, bool, string or a time without a zone.
    wanted : tuple of str
        The columns of the result, in order.
    delimiter : str
        One ASCII character.
    nulls : tuple of str
        What stands for a missing value.
    asked : frozenset of str
        Columns whose type somebody named: floats may be rounded there.
    quotes : bool
        Whether double quotes enclose values.
    ones : bool
        Whether 1 and 0 are bools.
    """

    types: Mapping[str, Any]
    wanted: tuple[str, ...]
    delimiter: str
    nulls: tuple[str, ...]
    asked: frozenset[str] = frozenset()
    quotes: bool = True
    ones: bool = False


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Some rows of a file, in order.

    Attributes
    ----------
    path : str
        In the local file system.
    groups : tuple of (int, int, int, int)
        Of each row group its place in the file, its rows, and the rows [start, stop) of it that are wanted.
    types : dict
        By name, in order: the Arrow types of the columns wanted.
    dtypes : dict
        By name: dtypes that the Arrow types do not tell, as `gcylon_lab.backends.arrow.tables.from_arrow` takes them.
    sizes : tuple of (int, int)
        Of each row group: bytes of the columns wanted in the file, and unpacked.
    """

    path: str
    groups: tuple[tuple[int, int, int, int], ...]
    types: Mapping[str, Any]
    dtypes: Mapping[str, str]
    sizes: tuple[tuple[int, int], ...] = ()

    def wanted(self) -> list[tuple[int, int]]:
        """The rows wanted, as ranges of those of all these groups, one after the other."""
        ranges: list[tuple[int, int]] = []
        first = 0
        for _, rows, start, stop in self.groups:
            if ranges and ranges[-1][1] == first + start:
                ranges[-1] = ranges[-1][0], first + stop
            else:
                ranges.append((first + start, first + stop))
            first += rows
        return ranges


def within(ranges: Sequence[tuple[int, int]], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """What of some ranges lies in [start, stop), counted from there."""
    for low, high in ranges:
        low, high = max(low, start), min(high, stop)
        if low < high:
            yield low - start, high - start


class Output(Protocol):
    """A result that is received straight into its final place."""

    def fixed_views(self, start: int, stop: int) -> list[memoryview]:
        """Writable byte views of rows [start, stop) of the fixed columns, in schema order."""
        ...

    def put_variable(self, row: int, rows: int, message: memoryview) -> None:
        """Keep a packed message of the variable columns, which begins at ``row`` of the result. Not copied."""
        ...

    def finish(self) -> Data:
        """The result, once every row has been placed; messages may have come in any order."""
        ...


class RowGroupWriter(Protocol):
    """Encodes rows into a parquet file."""

    def write(self, data: Data) -> None:
        """Write some rows, as row groups of their own."""
        ...

    def close(self) -> None:
        """Write what the file says of itself."""
        ...


class Backend(RelationalBackend, Protocol):
    """What an operation may ask of a dataframe library."""

    name: str
    on_gpu: bool  # then an allocator enforces the budget: a MemoryError says that it is exceeded

    def from_frame(self, frame: Any) -> Data:
        """Copy a user's frame (its index is not carried) into columns.

        Raises
        ------
        UnsupportedDtype
            Naming the column and what it holds.
        DuplicateColumns
            Naming the repeated label.
        """
        ...

    def to_frame(self, data: Data) -> Any:
        """Copy columns into a frame of the user's library, with the schema's dtypes and a RangeIndex."""
        ...

    def from_host(self, data: Columns) -> Data:
        """Columns in host memory, as files are read into them, as this backend's own."""
        ...

    def to_host(self, data: Data) -> Columns:
        """The same rows in host memory, dtype for dtype, as files are written from them."""
        ...

    def read_row_groups(self, work: RowGroups, pass_bytes: int) -> Iterator[Data]:
        """Decode row groups of a parquet file, chunk by chunk; asked of GPU backends alone.

        Parameters
        ----------
        work : RowGroups
            Without columns of which `decoded_by_host` says something.
        pass_bytes : int
            About what is taken for what is read and decompressed at a time; a chunk is at most half as large.

        Raises
        ------
        ReadError
            If texts are no UTF-8.
        """
        ...

    def read_delimited(self, block: bytes | memoryview, work: DelimitedText) -> Data | None:
        """Rows of whole lines; asked of GPU backends alone.

        None where they may not be what the host's reader makes of them: of quotes inside values, blanks around numbers,
        blank lines, lines of fewer values, or what does not fit a type.
        """
        ...

    def row_group_writer(self, path: str, schema: Schema, notes: Mapping[str, str], compression: str) -> RowGroupWriter:
        """Begin a parquet file of columns that `gcylon_lab.formats.parquet.writer` gives to GPU backends.

        Parameters
        ----------
        path : str
            In the local file system.
        schema : Schema
        notes : mapping of str to str
            What the file keeps beside its columns, such as pandas' dtypes.
        compression : str
        """
        ...

    def from_columns(self, columns: Mapping[str, Any], schema: Any) -> Data:
        """Arrays by name as columns, over their own memory where that can be; see `named_arrays.from_columns`."""
        ...

    def from_device_arrow(self, source: Any) -> Data:
        """Copy what has ``__arrow_c_device_array__`` into columns; asked of GPU backends alone."""
        ...

    def to_device_arrow(self, data: Data) -> tuple[Any, Any]:
        """The capsules of ``__arrow_c_device_array__``, over the same memory; asked of GPU backends alone."""
        ...

    def as_tensor(self, array: Any, owner: object, *, own: bool = False) -> Any:
        """The memory of a fixed column, or of an array that was made for it (``own``); it keeps an owner alive."""
        ...

    def new_tensor(self, rows: int, columns: int, dtype: Any) -> Any:
        """Room for a tensor, shape (rows, columns), of which each column is contiguous."""
        ...

    def fill_tensor(self, target: Any, data: Data, name: Label) -> None:
        """Copy a column of numbers into an array.

        Raises
        ------
        UnsupportedDtype
            If values are missing, naming the column.
        """
        ...

    def empty(self, schema: Schema) -> Data:
        """No rows of the schema."""
        ...

    def cast(self, data: Data, schema: Schema) -> Data:
        """Bring data to an agreed schema (exact promotions, categories recoded, all-null columns typed).

        Returns ``data`` itself where nothing differs.

        Raises
        ------
        SchemaMismatch
            If a value cannot be represented, naming the column.
        """
        ...

    def slice(self, data: Data, start: int, stop: int) -> Data:
        """Rows [start, stop), without a copy."""
        ...

    def concat(self, pieces: Sequence[Data]) -> Data:
        """All rows of at least one piece of the same schema, in order, copied."""
        ...

    def select(self, data: Data, columns: Sequence[Label]) -> Data:
        """Only these columns, without a copy."""
        ...

    def partition_ids(self, data: Data, keys: Sequence[Label], n: int, into: Ids | None = None) -> Ids:
        """The rank in [0, n) of each row, by the hash form of its keys.

        Parameters
        ----------
        data : Data
        keys : sequence of labels
        n : int
        into : ndarray of shape (rows,), optional
            Where they are to be, as `new_ids` makes it.

        Returns
        -------
        ndarray of shape (rows,)
            uint8 where n <= 256, uint16 where n <= 65536, else uint32.
        """
        ...

    def bucket_ids(self, data: Data, keys: Sequence[Label], size: int, buckets: int, into: Ids | None = None) -> Ids:
        """For each row ``bucket * size + rank``, where `partition_ids` for ``size * buckets`` gives
        ``rank * buckets + bucket``."""
        ...

    def new_ids(self, rows: int, n: int) -> Ids:
        """Room for the ids of so many rows, of the dtype that `partition_ids` gives."""
        ...

    def partition(self, data: Data, ids: Ids, n: int) -> tuple[Data, Int64s]:
        """Reorder rows by id, keeping the order of rows with equal ids.

        Returns
        -------
        Data, ndarray of int64, shape (n + 1,)
            The rows for id i are [offsets[i], offsets[i + 1]).
        """
        ...

    def deal(self, data: Data, ids: Ids, n: int) -> tuple[Data, Int64s]:
        """As `partition`, for rows that are only sent or written, of a schema with blocks: of each block what is for
        one id is together. Not on GPUs."""
        ...

    def count_ids(self, ids: Ids, n: int) -> Int64s:
        """How many rows have each id; shape (n,)."""
        ...

    def variable_bytes(self, data: Data, ids: Ids, n: int) -> Int64s:
        """Bytes that the variable columns of the rows of each id take, about; shape (n,)."""
        ...

    def widest_row_bytes(self, data: Data) -> int:
        """About how many bytes the variable columns of that row take in which they take most; 0 where nobody looks."""
        ...

    def partition_scratch_bytes(self, rows: int, n: int) -> int:
        """Temporary bytes that `partition_ids` and `partition` use for so many rows, beside their results."""
        ...

    def fixed_views(self, data: Data, start: int, stop: int) -> list[memoryview]:
        """Read-only byte views of rows [start, stop) of the fixed columns, in schema order."""
        ...

    def pack_variable(self, data: Data, start: int, stop: int) -> memoryview:
        """Rows [start, stop) of the variable columns as one message; empty where there are none (columns or rows)."""
        ...

    def packed_bytes(self, data: Data, start: int, stop: int) -> int:
        """Bytes of that message, before it is made; 0 on GPUs, where allocations are limited and nobody can tell."""
        ...

    def new_message(self, nbytes: int) -> Any:
        """Room for a packed message, where this backend wants it."""
        ...

    def pack(self, data: Data) -> Sequence[memoryview | list[memoryview]]:
        """All rows as read-only buffers, for staging: a view of each fixed column in schema order, then one message
        where there are variable columns, perhaps in a list of pieces. No more is copied than a small message."""
        ...

    def unpack(self, schema: Schema, rows: int, buffers: Sequence[memoryview]) -> Data:
        """The data that `pack` laid out, over the buffers given (which it keeps; copied only where not aligned)."""
        ...

    def allocate(self, schema: Schema, rows: int) -> Output:
        """Room for a result of so many rows."""
        ...
