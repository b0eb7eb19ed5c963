"""Local joins on every backend: pairs, rows without a partner, and rows gathered with missing ones among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from unlike_keys import UNLIKE, equal

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.backends.protocol.join_columns import with_missing
from gcylon_lab.backends.protocol.key_forms import key_form
from gcylon_lab.backends.protocol.schema import Schema
from gcylon_lab.errors import SchemaMismatch


def on_host(numbers: Any) -> np.ndarray:
    return numbers if isinstance(numbers, np.ndarray) else numbers.get()


def plain_rows(rows: Any) -> list[int | None]:
    if isinstance(rows, slice):
        return list(range(rows.start, rows.stop))
    return [None if number < 0 else int(number) for number in on_host(rows)]


def library(backend: Any) -> Any:
    """The backend itself, where it is seen from the host."""
    return getattr(backend, "device", backend)


def both(backend: Any, left: pd.DataFrame, right: pd.DataFrame) -> tuple[Any, Any, tuple]:
    a, b = library(backend).from_frame(left), library(backend).from_frame(right)
    return a, b, tuple(key_form(x, y) for x, y in zip(a.schema, b.schema, strict=True))


def pairs_of(matches: Any, step: int = 7) -> set[tuple[int | None, int | None]]:
    found: list[tuple[int | None, int | None]] = []
    for start in range(0, matches.pairs, step):
        probe, build = matches.rows(start, min(start + step, matches.pairs))
        found += zip(plain_rows(probe), plain_rows(build), strict=True)
    assert len(found) == len(set(found)) == matches.pairs
    return set(found)


def expected_pairs(left: pd.DataFrame, right: pd.DataFrame) -> set[tuple[int, int]]:
    rows = [list(zip(*(frame[name] for name in frame), strict=True)) for frame in (left, right)]
    return {
        (i, j)
        for i, a in enumerate(rows[0])
        for j, b in enumerate(rows[1])
        if all(equal(x, y) for x, y in zip(a, b, strict=True))
    }


def check_index(backend: Any, probe: pd.DataFrame, build: pd.DataFrame) -> None:
    """All that an index says, against a loop over all pairs."""
    a, b, forms = both(backend, probe, build)
    expected = expected_pairs(probe, build)
    found, seen = {i for i, _ in expected}, {j for _, j in expected}
    index = library(backend).key_index(b, forms)
    for step in (2, 3, 1000):  # blocks of pairs begin and end within a row's, and have rows without any
        assert pairs_of(index.match(a, keep=False, mark=False), step) == expected
    assert sorted(plain_rows(index.unseen())) == list(range(len(build)))
    half = len(probe) // 2
    parts = [library(backend).slice(a, 0, half), library(backend).slice(a, half, len(probe))]
    for first, part in zip((0, half), parts, strict=True):
        matches = index.match(part, keep=True, mark=True)
        mine = {(i - first, j) for i, j in expected if first <= i < first + part.rows}
        alone = {(i, None) for i in range(part.rows) if i + first not in found}
        assert pairs_of(matches) == mine | alone
        assert on_host(matches.found).tolist() == [i + first in found for i in range(part.rows)]
        assert matches.lacking == bool(alone)
    assert sorted(plain_rows(index.unseen())) == [j for j in range(len(build)) if j not in seen]


@pytest.mark.parametrize("turned", [False, True], ids=["", "turned"])
@pytest.mark.parametrize("case", UNLIKE)
def test_unlike_keys(backend: Any, case: str, turned: bool) -> None:
    left, right, _ = UNLIKE[case]
    sides = pd.DataFrame({"k": left}), pd.DataFrame({"k": right})
    check_index(backend, *(sides[::-1] if turned else sides))


def many(rng: np.random.Generator, rows: int, keys: int, *, spread: int, nulls: bool) -> pd.DataFrame:
    k = rng.integers(0, keys, rows) * spread
    return pd.DataFrame({"k": pd.array([None if nulls and i % 9 == 0 else int(v) for i, v in enumerate(k)], "Int64")})


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("spread", [1, 10**15], ids=["by place", "hashed"])
@pytest.mark.parametrize("keys", [3, 10**6], ids=["many times", "once"])
def test_keys_of_either_kind_of_table(backend: Any, keys: int, spread: int, nulls: bool) -> None:
    rng = np.random.default_rng(keys)
    keys = min(keys, 9 * 10**18 // spread)
    left, right = (many(rng, rows, keys, spread=spread, nulls=nulls) for rows in (60, 40))
    right["k"] = pd.concat([right["k"][:20], left["k"][:20]], ignore_index=True)  # so that some have a partner
    for dtype in ("Int64",) if nulls else ("Int64", "int64"):
        check_index(backend, left.astype(dtype), right.astype(dtype))


def test_several_keys(backend: Any) -> None:
    rng = np.random.default_rng(5)

    def side(rows: int) -> pd.DataFrame:
        k = rng.integers(0, 4, rows)
        return pd.DataFrame(
            {
                "a": k * 2**40,
                "s": pd.Series([None if v == 0 else f"t{v}" for v in rng.integers(0, 4, rows)], dtype="str"),
                "f": np.where(k == 3, np.nan, np.where(k == 2, -0.0, 0.0)),
            }
        )

    check_index(backend, side(50), side(30))


def test_so_many_keys_that_their_numbers_do_not_fit_64_bits() -> None:
    """Each key's distinct values multiply to more than 2**62: numbers are squeezed between keys."""
    from gcylon_lab.backends.host.backend import PandasBackend

    rng = np.random.default_rng(6)
    names = "abcdefgh"
    build = pd.DataFrame({name: rng.permutation(300) for name in names})
    probe = pd.concat([build.iloc[::3], build.iloc[::5].assign(h=-1)], ignore_index=True)
    a, b, forms = both(PandasBackend(), probe, build)
    matches = PandasBackend().key_index(b, forms).match(a, keep=False, mark=False)
    assert pairs_of(matches, 1000) == {(i, 3 * i) for i in range(100)}


