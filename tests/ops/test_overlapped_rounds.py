"""Rounds over a transport whose exchanges go on after they have returned, as between GPUs: nothing is used early.

The transport here hands bytes over in the next `finish` alone, so that what looks at them before sees zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from exchanges import LAYOUTS, exchange, make_frame, rows_of, rows_of_whole, whole
from same_frames import assert_frames_equal
from worlds import World, run_over

import gcylon_lab as gl
from gcylon_lab.backends.host.backend import PandasBackend
from gcylon_lab.comm.device_overlay import ByHostTransport, Overlay, QueuedOverlay
from gcylon_lab.comm.threads import ThreadsWorld
from gcylon_lab.comm.transport import Receive, Send
from gcylon_lab.config import GcylonConfig
from gcylon_lab.engine.exchange.rounds import _take_in
from gcylon_lab.engine.exchange.sinks import RecvBatch, StagingSink
from gcylon_lab.errors import GcylonError, Revoked, SpillError
from gcylon_lab.runtime.context import current

TIGHT = GcylonConfig(gpu_memory_limit="600 KiB", chunk_size_bytes=8192, min_chunk_rows=1)
MANY = GcylonConfig(chunk_size_bytes=8192, min_chunk_rows=1)
PLANS = [("direct", None), ("chunked", TIGHT), ("staged", TIGHT)]


class Waits:
    """Stands for the wait for streams, of which there are none."""

    def for_streams(self) -> None:
        pass

    def joined(self, other: Waits) -> Waits:
        return self


class Late(QueuedOverlay):
    """Bytes come at once, but into memory beside; they are where they belong only after the next `finish`."""

    def __init__(self, base: Any) -> None:
        super().__init__(base, Waits())  # type: ignore[arg-type]

    def exchange(self, window: Any, sends: Sequence[Send], receives: Sequence[Receive]) -> None:
        beside = [np.zeros(receive.view.nbytes, np.uint8) for receive in receives]
        rooms = [Receive(receive.rank, room.data) for receive, room in zip(receives, beside, strict=True)]
        self.ground.exchange(window, sends, rooms)
        for receive, room in zip(receives, beside, strict=True):
            if receive.view.nbytes:
                np.frombuffer(receive.view, np.uint8)[:] = 0
            self._kept.append((receive.view, room))

    def finish(self, values: Any) -> Any:
        landed = list(self._kept)
        result = super().finish(values)
        for view, room in landed:
            if view.nbytes:
                np.frombuffer(view, np.uint8)[:] = room
        return result


VERBS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("shuffle", {"on": "k", "keep_order": True}), ("allgather", {}), ("repartition", {}),
)  # fmt: skip


@cache
def usual(size: int, verb: str, layout: str) -> list[pd.DataFrame]:
    """What each rank gets over the usual transport, made once: in its rows and their order no strategy differs."""
    found = World("threads", size).run(exchange, verb, layout, dict(VERBS)[verb], "direct", None)
    frames = [result["frame"] for result in found]
    if verb != "allgather":
        assert rows_of(pd.concat([f for f in frames if len(f)] or frames[:1])) == rows_of_whole(layout, size)
    return frames


def run_late(size: int, body: Callable[..., Any], *arguments: Any) -> list[Any]:
    return run_over(size, Late, body, *arguments)


@pytest.mark.parametrize(
    ("size", "layout"),
    [(3, layout) for layout in LAYOUTS] + [(size, LAYOUTS[i]) for size in (1, 2) for i in (0, 1)],
)
@pytest.mark.parametrize(("strategy", "config"), PLANS, ids=[name for name, _ in PLANS])
def test_rows_are_those_of_other_transports(size: int, layout: str, strategy: str, config: GcylonConfig | None) -> None:
    for verb, arguments in VERBS:
        if verb == "allgather" and strategy == "chunked":
            continue  # the result alone is above that limit
        late = run_late(size, exchange, verb, layout, arguments, strategy, config)
        for mine, theirs in zip(late, usual(size, verb, layout), strict=True):
            assert_frames_equal(mine["frame"], theirs)
            assert mine["left"][0] == mine["left"][1]
            assert mine["record"]["measured_peak_bytes"] <= mine["limit"]


def fills_its_disk(verb: str, nth: int) -> Any:
    """A shuffle whose rank 1 cannot write its ``nth`` piece; then the same shuffle again."""
    context = current()
    frame = make_frame("even", context.rank, context.size)
    table, failing = gl.from_local(frame), iter(range(10**6))
    before = (context.budget.used_bytes, context.spill.used_bytes)

    def append(file: Any, *arguments: Any) -> Any:
        if next(failing) == nth:
            raise SpillError("the disk is full (planted)")
        return file.append(*arguments)

    arguments = {"on": "k"} if verb == "shuffle" else {}
    found: dict[str, Any] = {}
    new_file = context.workspace.spill.new_file
    if context.rank == 1:
        context.workspace.spill.new_file = lambda: Failing(new_file(), append)
    try:
        getattr(table, verb)(**arguments, strategy="staged", config=TIGHT, timeout_s=20)
    except GcylonError as error:
        found |= {"kind": type(error), "rank": error.rank, "text": error.message}
    context.workspace.spill.new_file = new_file
    found["left"] = before == (context.budget.used_bytes, context.spill.used_bytes)
    found["rows"] = rows_of(getattr(table, verb)(**arguments, strategy="staged", config=TIGHT).local())
    return found


class Failing:
    """A spill file whose writing goes through a function."""

    def __init__(self, file: Any, append: Any) -> None:
        self._file, self._append = file, append

    def append(self, *arguments: Any) -> Any:
        return self._append(self._file, *arguments)


@pytest.mark.parametrize("kind", [Late, Overlay])  # between hosts
@pytest.mark.parametrize(("strategy", "config"), PLANS, ids=[name for name, _ in PLANS])
def test_rows_are_the_same_where_each_pair_of_ranks_has_its_way(
    kind: type[Overlay], strategy: str, config: GcylonConfig | None
) -> None:
    def by_host(base: Any) -> ByHostTransport:
        far = kind(base)
        return ByHostTransport(Late(far), far, [rank for rank in range(4) if rank % 2 == base.rank % 2])

    for verb, arguments in VERBS[:1] if strategy == "chunked" else VERBS:
        found = run_over(4, by_host, exchange, verb, "even", arguments, strategy, config)
        for mine, theirs in zip(found, usual(4, verb, "even"), strict=True):
            assert_frames_equal(mine["frame"], theirs)
            assert mine["left"][0] == mine["left"][1]
            assert mine["record"]["measured_peak_bytes"] <= mine["limit"]
            assert "by overlay inside hosts and overlay between them" in mine["explain"].splitlines()[0]


@pytest.mark.parametrize("nth", [0, 1, 3])
@pytest.mark.parametrize("verb", ["shuffle", "allgather"])
def test_a_full_disk_is_told_although_others_are_in_the_next_exchange(verb: str, nth: int) -> None:
    results = run_late(3, fills_its_disk, verb, nth)
    for found in results:
        assert found["kind"] is SpillError and found["rank"] == 1 and "planted" in found["text"], found
        assert found["left"]
    every = rows_of(whole("even", 3))
    if verb == "shuffle":
        assert sorted(row for found in results for row in found["rows"]) == every
    else:
        assert all(found["rows"] == every for found in results)


class Full:
    """A spill file that cannot be written."""

    def append(self, *arguments: Any) -> Any:
        del arguments
        raise SpillError("the disk is full (planted)")


def takes_in_in_vain() -> tuple[str, int, list[int]]:
    """The error of taking in a round, and what is in use before and after; what is on its way down before that one."""
    context = current()
    workspace, waited = context.workspace, []
    schema = gl.from_local(pd.DataFrame({"k": np.arange(8)}))._live().schema
    sink = StagingSink(workspace, schema, keep_order=False)
    sink._leaving = [SimpleNamespace(wait=lambda: waited.append(1))]  # type: ignore[list-item]
    before, one = workspace.budget.used_bytes, np.array([1000])
    sink.open(RecvBatch(one, 0 * one))
    workspace.spill.new_file = Full  # type: ignore[method-assign, assignment]
    failure = _take_in(sink)
    return str(failure), workspace.budget.used_bytes - before, waited


def test_a_round_that_cannot_be_taken_in_leaves_its_room_to_the_next() -> None:
    [(failure, more, waited)] = World("single", 1).run(takes_in_in_vain)
    assert "planted" in failure and more == 0 and waited == [1]


def leaves(kept: list[Any]) -> list[tuple[int, int]]:
    """What `settle` would give back and what is in use, of a round that is on its way down, and once it has arrived."""
    workspace = current().workspace
    schema = gl.from_local(pd.DataFrame({"k": np.arange(8)}))._live().schema
    sink = StagingSink(workspace, schema, keep_order=False)
    before, seen = workspace.budget.used_bytes, []
    file = Failing(workspace.spill.new_file(), lambda file, data, held: kept.append(held) or file.append(data))
    workspace.spill.new_file = lambda: file  # type: ignore[method-assign, assignment, return-value]
    sink.open(RecvBatch(np.array([1000]), np.array([0])))
    sink.close()
    for _ in range(2):
        seen.append((sink.settling_bytes, workspace.budget.used_bytes - before))
        kept.clear()  # as whoever looks which copies are done
    return seen


def test_what_has_arrived_below_is_not_counted_as_room_a_second_time() -> None:
    [seen] = World("single", 1).run(leaves, [])
    assert seen == [(8000, 8000), (0, 0)]


class JoinsMessages(PandasBackend):
    """As a GPU's, which would copy the messages of all rounds together."""

    on_gpu = True


