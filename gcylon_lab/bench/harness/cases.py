"""The inputs of the benches, and how a result is checked against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

KEY = "k"
VALUES = ("v0", "v1", "v2")
ROW_BYTES = 8 * (1 + len(VALUES))
_MIX = np.uint64(0x9E3779B97F4A7C15)

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleCase:
    """One int64 key and three float64 columns on every rank.

    Parameters
    ----------
    ranks : int
        World size.
    rows : int
        Rows on each rank.
    repeats, warmup : int
        Timed repetitions, and those before them that are not reported.
    """

    ranks: int = 2
    rows: int = 5_000_000
    repeats: int = 7
    warmup: int = 2

    @property
    def rank_bytes(self) -> int:
        """Input bytes of one rank."""
        return self.rows * ROW_BYTES

    def columns(self, rank: int, repeat: int) -> Columns:
        """Make one rank's fresh input; every key comes about once on each rank.

        Returns
        -------
        dict of str to ndarray
            ``k`` int64 in [0, rows), ``v0`` to ``v2`` float64 in [0, 1); each of shape (rows,).
        """
        random = np.random.default_rng((repeat, rank))
        columns: Columns = {KEY: random.integers(0, self.rows, self.rows)}
        return columns | {name: random.random(self.rows) for name in VALUES}


def checksum(columns: Mapping[str, NDArray[Any]]) -> int:
    """Return a sum over rows, modulo 2**64, that no order of the rows changes.

    A row's columns are mixed together first, so a value that ends in another
    row changes the sum.
    """
    total = np.zeros(len(columns[KEY]), np.uint64)
    for name in (KEY, *VALUES):
        total = (total ^ np.ascontiguousarray(columns[name]).view(np.uint64)) * _MIX
        total ^= total >> np.uint64(29)
    return int(total.sum(dtype=np.uint64))


def add_checksums(values: Sequence[int]) -> int:
    """Combine the checksums of several parts."""
    return sum(values) % 2**64


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct keys, in order."""
    # numpy.unique hashes integers since 2.3: 5 million took it 30 s, and this half a second.
    ordered = np.sort(keys)
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def shared_keys(parts: Sequence[NDArray[np.int64]]) -> int:
    """Count the keys that stand in more than one part; 0 where equal keys met.

    Parameters
    ----------
    parts : sequence of ndarray of int64
        Each part's distinct keys.
    """
    keys = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return len(keys) - len(distinct(keys))
