"""Shuffles whose texts and missing values too are written straight into the results of other ranks.

Here numpy does it, between threads (see `mapped`). What GPUs do is tested in tests/tables/test_writing.py.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import LAYOUTS, make_frame
from mapped import WritingPandas, refuse_on_rank_1, run_mapped
from same_frames import assert_frames_equal
from worlds import World, in_turn

import gcylon_lab as gl
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import BudgetExceeded
from gcylon_lab.runtime.context import current

WRITTEN = ["g", "k", "x", "b", "s", "c", "n", "t", "d", "p", "o"]
LIMIT = GcylonConfig(gpu_memory_limit="600 KiB", chunk_size_bytes=8192, min_chunk_rows=1)
SMALL = GcylonConfig(chunk_size_bytes=4096, min_chunk_rows=1)
PLANS: dict[str, tuple[str, GcylonConfig | None]] = {
    "direct": ("direct", None), "small direct": ("direct", SMALL), "chunked": ("chunked", LIMIT),
    "staged": ("staged", LIMIT),
}  # fmt: skip


def frame_of(layout: str, rank: int, size: int, rows: int = 300) -> pd.DataFrame:
    """As `make_frame`, with decimals of as many digits on all ranks."""
    frame = make_frame(layout, rank, size, rows)
    prices = [None if g % 7 == 0 else Decimal(100 + g % 800).scaleb(-2) for g in frame["g"].tolist()]
    return frame.assign(p=pd.Series(prices, index=frame.index, dtype=object))


HELD = ("one chunk", "many chunks", "one rank staged")


def shuffle(
    layout: str, columns: list[str], strategy: str, config: GcylonConfig | None, how: str, rows: int = 300
) -> dict[str, Any]:
    context = current()
    frame = frame_of(layout, context.rank, context.size, rows)[columns]
    step = 23 if how == "many chunks" else max(len(frame), 1)
    table = gl.from_local([frame.iloc[i : i + step] for i in range(0, max(len(frame), 1), step)])
    if how == "one rank staged" and context.rank == 1:
        table._part.stage(context.workspace, table.nbytes, 1500)
    before = (context.budget.used_bytes, context.spill.used_bytes)
    plan = table.plan_shuffle("k", strategy=strategy, config=config)
    result = table.shuffle("k", strategy=strategy, config=config, keep_order=True)
    record = context.recorder.operations[-1]
    found = {"frame": result.local(), "peak": record.measured_peak_bytes, "chunks": len(result._part.chunks)}
    found |= {"limit": context.workspace.limit_for(config or context.config), "received": record.received_bytes}
    found |= {"sent": int(record.sent_to.sum()), "predicted": record.predicted_peak_bytes, "nbytes": result.nbytes}
    found["estimated"] = plan.predicted_peaks[context.rank]
    result.release()
    found["left"] = before == (context.budget.used_bytes, context.spill.used_bytes)
    found["written"] = getattr(context, "made", 0)
    return found


@cache
def wanted(layout: str, size: int, columns: tuple[str, ...]) -> list[pd.DataFrame]:
    frames = World("threads", size).run(shuffle, layout, list(columns), "direct", None, "one chunk")
    return [found["frame"] for found in frames]


@pytest.mark.parametrize(
    ("size", "layout", "plan", "how"),
    [  # every pair of two of these
        ((2, 3, 4)[(i + j) % 3], layout, plan, HELD[(i + 2 * j) % 3])
        for i, layout in enumerate(LAYOUTS)
        for j, plan in enumerate(PLANS)
    ],
)
def test_rows_are_those_of_other_transports(size: int, layout: str, plan: str, how: str) -> None:
    strategy, config = PLANS[plan]
    mine = run_mapped(size, shuffle, layout, WRITTEN, strategy, config, how, backend=WritingPandas)
    for found, frame in zip(mine, wanted(layout, size, tuple(WRITTEN)), strict=True):
        assert_frames_equal(found["frame"], frame)
        assert found["left"] and found["peak"] <= found["limit"]
    rows = [len(make_frame(layout, rank, size)) for rank in range(size)]
    # The one row there is lacks values of which nothing tells what they were.
    writes = strategy != "staged" and (how != "one rank staged" or not rows[1]) and layout != "one row"
    assert [n["written"] > 0 for n in mine] == [writes and n > 0 for n in rows]
    if writes:
        assert all(found["chunks"] == (len(found["frame"]) > 0) for found in mine)
        assert sum(found["sent"] for found in mine) == pytest.approx(sum(f["received"] for f in mine), rel=0.02)


@pytest.mark.parametrize("columns", [["k", "s", "l"], ["k", "s", "m"]], ids=["lists", "other dtypes"])
def test_some_columns_are_packed(columns: list[str]) -> None:
    """Columns that have no planes, and those that have to be brought to other dtypes: all ranks pack."""
    mine = run_mapped(2, shuffle, "even", columns, "direct", SMALL, "one chunk", backend=WritingPandas)
    for found, frame in zip(mine, wanted("even", 2, tuple(columns)), strict=True):
        assert_frames_equal(found["frame"], frame)
        assert not found["written"]


def test_too_many_characters_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 32 bits reach, on one rank: all ranks learn it when they have counted, and none writes."""
    monkeypatch.setattr("gcylon_lab.engine.exchange.routes.MOST_CHARS", 500)
    mine = run_mapped(2, shuffle, "even", WRITTEN, "direct", SMALL, "one chunk", backend=WritingPandas)
    for found, frame in zip(mine, wanted("even", 2, tuple(WRITTEN)), strict=True):
        assert_frames_equal(found["frame"], frame)
        assert found["written"] and found["left"]


