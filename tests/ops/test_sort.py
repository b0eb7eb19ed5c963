"""sort_values on every world, strategy and layout: what pandas gives for the whole table, inside the budget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import worlds
from exchanges import LAYOUTS, exchange, make_frame
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from same_frames import assert_frames_equal
from sorts import (
    KINDS,
    expected,
    failing_on_rank_1,
    frame_of,
    sort_columns,
    sort_given,
    sort_kind,
    sort_short_of_memory,
    sort_unsorted,
)
from test_scattered_rounds import run_mapped
from worlds import World, in_turn

import gcylon_lab as gl
from gcylon_lab.backends.protocol.sorting import SortKey, device_scratch_bytes
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.store.part import Part
from gcylon_lab.errors import (
    ArgumentError,
    BudgetExceeded,
    ColumnMissing,
    SchemaMismatch,
    UnsupportedDtype,
)
from gcylon_lab.memory.tiers.disk_tier import SpillFile
from gcylon_lab.operators.sort.costs import SortCosts
from gcylon_lab.operators.sort.merge import Sorter
from gcylon_lab.runtime.context import current, run_threads

TIGHT = GcylonConfig(gpu_memory_limit="400 KiB", chunk_size_bytes=8192, min_chunk_rows=1)
PLANS = [("auto", None), ("direct", None), ("chunked", TIGHT), ("staged", TIGHT)]
IDS = ["auto", "direct", "chunked", "staged"]
HOWS = [
    (["k"], {}),
    (["c", "x"], {"ascending": [False, True], "na_position": "first"}),
    (["s", "m"], {"ascending": [True, False]}),
]
ROWS = 30_000
BYTES = 32 * ROWS


def together(results: list[dict[str, Any]]) -> pd.DataFrame:
    frames = [result["frame"] for result in results]
    return pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)


def everywhere() -> list[Any]:
    """Every layout and strategy, on worlds and by keys in turn; on others, MPI among them, what differs most."""
    few = [World("single", 1), World("threads", 2), World("threads", 4)]
    places = [(i, j) for i in range(len(LAYOUTS)) for j in range(len(PLANS))]
    cases: list[Any] = [(few[(i + j) % 3], LAYOUTS[i], *PLANS[j], *HOWS[(i + 2 * j) % 3]) for i, j in places]
    for world in (World("threads", 3), World("mpi", 2)):
        more = [(layout, plan) for layout in LAYOUTS[:2] for plan in (PLANS[0], PLANS[3])]
        cases += [(world, layout, *plan, *HOWS[i % 3]) for i, (layout, plan) in enumerate(more)]
    return [
        pytest.param(
            *case, marks=[pytest.mark.mpi] if case[0].kind == "mpi" else [],
            id="-".join(map(str, [*case[:3], *case[4]])),
        )
        for case in cases
    ]  # fmt: skip


@pytest.mark.parametrize(("world", "layout", "strategy", "config", "by", "how"), everywhere())
def test_the_result_in_rank_order_is_the_sorted_table(
    world: World, layout: str, strategy: str, config: GcylonConfig | None, by: list[str], how: dict[str, Any]
) -> None:
    results = world.run(exchange, "sort_values", layout, {"by": by, **how}, strategy, config)
    want = expected([make_frame(layout, rank, world.size) for rank in range(world.size)], by, **how)
    assert_frames_equal(together(results), want, check_column_type=False, check_index_type=False)
    lengths = [len(result["frame"]) for result in results]
    assert max(lengths) <= len(want) / world.size * 1.25 + 1
    for result in results:
        assert list(result["frame"].dtypes) == list(want.dtypes)  # also where a rank has no rows
        before, after = result["left"]
        assert after == before
        assert result["record"]["measured_peak_bytes"] <= result["limit"]
        assert strategy in ("auto", result["record"]["strategy"])
        if strategy == "staged":
            assert result["tiers"]["device"] == 0


@pytest.mark.parametrize(
    ("world", "strategy", "kind"),
    [
        (*one, kind)
        for one, kind in in_turn(
            [(World("single", 1), "auto"), (World("threads", 2), "auto"), (World("threads", 4), "staged")], KINDS
        )
    ],
    ids=str,
)
def test_a_table_of_ten_times_the_budget(world: World, strategy: str, kind: str) -> None:
    config = GcylonConfig(gpu_memory_limit=4 * BYTES)
    results = world.run(sort_kind, kind, ROWS, strategy, BYTES // 10, True, config=config)
    want = expected([frame_of(kind, rank, ROWS) for rank in range(world.size)], "k")
    pd.testing.assert_frame_equal(together(results), want)
    for result in results:
        assert result["peak"] <= result["limit"] == BYTES // 10
        assert 0.7 <= result["predicted"] / result["peak"] <= 1.3
        assert result["tiers"]["device"] == 0
        assert result["left"][0] == result["left"][1]
        assert abs(len(result["frame"]) - ROWS) <= 0.3 * ROWS


@pytest.mark.parametrize("kind", KINDS)
def test_every_strategy_puts_the_same_rows_on_the_same_rank(kind: str) -> None:
    world, config = World("threads", 3), GcylonConfig(gpu_memory_limit=8 * BYTES)
    chunked = 7 if worlds.ENGINE == "gpu" else 5  # what libcudf sorts with comes on top
    runs = [("direct", 8, False), ("chunked", chunked, False), ("staged", 1, False), ("auto", 1, True)]
    frames = []
    for strategy, limit, staged in runs:
        results = world.run(sort_kind, kind, ROWS, strategy, limit * BYTES, staged, config=config)
        frames.append([result["frame"] for result in results])
        for result in results:
            assert result["peak"] <= result["limit"]
            assert 0.7 * result["peak"] <= result["predicted"] <= 1.3 * result["peak"] + worlds.sorting_floor()
    for others in frames[1:]:
        for ours, theirs in zip(frames[0], others, strict=True):
            pd.testing.assert_frame_equal(ours, theirs)


@pytest.mark.mpi
def test_mpi_ranks_sort_what_does_not_fit() -> None:
    config = GcylonConfig(gpu_memory_limit=4 * BYTES)
    results = World("mpi", 2).run(sort_kind, "one key has 90%", ROWS, "auto", BYTES // 10, True, config=config)
    want = expected([frame_of("one key has 90%", rank, ROWS) for rank in (0, 1)], "k")
    pd.testing.assert_frame_equal(together(results), want)
    assert all(result["peak"] <= BYTES // 10 for result in results)


def test_ranks_of_other_dtypes_agree() -> None:
    categories = [pd.Categorical(["b", None, "a"], ["b", "a"]), pd.Categorical(["c", "a", "b"], ["a", "c", "b"])]
    frames = [
        pd.DataFrame({"k": np.array([3, 1, 2], "int8"), "c": categories[0]}),
        pd.DataFrame({"k": np.array([2**40, -1, 2], "int64"), "c": categories[1]}),
    ]
    whole = pd.concat([frame.astype({"k": "int64", "c": "category"}) for frame in frames], ignore_index=True)
    whole["c"] = pd.Categorical([*categories[0], *categories[1]], ["b", "a", "c"])  # the union, in rank order
    for by in (["k"], ["c", "k"]):
        results = World("threads", 2).run(sort_given, frames, by, {})
        want = whole.sort_values(by, kind="stable", ignore_index=True)
        pd.testing.assert_frame_equal(together(results), want)
        assert all(list(r["frame"]["c"].cat.categories) == ["b", "a", "c"] for r in results)


def test_fewer_rows_than_ranks_are_spread() -> None:
    frames = [pd.DataFrame({"k": [value]}) for value in (3, 1)] + [pd.DataFrame({"k": np.zeros(0, "int64")})] * 2
    results = World("threads", 4).run(sort_given, frames, "k", {})
    assert together(results)["k"].tolist() == [1, 3]
    assert max(len(result["frame"]) for result in results) == 1


def test_missing_values_of_any_kind_are_one() -> None:
    """NaN and null tie: they keep their order, and stand at one end whatever the direction."""
    frames = [
        pd.DataFrame({"k": pd.array([3.0, None], "Float64"), "g": [0, 1]}),
        pd.DataFrame({"k": pd.array([None, None], "Float64"), "g": [2, 3]}),
        pd.DataFrame({"k": pd.array([1.0, 2.0], "Float64"), "g": [4, 5]}),
        pd.DataFrame({"k": pd.array([None, 0.0], "Float64"), "g": [6, 7]}),
    ]
    how = {"ascending": False, "na_position": "first"}
    results = World("threads", 4).run(sort_given, frames, "k", how)
    assert together(results)["g"].tolist() == [1, 2, 3, 6, 0, 5, 4, 7]


def refused(kind: type[Exception], match: str, frames: list[pd.DataFrame], **arguments: Any) -> None:
    for outcome in World("threads", 2).outcomes(sort_columns, frames, arguments):
        assert isinstance(outcome.error, kind), outcome.error
        assert match in str(outcome.error)


def test_what_cannot_be_sorted_is_refused_by_name_on_all_ranks() -> None:
    lists = [pd.DataFrame({"k": [1, 2], "l": pd.Series([[1], None], dtype=object)})] * 2
    none = pd.DataFrame({"k": [1, 2], "l": pd.Series([None, None], dtype=object)})
    refused(UnsupportedDtype, "'l'", lists, by=["k", "l"])
    refused(UnsupportedDtype, "'l'", [none, lists[0]], by="l")  # one rank alone knows that they are lists
    refused(ColumnMissing, "'q'", lists, by="q")
    refused(ArgumentError, "by=[]", lists, by=[])
    refused(ArgumentError, "by=['k', 'k']", lists, by=["k", "k"])
    refused(ArgumentError, "ascending=[True, False]", lists, by="k", ascending=[True, False])
    refused(ArgumentError, "ascending='no' is invalid. Expected True or False", lists, by="k", ascending="no")
    refused(ArgumentError, "ascending=None is invalid. Expected True or False", lists, by="k", ascending=None)
    refused(ArgumentError, "na_position='middle'", lists, by="k", na_position="middle")
    text = [pd.DataFrame({"k": [1]}), pd.DataFrame({"k": ["a"]})]
    refused(SchemaMismatch, "'k'", text, by="k")


def test_a_budget_that_is_too_small_says_what_would_do() -> None:
    world, config = World("threads", 2), GcylonConfig(gpu_memory_limit=8 * BYTES)
    outcomes = world.outcomes(sort_kind, "random", ROWS, "direct", 2 * BYTES, False, config=config)
    errors = [outcome.error for outcome in outcomes]
    assert all(isinstance(error, BudgetExceeded) for error in errors)
    advised = errors[0].numbers["would_do"]
    assert advised > 2 * BYTES
    results = world.run(sort_kind, "random", ROWS, "direct", advised, False, config=config)
    assert all(result["peak"] <= advised for result in results)


@pytest.mark.parametrize("strategy", ["direct", "staged"])
@pytest.mark.parametrize("method", ["select", "take", "split_ids", "sort_order", "reorder"])
@pytest.mark.parametrize("world", [World("threads", 3), pytest.param(World("mpi", 2), marks=pytest.mark.mpi)], ids=str)
def test_an_error_of_one_rank_is_raised_on_all(world: World, method: str, strategy: str) -> None:
    frames = [frame_of("few keys", rank, 500) for rank in range(world.size)]
    order = world.run(failing_on_rank_1, frames, method, strategy)
    assert [g for part in order for g in part] == expected(frames, "k")["g"].tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", ["direct", "staged"])
def test_backends_that_sort_once_give_the_same(kind: str, strategy: str) -> None:
    """As on GPUs: rows travel unsorted, where they may by kernels that write them into their places."""
    frames = [frame_of(kind, rank, 5000) for rank in range(3)]
    how, limit = {"ascending": False}, 64 * 5000 * 32
    want = expected(frames, "k", **how)
    for results in (
        World("threads", 3).run(sort_unsorted, frames, "k", how, strategy, limit),
        run_mapped(3, sort_unsorted, frames, "k", how, strategy, limit),
    ):
        pd.testing.assert_frame_equal(together(results), want)
        assert all(result["left"][0] == result["left"][1] for result in results)
    assert all(result["scattered"] == (strategy == "direct" and kind != "text") for result in results)


@pytest.mark.parametrize("kind", ["random", "text"])
def test_what_takes_more_than_planned_is_staged_and_sorted(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(SortCosts, "_sorting_bytes", lambda self, result, free: 0.0)
    limit = 3 * BYTES
    config = GcylonConfig(gpu_memory_limit=8 * BYTES)
    results = World("threads", 2).run(sort_kind, kind, ROWS, "auto", limit, False, config=config)
    pd.testing.assert_frame_equal(together(results), expected([frame_of(kind, rank, ROWS) for rank in (0, 1)], "k"))
    for result in results:
        assert result["plan"].strategy == "chunked"
        assert result["tiers"]["device"] == 0
        assert result["peak"] <= limit
        assert result["left"][0] == result["left"][1]
    outcomes = World("threads", 2).outcomes(sort_kind, kind, ROWS, "chunked", limit, False, config=config)
    assert all(isinstance(outcome.error, BudgetExceeded) for outcome in outcomes)


_VALUES = {
    "i": st.integers(-3, 3),
    "f": st.sampled_from([None, -0.0, 0.0, 1.5, -2.0]),
    "s": st.sampled_from([None, "", "a", "ab", "ä", "a" * 9, "a" * 9 + "b"]),
}


@st.composite
def tables(draw: Any) -> tuple[list[pd.DataFrame], list[str], dict[str, Any]]:
    frames = []
    for rank in range(3):
        rows = draw(st.integers(0, 12))
        columns = {name: draw(st.lists(values, min_size=rows, max_size=rows)) for name, values in _VALUES.items()}
        frame = pd.DataFrame(
            {
                "i": np.array(columns["i"], dtype="int64"),
                "f": np.array(columns["f"], dtype="float64"),
                "s": pd.array(columns["s"], dtype="str"),
                "g": np.arange(rows) + 100 * rank,
            }
        )
        frames.append(frame)
    by = draw(st.lists(st.sampled_from(["i", "f", "s"]), min_size=1, max_size=3, unique=True))
    ascending = draw(st.lists(st.booleans(), min_size=len(by), max_size=len(by)))
    return frames, by, {"ascending": ascending, "na_position": draw(st.sampled_from(["first", "last"]))}


@settings(
    max_examples=60, derandomize=True, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(tables(), st.sampled_from(["auto", "direct", "chunked", "staged"]))
def test_random_tables(table: tuple[list[pd.DataFrame], list[str], dict[str, Any]], strategy: str) -> None:
    frames, by, how = table
    results = World("threads", 3).run(sort_given, frames, by, how, strategy)
    assert together(results)["g"].tolist() == expected(frames, by, **how)["g"].tolist()


@pytest.mark.parametrize("kind", ["random", "few keys"])
def test_runs_that_take_more_than_expected_are_sorted_in_halves(kind: str) -> None:
    results = World("threads", 1).run(sort_short_of_memory, kind, ROWS, BYTES // 2, 3000)
    assert all(result["refused"] >= 2 and result["peak"] <= result["limit"] for result in results)
    want = expected([frame_of(kind, 0, ROWS)], "k")
    pd.testing.assert_frame_equal(together(results), want)


def test_a_sort_far_beyond_its_budget_stages_runs_not_the_buckets_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    append = SpillFile._append

    def counted(self: SpillFile, vectors: Any, nbytes: int, *more: int) -> int:
        writes.append(1)
        return append(self, vectors, nbytes, *more)

    monkeypatch.setattr(SpillFile, "_append", counted)

    def sort() -> tuple[int, pd.DataFrame]:
        random = np.random.default_rng(3)
        keys = random.integers(0, 50_000, 100_000)
        table = gl.from_local(pd.DataFrame({"k": keys, "t": pd.Series(keys, dtype="str"), "x": keys / 2}))
        config = GcylonConfig(gpu_memory_limit=table.nbytes // 20)
        return 20, table.sort_values("k", config=config).local()

    ((times, frame),) = run_threads(1, sort)
    assert frame["k"].is_monotonic_increasing and (frame["x"] * 2 == frame["k"]).all()
    # Slices of a sixteenth of the limit, for a few passes; with a write for each bucket of each run there were 5,134.
    assert len(writes) < 6 * 16 * times


def test_what_ordering_takes_however_few_the_rows_are_makes_no_more_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's MiB is more than three quarters of these budgets: each chunk was a run, of which each bucket was cut
    again, so a chunk was sorted 33 times."""

    def sort() -> tuple[int, pd.DataFrame]:
        context = current()
        backend, workspace, ordered = context.workspace.backend, context.workspace, []
        sort_order = backend.sort_order

        def counted(*args: Any, **how: Any) -> Any:
            ordered.append(1)
            return sort_order(*args, **how)

        monkeypatch.setattr(backend, "sort_order", counted)
        monkeypatch.setattr(backend, "sort_scratch_bytes", device_scratch_bytes)
        frame = frame_of("random", 0, 100_000)
        part = gl.from_local([frame[n : n + 3000] for n in range(0, len(frame), 3000)])._part
        part.stage(workspace, part.nbytes, 2**16)
        sorter = Sorter(workspace, part.schema, [SortKey("k", True, False)])
        sorter._reads_parts = False
        with context.budget.limited(1_280_000):
            chunks = sorter.sort_staged(part)
        made = gl.Table(Part(workspace, chunks[0].schema, chunks), context)
        return len(ordered), made.local()

    ((times, frame),) = run_threads(1, sort)
    assert_frames_equal(frame, expected([frame_of("random", 0, 100_000)], "k"))
    assert times < 4 * 34


def wide_rows_of_one_key(columns: int) -> tuple[int, int]:
    """Rows, and the peak over the limit in percent, of a sort of staged rows that are larger than its budget."""
    frame = pd.DataFrame({f"v{n}": np.arange(2000.0) for n in range(columns)})
    table = gl.from_local(frame.assign(k=1))
    config = GcylonConfig(gpu_memory_limit=table.nbytes // 2)
    made = table.sort_values("k", config=config)
    return made.num_rows, 100 * current().recorder.operations[-1].measured_peak_bytes // (table.nbytes // 2)


def test_rows_of_one_key_that_are_staged_again_are_let_go_one_chunk_after_the_other() -> None:
    found = World("threads", 2).run(wide_rows_of_one_key, 200)
    assert sum(rows for rows, _ in found) == 4000 and all(percent <= 100 for _, percent in found)
