"""Kinds of fault that users of distributed frames have reported elsewhere; issue numbers name where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import reported
from exchanges import rows_of
from same_frames import assert_frames_equal
from worlds import World, in_turn

from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.config import GcylonConfig
from gcylon_lab.errors import ArgumentError, BudgetExceeded
from gcylon_lab.runtime.context import run_threads

SMALL = GcylonConfig(gpu_memory_limit="1 MiB", chunk_size_bytes=1024, min_chunk_rows=1)
PLANS = [("direct", None), ("chunked", SMALL), ("staged", SMALL)]
MPI_4 = pytest.param("mpi", marks=pytest.mark.mpi)


@pytest.fixture(params=["threads", MPI_4])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def every_plan(turn: int) -> pytest.MarkDecorator:
    """Every plan on threads, and one of them on MPI processes, in turn."""
    cases = [pytest.param("threads", plan, id=f"threads-{plan[0]}") for plan in PLANS]
    plan = PLANS[turn % len(PLANS)]
    cases.append(pytest.param("mpi", plan, marks=pytest.mark.mpi, id=f"mpi-{plan[0]}"))
    return pytest.mark.parametrize(("kind", "plan"), cases)


def world_for(kind: str, parts: list[pd.DataFrame]) -> World:
    return World(kind, 4 if kind == "mpi" else len(parts))


def together(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([f for f in frames if len(f)] or frames[:1], ignore_index=True)


def shuffled(kind: str, plan: tuple[str, Any], parts: list[pd.DataFrame], on: list[Any]) -> list[pd.DataFrame]:
    """Shuffle, and check what must hold for every shuffle: same rows, same schema, equal keys on one rank."""
    results = world_for(kind, parts).run(reported.spread, parts, "shuffle", {"on": on}, *plan)
    assert rows_of(together(results)) == rows_of(together(parts))
    homes: dict[tuple[Any, ...], int] = {}
    for rank, frame in enumerate(results):
        assert [str(t) for t in frame.dtypes] == [str(t) for t in results[0].dtypes]
        keys = frame[on].astype(object).where(frame[on].notna(), None)
        for key in keys.itertuples(index=False, name=None):
            assert homes.setdefault(key, rank) == rank, f"{key} is on two ranks"
    return results


@every_plan(0)
def test_rows_meet_by_all_keys_and_only_by_those(kind: str, plan: tuple) -> None:
    """rapidsai/cudf#3701, rapidsai/dask-cuda#1239: hashing other columns too, or buckets in another order."""
    parts = [pd.DataFrame({"a": [5, 6, 5, 8], "b": list("xyxx"), "v": np.arange(4) + 10.0 * r}) for r in range(4)]
    shuffled(kind, plan, parts, ["a", "b"])
    shuffled(kind, plan, parts, ["b"])


@every_plan(1)
def test_a_column_without_any_value_on_one_rank(kind: str, plan: tuple) -> None:
    """dask/distributed#8092, #7837: its type is taken for "null" there."""
    parts = [
        pd.DataFrame({"k": [3, 4], "x": [1.25, 2.5], "s": ["one", ""]}),
        pd.DataFrame({"k": [4, 5], "x": [np.nan, np.nan], "s": pd.array([None, None], dtype="str")}),
        pd.DataFrame({"k": [3], "x": [None], "s": [None]}, dtype=object).astype({"k": "int64"}),
    ]
    results = world_for(kind, parts).run(reported.spread, parts, "shuffle", {"on": ["k"]}, *plan)
    for frame in results:
        assert str(frame["x"].dtype) == "float64"
        assert str(frame["s"].dtype) == "str"
    everything = together(results).sort_values(["k", "x"], ignore_index=True)
    assert everything["k"].tolist() == [3, 3, 4, 4, 5]
    assert everything["x"].dropna().tolist() == [1.25, 2.5]
    assert sorted(everything["s"].dropna()) == ["", "one"]