class Allocating(WritingPandas):
    """As on GPUs, whose allocator raises a MemoryError where a limit is met: here on rank 1, in the midst of rounds."""

    on_gpu = True

    def fixed_views(self, data: Any, start: int, stop: int) -> list[Any]:
        self.looked = getattr(self, "looked", 0) + 1
        if current().rank == 1 and self.looked == 2:
            raise MemoryError("planted")
        return super().fixed_views(data, start, stop)


def moved_after_all() -> tuple[list[int], str, int]:
    context = current()
    table = gl.from_local(pd.DataFrame({"g": np.arange(2000) + 2000 * context.rank}))
    config = GcylonConfig(gpu_memory_limit="256 KiB", chunk_size_bytes=4096, min_chunk_rows=1)
    result = table.repartition([1000, 3000], config=config)
    strategy, rows = context.recorder.operations[-1].strategy, result.local()["g"].tolist()
    result.release()
    table.release()
    return rows, strategy, context.budget.used_bytes


@pytest.mark.cpu_alone("what stands for the allocator is a CPU rank's, which is a thread")
def test_where_the_allocator_of_one_rank_says_no_in_a_round_all_ranks_stage() -> None:
    first, second = run_mapped(2, moved_after_all, backend=Allocating)
    assert first == (list(range(1000)), "staged", 0) and second == (list(range(1000, 4000)), "staged", 0)


@pytest.mark.parametrize("columns", [["g", "k", "x", "s", "n", "o"], ["k", "s"], ["k", "n"]], ids=len)
def test_no_copy_is_planned_or_made(columns: list[str]) -> None:
    """Input, result, its ids and counts, and a byte for each row of a column in which values are missing."""
    rows, size = 40_000, 2
    for found in run_mapped(size, shuffle, "even", columns, "direct", None, "one chunk", rows, backend=WritingPandas):
        assert found["peak"] < 2.25 * found["nbytes"] + 4 * rows + 300_000
        assert 0.9 < found["predicted"] / found["peak"] < 1.1
        assert 0.9 < found["estimated"] / found["peak"] < 1.1


def one_rank_lacks_memory_for_ids() -> dict[str, Any]:
    """Rank 1 cannot keep its ids, and so cannot write: all pack."""
    context = current()
    table = gl.from_local(frame_of("even", context.rank, context.size)[WRITTEN])
    refuse_on_rank_1("Partition ids")
    result = table.shuffle("k", strategy="direct", config=SMALL, keep_order=True)
    return {"frame": result.local(), "chunks": len(result._part.chunks)}


def test_a_rank_that_cannot_write_lets_all_pack() -> None:
    mine = run_mapped(2, one_rank_lacks_memory_for_ids, backend=WritingPandas)
    for found, frame in zip(mine, wanted("even", 2, tuple(WRITTEN)), strict=True):
        assert_frames_equal(found["frame"], frame)


