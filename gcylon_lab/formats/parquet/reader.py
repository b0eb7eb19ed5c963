"""Reading parquet files, each rank its own rows, chunk by chunk.

Times in INT96 are days and nanoseconds, of more years than datetime64[ns] has. Arrow reads them in one unit, and what
that does not hold becomes another time. So they are read in a second unit too, and compared: all are in nanoseconds,
or, where those do not hold them, all are in microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...backends.arrow.tables import from_arrow
from ...backends.protocol.data import Columns, bounded, cut_rows
from ...backends.protocol.schema import MANY_COLUMNS
from ...errors import ReadError
from ..file_columns import index_array, require_columns
from ..filesystems import is_url
from .footer import RowGroup
from .plans import ParquetPlan, int96_columns, open_parquet, reading_parquet
from .row_choice import RowChoice, spelled_out

_CHOSEN_ROWS = 1 << 16  # at a time, where only some are kept
_VALUE_BYTES = 16  # of a decimal; of a number in a dictionary the file has fewer
_NUMBERS = ("BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE")
_NUMBER_BYTES = 10  # at the most, with what says while it is read whether one is missing
_TEXTS = (pa.string(), pa.large_string(), pa.string_view(), pa.binary())
_REPEATED = 4  # times a text stands in a row group, from which on it is decoded once
_CODE_BYTES = 4  # at the most of a row, where it refers to one of some texts
_SLACK = 4096  # headers of pages
_LEAST_LIMIT = 64 << 20  # of a page: files with smaller ones are read in any budget
_CHECKED_WITH = {"ns": ("ms",), "us": ("ms", "ns")}


def read_parquet_chunks(
    plan: ParquetPlan,
    *,
    columns: Sequence[str] | None = None,
    max_bytes: int = 32 * 1024**2,
    max_rows: int | None = None,
    choice: RowChoice | None = None,
) -> Iterator[Columns]:
    """Read what a plan gives to one rank, piece by piece.

    Parameters
    ----------
    plan : ParquetPlan
    columns : sequence of str, optional
        Only these, in this order.
    max_bytes : int
        About the largest size of a piece. A row larger than that is a piece of its own.
    max_rows : int, optional
        The most rows of a piece.
    choice : RowChoice, optional
        Which rows are given, and which of the columns.

    Yields
    ------
    Columns
        In file order; one without rows where there is nothing to read, so that the columns are known. Labels of
        categories may differ from piece to piece.

    Raises
    ------
    ReadError
        If a file cannot be read, or has no such column.
    """
    wanted = wanted_columns(plan, columns)
    kept = wanted if choice is None else choice.kept(wanted)
    any_rows = False
    for path, batch, dtypes in _batches(plan, wanted, max_bytes, max_rows, choice):
        with reading_parquet(path):
            some = batch.select(kept)
            # Of memory that holds nothing else no copy is made; many columns are brought together.
            own = len(kept) < MANY_COLUMNS and some.get_total_buffer_size() <= some.nbytes + _SLACK
            data = from_arrow(some, {**plan.dtypes, **dtypes}, share=own)
        any_rows = True
        yield from bounded(data, max_bytes, max_rows)
        del batch, some, data  # before the next rows are read
    if not any_rows:
        yield from_arrow(_empty(plan).select(kept), plan.dtypes)


def _empty(plan: ParquetPlan) -> Any:
    table = plan.schema.empty_table()
    for name, type_ in plan.folders.types.items():
        table = table.append_column(name, pa.array([], type_))
    return table


def wanted_columns(plan: ParquetPlan, columns: Sequence[str] | None) -> list[str]:
    """The columns wanted, in order; without names all but indexes without one."""
    names = [name for name in plan.schema.names if not re.fullmatch(r"__index_level_\d+__", name)]
    names += plan.folders.types
    return require_columns(plan.first, names, columns)


def _batches(
    plan: ParquetPlan, wanted: list[str], max_bytes: int, max_rows: int | None, choice: RowChoice | None
) -> Iterator[tuple[str, Any, dict[str, str]]]:
    """Tables of about half the limit at most, the other half is for the columns made of them; a file of each; and
    dtypes that its values do not tell."""
    kept: list[Any] = []
    path, nbytes, rows, dtypes, given = "", 0, 0, dict[str, str](), False
    for path_of, batch, own in _raw_batches(plan, wanted, max_bytes, choice):
        if not batch.num_rows and (kept or given):
            continue
        if rows and (
            nbytes + batch.nbytes > max_bytes // 2
            or (max_rows and rows + batch.num_rows > max_rows)
            or batch.schema != kept[0].schema
            or own != dtypes
        ):
            yield path, pa.Table.from_batches(kept), dtypes
            kept, nbytes, rows, given = [], 0, 0, True
        if not rows:  # one without rows has said of which dtypes columns are, where there are none at all
            kept, nbytes, path, dtypes = [], 0, path_of, own
        kept.append(batch)
        nbytes, rows = nbytes + batch.nbytes, rows + batch.num_rows
    if kept:
        yield path, pa.Table.from_batches(kept), dtypes


def _raw_batches(
    plan: ParquetPlan, wanted: list[str], max_bytes: int, choice: RowChoice | None
) -> Iterator[tuple[str, Any, dict[str, str]]]:
    file: _OpenFile | None = None
    dtypes: dict[str, str] = {}
    for piece in plan.pieces:
        with reading_parquet(piece.path):
            if file is None or piece.path != file.path:
                file = _OpenFile(plan, piece.path, wanted)
            most_rows = piece.stop if choice is None else _CHOSEN_ROWS
            for start, batch, coded, long in file.batches(piece.group, max_bytes, most_rows):
                low, high = max(piece.start - start, 0), min(piece.stop - start, batch.num_rows)
                if low < high:
                    first = file.first_rows[piece.group] + start
                    some = file.completed(batch.slice(low, high - low), first + low)
                    if choice is not None:
                        some, dtypes = choice.chosen(some, coded, plan.dtypes)
                    _require_digits(some, file.of_ints)
                    for part in _in_parts(some, coded, long, max_bytes // 2):
                        yield piece.path, part, dtypes
                if start + batch.num_rows >= piece.stop:
                    break


class _OpenFile:
    """A file of which some columns are read, and what it does not hold of them itself."""

    def __init__(self, plan: ParquetPlan, path: str, wanted: list[str]) -> None:
        self.path = path
        self._wanted = wanted
        self._folders = plan.folders
        self._indexes = plan.indexes.get(path, {})
        self._names = [n for n in wanted if n not in plan.folders.types and n not in self._indexes]
        self._unit = plan.int96_unit
        self._storage = plan.storage
        self._footer = footer = plan.footer(path)
        self._leaves = footer.leaves_of(self._names)
        self._numbers = {place for place in self._leaves if _is_number(footer.leaves[place])}
        self.of_ints = {leaf.path for leaf in footer.leaves if leaf.physical_type in ("INT32", "INT64")}
        self._pages = None if is_url(path) else open(path, "rb", 0)  # noqa: SIM115 -- as long as this is read
        self._most_bytes = max(_LEAST_LIMIT, (plan.storage.limit_bytes or 0) // 4)
        self._file = open_parquet(path, plan.storage, footer, self._unit)
        known = self._file.schema_arrow
        self._texts = {n for n in self._names if known.field(n).type in _TEXTS}
        self._coded: dict[tuple[str, ...], Any] = {(): self._file}
        self._times = [name for name in int96_columns(footer) if name in self._names]
        units = _CHECKED_WITH[self._unit] if self._times else ()
        self._checks = [open_parquet(path, plan.storage, footer, unit) for unit in units]
        self.first_rows = [0, *accumulate(group.rows for group in footer.groups)]

    def batches(
        self, group: int, max_bytes: int, most_rows: int
    ) -> Iterator[tuple[int, Any, tuple[str, ...], tuple[str, ...]]]:
        """Batches of a row group, the row in it at which each begins; and the columns that `_coded_texts` tells."""
        known = self._footer.groups[group]
        rows = _rows_of(known, self._leaves, self._numbers, max_bytes, most_rows)
        coded, long = self._coded_texts(known, max_bytes // max(1, min(rows, known.rows)))
        if coded not in self._coded:
            self._coded[coded] = open_parquet(self.path, self._storage, self._footer, self._unit, coded)
        how: dict[str, Any] = {"batch_size": rows, "row_groups": [group], "use_threads": False}
        checks = [check.iter_batches(columns=self._times, **how) for check in self._checks]
        start = 0
        for batch in self._coded[coded].iter_batches(columns=self._names, **how):
            _require_sound(batch, self.of_ints)
            if checks:
                _require_same_times(self.path, self._times, self._unit, batch, [next(check) for check in checks])
            yield start, batch, coded, long
            start += batch.num_rows

    def _coded_texts(self, group: RowGroup, most_bytes: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns of texts that all rows refer to, of which few different ones are checked and decoded once; and those
        of them that may be long: a few bytes in the file may be much in memory."""
        if self._pages is None:
            return (), ()
        coded, long = [], []
        for leaf in self._leaves:
            path, chunk = self._footer.leaves[leaf].path, group.chunk(leaf)
            nbytes, different = self._footer.pages(self._pages.fileno(), chunk, self._most_bytes)
            # Texts in other pages are not referred to.
            if path not in self._texts or chunk.nbytes - nbytes > _CODE_BYTES * chunk.values + _SLACK:
                continue
            if nbytes > most_bytes:
                long.append(path)
            if nbytes > most_bytes or 0 < different * _REPEATED <= chunk.values:
                coded.append(path)
        return tuple(coded), tuple(long)

    def completed(self, batch: Any, first: int) -> Any:
        """Rows of the file from a row on, with the columns that folders and metadata name."""
        rows = batch.num_rows
        named = {n: self._folders.array(self.path, n, rows) for n in self._wanted if n in self._folders.types}
        named |= {n: index_array(self._indexes[n], first, first + rows) for n in self._wanted if n in self._indexes}
        if not named:
            return batch
        arrays = [named[name] if name in named else batch.column(name) for name in self._wanted]
        return pa.RecordBatch.from_arrays(arrays, names=self._wanted)