@every_plan(2)
def test_frames_that_are_slices_at_odd_offsets(kind: str, plan: tuple) -> None:
    """rapidsai/cudf#8722, #5522: values or null masks move by the slice's offset."""
    n = 41
    base = pd.DataFrame(
        {
            "k": np.arange(n) % 6,
            "s": pd.array([None if i % 9 == 0 else f"text {i}" for i in range(n)], dtype="str"),
            "l": pd.Series([[i] * (i % 3) for i in range(n)], dtype=object),
            "n": pd.array([None if i % 5 == 0 else i for i in range(n)], dtype="Int64"),
            "d": pd.Series([{"f": i} for i in range(n)], dtype=object),
        }
    )
    shuffled(kind, plan, [base.iloc[:9], base.iloc[9:22], base.iloc[22:]], ["k"])


@every_plan(3)
def test_empty_text_is_no_null_and_masks_may_be_on_one_rank_only(kind: str, plan: tuple) -> None:
    """rapidsai/cudf#10717, #4114: '' becomes null, or valid rows do where another rank has a mask."""
    parts = [
        pd.DataFrame({"k": [1, 2, 9], "s": pd.array(["", None, "ab"], dtype="str"), "i": pd.array([1, 2, 3], "Int64")}),
        pd.DataFrame({"k": [1, 2], "s": pd.array(["", "c"], dtype="str"), "i": pd.array([None, 5], "Int64")}),
        pd.DataFrame({"k": [9, 1], "s": pd.array([None, ""], dtype="str"), "i": pd.array([6, 7], "Int64")}),
    ]
    everything = together(shuffled(kind, plan, parts, ["k"]))
    assert (everything["s"] == "").sum() == 3
    assert everything["s"].isna().sum() == 2
    assert everything["i"].isna().sum() == 1


@every_plan(4)
def test_no_rows_anywhere(kind: str, plan: tuple) -> None:
    """rapidsai/rapidsmpf#376, rapidsai/ucx-py#70: buffers of no bytes hang, or the schema is lost."""
    empty = pd.DataFrame({"k": np.array([], "int64"), "s": pd.array([], dtype="str"), "f": np.array([], "float32")})
    for verb in ("shuffle", "allgather", "broadcast", "repartition"):
        arguments = {"on": "k"} if verb == "shuffle" else {}
        for frame in world_for(kind, [empty] * 4).run(reported.spread, [empty] * 4, verb, arguments, *plan):
            assert [str(t) for t in frame.dtypes] == ["int64", "str", "float32"]
            assert len(frame) == 0


@every_plan(5)
def test_instants_and_their_zone_stay(kind: str, plan: tuple) -> None:
    """dask/dask#6925: the zone is dropped, or the instant moved; here over the hour that comes twice."""
    utc = pd.to_datetime(["2023-11-05 05:10", "2023-11-05 06:10", "2023-11-05 07:10", "1965-02-03 04:05"], utc=True)
    stamps = utc.tz_convert("America/Chicago").as_unit("ns")
    parts = [pd.DataFrame({"k": [1, 2], "t": stamps[:2]}), pd.DataFrame({"k": [2, 1], "t": stamps[2:]})]
    for frame in shuffled(kind, plan, parts, ["k"]):
        assert str(frame["t"].dtype) == "datetime64[ns, America/Chicago]"


@every_plan(6)
def test_rows_are_counted_where_there_is_no_column(kind: str, plan: tuple) -> None:
    """rapidsai/cudf#21428: the row count of a table of no columns is lost."""
    parts = [pd.DataFrame(index=range(n)) for n in (4, 0, 1)]
    world = world_for(kind, parts)
    assert [f.shape for f in world.run(reported.spread, parts, "allgather", {}, *plan)] == [(5, 0)] * world.size
    wanted = [0] * (world.size - 1) + [5]
    frames = world.run(reported.spread, parts, "repartition", {"rows_per_rank": wanted}, *plan)
    assert [len(f) for f in frames] == wanted


@every_plan(7)
@pytest.mark.parametrize("verb", ["allgather", "gather", "repartition"])
def test_global_order_whatever_arrives_first(kind: str, plan: tuple, verb: str) -> None:
    """rapidsai/rapidsmpf#469, #480: chunks in the order of their arrival."""
    parts = [pd.DataFrame({"r": r, "i": np.arange(n)}) for r, n in enumerate((70, 0, 1, 230))]
    frames = world_for(kind, parts).run(reported.spread, parts, verb, {}, *plan)
    everything = together(parts)
    for rank, frame in enumerate(frames):
        if verb == "allgather" or (verb == "gather" and rank == 0):
            assert_frames_equal(frame, everything)
    if verb != "allgather":
        assert_frames_equal(together(frames), everything)


