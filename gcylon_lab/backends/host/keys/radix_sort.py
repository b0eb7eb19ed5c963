"""The order of rows by their key words: sorted as plain numbers, each of some bits of the words and the row number.

Sorting plain numbers in place is several times as fast as sorting row numbers by what they refer to, and it is
stable, as the row number decides last. Rows that the bits leave equal are sorted again, by the bits that come next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .sort_keys import BLOCK_ROWS, KeyWords, Rows, Words

Int64s = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]

_BITS = 64
# numpy sorts 16 bits at a time by counting. In a block that stays in the cache that brings numbers close to their
# places, and insertion does the rest: a fourth of the time of a quicksort, on numbers that are spread over their range.
_BLOCK = 65536
_DIGIT_BITS = 16
_LEAST = 4096  # a quicksort of fewer is as fast
_SAMPLED = 512
_MOST_PAIRS = 64  # of so many: about 32 numbers of a block have one digit then


@dataclass(frozen=True, slots=True)
class _Place:
    """Which bits come next: of the words from ``word`` on; of that one the lowest ``left`` bits above ``low``."""

    word: int = 0
    low: int = 0
    left: int = _BITS


@dataclass(frozen=True, slots=True)
class _Runs:
    """Stretches of the order whose rows have been equal so far, and what comes next for them."""

    starts: Int64s
    stops: Int64s
    place: _Place


def word_order(words: KeyWords, rows: int, *, runs: bool = False) -> Int64s:
    """Row numbers in the order of the words, those of equal rows ascending.

    Parameters
    ----------
    words : KeyWords
    rows : int
    runs : bool, default False
        Whether the rows are a few sorted runs.
    """
    if not rows:
        return np.empty(0, np.int64)
    places = words.places()
    order, equal = _sorted(words, places, slice(0, rows), None, _Place(), merge=runs)
    waiting = list(_equal_runs(equal, None))
    while waiting:
        some = waiting.pop()
        if len(some.starts) == 1:
            where: Any = slice(int(some.starts[0]), int(some.stops[0]))
            groups = None
        else:
            lengths = some.stops - some.starts
            groups = np.repeat(np.arange(len(lengths)), lengths)
            where = np.arange(len(groups)) + np.repeat(some.starts - (np.cumsum(lengths) - lengths), lengths)
        inner = order[where]
        inside, equal = _sorted(words, places, inner, groups, some.place)
        order[where] = inner[inside]
        waiting += _equal_runs(equal, where)
    return order


@dataclass(frozen=True, slots=True)
class _Equal:
    """Which neighbours in an order were equal in all bits used, and the bits that come next; None where none do."""

    neighbours: npt.NDArray[np.bool_] | None
    place: _Place


def _sorted(
    words: KeyWords,
    places: list[tuple[int, int]],
    rows: Rows,
    groups: Int64s | None,
    place: _Place,
    *,
    merge: bool = False,
) -> tuple[Int64s, _Equal]:
    """The order of some rows by as many bits as fit into a number, within groups that are in order already."""
    count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
    row_bits = max(1, (count - 1).bit_length())
    packed, used, place, complete = _packed(words, places, rows, groups, place, _BITS - row_bits)
    if packed is None:
        return np.arange(count), _Equal(None, place)
    packed <<= np.uint64(row_bits)
    for start in range(0, count, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, count)
        packed[start:stop] |= np.arange(start, stop, dtype=np.uint64)
    if merge:
        packed.sort(kind="stable")
    else:
        sort_numbers(packed, used + row_bits, row_bits)
    equal = None
    if not complete:
        equal = (packed[1:] ^ packed[:-1]) < np.uint64(1 << row_bits)
    packed &= np.uint64((1 << row_bits) - 1)
    return packed.view(np.int64), _Equal(equal, place)


def _packed(
    words: KeyWords, places: list[tuple[int, int]], rows: Rows, groups: Int64s | None, place: _Place, room: int
) -> tuple[Words | None, int, _Place, bool]:
    """The next bits of the words, at most ``room``, and how many; where they end, and whether no more decide."""
    total: Words | None = None
    used = 0
    if groups is not None:
        total = groups.astype(np.uint64)
        used = int(groups[-1]).bit_length()
    fresh = used
    while place.word < len(places) and used < room:
        word = words.get(places[place.word], rows)
        low, left = place.low, place.left
        if left == _BITS:
            low = int(word.min())
            left = (int(word.max()) - low).bit_length()
            if left > room - used and used > fresh and words.is_rest(places[place.word]):
                break  # its bits mean nothing to other rows, so it is used whole; with fewer rows there is room
        if low:
            word -= np.uint64(low)
        if left < _BITS:
            word &= np.uint64((1 << left) - 1)
        taken = min(left, room - used)
        if taken:
            word >>= np.uint64(left - taken)
            if total is None:
                total = word
            else:
                total <<= np.uint64(taken)
                total |= word
        used += taken
        place = _Place(place.word + 1) if taken == left else _Place(place.word, low, left - taken)
    complete = place.word >= len(places)
    return (None, used, place, True) if used == fresh and complete else (total, used, place, complete)


def _equal_runs(equal: _Equal, where: Any) -> Iterator[_Runs]:
    """Runs of equal neighbours, few enough in one to be sorted together; ``where`` is their place in the order."""
    if equal.neighbours is None or not equal.neighbours.any():
        return
    steps = np.diff(np.concatenate(([False], equal.neighbours, [False])).view(np.int8))
    starts, lasts = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    del steps
    ends = np.cumsum(lasts - starts + 1)
    if isinstance(where, slice):
        starts, lasts = starts + where.start, lasts + where.start
    elif where is not None:
        starts, lasts = where[starts], where[lasts]
    first = 0
    while first < len(starts):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK_ROWS, side="right")))
        yield _Runs(starts[first:last], lasts[first:last] + 1, equal.place)
        first = last


def sort_numbers(numbers: Numbers, bits: int, low_bits: int) -> None:
    """Sort in place.

    Parameters
    ----------
    numbers : ndarray of uint64
        Different from each other.
    bits : int
        All are below 2**bits.
    low_bits : int
        So many of the lowest bits ascend already in the order given.
    """
    if len(numbers) < _LEAST:
        numbers.sort()
        return
    complete = bits - low_bits <= _DIGIT_BITS  # one digit has all that is to be sorted by
    shift = np.uint64(low_bits if complete else bits - _DIGIT_BITS)
    for start in range(0, len(numbers), _BLOCK):
        block = numbers[start : start + _BLOCK]
        if complete:
            _by_digit(block, shift)
        elif _is_spread(block, shift):
            _by_digit(block, shift)
            block.sort(kind="stable")  # which takes little on what is nearly sorted
        else:
            block.sort()
    if len(numbers) > _BLOCK:
        numbers.sort(kind="stable")  # which merges the blocks


def _by_digit(block: Numbers, shift: np.uint64) -> None:
    block[:] = block.take(np.argsort((block >> shift).astype(np.uint16), kind="stable"))


def _is_spread(block: Numbers, shift: np.uint64) -> bool:
    """Whether few numbers share a digit, by the pairs among some of them."""
    digits = np.sort(block[:: max(1, len(block) // _SAMPLED)] >> shift)
    return int(np.count_nonzero(digits[1:] == digits[:-1])) < _MOST_PAIRS
