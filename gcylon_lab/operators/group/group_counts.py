"""How many keys rows have, as far as some of them tell; and a look at some rows of a part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache

from ...backends.protocol.data import Data
from ...backends.protocol.schema import Schema
from ...engine.exec.local_executor import LocalExecutor
from ...engine.store.chunk import Chunk
from ...engine.store.part import Part

_SPREAD = 0.8  # of the rows that have keys of which many more are found, where chance may make it so few
_SURE = 3  # standard deviations: rows with equal keys that are so many more than by chance are of keys that come often
_TAIL_UNTIL = 8  # times the rows that were looked at: further a rate of new keys that they had tells nothing
_AS_NEAR = 1 + 1e-12  # bounds of a number of groups that is guessed


def is_growing(state: float, before: float, rows: int) -> bool:
    """Whether a large state grows with most rows, which costs more than it saves."""
    return state > 4 * rows and state - before > rows // 2


def found_in(groups: float, rows: float) -> float:
    """How many of so many keys, each as often as the others, stand in so many rows."""
    if math.isinf(groups):
        return rows
    return groups * -math.expm1(-rows / groups)


def rows_until(groups: float, found: float) -> float:
    """In how many rows so many of the keys stand, fewer than there are, each as often as the others."""
    return -groups * math.log1p(-found / groups) if found < groups else math.inf


@dataclass(frozen=True, slots=True)
class KeysSeen:
    """What some rows, taken by chance, tell of the keys of all.

    Attributes
    ----------
    looked_at, found, in_half, in_quarter : int
        How many rows, and how many keys they have; and how many the first half of them has, and the first quarter.
    """

    looked_at: int
    found: int
    in_half: int
    in_quarter: int

    def found_in(self, rows: float) -> float:
        """How many keys so many rows have."""
        if rows <= 0 or self.found <= 0:
            return 0.0
        groups, share = self._pool
        pooled = found_in(groups, rows * share)
        if share == 1 or rows <= self.looked_at or not self.in_half:
            return pooled
        grown = self.found * (rows / self.looked_at) ** math.log2(self.found / self.in_half)
        # A quarter of the rows tells whether ever fewer are found, as of a pool, or as many of each doubling.
        more, before = self.found / self.in_half - 1, self.in_half / max(self.in_quarter, 1) - 1
        least = more**0.5
        grows = min(max((least - before) / max(least - more, 1e-9), 0.0), 1.0) if least > more else 0.0
        between: float = pooled ** (1 - grows) * grown**grows
        tail = self._with_tail(rows)
        return min(float(rows), (between * tail) ** 0.5 if tail else between)

    def _with_tail(self, rows: float) -> float:
        """How many keys so many rows have if some are of a pool, and of the others ever new ones come at one rate: a
        bound, as that falls in time; 0 where that is not what was seen, or too little was."""
        first, second = 2 * self.in_quarter - self.in_half, 2 * self.in_half - self.found
        if rows > _TAIL_UNTIL * self.looked_at or not first < second < 4 * first:
            return 0.0
        left = (second / first) ** 0.5 - 1  # of the pool after a quarter
        pool, quarters = first / (1 - left) ** 2, 4 * rows / self.looked_at
        rate = self.in_quarter - pool * (1 - left)
        return pool * (1 - left**quarters) + rate * quarters if rate > 0 else 0.0

    def rows_until(self, found: float, most: int) -> float:
        """In how many rows, so many at the most, so many keys stand."""
        low, high = min(found, float(most)), float(most)
        while high - low > max(1.0, high / 1000):
            middle = (low + high) / 2
            low, high = (middle, high) if self.found_in(middle) < found else (low, middle)
        return high

    def expected(self, rows: int) -> float:
        """How many keys so many rows have at the most."""
        groups, share = self._pool
        return min(float(rows), groups) if share == 1 else self.found_in(rows)

    @property
    def _pool(self) -> tuple[float, float]:
        """How many keys there are, and the share of rows that have them, each as often as the others; other rows have
        few keys, each of them so often that more rows show no more of them."""
        more = self.found / max(self.in_half, 1) - 1  # of a half again
        if 0 < more < 1:
            groups = self.in_half / (1 - more)
            share = -2 * groups * math.log(more) / self.looked_at
        else:
            groups, share = float("inf"), self.found / max(self.looked_at, 1)
        evenly = expected_groups(self.looked_at, self.found)
        uneven = share < _SPREAD or (share < 1 and self._is_uneven(evenly))
        return (groups, share) if more > 0 and uneven else (evenly, 1.0)

    def _is_uneven(self, groups: float) -> bool:
        """Whether the first half has more rows with equal keys than it would of so many keys, all as often."""
        half = self.looked_at // 2
        by_chance = max(half - found_in(groups, half), 0.0)  # rounded it may be a little less
        return half - self.in_half > by_chance + _SURE * math.sqrt(by_chance)


@lru_cache(maxsize=64)  # asked for each piece that is to come
def expected_groups(looked_at: int, found: int) -> float:
    """How many keys there are where so many rows, taken by chance, showed so many, each as often as the others."""
    if found <= 0:
        return 0.0
    if found >= looked_at:
        return float("inf")
    low, high = float(found), 1e18
    while high > low * _AS_NEAR:
        middle = (low * high) ** 0.5
        if found_in(middle, looked_at) < found:
            low = middle
        else:
            high = middle
    return high


_SAMPLES = 16
_SAMPLE_ROWS = 4096
_FEW, _NEARLY_ALL = 8, 0.99  # keys: half of the rows are taken to have as many, or half of them
_LOOKS_IN_LIMIT = 8  # what is looked at takes so much of the budget at the most


def sample_keys(work: LocalExecutor, part: Part, keys: Schema, scratch: int) -> KeysSeen:
    """Look at some rows of a part in many places.

    Parameters
    ----------
    work : LocalExecutor
    part : Part
    keys : Schema
        Key columns, as they are compared.
    scratch : int
        Bytes a row of comparing them.

    Returns
    -------
    KeysSeen
    """
    rows = part.rows
    if not rows:
        return KeysSeen(0, 0, 0, 0)
    backend, row_bytes = work.backend, part.nbytes / max(part.rows, 1)
    # Fewer rows of each place where that would take much of the budget.
    share = work.workspace.budget.limit_bytes // _LOOKS_IN_LIMIT
    length = max(1, min(_SAMPLE_ROWS, int(share / (4 * row_bytes + scratch) / _SAMPLES)))
    starts = {rows * i // _SAMPLES for i in range(_SAMPLES)} if rows > _SAMPLES * length else {0}
    length = length if len(starts) > 1 else rows
    places = part.places(starts)
    looks = sum(min(length, chunk.rows - start) for chunk, inside in places for start in inside)
    held_row_bytes = 2 * (row_bytes if keys.variable else keys.row_bytes)
    read_back = max(chunk.loaded_bytes(keys.names) for chunk in part.chunks)
    work.expect_now(looks * held_row_bytes + max(looks * scratch, read_back))
    pieces: list[Data] = []
    with ExitStack() as held:
        if not keys.variable:  # their bytes are known: nothing is evicted while there are views of it
            held.enter_context(work.claim(looks * 2 * keys.row_bytes))
        for chunk, inside in places:
            pieces += _looked_at(work, chunk, inside, length, keys, held)
        whole = backend.concat(pieces)
        del pieces, places, chunk  # chunks that are evicted now shall be free
        with work.claim(whole.rows * scratch):
            names, looked_at = list(keys.names), whole.rows
            found = backend.count_distinct(whole, names)
            if found < _FEW or found > _NEARLY_ALL * looked_at:  # it is known what some of them have
                return KeysSeen(looked_at, found, min(found, looked_at // 2), min(found, looked_at // 4))
            some = (backend.slice(whole, 0, looked_at // parts) for parts in (2, 4))
            return KeysSeen(looked_at, found, *(backend.count_distinct(one, names) for one in some))


def _looked_at(
    work: LocalExecutor, chunk: Chunk, starts: Sequence[int], length: int, schema: Schema, held: ExitStack
) -> list[Data]:
    """Keys of some rows, from so many places of a chunk: copies where its rows are not in memory."""
    backend, pieces = work.backend, []
    with chunk.load(work.workspace, schema.names) as keys:
        for start in starts:
            piece = backend.cast(backend.slice(keys, start, min(chunk.rows, start + length)), schema)
            if schema.variable:
                held.enter_context(work.claim(2 * piece.nbytes))
            pieces.append(backend.concat([piece]) if schema.variable or chunk.tier != "device" else piece)
    return pieces
