"""The plan: pure, never over the budget, the best strategy that fits, and errors whose advice holds."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from IPython.lib.pretty import pretty

import gcylon_lab as gl
from gcylon_lab.backends.host.partition import partition_scratch_bytes
from gcylon_lab.backends.protocol.scattering import device_partition_bytes
from gcylon_lab.backends.protocol.sorting import device_scratch_bytes
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.plan.costs import Costs, costs_of, expected_results, room_wanted, surely_enough
from gcylon_lab.engine.plan.plan import make_plan
from gcylon_lab.engine.plan.table_stats import DEVICE_CHUNK_BYTES, VERBS, TableStats, stage_slice_bytes
from gcylon_lab.errors import ArgumentError, BudgetExceeded, ColumnMissing, ConfigError
from gcylon_lab.operators.estimate import PLANNED, estimate_verb
from gcylon_lab.runtime.context import run_threads

MB = 10**6


@st.composite
def infos(draw: st.DrawFn) -> list[dict[str, Any]]:
    """What one to five ranks know of a table: on the device, staged, or a part of each."""
    size, row_bytes = draw(st.integers(1, 5)), draw(st.sampled_from([0, 8, 32, 100]))
    variable = draw(st.sampled_from([0.0, 0.0, 3.5, 250.0]))
    free = draw(st.integers(1000, 400 * MB))
    ranks = []
    for _ in range(size):
        rows = draw(st.one_of(st.just(0), st.integers(1, 50), st.integers(1000, 2 * MB)))
        nbytes = int(rows * (row_bytes + variable))
        count = draw(st.integers(1, 40)) if rows > 40 else int(rows > 0)
        chunks = [nbytes * (i + 1) // count - nbytes * i // count for i in range(count)]
        staged = draw(st.sampled_from([0, 0, count, count // 2]))
        others = draw(st.one_of(st.just(0), st.integers(0, 20 * MB)))
        ranks.append(
            {
                "columns": ["k", "v"], "rows": rows, "nbytes": nbytes, "row_bytes": row_bytes, "chunks": count,
                "tiers": {"device": sum(chunks[staged:]), "disk": sum(chunks[:staged])},
                "device_chunk_bytes": chunks[staged:], "largest_staged_bytes": max(chunks[:staged], default=0),
                "used_bytes": others + sum(chunks[staged:]), "ceiling_bytes": free, "free_at_start_bytes": free,
            }
        )  # fmt: skip
    return ranks


CONFIGS = st.builds(
    GcylonConfig,
    chunk_size_bytes=st.sampled_from([0, 1024, 65536, 64 * MB]),
    min_chunk_rows=st.sampled_from([1, 1024, 100_000]),
    allow_disk_spill=st.booleans(),
    gpu_memory_fraction=st.just(1.0),
)
STRATEGIES = st.sampled_from(["auto", "auto", "direct", "chunked", "staged"])


def arguments_for(verb: str, ranks: list[dict[str, Any]], pick: int) -> dict[str, Any]:
    if verb in ("shuffle", "sort_values"):
        return PLANNED[verb].chosen([])
    if verb == "repartition":
        total = sum(rank["rows"] for rank in ranks)
        return {"rows_per_rank": [total, *[0] * (len(ranks) - 1)] if pick % 2 else None}
    return {"root": pick % len(ranks)} if verb in ("gather", "broadcast") else {}


@settings(max_examples=150, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(infos(), CONFIGS, STRATEGIES, st.sampled_from(VERBS), st.integers(0, 99))
def test_a_plan_keeps_to_the_budget_and_an_error_to_its_advice(
    ranks: list[dict[str, Any]], config: GcylonConfig, strategy: str, verb: str, pick: int
) -> None:
    more = arguments_for(verb, ranks, pick)
    try:
        plan = estimate_verb(verb, [ranks], config, strategy=strategy, **more)
    except ArgumentError:
        assert strategy == "staged"
        assert not config.allow_disk_spill
        return
    except BudgetExceeded as error:
        numbers = error.numbers
        assert numbers["knob"] == "gpu_memory_limit"
        assert numbers["used_bytes"] + numbers["needed_bytes"] > numbers["limit_bytes"]
        assert 0 <= error.rank < len(ranks)
        assert f"{numbers['would_do']}" in error.advice
        # The same table, under the limit that was advised.
        limit = {name: numbers["would_do"] for name in ("ceiling_bytes", "free_at_start_bytes")}
        plan = estimate_verb(verb, [[rank | limit for rank in ranks]], config, strategy=strategy, **more)
        assert plan.predicted_peak_bytes <= plan.budget_bytes == numbers["would_do"]
        return
    assert plan == estimate_verb(verb, json.loads(json.dumps([ranks])), config, strategy=strategy, **more)  # pure
    assert plan.predicted_peak_bytes == max(plan.predicted_peaks) <= plan.budget_bytes == ranks[0]["ceiling_bytes"]
    assert plan.chunk_rows >= 1
    assert plan.rounds >= 1
    assert strategy in ("auto", plan.strategy)
    assert {plan.strategy, *(other.strategy for other in plan.alternatives)} == {"direct", "chunked", "staged"}


def stats_of(verb: str = "shuffle", **changes: Any) -> TableStats:
    """Four even ranks: a million rows each of four columns of 8 bytes, on the device, 1 GB of budget."""
    stats = TableStats(
        verb, rows=(MB,) * 4, nbytes=(32 * MB,) * 4, staged_bytes=(0,) * 4, largest_staged_bytes=(0,) * 4,
        chunks=(1,) * 4, used=(32 * MB,) * 4, limits=(1000 * MB,) * 4, fixed_row_bytes=32,
    )  # fmt: skip
    return replace(stats, **changes)


def limited(limit: int, verb: str = "shuffle", **changes: Any) -> TableStats:
    return stats_of(verb, limits=(limit,) * 4, **changes)


AUTO = GcylonConfig()


def test_auto_takes_the_first_strategy_that_fits() -> None:
    found = {limit: make_plan(limited(limit * MB), AUTO).strategy for limit in (1000, 80, 67, 66, 64, 40)}
    assert found == {1000: "direct", 80: "direct", 67: "chunked", 66: "chunked", 64: "staged", 40: "staged"}
    for limit in (1000, 80, 67, 40):
        plan = make_plan(limited(limit * MB), AUTO)
        fits = {plan.strategy: True} | {other.strategy: other.fits for other in plan.alternatives}
        order = [name for name in ("direct", "chunked", "staged") if fits[name]]
        assert plan.strategy == order[0]


@pytest.mark.parametrize("verb", VERBS)
def test_direct_wherever_there_is_room_for_everything(verb: str) -> None:
    more = {"target_rows": (MB,) * 4} if verb == "repartition" else {}
    plan = make_plan(stats_of(verb, **more), AUTO)
    assert plan.strategy == "direct"
    assert plan.result_bytes == {"allgather": 128, "gather": 128}.get(verb, 32) * MB


def test_a_strategy_that_was_asked_for_is_kept_or_refused() -> None:
    for strategy in ("direct", "chunked", "staged"):
        plan = make_plan(stats_of(), AUTO, strategy)
        assert (plan.strategy, plan.reason) == (strategy, "because you asked for it")
    for strategy in ("direct", "chunked"):
        with pytest.raises(BudgetExceeded, match=f"strategy='{strategy}'"):
            make_plan(limited(50 * MB), AUTO, strategy)
    with pytest.raises(ArgumentError, match="Expected 'auto', 'direct', 'chunked' or 'staged'"):
        make_plan(stats_of(), AUTO, "fast")


def test_what_is_refused_is_called_as_the_user_called_it() -> None:
    for caller, said in (("", "shuffle with"), ("shuffle", "shuffle with"), ("join", "The shuffle of join with")):
        with pytest.raises(BudgetExceeded, match=f"{said} strategy='direct' needs"):
            make_plan(limited(50 * MB), AUTO, "direct", caller=caller)


def test_other_strategies_are_compared_where_that_is_wanted() -> None:
    stats = stats_of()
    assert [one.strategy for one in make_plan(stats, AUTO).alternatives] == ["chunked", "staged"]
    assert make_plan(stats, AUTO, compare=False) == replace(make_plan(stats, AUTO), alternatives=())


def test_staging_only_where_it_is_allowed() -> None:
    for off in ({"allow_cpu_staging": False}, {"allow_disk_spill": False}):
        config = AUTO.with_values(**off)
        assert make_plan(limited(67 * MB), config).strategy == "chunked"
        with pytest.raises(BudgetExceeded):
            make_plan(limited(64 * MB), config)
        with pytest.raises(ArgumentError, match=next(iter(off))):
            make_plan(stats_of(), config, "staged")


def test_small_chunks_only_where_staging_does_not_help() -> None:
    """Below min_chunk_rows, staging is better than ever smaller chunks, unless it is not allowed."""
    tight = limited(65_050_000)
    assert make_plan(tight, AUTO.with_values(min_chunk_rows=1)).strategy == "chunked"
    assert make_plan(tight, AUTO).strategy == "staged"
    assert make_plan(tight, AUTO.with_values(allow_disk_spill=False)).strategy == "chunked"


def test_chunks_shrink_with_the_budget_and_follow_the_config() -> None:
    rows = [make_plan(limited(limit * MB), AUTO, "staged").chunk_rows for limit in (34, 36, 40, 80)]
    assert rows == sorted(rows)
    assert rows[0] < rows[-1]
    for size in (4096, 65536, 1 * MB):
        plan = make_plan(stats_of(), AUTO.with_values(chunk_size_bytes=size, min_chunk_rows=1))
        assert plan.chunk_rows == size // 32
        assert plan.rounds == -(-MB // plan.chunk_rows)
    assert make_plan(stats_of(), AUTO.with_values(chunk_size_bytes=4096)).chunk_rows == 1024


def test_counted_results_decide_once_they_are_known() -> None:
    even = make_plan(limited(80 * MB), AUTO)
    assert even.assumption == "assuming evenly spread keys"
    skewed = make_plan(limited(80 * MB), AUTO, counted_results=(120 * MB, 2 * MB, 3 * MB, 3 * MB))
    assert (even.strategy, skewed.strategy) == ("direct", "staged")
    assert skewed.assumption == ""
    assert skewed.result_bytes == 120 * MB
    assert make_plan(stats_of("allgather"), AUTO).assumption == ""


def test_sizes_are_added_up_in_64_bits() -> None:
    rows = 2**38  # 8 TiB a rank, far beyond what 32 bits count
    stats = replace(
        limited(2**50, "allgather"), rows=(rows,) * 4, nbytes=(32 * rows,) * 4, used=(32 * rows,) * 4, chunks=(9,) * 4
    )
    plan = make_plan(stats, AUTO.with_values(chunk_size_bytes=2**40))
    assert plan.result_bytes == 4 * 32 * rows
    assert plan.predicted_peak_bytes >= 5 * 32 * rows
    assert plan.chunk_rows == 2**35


def test_every_rank_has_a_peak_of_its_own() -> None:
    plan = make_plan(stats_of("gather", root=2), AUTO)
    assert plan.predicted_peaks == (32 * MB, 32 * MB, 160 * MB, 32 * MB)
    assert plan.predicted_peak_bytes == 160 * MB
    plan = make_plan(stats_of(used=(32 * MB, 90 * MB, 32 * MB, 32 * MB)), AUTO)
    assert plan.predicted_peaks[1] - plan.predicted_peaks[0] == 58 * MB


def test_the_rank_that_lacks_most_is_named() -> None:
    with pytest.raises(BudgetExceeded) as caught:
        make_plan(stats_of("gather", root=3, limits=(60 * MB,) * 4), AUTO, "direct")
    assert caught.value.rank == 3
    assert caught.value.numbers["used_bytes"] == 32 * MB
    with pytest.raises(BudgetExceeded) as caught:
        make_plan(stats_of(limits=(MB * 1000, MB * 30, MB * 1000, MB * 1000)), AUTO)
    assert caught.value.rank == 1
    assert caught.value.numbers["limit_bytes"] == 30 * MB


def test_budget_below_one_row() -> None:
    wide = replace(limited(20_000), rows=(1,) * 4, nbytes=(100_000,) * 4, used=(0,) * 4, fixed_row_bytes=100_000)
    with pytest.raises(BudgetExceeded, match="chunks of one row") as caught:
        make_plan(wide, AUTO)
    assert "staged" not in caught.value.advice  # it was tried
    would_do = caught.value.numbers["would_do"]
    assert make_plan(replace(wide, limits=(would_do,) * 4), AUTO).predicted_peak_bytes <= would_do


def test_words_and_numbers_of_a_plan() -> None:
    plan = make_plan(limited(67 * MB), AUTO)
    first, *others = plan.describe().splitlines()
    assert first.startswith(f"shuffle: chunked, {plan.rounds} rounds of at most ")
    assert "predicted peak 6" in first
    assert "of 63.9 MiB" in first
    assert "because the result and a smaller chunk fit" in first
    assert first.endswith("(assuming evenly spread keys)")
    assert [line.split()[:3] for line in others] == [["direct", "would", "not"], ["staged", "would", "fit:"]]
    assert str(plan) == plan.describe()
    named = replace(plan, notes=("a <b> of two\nlines",))
    assert "white-space:pre-wrap" in named._repr_html_() and "a &lt;b&gt; of two\nlines" in named._repr_html_()
    assert json.loads(json.dumps(plan.as_dict()))["predicted_peak_bytes"] == plan.predicted_peak_bytes
    assert make_plan(limited(1000 * MB, rows=(10,) * 4, nbytes=(320,) * 4), AUTO).describe().count("1 round of") == 1


@pytest.mark.parametrize("size", [1, 2, 4, 8, 9, 300])
@pytest.mark.parametrize("rows", [1, 1000, 65536, 10**6])
def test_partitioning_is_planned_with_what_the_backend_claims(size: int, rows: int) -> None:
    stats = TableStats(
        "shuffle", (rows,) * size, (16 * rows,) * size, (0,) * size, (0,) * size, (1,) * size, (0,) * size,
        (10**12,) * size, 16,
    )  # fmt: skip
    work = Costs(stats, "direct").work(rows)
    # One rank's rows stay as they are.
    assert (work == (16 * rows + partition_scratch_bytes(rows, size) if size > 1 else 0)).all()


@pytest.mark.parametrize("size", [2, 300])
def test_on_gpus_partitioning_is_planned_with_what_their_kernels_take(size: int) -> None:
    stats = TableStats(
        "shuffle", (1000,) * size, (16_000,) * size, (0,) * size, (0,) * size, (1,) * size, (0,) * size,
        (10**12,) * size, 16, fast_chunk_bytes=DEVICE_CHUNK_BYTES,
    )  # fmt: skip
    assert (Costs(stats, "direct").work(1000) == 16_000 + device_partition_bytes(1000, size)).all()


def test_what_leaves_a_gpu_has_left_once_the_next_piece_is_partitioned() -> None:
    """Beside a piece that is read back stand two copies and what comes, or one with what came before it."""
    rows, stats = 100_000, replace(stats_of(), nbytes=(64 * 10**6,) * 4, rows=(2 * 10**6,) * 4, overlaps=True)
    stats = replace(stats, staged_bytes=stats.nbytes, chunks=(20,) * 4, largest_staged_bytes=(32 * rows,) * 4)
    on_gpus = Costs(replace(stats, fast_chunk_bytes=DEVICE_CHUNK_BYTES), "staged").work(rows)
    assert (on_gpus == 4 * 32 * rows + device_partition_bytes(rows, 4)).all()
    assert (Costs(stats, "staged").work(rows) == 5 * 32 * rows + partition_scratch_bytes(rows, 4)).all()


def test_a_gpu_that_stages_sorts_what_a_round_brings() -> None:
    """However few rows that are, ordering them takes a block of memory: the advice has it, and so has the next plan."""
    stats = replace(stats_of("sort_values"), fast_chunk_bytes=DEVICE_CHUNK_BYTES, overlaps=True, columns=2)
    stats = replace(stats, rows=(20_000,) * 4, nbytes=(640_000,) * 4, limits=(480_000,) * 4, used=(0,) * 4)
    with pytest.raises(BudgetExceeded) as caught:
        make_plan(stats, GcylonConfig(min_chunk_rows=1), "staged")
    enough = caught.value.numbers["would_do"]
    assert enough > device_scratch_bytes(1, 0)
    plan = make_plan(replace(stats, limits=(enough,) * 4), GcylonConfig(min_chunk_rows=1), "staged")
    brought = plan.chunk_rows  # by four ranks that send a quarter of that each
    assert 32 * brought + device_scratch_bytes(brought, 0) <= enough


def test_what_arrives_at_each_rank() -> None:
    def incoming(verb: str, **more: Any) -> list[int]:
        stats = replace(stats_of(verb), rows=(100, 0, 300, 40), **more)
        stats = replace(stats, nbytes=tuple(10 * n for n in stats.rows), fixed_row_bytes=10)
        return [int(n / 10) for n in Costs(stats, "staged")._incoming(Costs(stats, "staged")._reading(50)[0])]

    assert incoming("allgather") == [140] * 4  # at most 50 rows of each rank
    assert incoming("gather", root=2) == [0, 0, 140, 0]
    assert incoming("broadcast", root=2) == [50] * 4
    assert incoming("repartition", target_rows=(100, 0, 300, 40)) == [50, 0, 50, 40]
    assert incoming("repartition", target_rows=(110, 110, 110, 110)) == [60, 50, 50, 90]
    assert incoming("shuffle") == [35] * 4


def test_results_of_every_verb() -> None:
    stats = replace(stats_of(), rows=(10, 0, 30, 0), nbytes=(320, 0, 960, 0))
    assert expected_results(stats) == (320,) * 4
    assert expected_results(replace(stats, verb="allgather")) == (1280,) * 4
    assert expected_results(replace(stats, verb="gather", root=1)) == (0, 1280, 0, 0)
    assert expected_results(replace(stats, verb="broadcast", root=2)) == (960,) * 4
    assert expected_results(replace(stats, verb="repartition", target_rows=(40, 0, 0, 0))) == (1280, 0, 0, 0)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("strategy", ["auto", "direct", "chunked", "staged"])
def test_room_is_never_more_than_the_limit(verb: str, strategy: str) -> None:
    more = {"target_rows": (MB,) * 4} if verb == "repartition" else {}
    for limit in (1, 10 * MB, 1000 * MB):
        for room in room_wanted(limited(limit, verb, **more), AUTO, strategy):
            assert 0 < room.least <= limit
            assert 0 <= room.all <= limit


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("rows", [1, 1000, MB])
def test_enough_without_a_plan_is_more_than_any_plan_wants(verb: str, overlaps: bool, on_gpu: bool, rows: int) -> None:
    more = {"target_rows": (rows,) * 4} if verb == "repartition" else {}
    chunk_bytes = {"fast_chunk_bytes": DEVICE_CHUNK_BYTES} if on_gpu else {}
    for row_bytes, fixed, widest in ((8, 8, 0), (32, 8, 900), (900, 8, 10 * MB)):
        stats = replace(limited(1000 * 1000 * MB, verb, **more, **chunk_bytes), overlaps=overlaps)
        stats = replace(
            stats, rows=(rows,) * 4, nbytes=(rows * row_bytes,) * 4, fixed_row_bytes=fixed, widest_bytes=(widest,) * 4
        )
        most = surely_enough(stats)
        for strategy in ("auto", "direct", "chunked", "staged"):
            assert all(max(room.all, room.here, room.least) < most for room in room_wanted(stats, AUTO, strategy))


def test_slices_of_staged_chunks_take_little_of_the_limit() -> None:
    assert [stage_slice_bytes(n) for n in (1, 65536, 10**6, 10**9)] == [4096, 4096, 62500, 4 * 1024**2]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"verb": "nothing"}, ArgumentError),
        ({"on": ["z"]}, ColumnMissing),
        ({"verb": "gather", "root": 1}, ArgumentError),
        ({"verb": "gather", "root": True}, ArgumentError),
        ({"verb": "repartition", "rows_per_rank": [1]}, ArgumentError),
        ({"verb": "repartition", "rows_per_rank": [1, 2]}, ArgumentError),
        ({"verb": "repartition", "rows_per_rank": [-1]}, ArgumentError),
        ({"verb": "sort_values", "by": ["k"], "ascending": [True, False]}, ArgumentError),
        ({"verb": "drop_duplicates", "keep": "most"}, ArgumentError),
        ({"strategy": "fast"}, ArgumentError),
        ({"config": GcylonConfig(gpu_memory_limit=10**9)}, ConfigError),
    ],
)
def test_foresight_refuses_what_the_verb_would(arguments: dict[str, Any], error: type[Exception]) -> None:
    info = {
        "columns": ["k"], "rows": 5, "nbytes": 40, "row_bytes": 8, "chunks": 1, "tiers": {"device": 40, "disk": 0},
        "device_chunk_bytes": [40], "largest_staged_bytes": 0, "used_bytes": 40, "ceiling_bytes": 10**6,
        "free_at_start_bytes": 10**6,
    }  # fmt: skip
    usual: dict[str, Any] = {} if "verb" in arguments else {"verb": "shuffle", "on": ["k"]}
    with pytest.raises(error):
        estimate_verb(**{"tables": [[info]], "config": AUTO} | usual | arguments)


def test_an_operation_without_registered_costs_is_refused() -> None:
    with pytest.raises(LookupError, match="no costs are registered for verb='join'"):
        costs_of(replace(stats_of(), verb="join"), "direct")


@pytest.mark.parametrize("module", ["group.groupby_estimate", "sort.sort"])
def test_whatever_plans_or_runs_a_sort_knows_what_sorting_costs(module: str) -> None:
    code = f"import gcylon_lab.operators.{module}; from gcylon_lab.engine.plan.costs import COSTS; print(*COSTS)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == list(VERBS)


def test_a_plan_as_the_last_line_of_a_cell_reads_as_printed() -> None:
    plan = make_plan(stats_of(), AUTO)
    assert pretty(plan) == str(plan) == plan.describe()
    assert "1 rounds" not in plan.describe()


def run_and_explain(strategy: str) -> str:
    return gl.from_local(pd.DataFrame({"k": range(100)})).shuffle("k", strategy=strategy).explain()


@pytest.mark.parametrize("strategy", ["direct", "chunked", "staged"])
def test_what_ran_is_explained_without_an_assumption(strategy: str) -> None:
    text = run_threads(2, run_and_explain, strategy)[0]
    assert "assuming" not in text
    assert ("needs no count" in text) == (strategy == "staged")
    assert pretty(text) == text


GPU_TABLE = {"nbytes": (64 * MB,) * 4, "used": (64 * MB,) * 4, "chunks": (16,) * 4, "columns": 12}
GPU_WORLD = {"fast_chunk_bytes": 512 * 2**20, "overlaps": True, "scatters": True}


@pytest.mark.parametrize("strategy", ["direct", "chunked"])
def test_packed_chunks_between_gpus_are_large_where_memory_allows(strategy: str) -> None:
    """What a round costs by itself is more there than what its rows take; with less memory it takes more rounds."""
    rounds = [
        make_plan(limited(limit * MB, **GPU_TABLE, **GPU_WORLD), AUTO, strategy).rounds for limit in (1000, 300, 200)
    ]
    assert rounds[0] <= 2 and rounds == sorted(rounds)
    on_cpus = make_plan(limited(300 * MB, **GPU_TABLE), AUTO, strategy)
    assert on_cpus.rounds > rounds[1]


def test_texts_that_kernels_write_take_no_copy() -> None:
    """Input, result, ids and counts, and a byte for each row of the columns in which values are missing."""
    written = {"writable": True, "null_columns": 3, "ready": True}
    plan = make_plan(limited(300 * MB, **GPU_TABLE, **GPU_WORLD, **written), AUTO)
    assert plan.strategy == "direct" and plan.rounds == 1
    assert 128 * MB < plan.predicted_peak_bytes < 128 * MB + 8 * MB + 2**20
    packed = make_plan(limited(300 * MB, **GPU_TABLE, **GPU_WORLD), AUTO)
    assert packed.predicted_peak_bytes > 150 * MB
    one_staged = {**written, "staged_bytes": (0, 0, 0, MB)}
    assert not limited(300 * MB, **GPU_TABLE, **GPU_WORLD, **one_staged).scatters_rows


def test_what_comes_is_there_twice_on_ranks_that_send_nothing() -> None:
    """One round is staged while the next one comes, on GPUs: so it was measured there, in 6 rounds."""
    each, table = 100_000, 3_200_000
    stats = TableStats(
        "broadcast", (each,) * 3, (table,) * 3, (0,) * 3, (0,) * 3, (1,) * 3, (table,) * 3, (4_480_000,) * 3, 32,
        root=1, columns=4, fixed=True, **GPU_WORLD,
    )  # fmt: skip
    plan = make_plan(stats, AUTO)
    assert (plan.strategy, plan.rounds) == ("staged", 6)
    assert plan.predicted_peaks[0] == pytest.approx(4_266_656, rel=0.01)


@pytest.mark.parametrize("staged", [False, True], ids=["held", "staged"])
@pytest.mark.parametrize("strategy", ["auto", "chunked", "staged"])
def test_a_sort_that_just_fits_takes_no_rounds_of_single_rows(strategy: str, staged: bool) -> None:
    """Where sorting takes nearly all that is free, smaller chunks would not help."""
    rows, nbytes = 20_000, 480_000
    below = (nbytes,) * 2 if staged else (0, 0)
    stats = TableStats(
        "sort_values", (rows,) * 2, (nbytes,) * 2, below, tuple(n // 16 for n in below), (16,) * 2,
        tuple(nbytes - n for n in below), (0, 0), 24,
    )  # fmt: skip
    seen = set()
    for percent in range(130, 900, 7):
        limits = (nbytes * percent // 100,) * 2
        try:
            plan = make_plan(replace(stats, limits=limits), GcylonConfig(), strategy)
        except BudgetExceeded:
            continue
        assert plan.rounds < 30, (percent, plan.describe())
        assert plan.predicted_peak_bytes <= limits[0]
        seen.add(plan.strategy)
    assert seen == {"auto": {"direct", "chunked", "staged"}}.get(strategy, {strategy})
