"""The order of rows on every backend: as pandas has it for every dtype, over several keys, and between splitters."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from every_dtype import EVERY_DTYPE

from gcylon_lab.backends.host.sorting import starts_of_equal_rows, take_rows
from gcylon_lab.backends.protocol.sorting import SortKey
from gcylon_lab.errors import UnsupportedDtype

_REFUSED = ("list", "struct", "map", "nested")
_DIRECTIONS = [(up, na) for up in (True, False) for na in ("last", "first")]


def on_host(numbers: Any) -> np.ndarray:
    return numbers if isinstance(numbers, np.ndarray) else numbers.get()


def drawn(series: pd.Series, rows: int = 60) -> pd.DataFrame:
    """Rows with many equal values, in no order."""
    picks = np.random.default_rng(3).integers(0, len(series), rows)
    return pd.DataFrame({"v": series.iloc[picks].reset_index(drop=True), "i": np.arange(rows)})


def by_pandas(frame: pd.DataFrame, by: list[str], ascending: Any, na_position: str) -> list[int]:
    if str(frame["v"].dtype).startswith("dictionary"):  # which pandas cannot sort
        frame = frame.assign(v=frame["v"].astype("str"))
    order = frame.sort_values(by, ascending=ascending, na_position=na_position, kind="stable")
    return order["i"].tolist()


@pytest.mark.parametrize("name", EVERY_DTYPE)
def test_every_dtype_is_ordered_as_in_pandas_or_refused_by_name(backend: Any, name: str) -> None:
    frame = drawn(EVERY_DTYPE[name])
    data = backend.from_frame(frame)
    if any(word in name for word in _REFUSED):
        with pytest.raises(UnsupportedDtype, match="'v'.*cannot be sorted by"):
            backend.sort_order(data, [SortKey("v")])
        with pytest.raises(UnsupportedDtype, match="'v'.*cannot be sorted by"):
            backend.split_ids(data, [SortKey("v")], None, np.zeros(0, np.int64))
        return
    for up, na in _DIRECTIONS:
        order = backend.sort_order(data, [SortKey("v", up, na == "first")])
        assert on_host(order).tolist() == by_pandas(frame, ["v"], up, na), (up, na)


@pytest.mark.parametrize("name", [name for name in EVERY_DTYPE if not any(word in name for word in _REFUSED)])
def test_rows_fall_between_splitters_of_every_dtype(backend: Any, name: str) -> None:
    frame = drawn(EVERY_DTYPE[name])
    data = backend.from_frame(frame)
    for up, na in _DIRECTIONS:
        keys = [SortKey("v", up, na == "first")]
        order = on_host(backend.sort_order(data, keys))
        chosen = np.array([3, 3, 20, 41, 58])  # places in the order; 3 stands twice
        keyed = backend.to_host(backend.select(data, ["v"]))
        cuts = order[chosen].astype(np.int64)
        ids = on_host(backend.split_ids(data, keys, take_rows(keyed, order[chosen]), cuts))
        place = np.empty(len(frame), int)
        place[order] = np.arange(len(frame))
        assert ids.tolist() == [int((chosen <= p).sum()) for p in place], (up, na)


@cache
def mixed(rows: int) -> pd.DataFrame:
    random = np.random.default_rng(rows)
    texts = ["same beginning of all" * int(n) + "äb"[: int(m)] * int(m) for n, m in random.integers(0, 4, (rows, 2))]
    return pd.DataFrame(
        {
            "v": random.integers(-3, 3, rows),
            "f": random.choice([np.nan, -0.0, 0.0, 1.5, 1e300], rows),
            "s": pd.Series(texts, dtype="str").where(random.random(rows) > 0.1),
            "c": pd.Categorical(random.choice(list("xyz"), rows), categories=list("zxy")),
            "n": pd.array(random.integers(-(2**62), 2**62, rows), dtype="Int64"),
            "t": pd.to_datetime(random.integers(0, 5, rows) * 10**17),
            "i": np.arange(rows),
        }
    )


@pytest.mark.parametrize("rows", [0, 1, 2, 1000, 70_000])
@pytest.mark.parametrize(
    ("by", "ascending", "na"),
    [
        (["v", "f"], [True, False], "last"),
        (["s"], [False], "first"),
        (["c", "s", "n"], [False, True, False], "last"),
        (["f", "t", "s"], [True, True, False], "first"),
        (["n"], [False], "last"),
    ],
)
def test_several_keys_in_mixed_directions(backend: Any, rows: int, by: list[str], ascending: Any, na: str) -> None:
    frame = mixed(rows)
    keys = [SortKey(name, up, na == "first") for name, up in zip(by, ascending, strict=True)]
    data = backend.from_frame(frame)
    order = backend.sort_order(data, keys)
    assert on_host(order).tolist() == by_pandas(frame, by, ascending, na)
    want = frame.iloc[on_host(order)].reset_index(drop=True)
    pd.testing.assert_frame_equal(backend.to_frame(backend.take(data, order)), want)
    held = [data]
    pd.testing.assert_frame_equal(backend.to_frame(backend.reorder(held, order)), want)
    assert not held


def test_infinities_stand_before_missing_values_whatever_the_number_of_keys(backend: Any) -> None:
    frame = pd.DataFrame({"f": [np.inf, np.nan, -np.inf, np.nan, np.inf], "v": [4, 3, 2, 1, 0]})
    keys = [SortKey("f", nulls_first=True), SortKey("v")]
    assert on_host(backend.sort_order(backend.from_frame(frame), keys)).tolist() == [3, 1, 2, 4, 0]
    keys = [SortKey("f", ascending=False), SortKey("v")]
    assert on_host(backend.sort_order(backend.from_frame(frame), keys)).tolist() == [4, 0, 2, 3, 1]


@pytest.mark.parametrize("spread", [1, 2**20, 2**63])
def test_keys_wider_than_a_number_holds_beside_the_row(backend: Any, spread: int) -> None:
    """Bits that did not fit decide where those before are equal."""
    random = np.random.default_rng(1)
    low = random.integers(0, spread, 50_000, dtype=np.uint64)
    frame = pd.DataFrame({"v": low + random.choice(np.array([0, 2**63 - 1], np.uint64), 50_000), "i": range(50_000)})
    order = backend.sort_order(backend.from_frame(frame), [SortKey("v")])
    assert on_host(order).tolist() == by_pandas(frame, ["v"], True, "last")


def test_text_is_ordered_by_code_points_to_its_end(backend: Any) -> None:
    """Also where it goes on with zeros, or is as long as a word."""
    texts = ["", "\0", "\0\0", "a", "a\0", "a\0b", "abcdefg", "abcdefg\0", "abcdefgh", "é", "z", "\U0001f600", "\ue000"]
    picks = np.random.default_rng(2).integers(0, len(texts), 200)
    for dtype, values in (("str", texts), (object, [text.encode() for text in texts])):
        frame = pd.DataFrame({"v": pd.Series([values[pick] for pick in picks], dtype=dtype), "i": range(200)})
        data = backend.from_frame(frame)
        for up in (True, False):
            ordered = sorted(values, reverse=not up)
            want = [i for value in ordered for i in range(200) if values[picks[i]] == value]
            assert on_host(backend.sort_order(data, [SortKey("v", up)])).tolist() == want


def test_sorted_runs_are_merged(backend: Any) -> None:
    frame = pd.concat([mixed(5000).sort_values(["v", "s"], kind="stable") for _ in range(3)], ignore_index=True)
    frame["i"] = np.arange(len(frame))
    order = backend.sort_order(backend.from_frame(frame), [SortKey("v"), SortKey("s")], runs=True)
    assert on_host(order).tolist() == by_pandas(frame, ["v", "s"], True, "last")


def test_a_cut_decides_among_equal_keys(backend: Any) -> None:
    data = backend.from_frame(pd.DataFrame({"v": [5, 5, 5, 4, 6, 5]}))
    splitters = backend.to_host(backend.from_frame(pd.DataFrame({"v": [5, 5, 5]})))
    ids = backend.split_ids(data, [SortKey("v")], splitters, np.array([1, 1, 2**62]))
    assert on_host(ids).tolist() == [0, 2, 2, 0, 3, 2]


def test_stretches_of_equal_rows(backend: Any) -> None:
    data = backend.to_host(backend.from_frame(pd.DataFrame({"v": [1.0, 1.0, np.nan, np.nan], "w": [0, 0, 0, 1]})))
    assert starts_of_equal_rows(data, [SortKey("v"), SortKey("w")]).tolist() == [0, 2, 3]


def long_texts(rows: int) -> pd.DataFrame:
    """Texts that are equal for longer than is looked at word by word, and one of megabytes, twice."""
    ends = ["", "\0", "a", "ab", "b" * 90, "é"]
    texts = ["x" * n + end for n in (3, 440, 447, 448, 449, 455, 900) for end in ends] + ["x" * 3_000_000]
    random = np.random.default_rng(rows)
    picks = random.integers(0, len(texts) - 1, rows)
    picks[[5, rows // 2]] = len(texts) - 1
    column = pd.Series([texts[pick] for pick in picks], dtype="str").where(random.random(rows) > 0.1)
    return pd.DataFrame({"v": column, "w": random.integers(0, 3, rows), "i": np.arange(rows)})


@pytest.mark.parametrize("rows", [100, 20_000])
@pytest.mark.parametrize(("up", "na"), [(True, "first"), (False, "last")])
def test_texts_that_are_equal_for_long_are_ordered_by_their_rests(backend: Any, rows: int, up: bool, na: str) -> None:
    frame = long_texts(rows)
    data = backend.from_frame(frame)
    keys = [SortKey("v", up, na == "first"), SortKey("w", not up, na == "first")]
    order = on_host(backend.sort_order(data, keys))
    assert order.tolist() == by_pandas(frame, ["v", "w"], [up, not up], na)
    chosen = np.sort(np.random.default_rng(1).integers(0, rows, 12))
    splitters = take_rows(backend.to_host(backend.select(data, ["v", "w"])), order[chosen])
    ids = on_host(backend.split_ids(data, keys, splitters, order[chosen].astype(np.int64)))
    place = np.empty(rows, int)
    place[order] = np.arange(rows)
    assert ids.tolist() == np.searchsorted(chosen, place, side="right").tolist()
    starts = starts_of_equal_rows(splitters, keys)
    pairs = keys_of(frame, order[chosen])
    assert starts.tolist() == [i for i in range(12) if i == 0 or pairs[i] != pairs[i - 1]]


def keys_of(frame: pd.DataFrame, rows: np.ndarray) -> list[tuple[Any, int]]:
    picked = frame.iloc[rows]
    return [(None if pd.isna(v) else v, w) for v, w in zip(picked["v"], picked["w"], strict=True)]


def test_the_number_of_a_rest_is_not_cut_into_bits(backend: Any) -> None:
    """Here only four bits are free for it beside the first key, and fewer rows number their rests otherwise."""
    random = np.random.default_rng(8)
    words = pd.Series(random.integers(0, 40_000, 20_000)).astype(str)
    frame = pd.DataFrame({"w": random.integers(0, 2**45, 60)[random.integers(0, 60, 20_000)], "v": "x" * 448 + words})
    frame["i"] = np.arange(20_000)
    order = backend.sort_order(backend.from_frame(frame), [SortKey("w"), SortKey("v")])
    assert on_host(order).tolist() == by_pandas(frame, ["w", "v"], True, "last")
