"""Every exchanging verb, strategy and layout, on every world: the right rows in the right place."""

from __future__ import annotations

import pandas as pd
import pytest
from exchanges import LAYOUTS, exchange, make_frame, rows_of, rows_of_whole, whole
from same_frames import assert_frames_equal
from worlds import World, in_turn

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.runtime.context import current

TIGHT = GcylonConfig(gpu_memory_limit="400 KiB", chunk_size_bytes=8192, min_chunk_rows=1)
PLANS = [("auto", None), ("direct", None), ("chunked", TIGHT), ("staged", TIGHT)]
IDS = ["auto", "direct", "chunked", "staged"]


def everywhere(turn: int = 0) -> list:
    """Every layout and strategy on few worlds in turn; on the others, MPI among them, what differs most."""
    few = [World("threads", 2), World("threads", 4)]
    cases = [
        (world, layout, *plan) for world, layout, plan in in_turn(few[turn % 2 :] + few[: turn % 2], LAYOUTS, PLANS)
    ]
    cases += [(World("single", 1), layout, *PLANS[(turn + i) % len(PLANS)]) for i, layout in enumerate(LAYOUTS)]
    for world in (World("threads", 1), World("threads", 3), World("mpi", 2), World("mpi", 4)):
        cases += [(world, layout, *plan) for layout in LAYOUTS[:2] for plan in (PLANS[0], PLANS[3])]
    return [
        pytest.param(*case, marks=[pytest.mark.mpi] if case[0].kind == "mpi" else [], id="-".join(map(str, case[:3])))
        for case in cases
    ]


def check_clean(results: list[dict]) -> None:
    """Nothing reserved or spilled is left, and the peak kept within the limit."""
    for result in results:
        before, after = result["left"]
        assert after == before
        assert result["record"]["measured_peak_bytes"] <= result["limit"]
        assert result["record"]["rounds"] == result["record"]["rounds_done"]


@pytest.mark.parametrize(("world", "layout", "strategy", "config"), everywhere())
def test_shuffle(world: World, layout: str, strategy: str, config: GcylonConfig | None) -> None:
    results = world.run(exchange, "shuffle", layout, {"on": ["k", "s"]}, strategy, config)
    everything = whole(layout, world.size)
    frames = [r["frame"] for r in results]
    assert rows_of(pd.concat([f for f in frames if len(f)] or frames[:1])) == rows_of_whole(layout, world.size)
    homes: dict[tuple, int] = {}
    for rank, frame in enumerate(frames):
        for key in set(zip(frame["k"], frame["s"].astype(object).where(frame["s"].notna(), None), strict=True)):
            assert homes.setdefault(key, rank) == rank
        assert list(frame.dtypes) == list(everything.dtypes)
    check_clean(results)
    if strategy == "staged":
        assert all(r["tiers"]["device"] == 0 for r in results)


def test_every_strategy_gives_the_same_rows_on_the_same_rank(several: World) -> None:
    seen = []
    for strategy, config in PLANS:
        results = several.run(exchange, "shuffle", "even", {"on": "k"}, strategy, config)
        seen.append([rows_of(result["frame"]) for result in results])
    assert all(rows == seen[0] for rows in seen)


@pytest.mark.parametrize(("strategy", "config"), PLANS, ids=IDS)
def test_shuffle_keeps_order_when_asked(several: World, strategy: str, config: GcylonConfig | None) -> None:
    results = several.run(exchange, "shuffle", "even", {"on": "k", "keep_order": True}, strategy, config)
    for result in results:
        assert result["frame"]["g"].is_monotonic_increasing


@pytest.mark.parametrize(
    ("verb", "world", "layout", "strategy", "config"),
    [
        pytest.param(verb, *case.values, marks=case.marks, id=f"{verb}-{case.id}")
        for turn, verb in enumerate(["allgather", "gather", "broadcast", "repartition"])
        for case in everywhere(turn)
    ],
)
def test_ordered_verbs(world: World, verb: str, layout: str, strategy: str, config: GcylonConfig | None) -> None:
    root = world.size - 1
    arguments = {"root": root} if verb in ("gather", "broadcast") else {}
    if config is not None and layout == "all on the last rank":
        config = config.with_values(gpu_memory_limit="1.5 MiB")
    if config is not None and strategy == "chunked":
        config = config.with_values(gpu_memory_limit="1.5 MiB")
    results = world.run(exchange, verb, layout, arguments, strategy, config)
    everything = whole(layout, world.size)
    frames = [r["frame"] for r in results]
    for rank, frame in enumerate(frames):
        if verb == "allgather":
            expected = everything
        elif verb == "broadcast":
            expected = make_frame(layout, root, world.size)
        elif verb == "gather":
            expected = everything if rank == root else everything.iloc[:0]
        else:
            share, extra = divmod(len(everything), world.size)
            first = share * rank + min(rank, extra)
            expected = everything.iloc[first : first + share + (rank < extra)].reset_index(drop=True)
        assert_frames_equal(frame, expected, check_column_type=False, check_index_type=False)
    check_clean(results)


def test_repartition_to_given_rows(several: World) -> None:
    layout, total = "even", len(whole("even", several.size))
    wanted = [0] * (several.size - 1) + [total]
    results = several.run(exchange, "repartition", layout, {"rows_per_rank": wanted}, "auto", None)
    assert [len(r["frame"]) for r in results] == wanted
    assert_frames_equal(results[-1]["frame"], whole(layout, several.size))


def test_inputs_stay_as_they_were(several: World) -> None:
    results = several.run(exchange, "shuffle", "even", {"on": "k"}, "staged", TIGHT)
    for rank, result in enumerate(results):
        assert_frames_equal(result["input"], make_frame("even", rank, several.size))


def keys_on_few_ranks(hot: bool) -> tuple[list[int], int, int]:
    """Bytes to each rank, in all and received, of a shuffle of 1,000 rows of 16 bytes; ``hot``: all of one key."""
    context = current()
    keys = [7] * 1000 if hot else list(range(1000))
    table = gl.from_local(pd.DataFrame({"k": keys, "x": 0.5}))
    table.shuffle("k", config=GcylonConfig(chunk_size_bytes=4096, min_chunk_rows=1))
    record = context.recorder.operations[-1]
    return record.sent_to.tolist(), record.sent_bytes, record.received_bytes


@pytest.mark.parametrize("hot", [False, True], ids=["spread keys", "one key"])
def test_an_operation_says_how_much_it_sent_to_whom(several: World, hot: bool) -> None:
    told = several.run(keys_on_few_ranks, hot)
    for sent_to, sent_bytes, _ in told:
        assert len(sent_to) == several.size and sum(sent_to) == sent_bytes == 16_000
    arrived = [sum(sent_to[rank] for sent_to, _, _ in told) for rank in range(several.size)]
    assert arrived == [received for _, _, received in told]
    shares = sorted(n / 16_000 / several.size for n in arrived)
    if hot:
        assert shares == [0] * (several.size - 1) + [1], "all rows of one key meet on one rank"
    else:
        assert shares[0] > 0.5 / several.size
