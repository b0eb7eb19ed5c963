"""unstage: a table's staged rows back in the budget, on all ranks or on none; the table stays the same one."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import worlds
from exchanges import LAYOUTS, held, make_frame
from faults import Fault, broken, observe
from worlds import World

import gcylon_lab as gl
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.store.part import Partitioning
from gcylon_lab.errors import BudgetExceeded, SpillError
from gcylon_lab.runtime.context import current

KEPT = World("threads", 3)
TO_THE_BYTE = pytest.mark.cpu_alone("a GPU's allocator pads, and so does the tier below: nothing is equal to the byte")


def staged_table(layout: str = "even", rows: int = 300) -> gl.Table:
    """Spread by its keys, and nothing of it on the device tier."""
    table = gl.from_local(make_frame(layout, current().rank, current().size, rows))
    spread = table.shuffle(["k", "s"], strategy="staged", config=GcylonConfig(chunk_size_bytes=4096, min_chunk_rows=1))
    table.release()
    return spread


def there_and_back(layout: str) -> dict[str, Any]:
    context = current()
    table = staged_table(layout)
    tiers, frame = table.tiers, table.local()
    before = held(context)[0]
    chunks, on_disk = len(table._part.chunks), context.spill.used_bytes
    same = table.unstage()
    record = context.recorder.operations[-1]
    pd.testing.assert_frame_equal(table.local(), frame)
    seen = {
        "same": same is table, "tiers": (tiers, table.tiers), "partitioning": table.partitioning,
        "explained": table.explain().partition(",")[0], "chunks": (chunks, len(table._part.chunks)),
        "held": held(context)[0] - before, "on disk": (on_disk, context.spill.used_bytes),
        "verb": record.verb, "up": record.unstaged_bytes, "span": record.phase_bytes.get("unstage", 0),
        "peaks": (record.predicted_peak_bytes, record.measured_peak_bytes), "moved": record.sent_bytes,
    }  # fmt: skip
    on_device, written = context.budget.used_bytes, context.spill.written_bytes
    table._part.stage(context.workspace, 2**40, 2**20)  # and down again, as when it is evicted
    seen["again"] = (table.tiers, context.spill.written_bytes - written, on_device - context.budget.used_bytes)
    pd.testing.assert_frame_equal(table.local(), frame)
    pd.testing.assert_frame_equal(table.unstage().local(), frame)
    table._part.stage(context.workspace, 2**40, 1000)  # in slices smaller than they are there
    seen["cut"] = (table._part.largest_staged_bytes, context.spill.used_bytes)
    pd.testing.assert_frame_equal(table.unstage().local(), frame)
    table.release()
    return seen | {"left": (context.budget.used_bytes - before, context.spill.used_bytes)}


@TO_THE_BYTE
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_of_a_table_comes_back_and_to_stage_it_again_writes_nothing(layout: str) -> None:
    for seen in KEPT.run(there_and_back, layout):
        (before, after), staged = seen["tiers"], seen["on disk"][0]
        assert seen["same"] and before["device"] == 0 and after["disk"] == 0
        assert after["device"] <= before["disk"] == staged == seen["held"] == seen["up"] == seen["span"]
        assert (after["device"] > 0) == (staged > 0) and seen["chunks"][0] == seen["chunks"][1]
        assert seen["on disk"][1] == after.get("also on disk", 0) == staged and seen["left"] == (0, 0)
        assert seen["again"] == (before, 0, seen["held"])
        assert seen["cut"][0] < 2000 and seen["cut"][1] <= 3 * staged, "what was kept went with the larger chunks"
        assert seen["partitioning"] == Partitioning(("k", "s"), 3) and seen["explained"] == "shuffle: staged"
        assert seen["verb"] == "unstage" and seen["moved"] == 0 and seen["peaks"][0] == seen["peaks"][1]


def test_on_real_ranks(world: World) -> None:
    seen = world.run(there_and_back, "even")
    for one in seen:
        (staged, kept), (before, written, _) = one["on disk"], one["again"]
        assert kept == staged == sum(before.values()) and not written
        # On GPU ranks the allocator counts, without what pads a place below.
        near = 0 if worlds.ENGINE == "cpu" else staged // 4
        assert staged > 0 and abs(one["held"] - staged) <= near, one


def within(spare: int, beside: bool) -> dict[str, Any]:
    """Under a limit that the rank which needs most meets but for ``spare`` bytes, beside another table."""
    context = current()
    table = staged_table(rows=300 + 50 * context.rank)
    other = gl.from_local(make_frame("even", context.rank, context.size)) if beside else None
    needed = context.budget.used_bytes + table.tiers["disk"]
    most = max(int(n) for n in context.transport.agree([needed])[:, 0])
    read: list[int] = []

    def call() -> None:
        try:
            table.unstage(config=GcylonConfig(gpu_memory_limit=most + spare))
        finally:
            read.append(context.recorder.operations[-1].unstaged_bytes)

    seen = observe(call, table) | {"read": read}
    error, seen["tiers"] = seen["error"], table.tiers
    seen["beside"] = 0 if other is None else other.tiers["disk"]
    if error is not None:
        table.unstage(config=GcylonConfig(gpu_memory_limit=error.numbers["would_do"]))
        seen["then"] = table.tiers["disk"]
    return seen | {"most": most}


@TO_THE_BYTE
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside"])
def test_what_fits_to_the_byte_comes_back_and_what_does_not_is_refused_on_all_ranks(beside: bool) -> None:
    for seen in KEPT.run(within, 0, beside):
        assert seen["error"] is None and seen["tiers"]["disk"] == 0 and seen["beside"] == 0
    refused = KEPT.run(within, -1, beside)
    assert len({str(seen["error"]) for seen in refused}) == 1
    for seen in refused:
        error, (before, after) = seen["error"], seen["left"]
        assert isinstance(error, BudgetExceeded) and error.rank is not None
        assert error.numbers["would_do"] == seen["most"] == error.numbers["limit_bytes"] + 1
        assert "Or release tables." in error.advice and "staging" not in error.advice
        assert before == after and seen["tiers"]["device"] == 0, "something came back, or gave way"
        assert seen["read"] == [0], "it was known before anything was read"
        assert seen["then"] == 0 and seen["beside"] == 0


def nothing_staged() -> dict[str, Any]:
    context = current()
    table = gl.from_local(make_frame("even", context.rank, context.size))
    chunks = list(table._part.chunks)
    context.budget.reset_allocation_count()
    table.unstage(config=GcylonConfig(gpu_memory_limit=1000))  # below what is held, which needs nothing more
    record = context.recorder.operations[-1]
    same = all(one is other for one, other in zip(chunks, table._part.chunks, strict=True))
    return {"same": same, "claims": context.budget.allocation_count, "verb": record.verb, "up": record.unstaged_bytes}


def test_where_nothing_is_staged_nothing_is_done() -> None:
    for seen in KEPT.run(nothing_staged):
        assert seen == {"same": True, "claims": 0, "verb": "unstage", "up": 0}


def unreadable(rank: int, fault: Fault) -> dict[str, Any]:
    context = current()
    table = staged_table()

    def call() -> None:
        with broken(context, rank, fault):
            table.unstage()

    seen = observe(call, table) | {"tiers": table.tiers}
    return seen | {"again": table.unstage().tiers}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault("preadv", 2), marks=pytest.mark.cpu_alone("GPU ranks read page-locked memory, not a file")),
        Fault("unpack", 2),
    ],
    ids=str,
)
def test_where_one_rank_cannot_read_all_ranks_keep_what_they_had(fault: Fault) -> None:
    for seen in KEPT.run(unreadable, 1, fault):
        error, (before, after) = seen["error"], seen["left"]
        assert error.rank == 1 and isinstance(error, SpillError) == (fault.where == "preadv")
        assert ("of staged rows back failed" in str(error)) == (fault.where == "preadv")
        assert before == after and seen["tiers"]["device"] == 0 and seen["again"]["disk"] == 0


def some_columns(columns: list[str]) -> dict[str, Any]:
    """Of a staged table, under a limit that all of it does not meet."""
    context = current()
    table = staged_table()
    some = table.select(columns)
    frame, whole = some.local(), table.tiers["disk"]
    most = max(int(n) for n in context.transport.agree([whole])[:, 0])
    some.unstage(config=GcylonConfig(gpu_memory_limit=context.budget.used_bytes + most * 2 // 3))
    record, held = context.recorder.operations[-1], context.budget.used_bytes
    pd.testing.assert_frame_equal(some.local(), frame)
    return {
        "whole": whole, "held": held, "tiers": some.tiers, "table": table.tiers,
        "peaks": (record.predicted_peak_bytes, record.measured_peak_bytes),
    }  # fmt: skip


@TO_THE_BYTE
@pytest.mark.parametrize(("columns", "known"), [(["g", "x"], True), (["s"], False)], ids=["fixed", "text"])
def test_some_columns_of_a_wide_table_take_no_more_than_they_are(columns: list[str], known: bool) -> None:
    for seen in World("threads", 2).run(some_columns, columns):
        padding = seen["held"] - seen["tiers"]["device"]  # between the columns that are read back together
        assert 0 <= padding < seen["whole"] / 20 and seen["held"] < seen["whole"] / 2
        assert seen["tiers"]["disk"] == 0 and seen["table"] == {"device": 0, "disk": seen["whole"]}
        assert seen["peaks"][1] < seen["whole"] and (seen["peaks"][0] == seen["peaks"][1] or not known)


def all_texts() -> list[tuple[int, int]]:
    """Predicted and measured, of views of all texts without the numbers beside them."""
    context, peaks = current(), []
    numbers = {"s": [f"text {n}" * 3 for n in range(600)], "t": ["t"] * 600, "k": range(600), "v": range(600)}
    table = gl.from_local(pd.DataFrame(numbers))
    table._part.stage(context.workspace, 2**40, table.nbytes // 5)
    for some in (table.select(["t", "s"]), table.select(["k", "t", "s"]).select(["s", "t"])):
        some.unstage()
        record = context.recorder.operations[-1]
        peaks.append((record.predicted_peak_bytes - record.used_before_bytes, record.measured_peak_bytes))
        some.release()
    return peaks


def test_all_texts_of_a_table_are_predicted_as_they_are() -> None:
    for peaks in World("threads", 2).run(all_texts):
        assert all(predicted == measured for predicted, measured in peaks), peaks


def too_many_texts() -> dict[str, Any]:
    """What texts take is known once they are read."""
    context = current()
    texts = [f"{i:0200}" for i in range(300)]
    table = gl.from_local(pd.DataFrame({"g": range(300), "s": texts, "t": texts, "u": texts}))
    table._part.stage(context.workspace, 2**40, 40_000)
    some = table.select(["g", "s"])
    limit = 2 * table._part.largest_staged_bytes  # two chunks would come back, but for the texts of the first
    read: list[int] = []

    def call() -> None:
        try:
            some.unstage(config=GcylonConfig(gpu_memory_limit=limit))
        finally:
            read.append(context.recorder.operations[-1].unstaged_bytes)

    seen = observe(call, some)
    would_do = seen["error"].numbers["would_do"]
    some.unstage(config=GcylonConfig(gpu_memory_limit=would_do))
    return seen | {"tiers": some.tiers, "read": read}


def test_texts_that_do_not_fit_after_all_are_put_back_with_a_limit_that_does() -> None:
    for seen in World("threads", 2).run(too_many_texts):
        assert seen["read"][0] > 0, "it was known before"
        assert isinstance(seen["error"], BudgetExceeded) and seen["left"][0] == seen["left"][1]
        assert seen["tiers"]["disk"] == 0 < seen["tiers"]["device"]


def unlike_ranks() -> Any:
    """Rank 0 misses the limit by its numbers alone; rank 1 would need more, but for its texts that is not known."""
    context = current()
    rows, width = [(8000, 1), (80, 5000)][context.rank]
    texts = ["x" * width] * rows
    table = gl.from_local(pd.DataFrame({"g": range(rows), "s": texts, "t": texts, "u": texts}))
    table._part.stage(context.workspace, 2**40, 20_000)
    some = table.select(["g", "s"])
    with pytest.raises(BudgetExceeded) as caught:
        some.unstage(config=GcylonConfig(gpu_memory_limit=60_000))
    some.unstage(config=GcylonConfig(gpu_memory_limit=caught.value.numbers["would_do"]))
    return caught.value.rank, some.tiers["disk"]


def test_the_limit_that_is_told_does_on_every_rank() -> None:
    assert World("threads", 2).run(unlike_ranks) == [(0, 0), (0, 0)]


def texts_of_one_chunk() -> tuple[int, list[tuple[int, int]], list[dict[str, int]]]:
    """Two of three columns of a chunk, from too small a limit on to one that all of it fits with a copy."""
    context = current()
    rows = 400 + 100 * context.rank
    table = gl.from_local(pd.DataFrame({"g": range(rows), "s": ["x" * 10] * rows, "t": ["y" * 40] * rows}))
    table._part.stage(context.workspace, 2**40, 2**40)
    whole = max(int(n) for n in context.transport.agree([table.tiers["disk"]])[:, 0])
    some = table.select(["g", "s"])
    with pytest.raises(BudgetExceeded) as caught:
        some.unstage(config=GcylonConfig(gpu_memory_limit=whole - 1))
    held, tiers = [], []
    for limit in (caught.value.numbers["would_do"], whole * 3 // 2):
        some = table.select(["g", "s"]).unstage(config=GcylonConfig(gpu_memory_limit=limit))
        held.append((context.budget.used_bytes, context.recorder.operations[-1].measured_peak_bytes))
        tiers.append(some.tiers)
        some.release()
    return whole, held, [table.tiers, *tiers]


@TO_THE_BYTE
def test_texts_are_kept_with_the_rest_of_their_chunk_where_a_copy_does_not_fit_beside_it() -> None:
    for whole, ((tight, peak), (roomy, _)), (table, *tiers) in World("threads", 2).run(texts_of_one_chunk):
        assert tight == peak == table["disk"] <= whole and roomy == tiers[1]["device"] < tight / 2
        assert all(one["disk"] == 0 for one in tiers) and tiers[0]["device"] == tiers[1]["device"]


def two_that_miss() -> list[int]:
    """Both ranks learn what their texts take only by reading them, and rank 1 needs more than rank 0."""
    context = current()
    rows = 300 + 100 * context.rank
    table = gl.from_local(pd.DataFrame({"g": range(rows), **{name: ["x" * 100] * rows for name in "stu"}}))
    table._part.stage(context.workspace, 2**40, 15_000)
    some, seen = table.select(["g", "s", "t"]), []
    for limit in (60_000, 0):
        try:
            some.unstage(config=GcylonConfig(gpu_memory_limit=limit or seen[0]))
        except BudgetExceeded as error:
            seen += [error.numbers["would_do"], context.recorder.operations[-1].unstaged_bytes]
    return [*seen, some.tiers["disk"]]


def test_the_limit_of_the_rank_that_needs_most_is_told_where_several_miss_theirs() -> None:
    first, second = World("threads", 2).run(two_that_miss)
    assert first[0] == second[0] > 60_000 and first[1] and second[1] and first[2:] == second[2:] == [0]
