"""A hash table in device memory for joins by one key of 64 bits, which is made once for all that is looked up in it."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np

from ..columns.transfer import Arriving, uploaded
from .join_source import SOURCE, THREADS, TILE_ROWS

# Of 1.6 slots a row, which are 8 bytes each, five of eight are in use: longer ways to a key are rare then.
_SLOTS_A_ROW = 1.6
# Rows that repeat a key are found by halving a list of them. Where they are many libcudf, which keeps all rows of a key
# beside each other, is the better one.
_MOST_REPEATED, _REPEATED_SHARE = 1 << 20, 16
_RANGE_BLOCKS = 1024

TABLE_ROW_BYTES = 16  # slots, and the list of repeated keys while it is put in order
FOUND_ROW_BYTES = 4 + 1  # what was found, and of each tile how many pairs it makes


class JoinTable:
    """Keys of rows of which few repeat another's.

    Parameters
    ----------
    keys : cupy array of uint64, shape (rows,)
        At least one; kept. Equal keys have equal bits.

    Attributes
    ----------
    usable : bool
        Whether few keys are repeated, and their hashes are spread evenly; nothing can be looked up otherwise.
    repeated : int
        How many rows have a key that another row has, where it is usable.
    """

    def __init__(self, keys: Any) -> None:
        self._keys, rows = keys, int(keys.size)
        self._most = min(_MOST_REPEATED, max(64, rows // _REPEATED_SHARE))
        slots = int(rows * _SLOTS_A_ROW) + 1
        self._spread = spread_over(slots, *_hash_range(keys))
        self._slots = cupy.empty(slots, np.uint64)
        self._slots.data.memset_async(0xFF, self._slots.nbytes)  # EMPTY
        repeats, count = cupy.empty(self._most, np.uint64), cupy.zeros(1, np.uint32)
        arguments = keys, np.int64(rows), *self._spread, self._slots, count, np.uint32(self._most), repeats
        _code().put_in((-(-rows // TILE_ROWS),), (THREADS,), arguments)
        self.repeated = int(Arriving(count).wait()[0])
        self.usable = self.repeated <= self._most
        self._repeats = repeats
        if not self.usable:
            del self._slots, self._repeats
        elif self.repeated:
            self._repeats = cupy.sort(repeats[: self.repeated])
            blocks = -(-self.repeated // THREADS)
            known = np.uint32(self.repeated), self._repeats
            _code().mark_repeated((blocks,), (THREADS,), (keys, *self._spread, self._slots, *known))

    def look_up(self, keys: Any, valid: Any | None, *, keep: bool) -> TableMatches:
        """Pair rows of the other side with those of the table; waits once.

        Parameters
        ----------
        keys : cupy array of uint64, shape (rows,)
        valid : cupy array of bool, shape (rows,), optional
            Rows that are not valid have no partner.
        keep : bool
            Whether rows without a partner make a pair with none.
        """
        rows, tiles = int(keys.size), -(-int(keys.size) // TILE_ROWS)
        found, pairs, totals = cupy.empty(rows, np.int32), cupy.empty(tiles, np.int64), cupy.zeros(3, np.uint64)
        known = np.uint32(self.repeated), self._repeats, np.int32(keep)
        mask: Any = np.uint64(0) if valid is None else valid
        table = self._keys, *self._spread, self._slots, *known
        if rows:
            _code().look_up((tiles,), (THREADS,), (keys, mask, np.int64(rows), *table, found, pairs, totals))
        lacking, several, made = (int(n) for n in Arriving(totals).wait())
        matches = TableMatches(found, made, lacking=lacking, keep=keep)
        if several or (lacking and not keep):
            matches.left, matches.right = cupy.empty(made, np.int32), cupy.empty(made, np.int32)
            cupy.cumsum(pairs, out=pairs)
            if made:
                arguments = found, np.int64(rows), pairs, *known, matches.left, matches.right
                _code().write_pairs((tiles,), (THREADS,), arguments)
        return matches


class TableMatches:
    """Implements `gcylon_lab.backends.protocol.joining.Matches`.

    Parameters
    ----------
    found : cupy array of int32, shape (rows,)
        See the kernel ``look_up``.
    pairs, lacking : int
        And how many rows have no partner.
    keep : bool

    Attributes
    ----------
    left, right : cupy array of int32, shape (pairs,), optional
        The pairs; where every row makes one, they are the rows with what was found.
    """

    def __init__(self, found: Any, pairs: int, *, lacking: int, keep: bool) -> None:
        self._found, self.pairs = found, pairs
        self.lacking = keep and lacking > 0
        self.left: Any = None
        self.right: Any = None

    @property
    def found(self) -> Any:
        """Which rows have a partner."""
        return self._found != -1

    @property
    def partners(self) -> Any:
        """The other side's row of each pair, negative where there is none."""
        return self._found if self.right is None else self.right

    def rows(self, start: int, stop: int) -> tuple[Any, Any]:
        """Numbers of the rows of both sides."""
        if self.left is None:
            return slice(start, stop), self._found[start:stop]
        return self.left[start:stop], self.right[start:stop]


def spread_over(slots: int, low: int, high: int) -> tuple[Any, ...]:
    """How hashes from ``low`` to ``high`` are spread over slots, as kernels take it.

    Returns
    -------
    tuple of numpy scalars
        The slot of a hash is the upper half of ``((hash - low) << shift) * factor``, of 128 bits.
    """
    width = high - low
    shift = 64 - width.bit_length() if width else 0
    factor = (slots << 64) // ((width << shift) + 1) if width else 0
    return np.uint64(low), np.uint64(high), np.uint64(factor), np.uint64(slots), np.int32(shift)


def _hash_range(keys: Any) -> tuple[int, int]:
    ends = uploaded(np.array([2**64 - 1, 0], np.uint64))
    blocks = min(_RANGE_BLOCKS, -(-int(keys.size) // THREADS))
    _code().hash_range((blocks,), (THREADS,), (keys, np.int64(keys.size), ends))
    low, high = Arriving(ends).wait()
    return int(low), int(high)


class _Code:
    """The kernels, compiled."""

    def __init__(self) -> None:
        module = cupy.RawModule(code=SOURCE)
        names = "hash_range", "put_in", "mark_repeated", "look_up", "write_pairs"
        self.hash_range, self.put_in, self.mark_repeated, self.look_up, self.write_pairs = map(
            module.get_function, names
        )


@cache
def _code() -> _Code:
    return _Code()
