"""The input of the sort bench, and how a result is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .cases import KEY, VALUES, Columns, ShuffleCase, add_checksums, checksum

_KEY_RANGE = 1 << 40

# Of a part: rows, checksum, whether its keys ascend, first and last key.
Seen = tuple[int, int, bool, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SortCase(ShuffleCase):
    """One int64 key over a wide range and three float64 columns on every rank."""

    def columns(self, rank: int, repeat: int) -> Columns:
        """Make one rank's fresh input; keys hardly ever repeat."""
        random = np.random.default_rng((repeat, rank))
        columns: Columns = {KEY: random.integers(0, _KEY_RANGE, self.rows)}
        return columns | {name: random.random(self.rows) for name in VALUES}


def look_at(columns: Columns) -> Seen:
    """What the check needs to know of a part."""
    keys = columns[KEY]
    ends = (int(keys[0]), int(keys[-1])) if len(keys) else (0, 0)
    return len(keys), checksum(columns), bool((keys[1:] >= keys[:-1]).all()), *ends


def check_sorted(before: Sequence[Seen], after: Sequence[Seen]) -> str:
    """What is wrong with a sort whose parts are given in order; "" if all is well."""
    rows_in, rows_out = (sum(part[0] for part in parts) for parts in (before, after))
    if rows_in != rows_out:
        return f"{rows_in} rows went in and {rows_out} came out"
    if add_checksums([part[1] for part in before]) != add_checksums([part[1] for part in after]):
        return "the checksums of the rows before and after differ"
    filled = [part for part in after if part[0]]
    rising = all(a[4] <= b[3] for a, b in zip(filled, filled[1:], strict=False))
    return "" if rising and all(part[2] for part in filled) else "the keys do not ascend"
