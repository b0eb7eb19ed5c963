"""One rank fails somewhere in an operation: all ranks have its error, nothing is left behind, work goes on."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import worlds
from exchanges import make_frame
from faults import (
    Fault,
    bad_frames,
    disagreeing,
    expected_next,
    failing_generator,
    fault_after_fault,
    interrupted,
    looking_at_rows,
    lower_ceiling,
    other_columns,
    run_with_fault,
    spreading_a_frame,
)
from worlds import World

from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import BudgetExceeded, GcylonError, Revoked

TIGHT = GcylonConfig(gpu_memory_limit="1 MiB", chunk_size_bytes=8192, min_chunk_rows=1)
NO_SPILL = GcylonConfig(allow_disk_spill=False)
NO_FAULT = Fault("to_frame", 10**9)
THREADS = [World("threads", 2), World("threads", 3), World("threads", 4)]
PROCESSES = [World("mpi", 2), World("mpi", 4)]
ALL = [*THREADS, *(pytest.param(world, marks=pytest.mark.mpi) for world in PROCESSES)]


def in_both(cases: list[Any]) -> list[Any]:
    """Every case on threads and on MPI processes, whose numbers take turns."""
    made = []
    for turn, case in enumerate(cases):
        values, marks, name = (case.values, case.marks, case.id) if hasattr(case, "values") else (case, (), None)
        for kinds, more in ((THREADS, []), (PROCESSES, [pytest.mark.mpi])):
            ranks = kinds[turn % len(kinds)]
            called = "-".join(map(str, [ranks, *([name] if name else values)]))
            made.append(pytest.param(ranks, *values, marks=[*marks, *more], id=called))
    return made


@pytest.fixture(params=[THREADS[1], pytest.param(PROCESSES[0], marks=pytest.mark.mpi)], ids=str)
def few(request: pytest.FixtureRequest) -> World:
    """For what ranks find out at the opening, which is the same code on any number."""
    return request.param


def check(results: list[dict[str, Any]], kind: str, rank: int | None, *words: str) -> None:
    """The same error on every rank, nothing left of the failed operation, and the next one right."""
    for seen in results:
        error = seen["error"]
        assert isinstance(error, GcylonError), error
        assert type(error).__name__ == kind, error
        assert error.rank == rank, error
        assert str(error) == str(results[0]["error"])
        for word in words:
            assert word in str(error)
        before, after = seen["left"]
        assert after == before
    check_next(results)


def check_next(results: list[dict[str, Any]]) -> None:
    assert sorted(row for seen in results for row in seen["next"]) == expected_next(len(results))


SHUFFLE: tuple[str, dict[str, Any]] = ("shuffle", {"on": ["k", "s"]})
ALLGATHER: tuple[str, dict[str, Any]] = ("allgather", {})
DISTINCT: tuple[str, dict[str, Any]] = ("drop_duplicates", {"subset": ["k", "b"], "keep": "last"})
IN_AN_OPERATION = [
    # counting
    (*SHUFFLE, "direct", None, Fault("partition_ids")),
    (*SHUFFLE, "chunked", TIGHT, Fault("partition_ids", 2)),
    (*SHUFFLE, "direct", None, Fault("variable_bytes")),
    # where the result is to be placed
    (*SHUFFLE, "direct", None, Fault("allocate", 1, MemoryError)),
    # the first round, and in the middle
    (*SHUFFLE, "direct", None, Fault("partition")),
    (*SHUFFLE, "chunked", TIGHT, Fault("partition", 3)),
    (*SHUFFLE, "staged", TIGHT, Fault("partition_ids", 3)),
    (*SHUFFLE, "chunked", TIGHT, Fault("pack_variable", 4)),
    (*SHUFFLE, "staged", TIGHT, Fault("pack_variable", 7)),
    (*SHUFFLE, "staged", TIGHT, Fault("pack", 2)),
    (*ALLGATHER, "chunked", TIGHT.with_values(gpu_memory_limit="4 MiB"), Fault("pack_variable", 3)),
    ("gather", {"root": 1}, "direct", None, Fault("pack_variable")),
    ("broadcast", {"root": 0}, "staged", TIGHT, Fault("pack", 2)),
    ("repartition", {}, "staged", TIGHT, Fault("pack")),
    # before, between and after the exchanges of what stays
    (*DISTINCT, "staged", TIGHT, Fault("distinct")),
    (*DISTINCT, "staged", TIGHT, Fault("aggregate")),
    (*DISTINCT, "staged", TIGHT, Fault("order_words")),
    (*DISTINCT, "staged", TIGHT, Fault("gather")),
    (*DISTINCT, "staged", TIGHT, Fault("pack", 5)),
    # after the last round
    (*SHUFFLE, "direct", None, Fault("finish")),
    (*ALLGATHER, "direct", None, Fault("finish", 1, MemoryError)),
]  # fmt: skip


# GPU ranks drop duplicates by steps of their own, and a MemoryError is the budget's there.
NOT_CALLED_ON_GPUS = pytest.mark.cpu_alone("GPU ranks do not call this method here")
MEMORY_ON_GPUS = pytest.mark.cpu_alone("a MemoryError says on GPU ranks that the budget is met, and is told so")
AFTER_AGREEING_ON_GPUS = pytest.mark.cpu_alone("GPU ranks make room once a round is agreed on: the others are revoked")
ONE_DEVICE = pytest.mark.cpu_alone("a process opens its GPU once, with the ceiling that it has then")
STAGED_ON_GPUS = pytest.mark.cpu_alone("GPU ranks stage in page-locked memory, and on disk only where that is full")


def _marks(verb: str, fault: Fault) -> list[pytest.MarkDecorator]:
    if fault.kind is MemoryError:
        return [MEMORY_ON_GPUS]
    return [NOT_CALLED_ON_GPUS] * (verb == "drop_duplicates" and fault.where in ("distinct", "order_words", "gather"))


INTERRUPTED = ["partition_ids", "partition", "finish"]
CASES = [
    pytest.param(*case, id=f"{case[0]}-{case[2]}-{case[-1]}", marks=_marks(case[0], case[-1]))
    for case in IN_AN_OPERATION
]


@pytest.mark.parametrize(("ranks", "verb", "arguments", "strategy", "config", "fault"), in_both(CASES))
def test_a_rank_raises_in_an_operation(
    ranks: World, verb: str, arguments: dict, strategy: str, config: GcylonConfig | None, fault: Fault
) -> None:
    rank = ranks.size - 1
    if verb == "broadcast":
        rank = 1
    results = ranks.run(run_with_fault, verb, arguments, strategy, config, rank, fault)
    check(results, "RankError", rank, f"[rank {rank}]", fault.kind.__name__, "injected into")
    assert "injected into" in results[0]["error"].numbers["traceback"]


def test_memory_that_ends_after_the_last_round_is_told_by_the_closing(few: World) -> None:
    """The others do not stage what they have received, so nor does the rank that has no memory for it."""
    results = few.run(
        run_with_fault, "shuffle", {"on": ["k", "s"]}, "auto", None, 1, Fault("finish", 1, BudgetExceeded)
    )
    check(results, "BudgetExceeded", 1, "[rank 1]", "injected into finish")


@STAGED_ON_GPUS
@pytest.mark.parametrize(
    ("ranks", "verb", "call"), in_both([("shuffle", 1), ("gather", 3), ("gather", 1), ("shuffle", 3)])
)
def test_disk_full_on_one_rank(ranks: World, verb: str, call: int) -> None:
    arguments: dict[str, Any] = {"on": "k"} if verb == "shuffle" else {"root": 1}
    results = ranks.run(run_with_fault, verb, arguments, "staged", TIGHT, 1, Fault("pwritev", call))
    check(results, "SpillError", 1, "[rank 1]", "No space left on device", "spill_dir", "free")


@STAGED_ON_GPUS
@pytest.mark.parametrize("ranks", ALL, ids=str)
def test_a_staged_input_cannot_be_read_back(ranks: World) -> None:
    results = ranks.run(run_with_fault, "shuffle", {"on": "k"}, "staged", TIGHT, 0, Fault("preadv", 2), True)
    check(results, "SpillError", 0, "[rank 0]", "No space left on device")


@pytest.mark.parametrize(
    "fault",
    [pytest.param(Fault("preadv"), marks=STAGED_ON_GPUS), Fault("unpack"), Fault("pack_variable")],
    ids=str,
)
def test_the_first_rows_cannot_be_had_from_one_rank(few: World, fault: Fault) -> None:
    kind = "SpillError" if fault.where == "preadv" else "RankError"
    check(few.run(looking_at_rows, 1, fault), kind, 1, "[rank 1]")


@pytest.mark.parametrize(
    ("rank", "where"),
    [(0, "from_frame"), (0, "pack_variable"), pytest.param(1, "allocate", marks=AFTER_AGREEING_ON_GPUS), (1, "finish")],
)
def test_a_frame_cannot_be_spread(few: World, rank: int, where: str) -> None:
    check(few.run(spreading_a_frame, rank, Fault(where)), "RankError", rank, f"[rank {rank}]", "injected")


@STAGED_ON_GPUS
@pytest.mark.parametrize("folder", ["missing", "a file"])
def test_spill_dir_that_cannot_be_used(few: World, tmp_path: Path, folder: str) -> None:
    (tmp_path / "a file").write_text("")
    config = TIGHT.with_spill_dir(str(tmp_path / folder))
    results = few.run(run_with_fault, "shuffle", {"on": "k"}, "staged", config, 0, NO_FAULT)
    check(results, "SpillError", None, folder, "spill_dir")
    assert results[0]["error"].numbers["failed_ranks"] == list(range(few.size))


@STAGED_ON_GPUS
def test_really_full_disk(tmp_path: Path) -> None:
    if ctypes.CDLL(None).mount(b"tmpfs", str(tmp_path).encode(), b"tmpfs", 0, b"size=40k") != 0:
        pytest.skip("cannot mount a small file system")
    try:
        ranks = World("threads", 3)
        config = TIGHT.with_spill_dir(str(tmp_path))
        results = ranks.run(run_with_fault, "shuffle", {"on": "k"}, "staged", config, 0, NO_FAULT)
        check(results, "SpillError", results[0]["error"].rank, "No space left on device", str(tmp_path))
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


TWO_K = pd.DataFrame([[1, 2, 3]], columns=["k", "k", "v"])
OBJECTS = pd.DataFrame({"k": [1], "z": [object()]})


@pytest.mark.parametrize(
    ("frame", "kind", "word"),
    [(TWO_K, "DuplicateColumns", "'k'"), (OBJECTS, "UnsupportedDtype", "'z'"), (5, "ArgumentError", "int")],
    ids=["duplicate names", "objects", "no frame"],
)
def test_a_bad_frame_on_one_rank(few: World, frame: Any, kind: str, word: str) -> None:
    check(few.run(bad_frames, {1: frame}), kind, 1, "[rank 1]", word)


def test_frames_that_do_not_fit_each_other(few: World) -> None:
    check(few.run(bad_frames, {1: pd.DataFrame({"k": [1]})}), "ColumnMissing", 1, "rank 1 has no column 'g'")
    frame = make_frame("even", 1, few.size).assign(x="text")
    check(few.run(bad_frames, {1: frame}), "SchemaMismatch", None, "'x'", "float64", "str", "on rank 1")


@pytest.mark.parametrize("staged", [False, True], ids=["device", "staged"])
@pytest.mark.parametrize("after", [0, 2])
def test_a_generator_of_the_user_raises_on_one_rank(few: World, after: int, staged: bool) -> None:
    results = few.run(failing_generator, 0, after, staged)
    check(results, "RankError", 0, "[rank 0]", "LookupError", f"no frame {after}")
    assert "in frames" in results[0]["error"].numbers["traceback"]


def test_a_column_is_missing_on_one_rank(few: World) -> None:
    results = few.run(other_columns, 1, pd.DataFrame({"q": [1, 2]}), "shuffle", {"on": "k"})
    check(results, "ColumnMissing", 1, "[rank 1]", "'k'", "'q'")
    assert isinstance(results[0]["error"], KeyError)


def test_schemas_that_cannot_be_brought_together(few: World) -> None:
    frame = make_frame("even", 1, few.size).assign(k="text")
    results = few.run(other_columns, 1, frame, "shuffle", {"on": "g"})
    check(results, "SchemaMismatch", None, "'k'", "int32", "str", "on rank 1")


@pytest.mark.parametrize("verb", ["shuffle", "allgather", "gather", "broadcast", "repartition"])
def test_ranks_call_different_verbs(few: World, verb: str) -> None:
    arguments = {"shuffle": {"on": "k"}}
    other = "allgather" if verb != "allgather" else "gather"
    results = few.run(disagreeing, {1: (other, {})}, (verb, arguments.get(verb, {})))
    check(results, "RanksDisagree", None, f"rank 0: {verb}(", f"rank 1: {other}(")


@pytest.mark.parametrize(
    ("verb", "usual", "other"),
    [
        ("shuffle", {"on": "k"}, {"on": "g"}),
        ("shuffle", {"on": "k"}, {"on": "k", "keep_order": True}),
        ("shuffle", {"on": "k"}, {"on": "k", "strategy": "staged"}),
        ("gather", {"root": 0}, {"root": 1}),
        ("repartition", {}, {"rows_per_rank": [1, 2]}),
        ("allgather", {"config": TIGHT}, {}),
        ("allgather", {"config": TIGHT}, {"config": TIGHT.with_values(min_chunk_rows=7)}),
    ],
)
def test_ranks_give_different_arguments(few: World, verb: str, usual: dict, other: dict) -> None:
    if "rows_per_rank" in other and few.size != 2:
        pytest.skip("two numbers are for two ranks")
    results = few.run(disagreeing, {1: (verb, other)}, (verb, usual))
    check(results, "RanksDisagree", None, "rank 0:", "rank 1:")
    if "config" in other:
        assert "min_chunk_rows=7" in str(results[0]["error"])


@pytest.mark.parametrize(
    ("arguments", "kind", "word"),
    [
        ({"on": "k", "strategy": "quick"}, "ArgumentError", "'quick'"),
        ({"on": []}, "ArgumentError", "on=[] is empty or names a column twice"),
        ({"on": "l"}, "UnsupportedDtype", "'l'"),
        ({"on": "k", "config": {"chunk": 1}}, "ConfigError", "GcylonConfig"),
        ({"on": "k", "timeout_s": "soon"}, "ArgumentError", "'soon'"),
        ({"on": "k", "timeout_s": -1}, "ArgumentError", "-1"),
        pytest.param(
            {"on": "k", "strategy": "staged", "config": NO_SPILL},
            "ArgumentError",
            "allow_disk_spill",
            marks=STAGED_ON_GPUS,
        ),
    ],
)
def test_arguments_that_cannot_be_used(few: World, arguments: dict, kind: str, word: str) -> None:
    usual = ("shuffle", arguments)
    check(few.run(disagreeing, {}, usual), kind, None, word)
    if arguments["on"] != "l" and arguments.get("config") is not NO_SPILL:  # told before the arguments are compared
        check(few.run(disagreeing, {1: usual}, ("shuffle", {"on": "k"})), kind, 1, "[rank 1]", word)


@ONE_DEVICE
@pytest.mark.parametrize("live", [False, True], ids=["explicit", "live"])
def test_config_above_the_ceiling_of_one_rank(few: World, live: bool) -> None:
    results = few.run(lower_ceiling, 1, live)
    check(results, "ConfigError", 1, "[rank 1]", "8388608", "1048576", "start")


@pytest.mark.parametrize(
    ("ranks", "fault", "rank"), in_both([(Fault(where), rank) for rank in (0, 1) for where in INTERRUPTED])
)
def test_an_interrupt_frees_the_others(ranks: World, rank: int, fault: Fault) -> None:
    late = []
    while len(late) < 3 and min(late, default=1.0) >= 1.0:  # a busy machine may miss the second once
        results = ranks.run(interrupted, rank, fault._replace(kind=KeyboardInterrupt))
        for place, seen in enumerate(results):
            if place == rank:
                assert "interrupted" in str(seen["error"])
            else:
                assert isinstance(seen["error"], Revoked), seen["error"]
            assert seen["left"][0] == seen["left"][1]
        check_next(results)
        late.append(max(seen["waited_s"] for seen in results) - results[rank]["waited_s"])
    assert min(late) < 1.0


@pytest.mark.parametrize("ranks", ALL, ids=str)
def test_a_rank_that_fails_on_its_way_into_an_exchange_frees_the_others(ranks: World) -> None:
    """No agreement can tell what happens between an agreement and the exchange: the others leave by a revoke."""
    fault = Fault("allocate", 2, MemoryError)  # room for what comes in, after the agreement of the second round
    kind = BudgetExceeded if worlds.ENGINE == "gpu" else MemoryError  # of a GPU's allocator it is the budget's
    results = ranks.run(run_with_fault, "shuffle", {"on": "k"}, "staged", TIGHT, 1, fault, False, True)
    for rank, seen in enumerate(results):
        assert type(seen["error"]) is (kind if rank == 1 else Revoked), seen["error"]
        assert seen["left"][0] == seen["left"][1]
    check_next(results)


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_hundred_faults_in_a_row_on_mpi() -> None:
    recovered = 0
    for batch, size in enumerate([2, 4]):
        results = World("mpi", size).run(fault_after_fault, batch, 50)
        assert len({seen["recovered"] for seen in results}) == 1
        assert results[0]["failed"] == 50
        recovered += results[0]["recovered"]
        check_next(results)
    assert 3 < recovered < 50  # those that no agreement could tell
