"""Numbers that say where they stood are sorted as numpy sorts them, however they are spread."""

from __future__ import annotations

import numpy as np
import pytest

from gcylon_lab.backends.host.keys.radix_sort import sort_numbers

_BITS = 18  # of row numbers
_ROWS = 150_000  # three blocks, the last of them not full
_RANDOM = np.random.default_rng(3)
KEYS = {
    "spread over 40 bits": (40, _RANDOM.integers(0, 1 << 40, _ROWS)),
    "close together, but for one": (40, np.append(_RANDOM.integers(0, 1000, _ROWS - 1), (1 << 40) - 1)),
    "crowded at one end": (44, _RANDOM.zipf(1.3, _ROWS) % (1 << 44)),
    "in order": (40, np.sort(_RANDOM.integers(0, 1 << 40, _ROWS))),
    "in reverse": (40, np.sort(_RANDOM.integers(0, 1 << 40, _ROWS))[::-1]),
    "of one digit": (16, _RANDOM.integers(0, 1 << 16, _ROWS)),
    "of a bit more": (17, _RANDOM.integers(0, 1 << 17, _ROWS)),
    "two": (1, _RANDOM.integers(0, 2, _ROWS)),
    "spread in one block, crowded in the next": (
        46, np.concatenate([_RANDOM.integers(0, 1 << 46, 65536), _RANDOM.integers(0, 99, _ROWS - 65536)]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("rows", [0, 1, 4095, 4096, 65536, 65537, _ROWS])
@pytest.mark.parametrize("name", KEYS)
def test_as_numpy_sorts(name: str, rows: int):
    bits, keys = KEYS[name]
    numbers = keys[:rows].astype(np.uint64) << np.uint64(_BITS) | np.arange(rows, dtype=np.uint64)
    expected = np.sort(numbers)
    sort_numbers(numbers, bits + _BITS, _BITS)
    np.testing.assert_array_equal(numbers, expected)