def _require_sound(batch: Any, of_ints: set[str]) -> None:
    """Look at what pyarrow takes as it comes: bytes that are no UTF-8 for text, any number for a place, and decimals of
    too many digits. Numbers have none of these, and where all are in order Arrow's own look takes several times longer.
    At decimals of one word `_require_digits` looks, once rows are chosen.

    Raises
    ------
    pa.ArrowInvalid
    """
    batch.validate()
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        type_ = array.type
        if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_date32(type_) or not len(array):
            continue
        if pa.types.is_dictionary(type_) and not array.null_count:
            array.dictionary.validate(full=True)
            places = array.indices.to_numpy()
            if places.min() >= 0 and places.max() < len(array.dictionary):
                continue
        if not _is_of_one_word(name, array, of_ints):
            array.validate(full=True)


def _is_of_one_word(name: str, array: Any, of_ints: set[str]) -> bool:
    """Whether a column of a file is of decimals that it holds as ints, none of them missing."""
    narrow = pa.types.is_decimal128(array.type) and array.type.precision <= 18
    return narrow and name in of_ints and not array.null_count


def _require_digits(batch: Any, of_ints: set[str]) -> None:
    """Look for decimals of too many digits among those of one word.

    Raises
    ------
    pa.ArrowInvalid
    """
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if not len(array) or not _is_of_one_word(name, array, of_ints):
            continue
        words = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), 16 * array.offset)
        # Of numbers of one word the other is 0 or -1; where none is negative, one look is enough.
        most = 10**array.type.precision
        if words.view(np.uint64).max() >= most and max(int(words.max()), -int(words.min())) >= most:
            array.validate(full=True)


