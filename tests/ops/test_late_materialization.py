"""Distinct rows of tables larger than their budget: which rows stay is found first, and only these are copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import worlds
from relations import THREADS, assert_same_rows, check_clean, on_ranks, together
from worlds import World, in_turn, marked

from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.exec.local_executor import LocalExecutor
from gcylon_lab.operators.distinct import late_materialization
from gcylon_lab.runtime.context import current

FIRST = "found by their keys and positions first"
ROWS = 6000
TIGHT = GcylonConfig(gpu_memory_limit="150 KiB", min_chunk_rows=1)


COPIED = "GPU engines send whole rows"


def found_first(result: dict[str, Any]) -> bool:
    """Whether the rows that stay were found by their keys first; on GPU ranks, that they were not."""
    return (FIRST in result["explained"]) == (worlds.ENGINE == "cpu")


class Drop:
    """A drop_duplicates to run on ranks, perhaps of a table that is spread by some keys already."""

    def __init__(self, subset: Any, keep: str = "first", strategy: str = "auto", *, by: Any = None) -> None:
        self.subset, self.keep, self.strategy, self.by = subset, keep, strategy, by

    def __call__(self, table: Any) -> Any:
        if self.by is not None:
            table = table.shuffle(self.by, keep_order=True, strategy="staged", config=TIGHT)
        return table.drop_duplicates(self.subset, keep=self.keep, strategy=self.strategy, config=TIGHT)


def wide(keys: int, rows: int = ROWS) -> pd.DataFrame:
    """Rows that are large beside their keys, each with a number of its own."""
    rng = np.random.default_rng(keys)
    k = rng.integers(0, keys, rows)
    frame = pd.DataFrame({"k": k, **{name: rng.random(rows) for name in "abcdef"}, "g": np.arange(rows)})
    frame["s"] = pd.Series([f"text {n % 50}" * (n % 4) for n in k.tolist()], dtype="str")
    return frame.assign(x=np.where(k % 5 == 0, np.nan, k % 7 - 3.0) * 0.0 + k % 3)


def cut(frame: pd.DataFrame, size: int, *, uneven: bool = False) -> list[pd.DataFrame]:
    """Rows of each rank; uneven, the first one has none and the last one most."""
    at = [len(frame) * rank // size for rank in range(size + 1)]
    if uneven:
        at = [0, *(rank * 7 for rank in range(size - 1)), len(frame)]
    return [frame.iloc[start:stop] for start, stop in zip(at[:-1], at[1:], strict=True)]


@pytest.mark.parametrize(
    ("world", "keys", "subset", "keep"),
    marked(
        in_turn(
            [World("threads", 2), World("threads", 4), World("mpi", 2)],
            [3, 700, 10**9],
            [["k"], ["s"], ["x", "k"]],
            ["first", "last"],
        )
    ),
)
def test_rows_stay_as_pandas_keeps_them(world: World, keys: int, subset: list[str], keep: str) -> None:
    frame = wide(keys)
    strategy = "auto" if (subset == ["s"]) == (keep == "last") else "staged"
    frames = cut(frame, world.size, uneven=subset == ["s"])
    results = world.run(on_ranks, Drop(subset, keep, strategy), frames, keep == "last")
    assert_same_rows(together(results), frame.drop_duplicates(subset, keep=keep), ["g"])
    check_clean(results)
    assert all(map(found_first, results))
    # Rows of one key are where a shuffle brings them.
    plain = world.run(on_ranks, Placed(subset, keep), frames)
    for mine, other in zip(results, plain, strict=True):
        assert sorted(mine["frame"]["g"]) == sorted(other["frame"]["g"])
        assert FIRST not in other["explained"]


class Placed(Drop):
    """The same where all of it fits."""

    def __call__(self, table: Any) -> Any:
        return table.drop_duplicates(self.subset, keep=self.keep, strategy="direct")


@pytest.mark.cpu_alone(COPIED)
@pytest.mark.parametrize("keys", [3, 700, 10**9])
@pytest.mark.parametrize("strategy", ["auto", "staged"])
def test_the_peak_is_predicted(strategy: str, keys: int) -> None:
    for staged in (False, True):
        for result in World("threads", 2).run(on_ranks, Drop("k", strategy=strategy), cut(wide(keys), 2), staged):
            assert 0.9 < result["predicted"] / result["peak"] < 1.2
            assert result["peak"] <= result["limit"]


@pytest.mark.cpu_alone(COPIED)
def test_only_rows_that_stay_travel() -> None:
    """Of 700 keys in 6,000 rows of about 90 bytes, which do not fit as partial results of whole rows."""
    frame = wide(700)
    for result in World("threads", 2).run(on_ranks, Drop("k"), cut(frame, 2)):
        assert result["sent"] < 700 * 90 + ROWS / 2 * 16 + 4096


@pytest.mark.parametrize("world", THREADS, ids=str)
def test_what_is_together_is_not_sent(world: World) -> None:
    frame = wide(700)
    results = world.run(on_ranks, Drop(["k", "x"], by="k"), cut(frame, world.size))
    assert all(result["sent"] == 0 for result in results)
    assert all("not shuffled" in result["explained"] and found_first(result) for result in results)
    assert_same_rows(together(results), frame.drop_duplicates(["k", "x"]), ["g"])


def test_keys_of_other_dtypes_on_one_rank() -> None:
    frame = wide(700)
    frames = cut(frame, 2)
    frames[1] = frames[1].astype({"k": "int16", "x": "float32"})
    results = World("threads", 2).run(on_ranks, Drop(["k", "x"], "last"), frames)
    assert all(map(found_first, results))
    assert_same_rows(together(results), frame.drop_duplicates(["k", "x"], keep="last"), ["g"])


def test_keys_as_large_as_rows_are_not_looked_at_first() -> None:
    frame = wide(700)[["k", "g"]]
    for result in World("threads", 2).run(on_ranks, Drop(["k"], strategy="staged"), cut(frame, 2)):
        assert FIRST not in result["explained"]


def test_keys_and_positions_are_put_down_in_large_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = LocalExecutor._stage
    put: list[int] = []

    def counted(self: Any, part: Any, data: Any, *claims: Any) -> None:
        if len(data.schema) == 2:  # whole rows have more columns
            put.append(data.nbytes)
        stage(self, part, data, *claims)

    monkeypatch.setattr(LocalExecutor, "_stage", counted)
    monkeypatch.setattr("test_late_materialization.TIGHT", GcylonConfig(gpu_memory_limit="4 MiB"))
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"k": rng.integers(0, 10**9, 600_000), **dict.fromkeys("abcd", 1.5)})
    (result,) = World("threads", 1).run(on_ranks, Drop("k"), [frame])
    assert len(result["frame"]) == frame["k"].nunique()
    assert sum(put) > 2 * 2**22, "all of them, once before they are grouped and once after"
    assert sum(put) / len(put) > 32 * 1024


@pytest.mark.parametrize("keys", [3, 700, 10**9])
@pytest.mark.parametrize("size", [1, 2])
def test_keys_are_free_as_soon_as_their_positions_are_marked(
    monkeypatch: pytest.MonkeyPatch, size: int, keys: int
) -> None:
    """Where rows with equal keys are together already, positions are read where their keys are."""
    world, frame = World("threads", size), wide(keys)
    frame["k"] = pd.Series([f"a key of some length, and its number {n:010}" for n in frame["k"].tolist()], dtype="str")
    use_up = late_materialization._RowBitmap.use_up

    def watched(self: Any, where: Any, name: Any) -> None:
        budget, rows = current().budget, where.rows
        held, before = where.tiers["device"], current().budget.used_bytes
        use_up(self, where, name)
        seen.append((rows, held, before - budget.used_bytes))

    seen: list[tuple[int, int, int]] = []
    monkeypatch.setattr(late_materialization._RowBitmap, "use_up", watched)
    results = world.run(on_ranks, Drop("k", by="k"), cut(frame, size))
    assert_same_rows(together(results), frame.drop_duplicates("k"), ["g"])
    check_clean(results)
    assert len(seen) == size
    assert sum(rows for rows, _, _ in seen) == frame["k"].nunique()
    for _, held, freed in seen:
        assert freed == held
    assert any(held for _, held, _ in seen)
