"""Many columns of one width are planes of one array, wherever rows are staged, sent or read back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from calls import calls_of
from worlds import World

import gcylon_lab as gl
from gcylon_lab.runtime.context import current

COLUMNS = 100
BYTES = 800_000  # of a rank's table, in any number of columns
# How many calls a further column may take where a table of that size goes through a tenth of it in pieces: that of
# group-by's steps is some hundred, whatever the number of pieces.
VERBS: dict[str, tuple[int, Callable[..., gl.Table]]] = {
    "shuffle": (100, lambda t, **how: t.shuffle("k", **how)),
    "sort": (100, lambda t, **how: t.sort_values("k", **how)),
    "repartition": (100, lambda t, **how: t.repartition(**how)),
    "filter": (100, lambda t, **how: t.filter(gl.col("k") % 2 == 0, **how)),
    "distinct": (400, lambda t, **how: t.drop_duplicates("k", **how)),
    "groupby": (1000, lambda t, **how: t.groupby("k").agg({c: "sum" for c in t.columns if c != "k"}, **how)),
}


def make_frame(rank: int, *, strings: bool) -> pd.DataFrame:
    random, rows = np.random.default_rng(rank), 700 - 300 * rank
    columns = {f"v{i}": random.random(rows) if i % 7 else random.integers(0, 9, rows) for i in range(COLUMNS)}
    columns["t"] = (random.integers(0, 2**40, rows) * 1000).view("datetime64[us]")
    if strings:
        columns["s"] = pd.Series([None if i % 5 == 0 else "x" * (i % 40) for i in range(rows)], dtype="str")
    return pd.DataFrame({"k": random.integers(0, 50, rows), **columns})


def shuffle(strings: bool, keep_order: bool) -> tuple[pd.DataFrame, pd.DataFrame, list[int], pd.DataFrame]:
    context = current()
    table = gl.from_local(make_frame(context.rank, strings=strings))
    config = gl.GcylonConfig(gpu_memory_limit=200_000, min_chunk_rows=1)
    result = table.shuffle("k", strategy="staged", config=config, keep_order=keep_order)
    lengths = [len(chunk.region.lengths) for chunk in result._live().chunks]
    some = result.select(["v3", "k", *(["s"] if strings else [])]).local()
    return table.local(), result.local(), lengths, some


@pytest.mark.cpu_alone("how rows lie in files of CPU engines")
@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("keep_order", [False, True])
def test_a_staged_shuffle_has_one_buffer_for_all_fixed_columns(strings: bool, keep_order: bool) -> None:
    found = World("threads", 2).run(shuffle, strings, keep_order)
    order = None if keep_order else ["v1", "v2"]
    given = pd.concat([one[0] for one in found], ignore_index=True)
    direct = World("threads", 2).run(shuffled, strings)
    for (_, result, lengths, some), expected in zip(found, direct, strict=True):
        if order:
            expected, arrived = (f.sort_values(order, ignore_index=True) for f in (expected, result))
        else:
            arrived = result
        pd.testing.assert_frame_equal(arrived, expected)
        pd.testing.assert_frame_equal(some, result[list(some.columns)])
        assert lengths and set(lengths) == {1 + strings}
    assert sum(len(one[1]) for one in found) == len(given)


def shuffled(strings: bool) -> pd.DataFrame:
    """The same, in memory."""
    return gl.from_local(make_frame(current().rank, strings=strings)).shuffle("k", keep_order=True).local()


def calls_in_pieces(verb: str, columns: int) -> int:
    """Calls on one rank of the same bytes in so many columns."""
    rows, random = BYTES // (8 * columns), np.random.default_rng(current().rank)
    values = {f"v{i}": random.random(rows) for i in range(columns - 1)}
    table = gl.from_local(pd.DataFrame({"k": random.integers(0, rows // 8, rows), **values}))
    config = gl.GcylonConfig(gpu_memory_limit=BYTES // 10, min_chunk_rows=1)

    def run() -> None:
        VERBS[verb][1](table, config=config).release()

    if current().rank == 0:
        return calls_of(run)
    run()
    run()  # as often as the other
    return 0


@pytest.mark.cpu_alone("what Python does on CPU engines")
@pytest.mark.parametrize("verb", VERBS)
def test_what_columns_cost_by_themselves(verb: str) -> None:
    few, many = (World("threads", 2).run(calls_in_pieces, verb, columns)[0] for columns in (100, 400))
    assert (many - few) / 300 <= VERBS[verb][0], (few, many)


def deviations(columns: int) -> tuple[pd.Series, pd.Series]:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(BYTES // (8 * columns), columns)))
    config = gl.GcylonConfig(gpu_memory_limit=BYTES // 10, min_chunk_rows=1)
    return frame.std(), pd.Series(gl.from_local(frame).std(config=config))


def test_reductions_of_many_columns_fit_a_tenth_of_them() -> None:
    """What rows are added to is as wide as many of them: pieces leave room for it."""
    ((wanted, found),) = World("single", 1).run(deviations, 400)
    pd.testing.assert_series_equal(found, wanted, check_names=False)
