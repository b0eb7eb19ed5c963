"""Sorting on the CPU: the order of rows, and rows between splitters, for numpy and Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..arrow.interop import to_frame
from ..protocol.data import Array, Columns, columns_of_planes, one_array, over_planes, segments_of
from ..protocol.schema import Column, Schema
from ..protocol.sorting import SortKey, require_sortable
from .group_kernels import between
from .keys.hashing import id_dtype
from .keys.key_groups import plain_values
from .keys.order_preserving import from_bits
from .keys.radix_sort import word_order
from .keys.scratch_pool import scratch
from .keys.sort_keys import BLOCK_ROWS, KeyWords, Words, block_rows
from .take import as_column, reorder_planes, take_planes

Int64s = npt.NDArray[np.int64]
Ids = npt.NDArray[Any]
NewArray = Callable[[int, np.dtype[Any]], npt.NDArray[Any]]

# Up to so many splitters one comparison with each is faster than a search.
_COMPARED = 6
# Of ordering: packed words, the word that is added, marks of equal rows, missing values and runs.
_ROW_BYTES = 32
_BLOCK_BYTES = 128  # temporaries of making a word, a row of a block


class PandasSorting:
    """Implements `gcylon_lab.backends.protocol.sorting.SortingBackend` for `Columns`."""

    sorts_before_sending = True

    def sort_order(self, data: Any, keys: Sequence[SortKey], *, runs: bool = False) -> Int64s:
        return sort_order(data, keys, runs=runs)

    def take(self, data: Any, rows: Ids) -> Columns:
        return take_rows(data, rows, scratch)  # rows that are sent, or a sample: not there for long

    def reorder(self, held: list[Any], order: Ids) -> Columns:
        data = held.pop()
        schema, rows = data.schema, len(order)
        if data.planes is not None and rows == data.rows:
            for segments in data.planes:
                reorder_planes(segments, order)
            each = zip(schema.variable, data.variable, strict=True)
            return columns_of_planes(schema, rows, data.planes, [_taken(*one, order) for one in each])
        arrays = list(data.arrays)
        del data
        for place, column in enumerate(schema.columns):
            arrays[place] = _taken(column, arrays[place], order)
        return Columns(schema, rows, tuple(arrays))

    def split_ids(self, data: Any, keys: Sequence[SortKey], splitters: Columns, cuts: Int64s) -> Ids:
        return split_ids(data, keys, splitters, cuts)

    def sort_scratch_bytes(self, rows: int, variable_bytes: int) -> int:
        return sort_scratch_bytes(rows, variable_bytes)


def sort_scratch_bytes(rows: int, variable_bytes: int) -> int:
    """Temporary bytes of ordering so many rows; text in several pieces is joined for it."""
    return _ROW_BYTES * rows + _BLOCK_BYTES * min(rows, block_rows(rows)) + variable_bytes


def sort_order(data: Columns, keys: Sequence[SortKey], *, runs: bool = False) -> Int64s:
    """Row numbers in sorted order; see `SortingBackend.sort_order`.

    Raises
    ------
    UnsupportedDtype
        If a key has no order.
    """
    require_sortable(data.schema, keys)
    return word_order(KeyWords(data, keys), data.rows, runs=runs)


def split_ids(data: Columns, keys: Sequence[SortKey], splitters: Columns, cuts: Int64s) -> Ids:
    """Between which splitters each row falls; see `SortingBackend.split_ids`."""
    require_sortable(data.schema, keys)
    ids = np.zeros(data.rows, id_dtype(splitters.rows + 1))
    if not splitters.rows or not data.rows:
        return ids
    between = KeyWords(splitters, keys)
    search = _Search(KeyWords(data, keys), between, cuts, splitters.rows)
    for start in range(0, data.rows, BLOCK_ROWS):
        search.fill(ids, start, min(start + BLOCK_ROWS, data.rows))
    return ids


class _Search:
    """Finds places among splitters, word by word: the next word only of rows that equal a splitter so far."""

    def __init__(self, words: KeyWords, splitters: KeyWords, cuts: Int64s, count: int) -> None:
        counts = [max(pair) for pair in zip(words.counts, splitters.counts, strict=True)]
        self._places = words.places(counts)
        self._words = words
        self._cuts = cuts
        self._count = count
        self._splitters = splitters
        self._between: dict[int, Words] = {}

    def _edges(self, step: int) -> Words:
        """A word of all splitters: made when it is asked for, as rows are rarely equal so far."""
        if step not in self._between:
            self._between[step] = self._splitters.get(self._places[step], slice(0, self._count))
        return self._between[step]

    def _words_at(self, step: int, rows: Any, first: int, last: int) -> tuple[Words, Words]:
        """Words of some rows, and of splitters [first, last), that compare with each other."""
        place = self._places[step]
        if not self._splitters.is_rest(place):
            return self._words.get(place, rows), self._edges(step)[first:last]
        edges = self._splitters.rests(place, slice(first, last))
        among = sorted(set(edges))
        return (
            self._splitters.rest_words(place, self._words.rests(place, rows), among),
            self._splitters.rest_words(place, edges, among),
        )

    def fill(self, ids: Ids, start: int, stop: int) -> None:
        """Find the ids of rows [start, stop)."""
        waiting: list[tuple[Any, int, int, int]] = [(slice(start, stop), 0, self._count, 0)]
        while waiting:
            rows, first, last, step = waiting.pop()
            if step == len(self._places):  # equal in all words: the row's number decides
                numbers = np.arange(start, stop) if isinstance(rows, slice) else rows
                ids[rows] = first + np.searchsorted(self._cuts[first:last], numbers, side="right")
                continue
            words, edges = self._words_at(step, rows, first, last)
            before = _searched(edges, words)
            ids[rows] = first + before
            for low, high in _stretches(edges):
                same = np.flatnonzero(words == edges[low])
                if len(same):
                    equal = same + start if isinstance(rows, slice) else rows[same]
                    waiting.append((equal, first + low, first + high, step + 1))


def _searched(edges: Words, words: Words) -> npt.NDArray[Any]:
    """How many edges are less than each word."""
    if len(edges) > _COMPARED:
        return np.searchsorted(edges, words)
    total: Ids = (words > edges[0]).astype(np.uint8)
    for edge in edges[1:]:
        total += words > edge
    return total


def _stretches(edges: Words) -> Iterator[tuple[int, int]]:
    """Stretches of equal edges."""
    ends = [*(np.flatnonzero(edges[1:] != edges[:-1]) + 1).tolist(), len(edges)]
    first = 0
    for last in ends:
        yield first, last
        first = last


def _taken(column: Column, array: Any, rows: Ids, new: NewArray = np.empty) -> Any:
    if not column.fixed:
        return pa.chunked_array([one_array(array).take(pa.array(rows))], type=column.arrow)
    # Numbers are in range by construction; "clip" lets numpy write to out directly instead of through a buffer.
    return np.take(array, rows, out=new(len(rows), array.dtype), mode="clip")


def take_rows(data: Columns, rows: Ids, new: NewArray = np.empty) -> Columns:
    """Rows by number, copied; ``new`` makes the arrays of fixed columns."""
    if data.schema.blocks:
        planes = []
        for block, segments in zip(data.schema.blocks, segments_of(data), strict=True):
            out = new(len(block.places) * len(rows), block.items).reshape(len(block.places), len(rows))
            take_planes(segments, rows, out)
            planes.append(out)
        each = zip(data.schema.variable, data.variable, strict=True)
        return over_planes(data.schema, len(rows), planes, [_taken(*one, rows, new) for one in each])
    arrays = tuple(_taken(c, array, rows, new) for c, array in zip(data.schema.columns, data.arrays, strict=True))
    return Columns(data.schema, len(rows), arrays)


def starts_of_equal_rows(data: Columns, keys: Sequence[SortKey]) -> Int64s:
    """Where each stretch of rows with equal keys begins; the rows are sorted."""
    words = KeyWords(data, keys)
    new = np.zeros(data.rows, np.bool_)
    new[:1] = True
    for place in words.places():
        word = words.get(place, slice(0, data.rows))
        new[1:] |= word[1:] != word[:-1]
    return np.flatnonzero(new)


def value_at(column: Column, result: Column, low: int | None, high: int | None, part: float) -> Any:
    """The value at a part of the way between two values of a column.

    Parameters
    ----------
    column, result : Column
        What the words are of, and what the value is of.
    low, high : int or None
        Words; None where the column has no value.
    part : float

    Returns
    -------
    scalar
        As an item of a pandas series; missing where there is none.
    """
    array = array_at(column, result, low, high, part)
    if result.kind == "float" and result.fixed:
        return array[0]
    return to_frame(Columns(Schema([result]), 1, (array,))).iloc[0, 0]


def array_at(column: Column, result: Column, low: int | None, high: int | None, part: float) -> Array:
    """As `value_at`, as the array of the result's column, with one row."""
    words = np.array([low or 0, high or 0], np.uint64)
    values = from_bits(words, _plain_kind(column))
    middle = between(column, values[:1], values[1:], np.array([part]))
    return as_column(result, middle, np.array([low is not None]))


def _plain_kind(column: Column) -> str:
    from ..protocol.data import empty_array

    return str(plain_values(column, empty_array(column))[0].dtype.kind)
