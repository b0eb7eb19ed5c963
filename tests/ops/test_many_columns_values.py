"""A table of many columns has the values, to the bit, that tables of few of its columns have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from worlds import World

import gcylon_lab as gl
from gcylon_lab.backends.arrow.interop import from_frame, to_frame
from gcylon_lab.backends.arrow.tables import from_arrow
from gcylon_lab.backends.protocol.data import Columns, concat_columns, select_columns, slice_columns
from gcylon_lab.backends.protocol.schema import MANY_COLUMNS
from gcylon_lab.runtime.context import current

FEW = 30  # columns, beside the key and the number of the row
LEAST_LIMIT = 100_000
SUMMED = ("sum", "mean", "count", "min", "max", "first", "last", "var", "any", "median", "nunique")
ODD = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e300, 0.1, 2.0**53])
LONG = np.array([0, -1, 2**53 + 1, -(2**53) - 1, 7])


def values_of(kind: str, rows: int, random: np.random.Generator) -> Any:
    """A column of a kind, of values that rarely stand together."""
    if kind.startswith("float"):
        odd = random.random(rows) < 0.2
        plain = random.normal(size=rows) * 10.0 ** random.integers(-3, 8, rows)
        with np.errstate(over="ignore"):
            return np.where(odd, random.choice(ODD if kind == "float64" else ODD[:5], rows), plain).astype(kind)
    if kind == "long":
        return random.choice(LONG, rows)
    if kind.startswith("int"):
        return random.integers(-100, 100, rows).astype(kind)
    if kind == "bool":
        return random.random(rows) < 0.5
    if kind in ("M8[us]", "m8[ns]"):
        ticks = random.integers(0, 2**40, rows)
        ticks[random.random(rows) < 0.2] = np.iinfo(np.int64).min  # NaT
        return ticks.view(kind)
    if kind == "category":
        return pd.Categorical.from_codes(random.integers(-1, 3, rows), ["a", "b", "c"])
    if kind == "Int64":
        return pd.array([None if one < 0 else one for one in random.integers(-2, 9, rows).tolist()], "Int64")
    return pd.array([None if one < 1 else "x" * one for one in random.integers(0, 9, rows).tolist()], "str")


def make_frame(seed: int, rank: int) -> pd.DataFrame:
    """Columns of kinds in any order, or of nearly one kind, with rows in any number."""
    shape, random = np.random.default_rng(seed), np.random.default_rng((seed, rank))
    kinds = ["float64", "float32", "int64", "int32", "int8", "long", "bool", "M8[us]", "m8[ns]"]
    if seed % 3 == 0:
        kinds = ["float64", "int64"] * 4 + ["M8[us]"]
    if seed % 2:
        kinds += ["category", "Int64", "str"]
    chosen = shape.choice(kinds, MANY_COLUMNS + int(shape.integers(0, 30)))
    rows = int(random.choice([0, 1, 2, 60, 400])) if seed % 4 else 500
    columns = {f"v{i}": values_of(kind, rows, random) for i, kind in enumerate(chosen.tolist())}
    keys = random.integers(0, max(1, rows // int(shape.choice([1, 8, 100]))), rows)
    named = {"k": np.where(keys % 7 == 3, np.nan, keys), "at": np.arange(rows) + 1000 * rank, **columns}
    order = shape.permutation(list(named)) if seed % 5 == 0 else list(named)
    return pd.DataFrame(named)[list(order)]


def aggregated(table: gl.Table, **how: Any) -> gl.Table:
    """Two functions or three of each column, others of the next."""
    wanted: dict[str, list[str]] = {}
    for name in table.columns:
        if name in ("k", "at"):
            continue
        dtype, number = str(table.dtypes[name]), int(name[1:])
        known = SUMMED if dtype.startswith(("float", "int", "bool", "Int")) else ("count", "first", "last")
        chosen = [known[number % len(known)], known[(number // 3 + 1) % len(known)]]
        if dtype.startswith(("bool", "float32", "int8", "int32")):
            chosen.append("sum")
        wanted[name] = list(dict.fromkeys(chosen))
    return table.groupby("k").agg(wanted, **how)


VERBS: dict[str, Callable[..., gl.Table]] = {
    "shuffle": lambda t, **how: t.shuffle("k", keep_order=True, **how),
    "sort": lambda t, **how: t.sort_values(["k", "at"], **how),
    "repartition": lambda t, **how: t.repartition(**how),
    "filter": lambda t, **how: t.filter(gl.col("at") % 3 != 1, **how),
    "distinct": lambda t, **how: t.drop_duplicates("k", **how),
    "last": lambda t, **how: t.drop_duplicates("k", keep="last", **how),
    "groupby": aggregated,
    "assign": lambda t, **how: t.assign(at=gl.col("at") * 2, k=gl.col("k") > 3, **how),
}


def narrow(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The same rows as several frames of few columns, each with the key and the number of the row."""
    others = [name for name in frame.columns if name not in ("k", "at")]
    for start in range(0, len(others), FEW):
        yield frame[["k", "at", *others[start : start + FEW]]]


