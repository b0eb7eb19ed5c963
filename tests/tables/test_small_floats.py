"""The least float32 values, below 1.2e-38, are no zeros on any backend, though compilers may flush them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_variances import aggregated

from gcylon_lab import col
from gcylon_lab.backends.protocol.sorting import SortKey

SMALL = np.array([1e-40, -1e-45, 0.0, 2e-40, -3e-39, 1e-45, 1.0], "float32")


def frame_of(*, nullable: bool = False) -> pd.DataFrame:
    values = pd.Series(SMALL, dtype="Float32" if nullable else "float32")
    return pd.DataFrame({"v": values, "row": np.arange(len(SMALL)), "k": 1})


def on_host(numbers: Any) -> list[int]:
    return (numbers if isinstance(numbers, np.ndarray) else numbers.get()).tolist()


@pytest.mark.parametrize("nullable", [False, True], ids=["plain", "nullable"])
def test_they_are_sorted(backend: Any, nullable: bool) -> None:
    data = backend.from_frame(frame_of(nullable=nullable))
    expected = np.argsort(SMALL, kind="stable").tolist()
    assert on_host(backend.sort_order(data, [SortKey("v")])) == expected
    assert on_host(backend.sort_order(data, [SortKey("v"), SortKey("row")])) == expected
    assert on_host(backend.sort_order(data, [SortKey("v", False)])) == expected[::-1]


def test_they_fall_between_splitters(backend: Any) -> None:
    data = backend.from_frame(frame_of())
    splitters = backend.to_host(backend.select(backend.slice(data, 2, 3), ["v"]))  # 0.0
    ids = on_host(backend.split_ids(data, [SortKey("v")], splitters, np.array([2])))
    assert ids == [1, 0, 1, 1, 0, 1, 1] or ids == [1, 0, 0, 1, 0, 1, 1]


@pytest.mark.parametrize("nullable", [False, True], ids=["plain", "nullable"])
def test_they_are_keys(backend: Any, nullable: bool) -> None:
    data = backend.from_frame(frame_of(nullable=nullable))
    assert len(set(backend.partition_ids(data, ["v"], 1 << 30).tolist())) == len(SMALL)
    assert backend.count_distinct(data, ["v"]) == len(SMALL)
    wide = backend.from_frame(pd.DataFrame({"v": SMALL.astype("float64")}))
    ids = backend.partition_ids(wide, ["v"], 1 << 30).tolist()
    assert ids == backend.partition_ids(data, ["v"], 1 << 30).tolist()


@pytest.mark.parametrize("nullable", [False, True], ids=["plain", "nullable"])
def test_they_are_numbers(backend: Any, nullable: bool) -> None:
    frame = frame_of(nullable=nullable)
    data = backend.from_frame(frame)
    assert backend.to_frame(backend.filter(data, col("v") > 0))["row"].tolist() == [0, 3, 5, 6]
    assert backend.to_frame(backend.filter(data, col("v") == 0))["row"].tolist() == [2]
    least = frame[frame["row"].isin([0, 3])]
    (made,) = aggregated(backend, least, {"sum": 0.0}, 0)["sum"]
    assert made == np.float32(SMALL[0] + SMALL[3])
    row = aggregated(backend, least, {"min": 0.0, "max": 0.0, "median": 0.0, "any": 0.0, "all": 0.0}, 0).iloc[0]
    assert (row["min"], row["max"], bool(row["any"]), bool(row["all"])) == (SMALL[0], SMALL[3], True, True)
    assert row["median"] == pytest.approx(1.5e-40, rel=1e-4)


def test_they_meet_only_their_equals_in_a_join(backend: Any) -> None:
    from gcylon_lab.backends.protocol.key_forms import key_form

    library = getattr(backend, "device", backend)
    left = library.from_frame(frame_of()[["v"]])
    right = library.from_frame(pd.DataFrame({"v": np.array([0.0, float(SMALL[0]), 1.0])}))
    forms = tuple(key_form(x, y) for x, y in zip(left.schema, right.schema, strict=True))
    matches = library.key_index(right, forms).match(left, keep=False, mark=False)
    probe, build = matches.rows(0, matches.pairs)
    rows = np.arange(len(SMALL))[probe].tolist() if isinstance(probe, slice) else on_host(probe)
    assert set(zip(rows, on_host(build), strict=True)) == {(0, 1), (2, 0), (6, 2)}
