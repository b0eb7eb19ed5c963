"""Shuffles whose rows are written straight into the results of other ranks, as kernels do between GPUs.

Here numpy does it, by address, between threads; and only in `drain` and `finish`, so that what looks at a result
before sees zeros. What GPUs do is tested in tests/tables/test_scatter.py and tests/gpu.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import LAYOUTS, make_frame, rows_of, whole
from mapped import Mapped, NumpyScattering, ScatteringPandas, WritingPandas, queued, refuse_on_rank_1, run_mapped
from same_frames import assert_frames_equal
from worlds import World, run_over

import gcylon_lab as gl
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import GcylonError, RankError
from gcylon_lab.runtime.context import current

FIXED = ["g", "k", "x", "b", "c", "d"]
LIMIT = GcylonConfig(gpu_memory_limit="600 KiB", chunk_size_bytes=8192, min_chunk_rows=1)
SMALL = GcylonConfig(chunk_size_bytes=4096, min_chunk_rows=1)
PLANS: dict[str, tuple[str, GcylonConfig | None]] = {
    "direct": ("direct", None), "small direct": ("direct", SMALL), "chunked": ("chunked", LIMIT),
    "staged": ("staged", LIMIT),
}  # fmt: skip

HELD = ("one chunk", "many chunks", "staged")


def shuffle(layout: str, strategy: str, config: GcylonConfig | None, how: str, rows: int = 300) -> dict[str, Any]:
    """Shuffle columns of fixed width; ``how`` the input lies in memory."""
    context = current()
    frame = make_frame(layout, context.rank, context.size, rows)[FIXED]
    if how == "one chunk":
        table = gl.from_local(frame)
    elif how == "many chunks":
        table = gl.from_local([frame.iloc[i : i + 23] for i in range(0, max(len(frame), 1), 23)])
    else:
        table = gl.from_local(frame)
        table._part.stage(context.workspace, table.nbytes, 1500)
        assert not len(table) or table.tiers["device"] == 0
    before = (context.budget.used_bytes, context.spill.used_bytes)
    result = table.shuffle("k", strategy=strategy, config=config, keep_order=True)
    record = context.recorder.operations[-1]
    found = {"frame": result.local(), "peak": record.measured_peak_bytes, "rounds": record.rounds_done}
    found |= {"limit": context.workspace.limit_for(config or context.config), "moved": record.received_bytes}
    result.release()
    found["left"] = before == (context.budget.used_bytes, context.spill.used_bytes)
    found["scattered"] = getattr(context, "made", 0)
    found["predicted"] = record.predicted_peak_bytes
    return found


@cache
def wanted(layout: str, size: int) -> list[pd.DataFrame]:
    frames = World("threads", size).run(shuffle, layout, "direct", None, "one chunk")
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
    mine = run_mapped(size, shuffle, layout, strategy, config, how)
    for found, frame in zip(mine, wanted(layout, size), strict=True):
        assert_frames_equal(found["frame"], frame)
        assert found["left"] and found["peak"] <= found["limit"]
        assert found["moved"] == len(frame) * 30  # g, k, x, b, c, d
    scattered = [found["scattered"] for found in mine]
    rows = [len(make_frame(layout, rank, size)) for rank in range(size)]
    assert [n > 0 for n in scattered] == [strategy != "staged" and n > 0 for n in rows]


def test_one_rank_has_nobody_to_write_to() -> None:
    found = run_mapped(1, shuffle, "even", "direct", SMALL, "one chunk")[0]
    assert not found["scattered"] and len(found["frame"]) == 300


def test_no_partitioned_copy_is_planned_or_made() -> None:
    """Input, result, one byte a row, and counts: that is the peak, and the plan knows it."""
    rows, size = 40_000, 2
    for found in run_mapped(size, shuffle, "even", "direct", None, "one chunk", rows):
        data = 30 * (rows + 7)
        assert found["peak"] < 2.2 * data + rows + 70_000
        assert 0.9 < found["predicted"] / found["peak"] < 1.1


def join_in_passes(how: str, rows: int, factor: float, without: int = -1) -> dict[str, Any]:
    """Join tables that do not fit at once beside their inputs; most keys meet one of the other side.

    One rank may be ``without`` rows of the left side.
    """
    context = current()
    numbers = np.arange(rows) * context.size + context.rank
    keys = numbers * 7919 % 1_000_000_007
    left = pd.DataFrame({"k": keys, "a": numbers / 2, "b": (numbers % 7).astype("int16"), "c": -numbers})
    left = left[:0] if context.rank == without else left
    right = pd.DataFrame({"k": np.roll(keys, 9) + (np.roll(numbers, 9) % 9 == 0) * 2**40, "z": np.roll(numbers, 9) / 4})
    tables = [gl.from_local([frame[: rows // 3], frame[rows // 3 :]]) for frame in (left, right)]
    inputs = sum(table.nbytes for table in tables)
    config = GcylonConfig(gpu_memory_limit=int(factor * 42 * rows), allow_cpu_staging=False)  # bytes of a row of both
    plan = tables[0].plan_join(tables[1], how, "k", config=config)
    drained = context.transport.drains if isinstance(context.transport, Counting) else 0
    result = tables[0].join(tables[1], how=how, on="k", config=config)
    record = context.recorder.operations[-1]
    ratios = [n / record.measured_peak_bytes for n in (record.predicted_peak_bytes, plan.predicted_peaks[context.rank])]
    found = {"frame": result.local(), "sides": (left, right), "passes": result.last_plan.passes, "ratios": ratios}
    found |= {"peak": record.measured_peak_bytes, "limit": config.gpu_memory_limit, "estimated": plan.passes}
    found["scattered"] = getattr(context, "made", 0)
    if isinstance(context.transport, Counting):
        found["drained"] = context.transport.drains - drained
    result.release()
    found["left"] = context.budget.used_bytes - inputs
    return found


@pytest.mark.parametrize(("size", "how"), [(1, "inner"), (2, "outer"), (3, "left")])
def test_rows_of_a_pass_are_written_to_where_they_belong(size: int, how: str) -> None:
    """Each pass moves the rows of some buckets, of which nothing is copied before."""
    found = run_mapped(size, join_in_passes, how, 100_000 * size, 2.4)
    left, right = (pd.concat(side) for side in zip(*(one["sides"] for one in found), strict=True))
    want = left.merge(right, how=how, on="k")
    mine = pd.concat([one["frame"] for one in found])
    order = ["k", "a"]
    got = mine.sort_values(order, ignore_index=True)
    pd.testing.assert_frame_equal(got, want.sort_values(order, ignore_index=True)[list(mine)], check_dtype=False)
    for one in found:
        assert one["passes"] > 1 < one["estimated"] and one["scattered"] == 2  # for all passes
        assert one["peak"] <= one["limit"] and not one["left"]
        assert all(0.9 < ratio < 1.1 for ratio in one["ratios"]), one["ratios"]


class Counting(Mapped):
    """Counts how often a rank waits for what was sent."""

    drains = 0

    def drain(self) -> None:
        self.drains += 1
        super().drain()


@pytest.mark.parametrize(
    ("size", "without", "backend"),
    [
        *(pytest.param(*one, ScatteringPandas, id=f"written-{one}") for one in ((2, -1), (3, -1), (4, 0))),
        *(pytest.param(*one, PandasBackend, id=f"copied-{one}") for one in ((2, -1), (3, 1))),
    ],
)
def test_both_sides_of_a_pass_travel_together(size: int, without: int, backend: Any) -> None:
    """Also where a rank has nothing to send of one side: then only the others hold copies of what is on its way."""
    found = run_over(size, Counting, join_in_passes, "inner", 100_000 * size, 3.2, without, backend=backend)
    left, right = (pd.concat(side) for side in zip(*(one["sides"] for one in found), strict=True))
    got = pd.concat([one["frame"] for one in found]).sort_values(["k", "a"], ignore_index=True)
    want = left.merge(right, how="inner", on="k").sort_values(["k", "a"], ignore_index=True)
    pd.testing.assert_frame_equal(got, want[list(got)], check_dtype=False)
    for one in found:
        assert one["passes"] > 1 and not one["left"] and one["peak"] <= one["limit"]
        if backend is ScatteringPandas:  # in each agreement that completes something, and once for both sides
            assert one["scattered"] and one["drained"] <= 6 * one["passes"], (one["drained"], one["passes"])


def fails_in_the_middle(where: int) -> str:
    """A rank whose kernel cannot be started: all hear of it, and nobody writes into what was let go."""
    context = current()
    table = gl.from_local(make_frame("even", context.rank, context.size)[FIXED])
    before = context.budget.used_bytes
    if context.rank == 1:
        context.workspace.backend.slice = lambda data, start, stop: _slice_or_fail(data, start, stop, where)
    with pytest.raises(GcylonError) as caught:
        table.shuffle("k", strategy="direct", config=SMALL)
    assert isinstance(caught.value, RankError) and caught.value.rank == 1
    assert not context.transport._kept and not queued.puts
    assert context.budget.used_bytes == before
    if context.rank == 1:
        del context.workspace.backend.slice
    return rows_of(table.shuffle("k", strategy="direct", config=SMALL).local())


def _slice_or_fail(data: Any, start: int, stop: int, where: int) -> Any:
    if start > where:
        raise ValueError("planted")
    return PandasBackend().slice(data, start, stop)


@pytest.mark.parametrize("where", [0, 1, 150])
def test_an_error_between_rounds_is_told_once_all_writing_is_done(where: int) -> None:
    parts = run_mapped(3, fails_in_the_middle, where)
    every = sorted(row for part in parts for row in part)
    assert every == sorted(rows_of(whole("even", 3)[FIXED]))


def fails_while_writing() -> tuple[str, int]:
    """The second piece of rank 1 cannot be written; the words of the error, and rows that a next shuffle has here."""
    context = current()
    rows = 300 * (1 + context.rank)
    frame = pd.DataFrame({"k": np.arange(rows) % 17, "x": np.arange(rows)})
    table = gl.from_local([frame.iloc[i : i + 23] for i in range(0, rows, 23)])

    def failing(self: Any, piece: int, data: Any) -> None:
        if context.rank == 1 and piece == 1:
            raise ValueError("planted")
        put(self, piece, data)

    scattering = context.workspace.backend.scattering

    def made(*arguments: Any, **more: Any) -> Any:
        one = scattering(*arguments, **more)
        one._put = failing.__get__(one)
        return one

    context.workspace.backend.scattering = made
    with pytest.raises(GcylonError) as seen:
        table.shuffle("k", config=SMALL)
    context.workspace.backend.scattering = scattering
    assert context.budget.used_bytes == table.nbytes
    return str(seen.value), len(table.shuffle("k", config=SMALL).local())


put = NumpyScattering._put


@pytest.mark.parametrize("size", [2, 3])
def test_an_error_while_rows_are_written_is_told(size: int) -> None:
    """Nobody waits for a rank while it writes, so that no revoke is needed for it."""
    found = run_mapped(size, fails_while_writing)
    assert all("planted" in words and "ank 1" in words for words, _ in found), found
    assert sum(rows for _, rows in found) == sum(300 * (1 + rank) for rank in range(size))


def no_memory_for_the_result(columns: list[str], strategy: str) -> str:
    """Rank 1 cannot have its result, for which there was memory by the plan."""
    context = current()
    table = gl.from_local(make_frame("even", context.rank, context.size)[columns])
    before = context.budget.used_bytes
    refuse_on_rank_1("The result")
    try:
        found = table.shuffle("k", strategy=strategy).last_plan.strategy
    except gl.errors.BudgetExceeded:
        found = "refused"
    assert context.budget.used_bytes == before
    return found


@pytest.mark.parametrize("columns", [FIXED, [*FIXED, "s", "n"]], ids=["fixed", "texts"])
def test_a_rank_without_memory_for_its_result_lets_nobody_wait(columns: list[str]) -> None:
    for strategy, wanted in (("auto", "staged"), ("direct", "refused")):
        found = run_mapped(3, no_memory_for_the_result, columns, strategy, backend=WritingPandas)
        assert found == [wanted] * 3


def other_labels_without_rows() -> list[list[str]]:
    """The rank without rows has other labels, so that all have to be brought to those of both."""
    rank = current().rank
    labels = ["x", "y"] if rank else ["z", "y", "x"]
    frame = pd.DataFrame({"k": np.arange(60 * rank), "c": pd.Categorical.from_codes(np.arange(60 * rank) % 2, labels)})
    result = gl.from_local(frame).shuffle("k", keep_order=True).local()
    return [[str(k), str(c)] for k, c in zip(result["k"], result["c"], strict=True)]


def test_labels_that_only_a_rank_without_rows_has_change_no_row() -> None:
    rows = [row for part in run_mapped(2, other_labels_without_rows) for row in part]
    assert sorted(rows) == sorted([str(k), "xy"[k % 2]] for k in range(60))


def numbers(rows: int, seed: int, name: str) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"k": rng.integers(0, 2 * rows // 3, rows), name: rng.random(rows)})


def shuffle_staged(rows: int, limit: int) -> tuple[int, int, int, pd.DataFrame]:
    context = current()
    table = gl.from_local(numbers(rows, context.rank, "x"))
    table._live().stage(context.workspace, 1 << 40, 8192)
    config = GcylonConfig(gpu_memory_limit=limit)
    estimated = table.plan_shuffle("k", config=config).predicted_peaks[context.rank]
    result = table.shuffle("k", config=config)
    record = context.recorder.operations[-1]
    return estimated, record.predicted_peak_bytes, record.measured_peak_bytes, result.local()


@pytest.mark.parametrize(("rows", "limit"), [(4000, 2**20), (4000, 200_000), (40_000, 10**6)])
def test_staged_columns_of_fixed_width_are_written_as_planned(rows: int, limit: int) -> None:
    """They take more bytes than their columns do, as staged chunks are padded: that is no text."""
    found = run_mapped(3, shuffle_staged, rows, limit)
    for estimated, predicted, measured, _ in found:
        assert measured <= limit and predicted == pytest.approx(measured, rel=0.02)
        assert estimated == pytest.approx(measured, rel=0.1)
    expected = pd.concat([numbers(rows, rank, "x") for rank in range(3)]).sort_values(["k", "x"], ignore_index=True)
    made = pd.concat([frame for *_, frame in found]).sort_values(["k", "x"], ignore_index=True)
    pd.testing.assert_frame_equal(made, expected)


def join_in_little(limit: int, how: str) -> pd.DataFrame:
    rank = current().rank
    left, right = gl.from_local(numbers(300, rank, "x")), gl.from_local(numbers(150, 9 + rank, "y"))
    result = left.join(right, how=how, on="k", config=GcylonConfig(gpu_memory_limit=limit, min_chunk_rows=1))
    assert current().recorder.operations[-1].measured_peak_bytes <= limit
    return result.local()


@pytest.mark.parametrize("how", ["inner", "outer"])
@pytest.mark.parametrize(("size", "kib"), [(2, 73), (4, 73), (4, 76)])
def test_a_join_in_little_more_than_the_counts_take(size: int, kib: int, how: str) -> None:
    """Its second exchange, of a table that gave way to the first, reserved counts which its plan knew nothing of."""
    made = pd.concat(run_mapped(size, join_in_little, kib * 1024, how))
    left, right = (
        pd.concat([numbers(n, first + r, c) for r in range(size)]) for n, first, c in ((300, 0, "x"), (150, 9, "y"))
    )
    expected = left.merge(right, how=how, on="k")
    by = ["k", "x", "y"]
    pd.testing.assert_frame_equal(made.sort_values(by, ignore_index=True), expected.sort_values(by, ignore_index=True))
