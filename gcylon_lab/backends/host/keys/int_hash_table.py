"""Finding equal 64-bit numbers: a table of one side's, in which the other side's are looked up.

Numbers of a small range are places in the table, or in a list of its rows. Others are first put into buckets by a hash,
so that the hash table of one bucket stays in the second-level cache while all of its numbers are looked up: on 5
million rows that takes a third of the time of one table for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Int64s = npt.NDArray[np.int64]

# Another multiplier than that of `hashing`, which has decided already which rows are on this rank.
_SPREAD = np.uint64(0xA24BAED4963EE407)
_BUCKET_ROWS = 12_000
_MOST_BITS = 12
_BLOCK_ROWS = 65536
_TABLE_ROWS = 1 << 10  # a range up to here is small, however few numbers there are

# Of a table, a number: the number in its bucket's order, its place before that, its id, and a hash table's slots.
TABLE_ROW_BYTES = 8 + 8 + 8 + 48
# As many places of a range a number are taken in place of a hash table's slots, which are as large.
_PLACES = 48 // 4
# A table of more places is not made, as to fill it takes longer than to look up: a number, however few there are, and
# a row that is looked up.
_MOST_PLACES, _FEW_PLACES, _PLACES_A_ROW = 64, 1 << 20, 8
# Of looking up, a number: its place, itself in the buckets' order, its id there and in the order given.
FIND_ROW_BYTES = 8 + 8 + 8 + 8 + 2


class CodeTable:
    """Ids of numbers: equal for equal numbers, in [0, count); some ids may stand for no number.

    Parameters
    ----------
    codes : ndarray of int64, shape (rows,)
    places_bytes : int, default 0
        Room for the places of a wider range; see `places_bytes`.

    Attributes
    ----------
    count : int
    """

    def __init__(self, codes: Int64s, places_bytes: int = 0) -> None:
        self._codes: Int64s | None = codes
        self._low = int(codes.min()) if len(codes) else 0
        self.count = int(codes.max()) - self._low + 1 if len(codes) else 0
        self._buckets: list[pd.Index[Any]] = []
        self._rows: npt.NDArray[np.int32] | None = None  # by place in the range; the last for what is outside
        if self.count <= max(2 * len(codes), _TABLE_ROWS):
            return
        if self.count <= max(_PLACES * len(codes), places_bytes // 4) and len(codes) < 1 << 31:
            self._rows = np.full(self.count + 1, -1, np.int32)
            self._rows[codes - self._low] = np.arange(len(codes), dtype=np.int32)
            self.count = len(codes)
        else:
            self._hash(codes)

    @property
    def by_row(self) -> bool:
        """Whether an id is a row that has the number."""
        return self._rows is not None

    @property
    def in_buckets(self) -> bool:
        """Whether numbers that are looked up are put into buckets first: few at a time take as long as many."""
        return len(self._buckets) > 1

    def own(self) -> tuple[Int64s, Int64s | None]:
        """The ids of the table's own numbers, to be asked for once.

        Returns
        -------
        ndarray of int64, ndarray of int64 or None
            Ids in order, and the place of each number in the order given; None where that is the order of ids.
        """
        codes, self._codes = self._codes, None
        if not self._buckets:
            assert codes is not None
            return (codes - self._low if self._rows is None else self.find(codes)), None
        ids, places = self._ids, self._places
        del self._ids, self._places
        return ids, places

    def ids(self) -> Int64s:
        """The ids of the table's own numbers in the order given, to be asked for once."""
        ids, places = self.own()
        if places is None:
            return ids
        result = np.empty(len(ids), np.int64)
        result[places] = ids
        return result

    def find(self, codes: Int64s) -> Int64s:
        """The ids of other numbers; -1 for those that the table does not have."""
        if not self._buckets:
            ids: Int64s = codes - np.int64(self._low)
            places = ids.view(np.uint64)  # what is too low is beyond too
            if self._rows is not None:
                np.minimum(places, np.uint64(len(self._rows) - 1), out=places)
                return self._rows.take(ids).astype(np.int64)
            outside = places >= np.uint64(self.count)
            if outside.any():
                ids[outside] = -1
            return ids
        if len(self._buckets) == 1:
            return _found(self._buckets[0], codes, 0)
        order, ordered, edges = _in_buckets(codes, self._bits)
        found = np.empty(len(codes), np.int64)
        for index, first, (start, stop) in zip(self._buckets, self._first, _ranges(edges), strict=True):
            if start < stop:
                found[start:stop] = _found(index, ordered[start:stop], first)
        del ordered
        result = np.empty(len(codes), np.int64)
        result[order] = found
        return result

    def _hash(self, codes: Int64s) -> None:
        self._codes = None
        self._bits = min(_MOST_BITS, max(0, (len(codes) // _BUCKET_ROWS).bit_length()))
        self._places, ordered, edges = _in_buckets(codes, self._bits)
        self._ids = np.empty(len(codes), np.int64)
        self._first: list[int] = []
        count = 0
        for start, stop in _ranges(edges):
            index: pd.Index[Any] = pd.Index(ordered[start:stop], copy=False)
            ids: Any = np.arange(stop - start)
            if not index.is_unique:  # which builds the hash table, and keeps it
                ids, distinct = pd.factorize(index)
                index = pd.Index(distinct, copy=False)
                _ = index.is_unique
                order = np.argsort(ids.astype(np.uint16 if len(index) <= 1 << 16 else np.int64), kind="stable")
                ids = ids[order]
                self._places[start:stop] = self._places[start:stop][order]
            self._ids[start:stop] = ids + count
            self._buckets.append(index)
            self._first.append(count)
            count += len(index)
        self.count = count


def places_bytes(codes: Int64s, looked_up: int) -> int:
    """What the places of a range take beyond a hash table's slots, where to look up so many numbers there pays; else
    0."""
    if not len(codes):
        return 0
    count = int(codes.max()) - int(codes.min()) + 1
    wide = _PLACES * len(codes) < count <= max(_MOST_PLACES * len(codes), _FEW_PLACES, _PLACES_A_ROW * looked_up)
    return 4 * (count + 1) if wide and count > _TABLE_ROWS else 0


def _found(index: pd.Index[Any], codes: Int64s, first: int) -> Int64s:
    ids: Int64s = index.get_indexer(pd.Index(codes, copy=False)).astype(np.int64, copy=False)
    if first:
        ids[ids >= 0] += first
    return ids


def _ranges(edges: list[int]) -> Iterator[tuple[int, int]]:
    return zip(edges[:-1], edges[1:], strict=True)


def _in_buckets(codes: Int64s, bits: int) -> tuple[Int64s, Int64s, list[int]]:
    """Places of numbers in the order of their buckets, the numbers in it, and where buckets begin and end."""
    if not bits:
        return np.arange(len(codes)), codes, [0, len(codes)]
    shift = np.uint64(64 - bits)
    buckets = np.empty(len(codes), np.uint8 if bits <= 8 else np.uint16)
    for start in range(0, len(codes), _BLOCK_ROWS):
        block = codes[start : start + _BLOCK_ROWS].view(np.uint64)
        buckets[start : start + len(block)] = (block * _SPREAD) >> shift
    places = np.argsort(buckets, kind="stable")  # a radix sort for so small numbers
    edges = np.concatenate(([0], np.cumsum(np.bincount(buckets, minlength=1 << bits))))
    return places, np.take(codes, places), edges.tolist()


def stable_order(ids: Int64s, count: int) -> Int64s:
    """The order that sorts ids in [0, count), keeping that of equal ones: radix sorts of 16 bits each."""
    order = np.argsort(ids.astype(np.uint16), kind="stable")
    for shift in range(16, max(count - 1, 1).bit_length(), 16):
        digits = (np.take(ids, order) >> shift).astype(np.uint16)
        order = np.take(order, np.argsort(digits, kind="stable"))
    return order
