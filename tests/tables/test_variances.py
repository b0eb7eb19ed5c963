"""Variances on every backend: twelve digits of a second pass, however large the mean is, and 0 for equal values."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gcylon_lab.backends.protocol.aggregation import Aggregation, plan_aggregations

CONSTANTS = (-0.0023000007, 0.013, 0.1, 1e9 + 0.1, 1e-300, -(2.0**70), 2**60 + 1, 2_000_000_000_003)
PIECES = (0, 1, 7, 1000)  # rows; 0 for all at once


def aggregated(
    backend: Any, frame: pd.DataFrame, functions: dict[str, float], rows: int, keys: tuple[str, ...] = ("k",)
) -> pd.DataFrame:
    """Functions of column v, in pieces of so many rows."""
    data = backend.from_frame(frame)
    wanted = [Aggregation(name, name, "v", argument) for name, argument in functions.items()]
    steps = plan_aggregations(data.schema, keys, wanted)
    state = None
    for start in range(0, data.rows, rows or data.rows):
        piece = backend.slice(data, start, min(data.rows, start + (rows or data.rows)))
        state = backend.aggregate(piece, keys, steps.partial, dropna=True, state=state, merge=steps.merge or ())
    made = backend.to_frame(backend.finish(state, keys, steps.finish))
    return made.sort_values(list(keys)).reset_index(drop=True) if keys else made


def exactly(values: Any) -> float:
    """The variance of some numbers, without rounding but at the end."""
    exact = [Fraction(value) for value in values.tolist()]
    mean = sum(exact) / len(exact)
    return float(sum((value - mean) ** 2 for value in exact) / (len(exact) - 1))


@pytest.mark.parametrize("rows", PIECES)
@pytest.mark.parametrize("value", CONSTANTS)
def test_equal_values_have_none(backend: Any, value: Any, rows: int) -> None:
    frame = pd.DataFrame({"k": np.arange(2500) % 3, "v": [value] * 2500})
    frame = frame.head({1: 60, 7: 700}.get(rows, 2500))  # many pieces take long
    for keys in (("k",), ()):
        made = aggregated(backend, frame, {"var": 1.0, "std": 1.0}, rows, keys)
        assert (made["var"] == 0).all() and (made["std"] == 0).all()


def test_many_groups_of_equal_values_have_none(backend: Any) -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"k": np.repeat(np.arange(2000), 10), "v": np.repeat(rng.random(2000), 10)})
    for rows in (0, 777):
        made = aggregated(backend, frame.sample(frac=1, random_state=1), {"std": 1.0}, rows)
        assert len(made) == 2000 and (made["std"] == 0).all()


@pytest.mark.parametrize("rows", PIECES)
@pytest.mark.parametrize(
    "values",
    [
        lambda rng, n: rng.random(n) / 100 + 1e6,
        lambda rng, n: rng.normal(size=n) * 1e-3 - 1e9,
        lambda rng, n: 2_000_000_000_000 + rng.integers(0, 7, n),
        lambda rng, n: 2**62 + rng.integers(0, 1000, n),
        lambda rng, n: 2**60 + 2**31 + rng.integers(0, 7, n),
        lambda rng, n: (2**63 + rng.integers(0, 9, n).astype("uint64")).astype("uint64"),
        lambda rng, n: rng.normal(size=n).astype("float32"),
        lambda rng, n: np.where(np.arange(n) < 3, 1e12, rng.normal(size=n)),
    ],
    ids=[
        "near 1e6",
        "near -1e9",
        "near 2e12",
        "near 2**62",
        "near 2**60",
        "above 2**63",
        "float32",
        "a far one comes first",
    ],
)
def test_twelve_digits_are_right_however_large_the_mean_is(backend: Any, values: Any, rows: int) -> None:
    count = {1: 60, 7: 700}.get(rows, 3000)
    frame = pd.DataFrame({"k": np.arange(count) % 4, "v": values(np.random.default_rng(2), count)})
    rel = 1e-7 if frame["v"].dtype == "float32" else 1e-12  # the result has its dtype
    made = aggregated(backend, frame, {"var": 1.0, "std": 1.0}, rows)
    for key, group in frame.groupby("k")["v"]:
        exact = exactly(group)
        assert made["var"][key] == pytest.approx(exact, rel=rel)
        assert made["std"][key] == pytest.approx(exact**0.5, rel=rel)
    (whole,) = aggregated(backend, frame, {"var": 1.0}, rows, ())["var"]
    assert whole == pytest.approx(exactly(frame["v"]), rel=rel)


def test_missing_values_are_left_out_and_infinite_ones_have_no_spread(backend: Any) -> None:
    values = [1.0, np.nan, 3.0, np.nan, np.nan, 5.0, np.inf, 1.0, 2.0]
    frame = pd.DataFrame({"k": [1, 1, 1, 2, 2, 3, 4, 4, 4], "v": values})
    for rows in (0, 2):
        made = aggregated(backend, frame, {"var": 1.0, "std": 0.0}, rows)
        assert made["var"].isna().tolist() == [False, True, True, True] and made["var"][0] == 2.0
        assert made["std"].isna().tolist() == [False, True, False, True] and made["std"][2] == 0.0
