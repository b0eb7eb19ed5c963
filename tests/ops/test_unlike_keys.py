"""Joins by keys of unlike dtypes: compared exactly, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from joins import HOWS, TWO, answer, check, join, rows, whole
from unlike_keys import REFUSED, UNLIKE, equal
from worlds import World

from gcylon_lab.errors import SchemaMismatch, UnsupportedDtype


# ---- keys of unlike dtypes
@pytest.mark.parametrize("case", UNLIKE)
@pytest.mark.parametrize("how", ["inner", "left", "right"])
@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize("size", [3])
def test_unlike_keys_are_compared_exactly(case: str, how: str, turned: bool, size: int) -> None:
    a, b, matching = UNLIKE[case]
    a, b = (b, a) if turned else (a, b)
    left = pd.DataFrame({"k": a}).assign(x=lambda f: np.arange(len(f)) * 1.5)
    right = pd.DataFrame({"k": b}).assign(y=lambda f: np.arange(len(f)) * 2.5)
    lefts = [left.iloc[rank::size].reset_index(drop=True) for rank in range(size)]
    rights = [right.iloc[::-1].iloc[rank::size].reset_index(drop=True) for rank in range(size)]
    results = World("threads", size).run(join, lefts, rights, {"how": how, "on": "k"})
    got = whole([result["frame"] for result in results])
    expected = {(i, j) for i, p in enumerate(left["k"]) for j, q in enumerate(right["k"]) if equal(p, q)}
    assert len(expected) == matching
    if how == "left":
        expected |= {(i, None) for i in range(len(left)) if i not in {pair[0] for pair in expected}}
    if how == "right":
        expected |= {(None, j) for j in range(len(right)) if j not in {pair[1] for pair in expected}}
    places = [
        (None if pd.isna(x) else round(x / 1.5), None if pd.isna(y) else round(y / 2.5))
        for x, y in zip(got["x"], got["y"], strict=True)
    ]
    assert sorted(places, key=str) == sorted(expected, key=str)
    for key, (i, j) in zip(got["k"], places, strict=True):
        assert equal(key, left["k"].iloc[i] if i is not None else right["k"].iloc[j])


@pytest.mark.parametrize("how", HOWS[:4])
def test_times_of_different_zones_meet_as_instants(how: str) -> None:
    times = pd.Series(pd.date_range("2024-03-31", periods=40, freq="h", tz="UTC").as_unit("us"))
    left = pd.DataFrame({"t": times[:30].dt.tz_convert("Europe/Berlin"), "x": range(30)})
    right = pd.DataFrame({"t": times[20:].dt.tz_convert("Asia/Tokyo").dt.as_unit("ms"), "y": range(20)})
    wanted = left.merge(right, on="t", how=how)
    results = TWO.run(join, [left[:11], left[11:]], [right[:0], right], {"on": "t", "how": how})
    zone = "Asia/Tokyo" if how == "right" else "Europe/Berlin"
    for result in results:
        assert result["frame"]["t"].dt.tz.key == zone
    utc = [f.assign(t=f["t"].astype("datetime64[ns, UTC]")) for f in (wanted, *(r["frame"] for r in results))]
    assert rows(pd.concat(utc[1:])) == rows(utc[0])


@pytest.mark.parametrize("case", REFUSED)
def test_keys_that_cannot_be_compared_are_an_error_on_every_rank(case: str) -> None:
    a, b = REFUSED[case]
    left, right = pd.DataFrame({"kay": a}), pd.DataFrame({"kay": b})
    for one, other in ((left, right), (right, left)):
        outcomes = TWO.outcomes(join, [one, one], [other, other], {"how": "outer", "on": "kay"})
        for outcome in outcomes:
            assert isinstance(outcome.error, SchemaMismatch)
            assert "'kay'" in str(outcome.error)


def test_keys_that_cannot_be_hashed_are_named() -> None:
    frame = pd.DataFrame({"k": pd.Series([[1], [2]], dtype=object)})
    for outcome in TWO.outcomes(join, [frame] * 2, [frame] * 2, {"how": "inner", "on": "k"}):
        assert isinstance(outcome.error, UnsupportedDtype)


def test_ints_that_float64_would_change_are_refused() -> None:
    left, right = pd.DataFrame({"k": [1, 2]}), pd.DataFrame({"k": [1], "big": [2**53 + 1]})
    for outcome in TWO.outcomes(join, [left] * 2, [right, right[:0]], {"how": "left", "on": "k"}):
        assert isinstance(outcome.error, SchemaMismatch)
        assert "'big'" in str(outcome.error) and str(2**53 + 1) in str(outcome.error)
    right = right.astype({"big": "Int64"})
    results = TWO.run(join, [left] * 2, [right, right[:0]], {"how": "left", "on": "k"})
    check(results, answer([left] * 2, [right, right[:0]], how="left", on="k"))


def refused(lefts: list[pd.DataFrame], rights: list[pd.DataFrame], arguments: dict[str, Any]) -> tuple[bool, str]:
    with pytest.raises(SchemaMismatch) as caught:
        join(lefts, rights, arguments)
    return caught.value.agreed, str(caught.value)


def test_ints_of_an_earlier_block_that_float64_would_change_are_refused() -> None:
    """The rows that lack the ints come after those that have them."""
    left = pd.DataFrame({"k": np.arange(100), "big": 2**53 + 1 + np.arange(100)})
    right = pd.DataFrame({"k": np.arange(95, 105)})
    for agreed, text in World("single", 1).run(refused, [left], [right], {"how": "outer", "on": "k"}):
        assert agreed and "'big'" in text  # by the join, not by whoever reads its result