def results(seed: int, verb: str, share: float) -> tuple[pd.DataFrame, pd.DataFrame, float]:
    """What a verb gives of a table of many columns, and of few at a time put together; and how much of the limit was in
    use at the most."""
    frame = make_frame(seed, current().rank)
    table = gl.from_local(frame)
    limit = max(int(share * sum(make_frame(seed, rank).memory_usage().sum() for rank in range(2))), LEAST_LIMIT)
    how: dict[str, Any] = {"config": gl.GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=1)} if share else {}
    made = VERBS[verb](table, **how)
    peak = current().recorder.operations[-1].measured_peak_bytes / limit if share else 0.0
    whole = ordered(made.local(), verb)
    parts = [ordered(VERBS[verb](gl.from_local(some)).local(), verb) for some in narrow(frame)]
    joined = pd.concat([parts[0], *(p[[c for c in p.columns if c not in ("k", "at")]] for p in parts[1:])], axis=1)
    return whole, joined[list(whole.columns)], peak


def ordered(frame: pd.DataFrame, verb: str) -> pd.DataFrame:
    """In the order of keys, where a verb promises none."""
    return frame.sort_values("k", ignore_index=True) if verb in ("distinct", "last", "groupby") else frame


def require_same_values(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    """Those of floats to the bit, but for what depends on pieces: how a variance is rounded, and the sign of a zero in
    the middle of zeros."""
    assert list(found.dtypes) == list(wanted.dtypes)
    for name in found.columns:
        one, other = found[name], wanted[name]
        if str(name).endswith("var"):
            np.testing.assert_allclose(one.to_numpy("float64"), other.to_numpy("float64"), rtol=1e-6, err_msg=name)
            continue
        pd.testing.assert_series_equal(one, other, check_exact=True)
        if isinstance(one.dtype, np.dtype) and one.dtype.kind == "f" and not str(name).endswith("median"):
            there = one.notna().to_numpy()
            assert (np.signbit(one.to_numpy()[there]) == np.signbit(other.to_numpy()[there])).all(), name


@pytest.mark.cpu_alone("planes are of CPU engines")
@pytest.mark.parametrize("share", [0, 0.1])
@pytest.mark.parametrize("verb", VERBS)
def test_values_are_those_of_tables_of_few_columns(verb: str, share: float) -> None:
    for seed in (0, 1, 5):
        found = World("threads", 2).run(results, seed, verb, share)
        # Where a sort cuts the rows depends on how large pieces are.
        whole, joined = (pd.concat([one[i] for one in found], ignore_index=True) for i in range(2))
        require_same_values(whole, joined)
        assert all(peak <= 1.0 for _, _, peak in found)


@pytest.mark.parametrize("seed", [0, 1, 4, 5])
def test_columns_that_come_in_together_are_those_that_come_alone(seed: int) -> None:
    frame = make_frame(seed, 0)
    table = pa.Table.from_pandas(frame)
    every = [(from_frame(frame), from_frame), (from_arrow(table), lambda f: from_arrow(table.select(list(f.columns))))]
    for data, read in every:
        alone = [read(frame[[name]]) for name in frame.columns]
        assert data.planes is not None and [c for one in alone for c in one.schema] == list(data.schema)
        named = dict(zip(frame.columns, alone, strict=True))
        # In other orders, of some columns and rows, and put together again.
        shuffled = list(np.random.default_rng(seed).permutation(frame.columns))
        for names in (list(frame.columns), list(frame.columns[5:]), list(frame.columns[3::9]), shuffled):
            some, half = select_columns(data, names), data.rows // 2
            same_columns(some, names, named)
            ends = [slice_columns(some, 0, half), slice_columns(some, half, data.rows)]
            same_columns(concat_columns(ends), names, named)
        pd.testing.assert_frame_equal(to_frame(data), pd.concat([to_frame(one) for one in alone], axis=1))


def same_columns(data: Columns, names: list[Any], named: dict[Any, Columns]) -> None:
    assert list(data.schema.names) == names
    for name, array in zip(names, data.arrays, strict=True):
        wanted = named[name].arrays[0]
        assert array.equals(wanted) if isinstance(array, pa.ChunkedArray) else array.tobytes() == wanted.tobytes()
        one = data.array(name)
        assert one.equals(array) if isinstance(array, pa.ChunkedArray) else one.tobytes() == array.tobytes()
