"""Order statistics of a whole column, without a sort: all ranks narrow down where the value lies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..profiling import span
from ..tables.order_bits import Words, bin_width, histogram
from ..tables.schema import Label
from .local import LocalWork
from .operation import Operation
from .part import Part
from .votes import VoteKind

Int64s = npt.NDArray[np.int64]

_BINS = 4096
_FEW = 4096  # so many candidates in all are sent to all ranks
_ALL = (1 << 64) - 1
_WORD_ROW_BYTES = 32


@dataclass(frozen=True, slots=True)
class Found:
    """Order statistics of a column.

    Attributes
    ----------
    count : int
        How many values it has.
    words : dict of int to int
        By position among them: the value's word (see `gcylon_lab.tables.order_bits`).
    """

    count: int
    words: dict[int, int]


def quantile_positions(count: int, q: float) -> tuple[int, int, float]:
    """The positions around a quantile of so many values, and how far it is from the first to the second."""
    at = q * (count - 1)
    low = min(math.floor(at), max(count - 1, 0))
    return low, min(low + 1, count - 1), at - low


def select_words(operation: Operation, work: LocalWork, part: Part, name: Label, quantiles: Sequence[float]) -> Found:
    """Collective: all ranks call it. Find the values around quantiles of a column.

    Each pass over the rows counts how many lie in each part of a range; the part that holds the position is the
    next range, until few enough are left to be looked at by all.
    """
    words = _ColumnWords(operation, work, part, name)

    def wanted(count: int) -> set[int]:
        return {place for q in quantiles for place in quantile_positions(count, q)[:2]}

    return find_words(operation, words, wanted)


def find_words(
    operation: Operation, words_here: Callable[[], Iterator[Words]], positions: Callable[[int], set[int]]
) -> Found:
    """Collective: all ranks call it. Find the words at some positions among those of all ranks, in their order.

    Parameters
    ----------
    operation : Operation
        Opened.
    words_here : callable
        Gives this rank's words, block by block, as often as it is called.
    positions : callable
        Takes how many words there are, and gives the positions; not called where there are none.
    """
    search = _Search(operation, words_here)
    (counts,) = search.count([(0, _ALL)])
    total = int(counts.sum())
    if not total:
        return Found(0, {})
    wanted = positions(total)
    ranges = {place: _narrowed(0, _ALL, counts, place) for place in wanted}
    words: dict[int, int] = {}
    while ranges:
        for place, (low, high, _, _) in list(ranges.items()):
            if low == high:
                words[place] = low
                del ranges[place]
        few = {(low, high) for low, high, _, held in ranges.values() if held <= _FEW}
        if few:
            values = search.gather(sorted(few))
            for place, (low, high, before, _) in list(ranges.items()):
                if (low, high) in values:
                    words[place] = int(values[low, high][place - before])
                    del ranges[place]
        many = sorted({(low, high) for low, high, _, _ in ranges.values()})
        if many:
            found = dict(zip(many, search.count(many), strict=True))
            for place, (low, high, before, _) in list(ranges.items()):
                ranges[place] = _narrowed(low, high, found[low, high], place, before)
    return Found(total, words)


def _narrowed(low: int, high: int, counts: Int64s, place: int, before: int = 0) -> tuple[int, int, int, int]:
    """The part of a range that holds a position: its ends, how many values are before it, and how many in it."""
    ends = before + np.cumsum(counts)
    at = int(np.searchsorted(ends, place, side="right"))
    width = bin_width(low, high, _BINS)
    first = low + at * width
    return first, min(high, first + width - 1), int(ends[at] - counts[at]), int(counts[at])


class _Search:
    """Passes over words on all ranks."""

    def __init__(self, operation: Operation, words_here: Callable[[], Iterator[Words]]) -> None:
        self._operation = operation
        self._words = words_here

    def count(self, ranges: Sequence[tuple[int, int]]) -> list[Int64s]:
        """Collective: all ranks call it. How many words lie in each part of each range, over all ranks."""
        counts = [np.zeros(_BINS, np.int64) for _ in ranges]
        for words in self._words():
            for held, (low, high) in zip(counts, ranges, strict=True):
                held += histogram(words, low, high, _BINS)
        # A rank that could not count tells in this vote: what follows it cannot fail.
        self._operation.vote(VoteKind.COUNT, (len(ranges),))
        everyone = self._operation.workspace.transport.agree(np.concatenate(counts))
        return np.split(everyone.sum(axis=0), len(ranges))

    def gather(self, ranges: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Words]:
        """Collective: all ranks call it. The words of all ranks in each range, in order."""
        parts: list[list[Words]] = [[] for _ in ranges]
        for words in self._words():
            for held, (low, high) in zip(parts, ranges, strict=True):
                held.append(words[(words >= np.uint64(low)) & (words <= np.uint64(high))])
        mine = np.concatenate([words for held in parts for words in held] or [np.empty(0, np.uint64)])
        self._operation.vote(VoteKind.COUNT, (len(ranges),))
        everyone = self._operation.workspace.transport.share(mine.tobytes())
        both = np.sort(np.frombuffer(b"".join(everyone), np.uint64))
        return {
            (low, high): both[np.searchsorted(both, np.uint64(low)) : np.searchsorted(both, np.uint64(high), "right")]
            for low, high in ranges
        }


class _ColumnWords:
    """The words of a column's values on this rank, piece by piece."""

    def __init__(self, operation: Operation, work: LocalWork, part: Part, name: Label) -> None:
        self._work = work
        self._part = part
        self._name = name
        self._schema = operation.schema.select([name])

    def __call__(self) -> Iterator[Words]:
        work = self._work
        row_bytes = self._part.nbytes / max(self._part.rows, 1)
        rows = work.piece_rows(row_bytes, _WORD_ROW_BYTES)
        at_once = min(rows, self._part.rows) * (row_bytes + _WORD_ROW_BYTES)
        work.expect(at_once + self._part.largest_staged_bytes)
        for piece in work.pieces(self._part, self._schema, rows):
            with work.claim(piece.rows * _WORD_ROW_BYTES), span("select", "algorithm", bytes=piece.nbytes):
                yield work.backend.order_words(piece, self._name)