def on_joining_backend(*arguments: Any) -> Any:
    current().workspace.backend = JoinsMessages()
    return exchange(*arguments)


PLACES = [(3, layout) for layout in LAYOUTS] + [(1, "even"), (2, "one key")]


# By many rounds everywhere, by few ones and in a tight budget where one rank gets all.
@pytest.mark.parametrize(
    ("size", "layout", "strategy", "config"),
    [
        *(pytest.param(*place, "direct", MANY, id=f"{place[0]}-{place[1]}-many") for place in PLACES),
        pytest.param(*PLACES[-1], "direct", None, id="one key-direct"),
        pytest.param(*PLACES[-1], "chunked", TIGHT, id="one key-chunked"),
    ],
)
def test_messages_stay_where_they_came(size: int, layout: str, strategy: str, config: GcylonConfig | None) -> None:
    for verb, arguments in VERBS:
        if verb == "allgather" and strategy == "chunked":
            continue
        kept = run_late(size, on_joining_backend, verb, layout, arguments, strategy, config)
        for mine, theirs in zip(kept, usual(size, verb, layout), strict=True):
            assert_frames_equal(mine["frame"], theirs)
            assert mine["left"][0] == mine["left"][1]
            assert mine["record"]["measured_peak_bytes"] <= mine["limit"]


