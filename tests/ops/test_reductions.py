"""Whole-table reductions on every world: pandas' values of the whole table, the same on every rank."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import worlds
from exchanges import LAYOUTS, whole
from hypothesis import given, settings
from hypothesis import strategies as st
from relations import FEW, THREADS, TIGHT, check_clean, on_ranks
from worlds import World, in_turn

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, ColumnMissing, UnsupportedDtype
from gcylon_lab.runtime.context import current
from gcylon_lab.units import parse_bytes

NUMBERS = ["g", "k", "x", "n"]
CASES = [
    ("sum", NUMBERS, {}), ("mean", NUMBERS, {}), ("var", NUMBERS, {}), ("std", NUMBERS, {"ddof": 0}),
    ("min", ["g", "x", "t", "d", "s"], {}), ("max", ["k", "n", "t", "o"], {}), ("count", ["x", "s", "c", "m", "l"], {}),
    ("any", ["b", "k"], {}), ("all", ["b", "g"], {}), ("median", ["g", "x", "n"], {}),
    ("nunique", ["k", "s", "c", "n", "m"], {}),
]  # fmt: skip


class Reduction:
    """A reduction to run on ranks."""

    def __init__(self, name: str, *args: Any, **kwargs: Any) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs

    def __call__(self, table: Any) -> Any:
        return getattr(table, self.name)(*self.args, **self.kwargs)


def assert_equal(ours: pd.Series, theirs: pd.Series) -> None:
    assert list(ours.index) == list(theirs.index)
    for a, b in zip(ours, theirs, strict=True):
        if pd.isna(a) or pd.isna(b):
            assert pd.isna(a) and pd.isna(b)
        elif isinstance(a, (str, dt.date, dt.timedelta, Decimal)):
            assert a == b
        else:
            assert a == pytest.approx(b, rel=1e-12)


@pytest.mark.parametrize(
    ("world", "layout", "name", "columns", "how"),
    [pytest.param(*one[:2], *one[2], id=f"{one[0]}-{one[1]}-{one[2][0]}") for one in in_turn(THREADS, LAYOUTS, CASES)],
)
def test_values_are_those_of_pandas(world: World, layout: str, name: str, columns: list[str], how: Any) -> None:
    everything = whole(layout, world.size)
    if layout == "one row":
        columns = [c for c in columns if c not in ("s", "m", "l", "o")]
    results = world.run(on_ranks, Reduction(name, columns, **how), layout)
    texts = {str([repr(value) for value in result["value"]]) for result in results}
    assert len(texts) == 1, "ranks have different values"
    assert_equal(results[0]["value"], getattr(everything[columns], name)(**how))
    check_clean(results)


@pytest.mark.parametrize("world", FEW, ids=str)
def test_staged_inputs_in_a_small_budget(world: World) -> None:
    everything = whole("even", world.size)
    for name, columns, how in CASES:
        results = world.run(on_ranks, Reduction(name, columns, config=TIGHT, **how), "even", True)
        assert_equal(results[-1]["value"], getattr(everything[columns], name)(**how))
        check_clean(results)
        one = world.run(on_ranks, Reduction(name, columns[0], **how), "even")[0]["value"]
        assert_equal(pd.Series([one]), pd.Series([getattr(everything[columns[0]], name)(**how)]))


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.77, 1.0])
@pytest.mark.parametrize("world", THREADS, ids=str)
def test_quantiles_are_exact(world: World, q: float) -> None:
    rng = np.random.default_rng(6)
    frames = [
        pd.DataFrame(
            {
                "f": np.where(
                    rng.random(9000) < 0.1, np.nan, rng.normal(size=9000) * 10.0 ** rng.integers(-9, 9, 9000)
                ),
                "i": rng.integers(-(2**62), 2**62, 9000),
                "u": rng.integers(0, 2**64 - 1, 9000, dtype="uint64") // 2,
                "z": rng.integers(0, 3, 9000) * 0.5 - 0.5,
                "t": pd.to_datetime(rng.integers(0, 10**9, 9000), unit="s"),
            }
        )
        for _ in range(world.size)
    ]
    everything = pd.concat(frames, ignore_index=True)
    value = world.run(on_ranks, Reduction("quantile", q), frames)[0]["value"]
    expected = pd.Series({c: everything[c].quantile(q) for c in everything})
    assert_equal(value.drop("t"), expected.drop("t"))
    assert abs(value["t"] - expected["t"]) <= pd.Timedelta(1, "us")


@pytest.mark.parametrize("world", FEW, ids=str)
def test_several_quantiles_at_once(world: World) -> None:
    everything = whole("even", world.size)[["g", "x", "t", "n"]]
    asked = [0.9, 0, np.float32(0.5), 0.9]
    for staged, config in ((False, None), (True, TIGHT)):
        verb = Reduction("quantile", asked, list(everything), config=config)
        value = world.run(on_ranks, verb, "even", staged)[0]["value"]
        assert list(value.columns) == list(everything) and value.index.tolist() == asked
        expected = [{c: everything[c].quantile(q) for c in everything} for q in asked]
        for row, values in enumerate(expected):
            assert_equal(value.drop(columns="t").iloc[row], pd.Series(values).drop("t"))
            assert abs(value["t"].iloc[row] - values["t"]) <= pd.Timedelta(1, "us")
    one = world.run(on_ranks, Reduction("quantile", (0.1, 0.2), "x"), "even")[0]["value"]
    pd.testing.assert_series_equal(one, everything["x"].quantile([0.1, 0.2]))
    none = world.run(on_ranks, Reduction("quantile", (0.1, 0.2), ["x", "t"]), "all empty")[0]["value"]
    assert none.isna().all(axis=None) and none.shape == (2, 2)


def test_numbers_only_and_rows() -> None:
    results = World("threads", 2).run(on_ranks, Reduction("mean", numeric_only=True), "even")
    assert list(results[0]["value"].index) == ["g", "k", "x", "b", "n", "m"]
    assert [r["value"] for r in World("threads", 2).run(on_ranks, Reduction("count_rows"), "even")] == [607, 607]


def floats(rank_rows: int) -> list[pd.DataFrame]:
    rng = np.random.default_rng(8)
    return [pd.DataFrame({"v": rng.normal(size=rank_rows) * 10.0 ** rng.integers(-9, 9, rank_rows)}) for _ in range(3)]


def test_sums_of_floats_have_the_same_bits_however_they_are_run() -> None:
    world, frames = World("threads", 3), floats(20_000)
    found = set()
    for config in (None, TIGHT, TIGHT.with_values(chunk_size_bytes=1024)):
        for staged in (False, True):
            for name in ("sum", "mean"):
                found |= {
                    (name, r["value"]) for r in world.run(on_ranks, Reduction(name, "v", config=config), frames, staged)
                }
    if worlds.ENGINE == "gpu":  # whose kernels add in an order of their own, piece by piece
        for name in ("sum", "mean"):
            values = [value for one, value in found if one == name]
            assert np.ptp(values) <= 1e-12 * np.abs(values).max()
    else:
        assert len(found) == 2


def failing(verb: Reduction) -> None:
    table = gl.from_local(pd.DataFrame({"v": [1.0, 2.0], "s": ["a", "b"], "l": [[1], [2]]}))
    try:
        verb(table)
    except gl.GcylonError as error:
        assert table.sum("v") == 3.0 * gl.current().size  # what comes next works
        raise error


@pytest.mark.parametrize(
    ("verb", "error", "words"),
    [
        (Reduction("sum"), UnsupportedDtype, "'s'"),
        (Reduction("median"), UnsupportedDtype, "median(numeric_only=True) takes the columns of numbers."),
        (Reduction("quantile", [0.5, "x"], "v"), ArgumentError, "for q, got 'x'"),
        (Reduction("quantile", [], "v"), ArgumentError, "no quantile in q"),
        (Reduction("quantile", None, "v"), ArgumentError, "for q, got None"),
        (Reduction("quantile", [[0.5]], "v"), ArgumentError, "for q, got [0.5]"),
        (Reduction("nunique", "l"), UnsupportedDtype, "'l'"),
        (Reduction("mean", ["v", "nope"]), ColumnMissing, "'nope'"),
        (Reduction("quantile", 1.5, "v"), ArgumentError, "1.5"),
        (Reduction("max", "l"), UnsupportedDtype, "'l'"),
    ],
)
def test_what_cannot_be_is_refused_on_all_ranks(verb: Reduction, error: type, words: str) -> None:
    for outcome in World("threads", 3).outcomes(failing, verb):
        assert isinstance(outcome.error, error), outcome.error
        assert words in str(outcome.error)


@settings(max_examples=50)
@given(
    values=st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False, width=32)), max_size=40),
    size=st.integers(1, 4),
    q=st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]),
)
def test_any_values_on_any_ranks(values: list[Any], size: int, q: float) -> None:
    frame = pd.DataFrame({"v": np.array(values, dtype="float64")})
    frames = [frame.iloc[len(frame) * r // size : len(frame) * (r + 1) // size] for r in range(size)]
    world = World("threads", size)
    for name, args in (("sum", ()), ("max", ()), ("nunique", ()), ("quantile", (q,)), ("std", ())):
        ours = world.run(on_ranks, Reduction(name, *args, columns="v"), frames)[0]["value"]
        theirs = getattr(frame["v"], name)(*args)
        assert (pd.isna(ours) and pd.isna(theirs)) or ours == pytest.approx(
            theirs, rel=1e-9, abs=1e-30 + 1e-12 * max(map(abs, filter(None, values)), default=0)
        )


def numbers(rows: int, rank: int) -> pd.DataFrame:
    rng = np.random.default_rng(rank)
    return pd.DataFrame({name: rng.normal(size=rows) for name in "abc"} | {"d": np.arange(rows), "e": 7})


def describing(rows: int, limit: str) -> dict[str, Any]:
    """Describe five columns that are staged; how often they were read, and in what pieces."""
    context = current()
    table = gl.from_local(numbers(rows, context.rank))
    table._part.stage(context.workspace, 2**40, 16384)
    backend, largest = context.workspace.backend, [0]
    aggregate = backend.aggregate

    def watched(data: Any, *args: Any, **how: Any) -> Any:
        largest[0] = max(largest[0], data.rows)
        return aggregate(data, *args, **how)

    backend.aggregate = watched  # type: ignore[method-assign]
    found = table.describe(config=GcylonConfig(gpu_memory_limit=limit))
    record = context.recorder.operations[-1]
    return {
        "found": found,
        "passes": record.unstaged_bytes / record.bytes_in,
        "largest": largest[0],
        "peak": record.measured_peak_bytes,
        "predicted": record.predicted_peak_bytes / record.measured_peak_bytes,
    }


@pytest.mark.parametrize(
    ("limit", "passes", "largest"), [("8 MiB", 8, 29_000), ("1 MiB", 8, 4000), ("256 KiB", 14, 1000)]
)
def test_columns_are_described_in_shared_passes(limit: str, passes: int, largest: int) -> None:
    rows = 30_000
    expected = pd.concat([numbers(rows, rank) for rank in range(2)]).describe()
    for seen in World("threads", 2).run(describing, rows, limit):
        pd.testing.assert_frame_equal(seen["found"], expected)
        assert seen["passes"] < passes
        # Of small pieces on GPU ranks three times as much is counted as libcudf takes, so pieces are smaller there.
        on_gpu = worlds.ENGINE == "gpu"
        assert 0.9 < seen["predicted"] < (3.2 if on_gpu else 1.2)
        assert seen["peak"] <= parse_bytes(limit)
        # What is made of a piece without keys is one row, and nothing else is held meanwhile.
        assert seen["largest"] > (largest / 5 if on_gpu else largest)


@pytest.mark.parametrize("size", [1, 8])
def test_quantiles_in_hardly_any_memory(size: int) -> None:
    world, config = World("threads", size), GcylonConfig(gpu_memory_limit="8 KiB")
    frames = [numbers(2000, rank) for rank in range(size)]
    everything = pd.concat(frames)
    for q in (0.25, 0.999):
        found = world.run(on_ranks, Reduction("quantile", q, config=config), frames, True)
        assert_equal(found[0]["value"], everything.quantile(q))
        check_clean(found)


def with_texts(percent: int) -> tuple[list[float], bool]:
    """Medians of a table with texts of which a part is evicted, in so much of its size."""
    n, context = np.arange(6000), current()
    frame = pd.DataFrame({"a": n % 997, "b": n * 0.5, "n": pd.array(n, "Int64"), "s": ["a text of some length"] * 6000})
    table = gl.from_local([frame[i : i + 750].assign(t="and one more") for i in range(0, 6000, 750)])
    limit = table.nbytes * percent // 100
    found = table.median(numeric_only=True, config=GcylonConfig(gpu_memory_limit=limit))
    return found.tolist(), context.recorder.operations[-1].measured_peak_bytes <= limit


@pytest.mark.parametrize("percent", [60, 101, 110, 120, 130, 150])
def test_small_chunks_that_do_not_fit_together_are_looked_at_one_by_one(percent: int) -> None:
    """Of staged texts more is read back than the numbers that are looked at, and joined chunks are there twice."""
    n = np.arange(6000)
    assert World("threads", 1).run(with_texts, percent) == [([np.median(n % 997), 2999.5 * 0.5, 2999.5], True)]