def test_repartition_to_another_number_of_rows(kind: str) -> None:
    """cylondata/cylon#526: rows are lost, or ranks hang, where the numbers do not add up."""
    parts = [pd.DataFrame({"i": [0, 1]}), pd.DataFrame({"i": [2]}), pd.DataFrame({"i": [3]})]
    world = world_for(kind, parts)
    arguments = {"rows_per_rank": [2] * world.size}
    for outcome in world.outcomes(reported.spread, parts, "repartition", arguments, "auto", None):
        assert isinstance(outcome.error, ArgumentError)
        assert outcome.error.numbers["rows_held"] == 4
        assert outcome.error.numbers["rows_asked"] == 2 * world.size


@every_plan(8)
def test_equal_keys_of_other_widths_meet(kind: str, plan: tuple) -> None:
    """rapidsai/cudf#11189, dask/dask#4574: the same number hashes by its width."""
    parts = [
        pd.DataFrame({"k": np.array([-4, 2, 9], "int8")}),
        pd.DataFrame({"k": np.array([9, 2, 5], "int64")}),
        pd.DataFrame({"k": np.array([-4, 5], "int32")}),
    ]
    for frame in shuffled(kind, plan, parts, ["k"]):
        assert str(frame["k"].dtype) == "int64"


@every_plan(9)
def test_zeros_of_both_signs_and_every_missing_value_meet(kind: str, plan: tuple) -> None:
    """rapidsai/cudf#3233, pola-rs/polars#10457."""
    other = np.frombuffer(np.array([0x7FF8000000000001], "uint64").tobytes(), "float64")[0]
    parts = [
        pd.DataFrame({"k": [0.0, 2.5, np.nan], "v": [1, 2, 3]}),
        pd.DataFrame({"k": [-0.0, 3.5], "v": [4, 5]}),
        pd.DataFrame({"k": [other, -0.0], "v": [6, 7]}),
    ]
    results = world_for(kind, parts).run(reported.spread, parts, "shuffle", {"on": ["k"]}, *plan)
    groups = [sorted(f.loc[f["k"] == 0, "v"]) for f in results] + [sorted(f.loc[f["k"].isna(), "v"]) for f in results]
    assert sorted(g for g in groups if g) == [[1, 4, 7], [3, 6]]


@every_plan(10)
def test_labels_meet_not_their_codes(kind: str, plan: tuple) -> None:
    """rapidsai/cudf#8200, dask/dask#6142: dictionaries differ from rank to rank."""
    parts = [
        pd.DataFrame({"k": pd.Categorical(["red", "blue"], ["red", "blue"]), "v": [0, 1]}),
        pd.DataFrame({"k": pd.Categorical(["blue", None, "green"], ["green", "blue"]), "v": [2, 3, 4]}),
        pd.DataFrame({"k": pd.Categorical(["green", "red"], ["blue", "green", "red"]), "v": [5, 6]}),
    ]
    results = shuffled(kind, plan, parts, ["k"])
    for frame in results:
        assert set(frame["k"].cat.categories) == {"red", "blue", "green"}
        assert list(frame["k"].cat.categories) == list(results[0]["k"].cat.categories)


# ---- what needs a running system


@pytest.mark.parametrize("world", [World("threads", 4), pytest.param(World("mpi", 4), marks=pytest.mark.mpi)], ids=str)
def test_back_to_back_with_ranks_that_are_late(world: World) -> None:
    """Nothing but the agreements keeps one operation's rows from another's."""
    total = [sum((turn * 3 + r * 5) % 11 for r in range(4)) for turn in range(50)]
    rooted = [(turn * 3 + (turn % 4) * 5) % 11 for turn in range(50)]
    right = world.run(reported.back_to_back, 50)
    assert sum(right) == 4 * sum(total) + sum(total) + 4 * sum(rooted)


@pytest.mark.parametrize("world", [World("threads", 4), pytest.param(World("mpi", 4), marks=pytest.mark.mpi)], ids=str)
def test_sums_of_floats_have_the_same_bits_whoever_is_late(world: World) -> None:
    """bodo-ai/Bodo#1273, pola-rs/polars#24755: partial sums are added in the order of their arrival."""
    seen = [bits for rank in world.run(reported.sums_with_a_late_rank, 20) for bits in rank]
    assert len(seen) == 80 and len(set(seen)) == 1
    assert np.frombuffer(seen[0])[1] == 1.0