def test_what_is_under_way_is_kept_until_all_have_finished_it() -> None:
    base = ThreadsWorld(1).transports()[0]
    late = Late(base)
    source, room = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
    late.exchange(None, [Send(0, source.data)], [Receive(0, room.data)])
    assert len(late._kept) == 1 and not room.any()
    late.revoke()
    with pytest.raises(Revoked):
        late.finish(np.zeros(1, np.int64))
    assert len(late._kept) == 1  # peers may still write there
    late.recover()
    late.finish(np.zeros(1, np.int64))
    assert late._kept == [] and (room == source).all()


def predicted_of_measured() -> float:
    """Of a repartition in which the last rank sends its first rows, and only then keeps the others."""
    context = current()
    rows = 0 if context.rank == 1 else 30_000
    table = gl.from_local(pd.DataFrame({"k": np.arange(rows), "x": np.arange(rows) / 7}))
    table._live().stage(context.workspace, 1 << 40, 8192)
    table.repartition(strategy="staged", config=TIGHT).release()
    record = context.recorder.operations[-1]
    return record.predicted_peak_bytes / record.measured_peak_bytes


def test_a_later_round_that_brings_more_than_the_first_is_predicted() -> None:
    assert min(run_over(3, Late, predicted_of_measured)) > 0.9