def shuffle_down(layout: str, columns: list[str], config: GcylonConfig, rows: int) -> dict[str, Any]:
    """Shuffle below the device tier, in any order."""
    context = current()
    frame = frame_of(layout, context.rank, context.size, rows)[columns]
    table = gl.from_local([frame.iloc[: rows // 3], frame.iloc[rows // 3 :]])
    before = (context.budget.used_bytes, context.spill.used_bytes)
    result = table.shuffle("k", strategy="staged", config=config)
    record, plan = context.recorder.operations[-1], result.last_plan
    found = {"frame": result.local(), "peak": record.measured_peak_bytes, "limit": config.gpu_memory_limit}
    found |= {"tiers": dict(result._part.tiers), "predicted": record.predicted_peak_bytes, "rounds": plan.rounds}
    found |= {"done": (record.rounds_done, record.rounds), "used": before[0]}
    result.release()
    found["left"] = before == (context.budget.used_bytes, context.spill.used_bytes)
    found["written"] = getattr(context, "made", 0)
    return found


def in_any_order(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values("g", ignore_index=True)


@pytest.mark.parametrize(("size", "layout"), [*in_turn([1, 2, 3, 4], LAYOUTS), *in_turn([3, 4, 1, 2], LAYOUTS)])
def test_a_staged_result_is_written_in_turns(size: int, layout: str) -> None:
    config = GcylonConfig(gpu_memory_limit="1200 KiB", chunk_size_bytes=4096, min_chunk_rows=1)
    mine = run_mapped(size, shuffle_down, layout, WRITTEN, config, 900, backend=WritingPandas)
    plain = World("threads", size).run(shuffle_down, layout, WRITTEN, config, 900)
    for found, other in zip(mine, plain, strict=True):
        assert_frames_equal(in_any_order(found["frame"]), in_any_order(other["frame"]))
        assert found["left"] and found["peak"] <= found["limit"] and not found["tiers"]["device"]
        assert found["done"] == (found["rounds"], found["rounds"])


@pytest.mark.parametrize("factor", [1.3, 1.8])
def test_turns_are_as_large_as_fits(factor: float) -> None:
    """Ten thousands of rows in some turns, of which the plan after counting knows what they take."""
    rows, columns = 40_000, ["g", "k", "x", "s", "n", "o"]
    inputs = run_mapped(2, shuffle_down, "even", columns, GcylonConfig(gpu_memory_limit="1 GiB"), rows)[0]["used"]
    config = GcylonConfig(gpu_memory_limit=int(factor * inputs), min_chunk_rows=64, chunk_size_bytes="64 KiB")
    for found in run_mapped(2, shuffle_down, "even", columns, config, rows, backend=WritingPandas):
        assert found["written"] == found["rounds"] == np.ceil(3.5 / (factor - 1)).astype(int) and found["left"]
        assert found["peak"] <= found["limit"]
        assert 0.85 < found["predicted"] / found["peak"] < 1.15


def test_turns_are_halved_where_one_rank_gets_all_rows() -> None:
    """All ranks see it once they have counted, before memory is taken for it."""
    rows, columns = 40_000, ["g", "k", "x", "s", "n", "o"]
    inputs = run_mapped(2, shuffle_down, "one key", columns, GcylonConfig(gpu_memory_limit="1 GiB"), rows)[0]["used"]
    config = GcylonConfig(gpu_memory_limit=int(1.6 * inputs), min_chunk_rows=64, chunk_size_bytes="64 KiB")
    found = run_mapped(2, shuffle_down, "one key", columns, config, rows, backend=WritingPandas)
    assert min(len(one["frame"]) for one in found) == 0
    for one in found:
        assert one["left"] and one["peak"] <= one["limit"] and one["rounds"] > np.ceil(3.5 / 0.6)


def fails_in_a_turn(claim: str) -> tuple[str, bool, Any]:
    context = current()
    table = gl.from_local(frame_of("even", context.rank, context.size, 900)[WRITTEN])
    before = (context.budget.used_bytes, context.spill.used_bytes)
    refuse_on_rank_1(claim)
    config = GcylonConfig(gpu_memory_limit="1200 KiB", chunk_size_bytes=4096, min_chunk_rows=1)
    text, frame = "", None
    try:
        result = table.shuffle("k", strategy="staged", config=config)
    except BudgetExceeded as error:
        text = str(error)
    else:
        frame = result.local()
        result.release()
    return text, before == (context.budget.used_bytes, context.spill.used_bytes), frame


@pytest.mark.parametrize("claim", ["The result", "Packing rows to be staged"])
def test_a_turn_without_memory_is_an_error_on_all_ranks(claim: str) -> None:
    for text, left, _ in run_mapped(2, fails_in_a_turn, claim, backend=WritingPandas):
        assert "planted" in text and left


def test_without_memory_for_ids_a_turn_is_packed() -> None:
    plain = run_mapped(2, fails_in_a_turn, "nothing", backend=PandasBackend)
    for (text, left, frame), (_, _, other) in zip(
        run_mapped(2, fails_in_a_turn, "Partition ids", backend=WritingPandas), plain, strict=True
    ):
        assert not text and left
        assert_frames_equal(in_any_order(frame), in_any_order(other))


def group(config: GcylonConfig | None) -> pd.DataFrame:
    context = current()
    table = gl.from_local(frame_of("even", context.rank, context.size)[WRITTEN])
    result = table.groupby("s").agg(n=("n", "sum"), first=("p", "first"), config=config).local()
    return result.sort_values("s", ignore_index=True)


def test_other_verbs_write_what_they_shuffle() -> None:
    """A group-by brings whole rows, or partial results, to where their keys meet."""
    mine = pd.concat(run_mapped(2, group, SMALL, backend=WritingPandas))
    plain = pd.concat(World("threads", 2).run(group, SMALL))
    order = np.argsort(mine["s"].astype(str), kind="stable"), np.argsort(plain["s"].astype(str), kind="stable")
    assert_frames_equal(mine.iloc[order[0]].reset_index(drop=True), plain.iloc[order[1]].reset_index(drop=True))
