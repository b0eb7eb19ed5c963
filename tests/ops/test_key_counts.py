"""How many keys there are, told from some rows; and how wide the widest row is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.operators.group.group_counts import KeysSeen

ROWS, LOOKED_AT = 400_000, 40_000
random = np.random.default_rng(1)
KEYS: dict[str, Any] = {
    "all different": np.arange(ROWS),
    "one": np.zeros(ROWS, np.int64),
    "few": random.integers(0, 100, ROWS),
    "many": random.integers(0, ROWS, ROWS),
    "hot beside many": np.where(random.random(ROWS) < 0.9, 7, random.integers(0, ROWS, ROWS)),
    "warm beside different": np.where(random.random(ROWS) < 0.1, -1, np.arange(ROWS)),
    "hot beside few": np.where(random.random(ROWS) < 0.9, 7, random.integers(0, 2000, ROWS)),
    "zipf": np.minimum(random.zipf(1.3, ROWS), 10**9),
    "flat zipf": np.minimum(random.zipf(1.1, ROWS), 10**9),
    "sorted": np.sort(random.integers(0, 8000, ROWS)),
}


def seen(keys: Any) -> KeysSeen:
    places = [keys[start : start + LOOKED_AT // 16] for start in range(0, ROWS, ROWS // 16)]
    some = np.concatenate(places)
    counts = (len(np.unique(some[: len(some) // part])) for part in (1, 2, 4))
    return KeysSeen(len(some), *counts)


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_all_rows_are_told_from_a_tenth_of_them(kind: str) -> None:
    keys = KEYS[kind]
    looked = seen(keys)
    for rows in (LOOKED_AT, ROWS // 2, ROWS):
        there = len(np.unique(keys[:rows])) if kind != "sorted" else 8000 * rows / ROWS
        tolerance = {"sorted": 0.5, "hot beside few": 0.4}.get(kind, 0.25)
        assert looked.found_in(rows) == pytest.approx(there, rel=tolerance), rows


def test_rows_without_keys_tell_nothing() -> None:
    assert KeysSeen(0, 0, 0, 0).found_in(100) == 0 == KeysSeen(0, 0, 0, 0).expected(100)
    assert KeysSeen(100, 0, 0, 0).found_in(1000) == 0
    assert KeysSeen(100, 5, 0, 0).found_in(1000) > 0


@pytest.mark.parametrize(
    ("values", "least", "most"),
    [
        (["a", "b" * 5000, None], 5000, 5100),
        ([b"a", b"b" * 5000, None], 5000, 5100),
        ([[1, 2], [3] * 1000, None], 8000, 8200),
        ([1, 2, None], 0, 20),
    ],
)
def test_the_widest_row(values: list[Any], least: int, most: int) -> None:
    import pyarrow as pa

    array = pa.array(values)
    frame = pd.DataFrame({"k": range(3), "s": pd.Series(array, dtype=pd.ArrowDtype(array.type))})
    backend = PandasBackend()
    data = backend.from_frame(frame)
    assert least <= backend.widest_row_bytes(data) <= most
    assert backend.widest_row_bytes(backend.slice(data, 0, 1)) < 60
    assert backend.widest_row_bytes(backend.slice(data, 0, 0)) < 60
    assert backend.widest_row_bytes(backend.select(data, ["k"])) == 0