def _in_parts(batch: Any, coded: tuple[str, ...], long: tuple[str, ...], max_bytes: int) -> Iterator[Any]:
    """A batch with the texts in place of what refers to them; in parts of about so many bytes where some are long."""
    if not coded:
        yield batch
        return
    cuts: Iterable[tuple[int, int]] = [(0, batch.num_rows)]
    long = tuple(name for name in long if name in batch.schema.names)
    if long and batch.num_rows:
        each = np.full(batch.num_rows, -(-batch.nbytes // max(1, batch.num_rows)), np.int64)
        for name in long:
            array = batch.column(name)
            lengths = np.append(pc.binary_length(array.dictionary).to_numpy(zero_copy_only=False), 0).astype(np.int64)
            each += lengths[pc.fill_null(array.indices, len(lengths) - 1).to_numpy()]
        cuts = cut_rows(each, max_bytes)
    for start, stop in cuts:
        yield spelled_out(batch.slice(start, stop - start), coded)


def _is_number(leaf: Any) -> bool:
    return leaf.physical_type in _NUMBERS and not leaf.max_repetition_level and leaf.logical_type.type != "DECIMAL"


def _rows_of(group: RowGroup, leaves: Iterable[int], numbers: set[int], max_bytes: int, most_rows: int) -> int:
    """Rows to decode at a time, in batches of about one size: but for numbers, decoded rows are taken to be up to four
    times their size in the file, or a decimal in each column."""
    row_bytes = sum(
        _NUMBER_BYTES if leaf in numbers else max(_VALUE_BYTES, 4 * group.chunk(leaf).nbytes // max(1, group.rows))
        for leaf in leaves
    )
    most, rows = max(1, max_bytes // 2 // max(1, row_bytes)), max(1, min(group.rows, most_rows))
    return -(-rows // -(-rows // most))


def _require_same_times(path: str, columns: Iterable[str], unit: str, batch: Any, others: list[Any]) -> None:
    """Refuse rows in which a unit makes other times of those in the file.

    Parameters
    ----------
    path : str
    columns : iterable of str
        Those of `int96_columns` that the rows have.
    unit : {"ns", "us"}
    batch : pyarrow.RecordBatch
        Rows in this unit.
    others : list of pyarrow.RecordBatch
        The same rows in the units of `_CHECKED_WITH`.

    Raises
    ------
    ReadError
        Naming the column; its numbers say ``read_as``, where all times are held in another unit.
    """
    for name in columns:
        times, coarse, *fine = (_numbers(rows.column(name)) for rows in (batch, *others))
        per_ms = 10**6 if unit == "ns" else 10**3
        if (times // per_ms != coarse).any():
            more: dict[str, Any] = {"read_as": "us"} if unit == "ns" else {}
            raise ReadError(
                f"{path}: column {name!r} holds times (INT96) that datetime64[{unit}] does not",
                advice="Leave it out with columns=[...], or write it again as another type.",
                path=path,
                column=name,
                **more,
            )
        with np.errstate(over="ignore"):
            if fine and (fine[0] != times * 1000).any():
                raise ReadError(
                    f"{path}: column {name!r} holds times (INT96) beyond those of datetime64[ns], and nanoseconds, "
                    "which no one unit holds",
                    advice="Leave it out with columns=[...], or write it again as another type.",
                    path=path,
                    column=name,
                )


def _numbers(array: Any) -> npt.NDArray[np.int64]:
    leaves = [pc.fill_null(leaf.view(pa.int64()), 0).to_numpy() for leaf in _leaves(array)]
    return np.concatenate(leaves) if leaves else np.empty(0, np.int64)


def _leaves(array: Any) -> Iterator[Any]:
    type_ = array.type
    if pa.types.is_timestamp(type_):
        yield array
    elif pa.types.is_struct(type_):
        for field in array.flatten():
            yield from _leaves(field)
    elif pa.types.is_map(type_):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_nested(type_):
        yield from _leaves(array.flatten())