@pytest.mark.cpu_alone("a process has one context on GPUs, and its ranks have one already")
def test_messages_of_a_thousand_bytes_give_the_same_rows(several: World) -> None:
    usual = several.run(reported.every_verb, 700)
    if several.kind == "mpi":
        short = several.run(reported.every_verb_in_short_messages, 700, 1000)
    else:
        short = run_threads(several.size, reported.every_verb, 700, max_message_bytes=1000)
    for mine, theirs in zip(short, usual, strict=True):
        for verb, frame in theirs.items():
            assert_frames_equal(mine[verb], frame)


@pytest.mark.parametrize("world", [World("threads", 4), pytest.param(World("mpi", 2), marks=pytest.mark.mpi)], ids=str)
@pytest.mark.parametrize("verb", ["shuffle", "allgather", "gather", "broadcast", "repartition"])
def test_a_limit_smaller_than_the_work(world: World, verb: str) -> None:
    sums = [sum(range(100_000 * r, 100_000 * (r + 1))) for r in range(world.size)]
    for strategy in ("auto", "staged"):
        results = world.run(reported.more_than_the_limit, verb, True, strategy)
        for seen in results:
            assert seen["peak"] <= seen["limit"]
            assert strategy in ("auto", seen["strategy"])
        got = sum(seen["sum"] for seen in results)
        assert got == {"allgather": world.size * sum(sums), "broadcast": world.size * sums[0]}.get(verb, sum(sums))
    results = world.run(reported.more_than_the_limit, verb, False, "auto")
    for seen in results:
        assert isinstance(seen["error"], BudgetExceeded)
        assert str(seen["error"]) == str(results[0]["error"])
        assert seen["error"].numbers["limit_bytes"] == 4 * 1024**2
        assert seen["error"].numbers["would_do"] > 4 * 1024**2
    assert [seen["later"] for seen in results] == [100_000 * world.size] + [0] * (world.size - 1)


@pytest.mark.parametrize("n", [1, 2, 3, 127, 128, 129, 255, 256, 257, 12288, 12289, 32768])
def test_partition_ids_of_any_number_of_ranks(n: int) -> None:
    """Narrow ids wrap around at 128, 256 or 32768."""
    backend, keys = PandasBackend(), np.arange(-40_000, 40_000) * 7919
    ids = {
        kind: backend.partition_ids(backend.from_frame(pd.DataFrame({"k": keys.astype(kind)})), ["k"], n)
        for kind in ("int32", "int64")
    }
    assert (ids["int32"] == ids["int64"]).all()
    assert ids["int64"].min() >= 0
    assert ids["int64"].astype(np.int64).max() < n
    if n <= 257:
        assert len(np.unique(ids["int64"])) == n


# ---- one key holds nearly all rows


@pytest.mark.parametrize(
    ("staged_input", "strategy", "share", "text", "limit"),
    [
        (staged, strategy, *rows)
        for staged, strategy, rows in in_turn(
            [False, True], ["auto", "staged"], [(0.9, False, 200_000), (1.0, False, 200_000), (0.9, True, 400_000)]
        )
    ],
)
def test_one_key_holds_nearly_all_rows(share: float, text: bool, limit: int, strategy: str, staged_input: bool) -> None:
    """dask/dask#8769, rapidsai/cudf#2412: the rank that gets them runs out of memory."""
    check_skew(World("threads", 4).run(reported.skewed, share, text, strategy, limit, staged_input), limit)


@pytest.mark.mpi
def test_one_key_holds_nearly_all_rows_on_processes() -> None:
    check_skew(World("mpi", 4).run(reported.skewed, 0.9, True, "auto", 400_000, False), 400_000)


def check_skew(results: list[dict[str, Any]], limit: int) -> None:
    given = rows_of(together([seen["given"] for seen in results]))
    assert rows_of(together([seen["got"] for seen in results])) == given
    assert rows_of(together([seen["again"] for seen in results])) == given
    assert sum((seen["got"]["k"] == 7).any() for seen in results) == 1
    for seen in results:
        assert seen["strategy"] == "staged"
        assert seen["tiers"]["device"] == 0
        assert max(seen["peaks"]) <= limit
