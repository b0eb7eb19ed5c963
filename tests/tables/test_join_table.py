"""Joins by one key of 64 bits on GPUs, by our own hash table: the pairs are those of pandas, also where keys repeat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from gcylon_lab.backends.host.keys import hashing
from gcylon_lab.backends.protocol.key_forms import key_form

pytestmark = pytest.mark.gpu

ROWS = 300_000
SPREADS = ("once", "some twice", "one often", "many times", "all the same", "beside each other")


def keys_of(spread: str, rows: int, seed: int) -> np.ndarray[Any, Any]:
    """Keys, of which about half are those of other rows and seeds."""
    random = np.random.default_rng(seed)
    if spread == "all the same":
        return np.full(rows, -7)
    if spread == "beside each other":
        return random.permutation(rows) - rows // 2
    if spread == "many times":
        return random.integers(0, 30_000, rows)
    keys = random.permutation(2 * rows)[:rows] * 2**40 - 2**59
    if spread == "some twice":
        keys[: rows // 50] = keys[rows // 50 : rows // 25]
    if spread == "one often":
        keys[random.permutation(rows)[: rows // 100]] = keys[0]
    return keys


def pairs_of(matches: Any) -> pd.DataFrame:
    probe, build = matches.rows(0, matches.pairs)
    probe = np.arange(matches.pairs) if isinstance(probe, slice) else probe.get()
    return pd.DataFrame({"probe": probe, "build": build.get()}).sort_values(["probe", "build"], ignore_index=True)


def expected(probe: pd.DataFrame, build: pd.DataFrame, how: Any) -> pd.DataFrame:
    left, right = probe.assign(probe=range(len(probe))), build.assign(build=range(len(build)))
    pairs = left.merge(right, on="k", how=how)[["probe", "build"]].fillna(-1).astype("int64")
    return pairs.sort_values(["probe", "build"], ignore_index=True)


@pytest.fixture
def device(cudf_backend: Any) -> Any:
    return cudf_backend.device


def both(device: Any, probe: pd.DataFrame, build: pd.DataFrame) -> tuple[Any, Any]:
    a, b = device.from_frame(probe), device.from_frame(build)
    forms = tuple(key_form(x, y) for x, y in zip(a.schema, b.schema, strict=True))
    return a, device.key_index(b, forms)


@pytest.mark.parametrize("spread", SPREADS)
def test_pairs_are_those_of_pandas(device: Any, spread: str) -> None:
    build = pd.DataFrame({"k": keys_of(spread, ROWS if spread != "all the same" else 700, 1)})
    probe = pd.DataFrame({"k": keys_of(spread, ROWS // 2 if spread != "all the same" else 400, 2)})
    probe.loc[len(probe)] = build["k"].iloc[0]  # one at least has a partner
    rows, index = both(device, probe, build)
    few = spread in ("once", "some twice", "one often", "beside each other")
    assert index.hashed_once is few
    assert index.duplicates == len(build) - build["k"].nunique()
    for how, keep in (("inner", False), ("left", True)):
        matches = index.match(rows, keep=keep, mark=keep)
        wanted = expected(probe, build, how)
        pd.testing.assert_frame_equal(pairs_of(matches).astype("int64"), wanted)
        assert matches.lacking is bool((wanted["build"] < 0).any())
        assert (matches.found.get() == probe["k"].isin(build["k"]).to_numpy()).all()
    unseen = build.index[~build["k"].isin(probe["k"])]
    assert index.unseen().get().tolist() == unseen.tolist()


@pytest.mark.parametrize("dtype", ["uint64", "int32", "float64", "datetime64[ns]"])
def test_other_kinds_of_keys(device: Any, dtype: str) -> None:
    build = pd.DataFrame({"k": np.random.default_rng(3).permutation(ROWS).astype(dtype)})
    probe = pd.DataFrame({"k": (np.arange(ROWS) * 3).astype(dtype)})
    if dtype == "float64":
        build.loc[build["k"] == 0, "k"] = -0.0
        probe.loc[5, "k"] = np.nan  # has no partner, for none of the table's is missing
    rows, index = both(device, probe, build)
    assert index.hashed_once
    matches = index.match(rows, keep=False, mark=False)
    pd.testing.assert_frame_equal(pairs_of(matches).astype("int64"), expected(probe, build, "inner"))


def test_missing_keys_meet(device: Any) -> None:
    """As libcudf pairs them: a table of ours has no place for them."""
    build = pd.DataFrame({"k": pd.array([5, None, 7], "Int64")})
    rows, index = both(device, pd.DataFrame({"k": pd.array([None, 7, 9], "Int64")}), build)
    assert not index.hashed_once
    assert pairs_of(index.match(rows, keep=False, mark=False)).values.tolist() == [[0, 1], [1, 2]]


def test_a_single_key(device: Any) -> None:
    """A range of one hash."""
    rows, index = both(device, pd.DataFrame({"k": [3, 4, 3]}), pd.DataFrame({"k": [3]}))
    assert index.hashed_once
    assert pairs_of(index.match(rows, keep=True, mark=False)).values.tolist() == [[0, 0], [1, -1], [2, 0]]


def test_hashes_with_a_gap(device: Any) -> None:
    """Of two narrow ranges, as a rank has them of uint64 keys of which half are above int64: libcudf takes over."""
    keys = np.random.default_rng(4).integers(0, 2**64 - 1, 8 * ROWS, dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed = keys * np.uint64(hashing._FIRST)
        mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(hashing._SECOND)
    apart = (mixed < 2**57) | (mixed > 2**64 - 2**57)
    build = pd.DataFrame({"k": keys[apart]})
    assert len(build) > 10_000
    rows, index = both(device, build.iloc[::-1].reset_index(drop=True), build)
    assert not index.hashed_once
    matches = index.match(rows, keep=False, mark=False)
    assert matches.pairs == len(build.merge(build, on="k"))
