"""Rows reordered by id: nothing lost, order kept, sizes told; and what it costs in memory."""

import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.data import Columns

PANDAS = PandasBackend()


def frame_of(rows: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "row": np.arange(rows),
            "small": np.arange(rows).astype("int8"),
            "f": np.arange(rows) / 7,
            "s": [None if i % 5 == 0 else "x" * (i % 23) for i in range(rows)],
            "l": [list(range(i % 3)) for i in range(rows)],
            "c": pd.Categorical([f"c{i % 3}" for i in range(rows)]),
        }
    )


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 100, 257, 70_000])
def test_partition_is_stable_and_complete(backend: Any, n: int) -> None:
    rows = 5000
    frame = frame_of(rows)
    data = backend.from_frame(frame)
    ids = backend.partition_ids(data, ["row"], n)
    parted, offsets = backend.partition(data, ids, n)
    assert offsets.dtype == np.int64 and offsets.shape == (n + 1,)
    assert offsets[0] == 0 and offsets[-1] == rows
    assert np.array_equal(np.diff(offsets), np.bincount(ids, minlength=n))
    order = np.argsort(ids, kind="stable")
    pd.testing.assert_frame_equal(backend.to_frame(parted), frame.iloc[order].reset_index(drop=True))
    pd.testing.assert_frame_equal(backend.to_frame(data), frame)


@given(st.lists(st.integers(0, 11), max_size=300), st.sampled_from([12, 200]))
@settings(max_examples=60)
def test_any_ids(backend: Any, ids: list[int], n: int) -> None:
    data = backend.from_frame(pd.DataFrame({"row": np.arange(len(ids)), "s": [str(i) for i in range(len(ids))]}))
    for count in (n, 8):
        chosen = np.array(ids, np.uint8) % count
        parted, offsets = backend.partition(data, chosen, count)
        rows = parted.array("row")
        for place in range(count):
            assert rows[offsets[place] : offsets[place + 1]].tolist() == np.flatnonzero(chosen == place).tolist()


@pytest.mark.parametrize("n", [2, 16])
def test_all_rows_to_one(backend: Any, n: int) -> None:
    data = backend.from_frame(frame_of(100))
    parted, offsets = backend.partition(data, np.full(100, n - 1, np.uint8), n)
    assert offsets.tolist() == [0] * n + [100]
    pd.testing.assert_frame_equal(backend.to_frame(parted), frame_of(100))


@pytest.mark.parametrize("n", [1, 2, 16])
def test_no_rows(backend: Any, n: int) -> None:
    data = backend.empty(backend.from_frame(frame_of(3)).schema)
    ids = backend.partition_ids(data, ["row"], n)
    parted, offsets = backend.partition(data, ids, n)
    assert parted.rows == 0 and offsets.tolist() == [0] * (n + 1)
    assert backend.variable_bytes(data, ids, n).tolist() == [0] * n


def test_results_stay_while_others_are_made() -> None:
    """Scratch memory is used again only once nothing refers to it."""
    data = PANDAS.from_frame(frame_of(4000))
    kept, wanted = [], []
    for step in range(30):
        ids = ((np.arange(4000) + step) % 2).astype(np.uint8)
        parted, _ = PANDAS.partition(data, ids, 2)
        order = np.argsort(ids, kind="stable")
        view = PANDAS.fixed_views(parted, 0, 4000)[2] if step % 3 == 0 else None
        kept.append(view if view is not None else PANDAS.slice(parted, 100, 4000) if step % 3 == 1 else parted)
        wanted.append(order)
        del parted, view
    for step, (thing, order) in enumerate(zip(kept, wanted, strict=True)):
        floats = np.frombuffer(thing, np.float64) if step % 3 == 0 else thing.array("f")
        assert np.array_equal(floats, (order / 7)[100 * (step % 3 == 1) :])


@pytest.mark.parametrize("n", [2, 8, 64])
@pytest.mark.parametrize("text", [False, True])
def test_scratch_is_as_foretold(n: int, text: bool) -> None:
    rows = 1_000_000
    frame = pd.DataFrame({"k": np.arange(rows), "v": np.arange(rows) / 2})
    if text:  # Arrow's own memory is not traced; the order of rows that it needs is
        frame["s"] = pd.array(["x"] * rows, dtype="str")
    data = PANDAS.from_frame(frame)
    tracemalloc.start()
    ids = PANDAS.partition_ids(data, ["k"], n)
    parted, _ = PANDAS.partition(data, ids, n)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    measured = peak - ids.nbytes - sum(array.nbytes for array in parted.arrays[:2])
    foretold = PANDAS.partition_scratch_bytes(rows, n)
    assert measured <= foretold + 100_000
    if text:
        assert foretold <= 3 * measured  # the sort asks for memory that is not traced


def test_variable_bytes_follow_the_lengths(backend: Any) -> None:
    rows = 9000
    text = ["x" * (1000 if i % 3 == 0 else 10) for i in range(rows)]
    data = backend.from_frame(pd.DataFrame({"s": text, "k": np.arange(rows)}))
    ids = (np.arange(rows) % 3).astype(np.uint8)
    told = backend.variable_bytes(data, ids, 3)
    assert told.dtype == np.int64 and told[0] > 50 * told[1] and abs(told[1] - told[2]) < 10
    parted, offsets = backend.partition(data, ids, 3)
    for place in range(3):
        message = backend.pack_variable(parted, int(offsets[place]), int(offsets[place + 1]))
        assert 0.95 < len(message) / told[place] < 1.1
    assert backend.variable_bytes(backend.select(data, ["k"]), ids, 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("values", [
    pd.Series([[1, 2, 3]] * 500 + [[]] * 500),
    pd.Series(pd.array([1, None] * 500, "Int64")),
    pd.Series([{"a": 1, "b": "xyz"}] * 1000),
    pd.Series([None] * 1000, dtype=object),
], ids=["list", "Int64", "struct", "null"])  # fmt: skip
def test_variable_bytes_add_up(backend: Any, values: pd.Series) -> None:
    data = backend.from_frame(values.to_frame("x"))
    told = backend.variable_bytes(data, np.zeros(1000, np.uint8), 2)
    assert told[1] == 0 and abs(int(told[0]) - data.nbytes) <= 0.05 * data.nbytes + 256


def test_sizes_are_added_in_64_bits() -> None:
    """Strings of more than 4 GiB in all, by way of one long string that is referred to many times."""
    block = pa.array(["y" * (1 << 20)], pa.large_string())
    schema = PANDAS.from_frame(pd.DataFrame({"s": ["a"]})).schema
    rows = 5000
    data = Columns(schema, rows, (pa.chunked_array([block] * rows),))
    told = PANDAS.variable_bytes(data, np.zeros(rows, np.uint8), 1)
    assert data.nbytes > 5_000 * 2**20 and int(told[0]) > 5_000 * 2**20
    few = PANDAS.slice(data, 100, 103)
    assert few.nbytes < 4 * 2**20
