"""Which rows stand for their keys on CPU ranks, against a plain dict, whether or not keys are numbered for it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.host.keys import key_groups
from gcylon_lab.backends.host.keys.key_groups import (
    count_keys,
    distinct_rows,
    find_groups,
    rows_by_key,
)
from gcylon_lab.backends.protocol.aggregation import whole_rows

ROWS = 70_000  # more than are always looked up in a table
WIDE = 10**9 + 7


def numbers(different: int, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(different).integers(0, different, rows)


def lacking(values: Any) -> pd.Series:
    series = pd.Series(values)
    return series.mask(numbers(5, len(series)) == 0)


KEYS: dict[str, dict[str, Any]] = {
    "narrow": {"k": numbers(50)},
    "few wide": {"k": numbers(50) * WIDE},
    "many wide": {"k": numbers(40_000) * WIDE},
    "in order": {"k": np.sort(numbers(40_000)) * WIDE},
    "in order first": {"k": np.append(np.sort(numbers(40_000, ROWS - 1)), -1) * WIDE},
    "all different": {"k": np.random.default_rng(1).permutation(ROWS) * WIDE},
    "uint64": {"k": np.uint64(2**64 - 1) - numbers(900).astype("uint64") * np.uint64(WIDE)},
    "int32": {"k": (numbers(40_000) * 50_000).astype("int32")},
    "bools": {"k": numbers(2) == 1},
    "floats": {"k": np.where(numbers(3) == 0, -0.0, (numbers(40_000) - 20_000) * 0.25)},
    "float32": {"k": numbers(300).astype("float32") * 0.1},
    "floats lack some": {"k": lacking(numbers(40_000) * 0.25)},
    "nullable": {"k": lacking(numbers(40_000) * WIDE).astype("Int64")},
    "nullable, all there": {"k": pd.Series(numbers(40_000) * WIDE).astype("Int64")},
    "of Arrow": {"k": pd.Series(numbers(40_000) * WIDE).astype("int64[pyarrow]")},
    "texts": {"k": pd.Series(numbers(40_000).astype(str), dtype="str")},
    "texts lack some": {"k": lacking(numbers(900).astype(str)).astype("str")},
    "categories": {"k": pd.Categorical.from_codes(numbers(4) - 1, ["c", "a", "b"])},
    "times": {"k": pd.Timestamp("2024-01-01") + pd.to_timedelta(numbers(40_000) * 977, unit="s")},
    "times lack some": {"k": lacking(pd.Timestamp("2024-01-01") + pd.to_timedelta(numbers(900) * 977, unit="h"))},
    "dates": {"k": pd.Series([dt.date(2024, 1, 1 + n) for n in numbers(30).tolist()], dtype=object)},
    "none there": {"k": pd.Series([None] * ROWS, dtype="Int64")},
    "two": {"k": numbers(300) * WIDE, "j": pd.Series(numbers(7).astype(str), dtype="str")},
    "two, many": {"k": lacking(numbers(30_000) * 0.5), "j": numbers(39_000) * WIDE},
    "five": {name: numbers(30_000 + n) * WIDE for n, name in enumerate("abcde")},
}


def plain_key(value: Any) -> Any:
    return None if pd.isna(value) else value


def ends(frame: pd.DataFrame) -> tuple[list[int], list[int]]:
    """The first and the last row of each key, in the order in which keys begin."""
    first: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for row, key in enumerate(zip(*(map(plain_key, frame[c].tolist()) for c in frame.columns), strict=True)):
        first.setdefault(key, row)
        last[key] = row
    return list(first.values()), [last[key] for key in first]


@pytest.mark.parametrize("rows", [ROWS, 1000, 1, 0])
@pytest.mark.parametrize("kind", KEYS)
def test_rows_stand_for_their_keys(kind: str, rows: int) -> None:
    frame = pd.DataFrame(KEYS[kind]).iloc[:rows]
    data, keys = PandasBackend().from_frame(frame), list(frame.columns)
    first, last = ends(frame)
    assert distinct_rows(data, keys, keep="first").tolist() == first
    assert distinct_rows(data, keys, keep="last").tolist() == sorted(last)
    assert rows_by_key(data, keys, keep="first").tolist() == first
    assert rows_by_key(data, keys, keep="last").tolist() == last
    assert count_keys(data, keys) == len(first)
    groups = find_groups(data, keys, dropna=False)
    assert groups.first.tolist() == first and groups.last.tolist() == last
    assert (groups.first[groups.ids] <= np.arange(rows)).all()
    there = find_groups(data, keys, dropna=True)
    lacks = frame.isna().any(axis=1).to_numpy()
    assert there.first.tolist() == [row for row in first if not lacks[row]]
    assert ((there.ids < 0) == lacks).all()


@pytest.mark.parametrize("kind", ["few wide", "many wide", "all different", "floats", "two, many"])
def test_keys_that_are_only_compared_get_no_numbers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame(KEYS[kind])
    data, keys = PandasBackend().from_frame(frame), list(frame.columns)
    numbered: list[int] = []
    factorize = pd.factorize

    def counted(values: Any, **how: Any) -> Any:
        numbered.append(len(values))
        return factorize(values, **how)

    monkeypatch.setattr(key_groups.pd, "factorize", counted)
    distinct_rows(data, keys, keep="first")
    rows_by_key(data, keys, keep="first")
    count_keys(data, keys)
    # Columns are numbered one by one to be one key; that key is not.
    assert len(numbered) == 3 * len(keys) * (len(keys) > 1)


def test_a_state_stays_where_no_key_is_new() -> None:
    backend = PandasBackend()
    data = backend.from_frame(pd.DataFrame({"k": numbers(50) * WIDE, "v": np.arange(ROWS)}))
    steps = whole_rows(data.schema, ["k"], "first")
    state = backend.aggregate(backend.slice(data, 0, 9000), ["k"], steps.partial, dropna=False)
    gone_on = backend.aggregate(
        backend.slice(data, 9000, ROWS), ["k"], steps.partial, dropna=False, state=state, merge=steps.merge or ()
    )
    assert gone_on is state and state.rows == 50


@pytest.mark.parametrize("keep", ["first", "last"])
@pytest.mark.parametrize("piece", [5, 2])
def test_the_row_that_stays_is_whole(keep: str, piece: int) -> None:
    """Also where its key is written in another way than in the other rows that are equal."""
    backend, state = PandasBackend(), None
    frame = pd.DataFrame({"k": [0.0, 7.0, -0.0, 7.0, 0.0, -0.0], "v": range(6)})
    data = backend.from_frame(frame)
    steps = whole_rows(data.schema, ["k"], keep)
    for start in range(0, 6, piece):
        state = backend.aggregate(
            backend.slice(data, start, min(6, start + piece)), ["k"], steps.partial, dropna=False, state=state,
            merge=steps.merge or (),
        )  # fmt: skip
    made = backend.to_frame(state).sort_values("v")
    expected = frame.drop_duplicates("k", keep=keep)
    assert made["v"].tolist() == expected["v"].tolist()
    assert np.signbit(made["k"]).tolist() == np.signbit(expected["k"]).tolist()
