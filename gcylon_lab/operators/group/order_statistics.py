"""Order statistics of a whole column, without a sort: all ranks narrow down where the value lies."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...backends.host.keys.order_preserving import bin_width, histogram
from ...backends.protocol.data import Data, Words
from ...backends.protocol.schema import Label, Schema
from ...comm.single import SingleTransport
from ...comm.transport import Transport
from ...engine.exec.agreement import AgreementKind
from ...engine.exec.local_executor import LocalExecutor
from ...engine.exec.operation import Operation
from ...engine.store.part import Part
from ...engine.store.views import view_of
from ...profiling import span

Int64s = npt.NDArray[np.int64]

_BINS = 4096  # of a range, at the most
_LEAST_BINS = 128  # with fewer, columns take turns: a pass would narrow a range down by too little
_BINS_EVER = 16
_WORDS_OF_BINS = 8  # as many numbers as counts are held of words, so that a pass less is needed
_ALL = (1 << 64) - 1
_WORD_ROW_BYTES = 32
_MOST_COLUMNS = 16
_CACHED_ROWS = 1 << 16
_COUNTS_IN_LIMIT = 8  # counts take so much of the budget at the most, and what other ranks send as much again
_COUNTS_IN_FREE = 4

Range = tuple[int, int, int]  # of which list of words, from where, up to where
# Blocks of words of some lists on this rank, each with the number of its list.
Blocks = Callable[[Collection[int]], Iterator[tuple[int, Words]]]


@dataclass(frozen=True, slots=True)
class Found:
    """Order statistics of a column.

    Attributes
    ----------
    count : int
        How many values it has.
    words : dict of int to int
        By position among them: the value's word (see `gcylon_lab.backends.host.keys.order_preserving`).
    """

    count: int
    words: dict[int, int]


def quantile_positions(count: int, q: float) -> tuple[int, int, float]:
    """The positions around a quantile of so many values, and how far it is from the first to the second."""
    at = q * (count - 1)
    low = min(math.floor(at), max(count - 1, 0))
    return low, min(low + 1, count - 1), at - low


def select_words(
    work: LocalExecutor, part: Part, names: Sequence[Label], quantiles: Sequence[float], *, here: bool = False
) -> list[Found]:
    """Collective: all ranks call it. Find the values around quantiles of columns, several columns at a time; or
    ``here``, which is no collective: among this rank's rows only.

    Each pass over the rows counts how many lie in each part of a range; the part that holds the position is the
    next range, until few enough are left to be looked at by all.
    """
    budget = work.workspace.budget
    room = min(budget.limit_bytes // _COUNTS_IN_LIMIT, budget.remaining_bytes // _COUNTS_IN_FREE)
    ranks = _Ranks(work.operation, here=here)
    counts = ranks.least(room) // 8
    ranges = 2 * len(quantiles)  # of a column, at the most
    at_once = max(1, min(_MOST_COLUMNS, counts // (ranges * _LEAST_BINS)))
    found: list[Found] = []

    def wanted(count: int) -> set[int]:
        return {place for q in quantiles for place in quantile_positions(count, q)[:2]}

    for start in range(0, len(names), at_once):
        some = names[start : start + at_once]
        words = _ColumnWords(work, view_of(work.workspace, part, some), work.operation.schema.select(some))
        used = min(counts, max(ranges * len(some), ranks.size) * _BINS * _WORDS_OF_BINS)
        with work.claim(2 * used * 8):
            found += _find(ranks, len(some), words, wanted, used)
    return found


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

    def blocks(lists: Collection[int]) -> Iterator[tuple[int, Words]]:
        return ((0, words) for words in words_here())

    return _find(_Ranks(operation), 1, blocks, positions, _BINS * operation.size)[0]


class _Ranks:
    """The ranks among whose rows is searched: all, or this one alone."""

    def __init__(self, operation: Operation, *, here: bool = False) -> None:
        self._operation = None if here else operation
        self.transport: Transport = SingleTransport() if here else operation.workspace.transport
        self.size = 1 if here else operation.size

    def least(self, number: int) -> int:
        """Collective: all of them call it. The least of their numbers; a rank that fails tells it here."""
        return (
            number
            if self._operation is None
            else int(self._operation.agree(AgreementKind.COUNT, (number,))[:, 0].min())
        )


def _find(ranks: _Ranks, lists: int, blocks: Blocks, positions: Callable[[int], set[int]], counts: int) -> list[Found]:
    """Collective: all ranks call it. As `find_words`, in several lists of words at once, with so many counts."""
    search = _Search(ranks, blocks)
    bins = _bins(counts, lists, ranks.size)
    ends = search.ends(lists)
    found = [Found(total, {}) for total, _, _ in ends]
    ranges = {
        (one, place): (*_around(low, high, bins), 0, total)
        for one, (total, low, high) in enumerate(ends)
        for place in (positions(total) if total else ())
    }
    while True:
        for (one, place), (low, high, _, _) in list(ranges.items()):
            if low == high:
                found[one].words[place] = low
                del ranges[one, place]
        if not ranges:
            return found
        held = {(one, low, high): count for (one, _), (low, high, _, count) in ranges.items()}
        bins = _bins(counts, len(held), ranks.size)
        most = max(bins // 2, counts // (2 * len(held)))
        few = sorted(one for one, count in held.items() if count <= most)
        values, counted = search.look(few, sorted(held.keys() - few), bins)
        for (one, place), (low, high, before, _) in list(ranges.items()):
            if (one, low, high) in values:
                found[one].words[place] = int(values[one, low, high][place - before])
                del ranges[one, place]
            else:
                ranges[one, place] = _narrowed(low, high, counted[one, low, high], place, before)


def _bins(counts: int, ranges: int, size: int) -> int:
    """In how many parts each of some ranges is cut: a power of two, so that the parts of words are told by shifts."""
    most = counts // max(ranges, size)
    return min(_BINS, max(_BINS_EVER, 1 << (most.bit_length() - 1) if most else 0))


def _around(low: int, high: int, bins: int) -> tuple[int, int]:
    """A range that holds two words and all between them, of which each part is a power of two."""
    if low == high:
        return low, high
    shift = max(0, (high - low).bit_length() - bins.bit_length() + 1)
    first = low >> shift << shift
    if high - first >= bins << shift:
        shift += 1
        first = low >> shift << shift
    first = max(0, min(first, _ALL + 1 - (bins << shift)))
    return first, min(first + (bins << shift) - 1, _ALL)


def _narrowed(low: int, high: int, counts: Int64s, place: int, before: int = 0) -> tuple[int, int, int, int]:
    """The part of a range that holds a position: its ends, how many values are before it, and how many in it."""
    ends = before + np.cumsum(counts)
    at = int(np.searchsorted(ends, place, side="right"))
    width = bin_width(low, high, len(counts))
    first = low + at * width
    return first, min(high, first + width - 1), int(ends[at] - counts[at]), int(counts[at])


class _Search:
    """Passes over words on all ranks."""

    def __init__(self, ranks: _Ranks, blocks: Blocks) -> None:
        self._ranks = ranks
        self._blocks = blocks

    def ends(self, lists: int) -> list[tuple[int, int, int]]:
        """Collective: all ranks call it. One pass: of each list how many words all ranks have, the least and the
        greatest."""
        mine = np.zeros((lists, 3), np.uint64)
        mine[:, 1] = _ALL
        for one, words in self._blocks(range(lists)):
            if len(words):
                mine[one] = mine[one, 0] + len(words), min(mine[one, 1], words.min()), max(mine[one, 2], words.max())
        self._ranks.least(lists)  # a rank that could not look tells in this agreement
        every = self._ranks.transport.agree(mine.view(np.int64).ravel()).reshape(-1, lists, 3).view(np.uint64)
        totals, low, high = every[:, :, 0].sum(axis=0), every[:, :, 1].min(axis=0), every[:, :, 2].max(axis=0)
        return list(zip(totals.tolist(), low.tolist(), high.tolist(), strict=True))

    def look(
        self, few: Sequence[Range], many: Sequence[Range], bins: int
    ) -> tuple[dict[Range, Words], dict[Range, Int64s]]:
        """Collective: all ranks call it. One pass: the words of all ranks in ranges of few, in order, and of ranges of
        many how many lie in each of so many parts, over all ranks."""
        parts: list[list[Words]] = [[] for _ in few]
        counts = [np.zeros(bins, np.int64) for _ in many]
        for one, words in self._blocks({one for one, _, _ in (*few, *many)}):
            for held, (which, low, high) in zip(parts, few, strict=True):
                if which == one:
                    held.append(words[(words >= np.uint64(low)) & (words <= np.uint64(high))])
            for count, (which, low, high) in zip(counts, many, strict=True):
                if which == one:
                    count += histogram(words, low, high, bins)
        # A rank that could not look tells in this agreement: what follows it cannot fail.
        self._ranks.least(len(few))
        return self._gathered(few, parts), self._counted(many, counts)

    def _counted(self, many: Sequence[Range], counts: list[Int64s]) -> dict[Range, Int64s]:
        transport = self._ranks.transport
        # What all ranks send takes no more than the counts of all ranges.
        together = max(1, len(many) // self._ranks.size)
        everyone: list[Int64s] = []
        for start in range(0, len(many), together):
            some = counts[start : start + together]
            everyone += np.split(transport.agree(np.concatenate(some)).sum(axis=0), len(some))
        return dict(zip(many, everyone, strict=True))

    def _gathered(self, few: Sequence[Range], parts: list[list[Words]]) -> dict[Range, Words]:
        if not few:
            return {}
        mine = [np.concatenate(held) if held else np.empty(0, np.uint64) for held in parts]
        lengths = np.array([len(words) for words in mine], np.int64)
        transport = self._ranks.transport
        all_lengths = transport.agree(lengths)
        texts = transport.share(np.concatenate(mine).tobytes())
        found: list[list[Words]] = [[] for _ in few]
        for text, ends in zip(texts, np.cumsum(all_lengths, axis=1), strict=True):
            for held, words in zip(found, np.split(np.frombuffer(text, np.uint64), ends[:-1]), strict=True):
                held.append(words)
        return {one: np.sort(np.concatenate(held)) for one, held in zip(few, found, strict=True)}


class _ColumnWords:
    """The words of columns' values on this rank, piece by piece."""

    def __init__(self, work: LocalExecutor, part: Part, schema: Schema) -> None:
        self._work = work
        self._part = part
        self._schema = schema

    def __call__(self, lists: Collection[int]) -> Iterator[tuple[int, Words]]:
        """Of the columns at some places."""
        work = self._work
        row_bytes = self._part.nbytes / max(self._part.rows, 1)
        rows = work.piece_rows(row_bytes, _WORD_ROW_BYTES, alone=2)
        work.expect_pieces(self._part, self._schema, rows, _WORD_ROW_BYTES)
        for piece in work.pieces(self._part, self._schema, rows):
            for one in sorted(lists):
                with work.claim(piece.rows * _WORD_ROW_BYTES), span("select", "algorithm", bytes=piece.nbytes):
                    for words in self._words(piece, self._schema.names[one]):
                        yield one, words
            del piece  # before the next one is read back

    def _words(self, piece: Data, name: Label) -> Iterator[Words]:
        """Those of a column; on CPU engines of so few rows at once that what is made of them stays in the cache."""
        backend = self._work.backend
        column = backend.select(piece, [name])
        rows = column.rows if backend.on_gpu else _CACHED_ROWS
        for start in range(0, column.rows, max(rows, 1)):
            yield backend.order_words(backend.slice(column, start, min(start + rows, column.rows)), name)
