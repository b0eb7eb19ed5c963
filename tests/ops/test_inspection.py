"""tail and sample on every world."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import LAYOUTS, whole
from relations import FEW, THREADS, TIGHT, check_clean, on_ranks
from worlds import World

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError


class Verb:
    """A verb to run on ranks."""

    def __init__(self, name: str, *args: Any, **kwargs: Any) -> None:
        self.name, self.args, self.kwargs = name, args, kwargs

    def __call__(self, table: Any) -> Any:
        return getattr(table, self.name)(*self.args, **self.kwargs)


@pytest.mark.parametrize(
    "verb", [Verb("head", "3"), Verb("head", -1), Verb("tail", "3"), Verb("tail", -1), Verb("to_pandas", 2.5)]
)
def test_what_is_no_number_of_rows_is_refused(verb: Verb) -> None:
    name = "limit" if verb.name == "to_pandas" else "n"
    for outcome in World("threads", 2).outcomes(on_ranks, verb, "even", False):
        assert isinstance(outcome.error, ArgumentError)
        assert f"Expected a number of rows for {name}, got {verb.args[0]!r}." in str(outcome.error)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("world", THREADS, ids=str)
def test_tail_is_the_end_of_the_whole_table(world: World, layout: str) -> None:
    everything = whole(layout, world.size)
    for n in (0, 3, 500, 10_000):
        for staged in (False, True):
            for result in world.run(on_ranks, Verb("tail", n), layout, staged):
                expected = everything.tail(n)["g"].tolist() if n else []
                assert result["value"]["g"].tolist() == expected


def taken(world: World, frames: Any, staged: bool = False, **how: Any) -> list[int]:
    results = world.run(on_ranks, Verb("sample", **how), frames, staged)
    check_clean(results)
    return [g for result in results for g in result["frame"]["g"].tolist()]


def cut(rows: int, size: int) -> list[pd.DataFrame]:
    frame = pd.DataFrame({"g": np.arange(rows), "s": [f"text {i}" for i in range(rows)]})
    return [frame.iloc[rows * r // size : rows * (r + 1) // size] for r in range(size)]


def test_a_sample_is_the_same_on_any_number_of_ranks() -> None:
    found = {
        tuple(taken(World("threads", size), cut(5000, size), staged, n=700, seed=5, config=config))
        for size in (1, 2, 3, 4)
        for staged in (False, True)
        for config in (None, TIGHT)
    }
    assert len(found) == 1
    rows = list(found.pop())
    assert len(set(rows)) == len(rows) == 700 and rows == sorted(rows)
    assert taken(World("threads", 2), cut(5000, 2), n=700, seed=6) != rows


@pytest.mark.parametrize("world", FEW, ids=str)
def test_samples_have_the_rows_asked_for(world: World) -> None:
    frames = cut(3000, world.size)
    assert len(taken(world, frames, n=0)) == 0
    assert len(taken(world, frames, n=1)) == 1
    assert taken(world, frames, n=3000) == list(range(3000))
    assert len(taken(world, frames, frac=0.25)) == 750


def test_every_row_has_its_chance() -> None:
    counts = np.zeros(200, int)
    with gl.initialize(sample_hz=0):
        table = gl.from_local(pd.DataFrame({"g": np.arange(200)}))
        for seed in range(300):
            counts[table.sample(20, seed=seed).local()["g"].to_numpy()] += 1
    # 30 of each, with a deviation of 5.2.
    assert counts.sum() == 6000 and counts.min() >= 8 and counts.max() <= 56
    assert abs(np.corrcoef(counts, np.arange(200))[0, 1]) < 0.3


def failing(how: dict[str, Any]) -> None:
    gl.from_local(pd.DataFrame({"g": [1, 2]})).sample(**how)


@pytest.mark.parametrize("how", [{}, {"n": 1, "frac": 0.5}, {"frac": 2.0}, {"n": 99}, {"n": -1}])
def test_what_cannot_be_taken_is_told_to_all(how: dict[str, Any]) -> None:
    for outcome in World("threads", 2).outcomes(failing, how):
        assert isinstance(outcome.error, ArgumentError)


def recorded_of_looks() -> list[str]:
    table = gl.from_local(pd.DataFrame({"k": range(100)})).sort_values("k")
    assert len(table.head(8)) == len(table.tail(8)) == len(table.k.head(8)) == len(table[:8]) == 8
    recorder = gl.current().recorder
    looked = [record.verb for record in recorder.operations]
    table.to_pandas()
    return [*looked, recorder.operations[-1].verb]


def test_a_look_at_some_rows_is_no_operation_of_the_profile() -> None:
    for recorded in World("threads", 2).run(recorded_of_looks):
        assert recorded == ["from_local", "sort_values", "allgather"]