def test_many_rows_in_buckets() -> None:
    """So many rows that the table has several buckets: each row finds itself, and only itself."""
    from gcylon_lab.backends.host.backend import PandasBackend

    rng = np.random.default_rng(7)
    k = rng.integers(0, 2**40, 200_000)
    k[:1000] = k[1000:2000]  # some keys twice
    build = pd.DataFrame({"k": k})
    probe = pd.DataFrame({"k": np.concatenate((rng.permutation(k), -k[:1000]))})
    a, b, forms = both(PandasBackend(), probe, build)
    index = PandasBackend().key_index(b, forms)
    matches = index.match(a, keep=False, mark=True)
    p, q = matches.rows(0, matches.pairs)
    assert (probe["k"].to_numpy()[p] == k[q]).all()
    assert matches.pairs == len(probe.merge(build, on="k"))
    assert index.duplicates == len(k) - len(np.unique(k))
    assert len(index.unseen()) == 0


def test_rows_are_gathered_with_missing_ones(backend: Any) -> None:
    frame = pd.DataFrame(
        {
            "i": [1, 2, 3],
            "b": [True, False, True],
            "f": [0.5, np.nan, 2.5],
            "s": pd.Series(["x", None, "zz"], dtype="str"),
            "t": pd.to_datetime(["2020", None, "2022"]),
            "c": pd.Categorical(["p", None, "q"]),
            "n": pd.array([1, None, 3], "Int64"),
        }
    )
    lib = library(backend)
    data = lib.from_frame(frame)
    number = lib.places(~lib.no_places(3))
    rows = lib.key_index(lib.select(data, ["i"]), (key_form(data.schema["i"], data.schema["i"]),))
    probe = lib.from_frame(pd.DataFrame({"i": [3, 7, 1, 1]}))
    _, found = rows.match(probe, keep=True, mark=False).rows(0, 4)
    assert plain_rows(found) == [2, None, 0, 0]
    schema = Schema([with_missing(column) for column in data.schema])
    got = lib.to_host(lib.gather(data, list(frame), found, schema))
    from gcylon_lab.backends.arrow.interop import to_frame

    expected = frame.reindex([2, 9, 0, 0]).reset_index(drop=True)
    for name in frame:
        one, other = to_frame(got)[name], expected[name]
        assert one.isna().tolist() == other.isna().tolist()
        assert one.dropna().tolist() == other.dropna().tolist()
    assert str(to_frame(got)["i"].dtype) == "float64"
    whole = lib.to_host(lib.gather(data, list(frame), number, data.schema))
    pd.testing.assert_frame_equal(to_frame(whole), frame)


class Unseen(np.ndarray):
    """Row numbers of which nobody asks whether some are missing."""

    def min(self, *more: Any, **named: Any) -> Any:
        raise AssertionError("looked for what is missing")


def test_what_is_not_missing_is_not_looked_for() -> None:
    data = PandasBackend().from_frame(pd.DataFrame({"i": [1, 2, 3], "s": ["a", "b", "c"]}))
    rows = np.array([2, 0]).view(Unseen)
    got = PandasBackend().gather(data, ["i", "s"], rows, data.schema, complete=True)
    assert [list(map(int, got.array("i"))), got.array("s").to_pylist()] == [[3, 1], ["c", "a"]]


def test_an_int_that_float64_would_change_is_refused(backend: Any) -> None:
    lib = library(backend)
    data = lib.from_frame(pd.DataFrame({"i": [2**53 + 1, 5]}))
    index = lib.key_index(data, (key_form(data.schema["i"], data.schema["i"]),))
    _, rows = index.match(lib.from_frame(pd.DataFrame({"i": [2**53 + 1, 9]})), keep=True, mark=False).rows(0, 2)
    with pytest.raises(SchemaMismatch, match="'i'.*9007199254740993"):
        lib.gather(data, ["i"], rows, Schema([with_missing(data.schema["i"])]))


def test_duplicates_are_counted(backend: Any) -> None:
    lib = library(backend)
    for values, count in (([1.0, 2.0, np.nan], 0), ([1.0, np.nan, np.nan, 0.0, -0.0], 2)):
        data = lib.from_frame(pd.DataFrame({"f": values}))
        assert lib.key_index(data, (key_form(data.schema["f"], data.schema["f"]),)).duplicates == count


def test_crossing(backend: Any) -> None:
    matches = library(backend).crossing(3, 4)
    assert pairs_of(matches, 5) == {(i, j) for i in range(3) for j in range(4)}
