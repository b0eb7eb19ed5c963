"""What the ranks' recordings bring to the notebook: bounded, whatever they record and however many they are."""

from __future__ import annotations

import json
import threading
import time
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from gcylon_lab.cluster.client.feed import BYTES_PER_S, Feed
from gcylon_lab.profiling import Recorder, operation, recording, take_snapshot


class Ranks:
    """Ranks as a channel has them, which record by the clock: each so many events a second, and an operation in 50."""

    def __init__(self, size: int, events_per_s: int) -> None:
        self.size = size
        self.control = self
        self.busy = True
        self.came: list[int] = []
        self._per_s = events_per_s
        self._recorders = [Recorder() for _ in range(size)]
        self._made = [0] * size
        self._began = time.monotonic()

    def is_busy(self) -> bool:
        return self.busy

    def told(self, states: list[Any]) -> None:
        assert all(states)

    def ask_each(self, contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
        answers = []
        for rank, content in enumerate(contents):
            if self.busy:
                self._record(rank, int(self._per_s * (time.monotonic() - self._began)))
            told = {name: value for name, value in content.items() if name != "ask"}
            answers.append(
                take_snapshot(self._recorders[rank], None, rank, f"node{rank // 8}", **told) | {"state": {"s": 1}}
            )
        self.came.append(len(json.dumps(answers)))
        return answers

    def _record(self, rank: int, until: int) -> None:
        recorder, thread = self._recorders[rank], threading.get_ident()
        for number in range(self._made[rank], until):
            now = perf_counter_ns()
            recorder.append(("exchange", "transfer", now - 1000, now, number, 4096, "device", thread, number))
            if number % 50 == 0:
                with recording(recorder), operation("shuffle", number + 1, recorder) as record:
                    record.add_sent(np.full(self.size, number))
        self._made[rank] = max(until, self._made[rank])

    def recorded(self, rank: int) -> set[int]:
        return {event[4] for event in take_snapshot(self._recorders[rank], None, rank, "h")["spans"]}


@pytest.mark.parametrize(("size", "events_per_s"), [(4, 4000), (64, 1000), (256, 100)])
def test_of_any_number_of_ranks_less_than_a_megabyte_a_second_comes(size: int, events_per_s: int) -> None:
    ranks = Ranks(size, events_per_s)
    feed = Feed(lambda: ranks)  # type: ignore[arg-type, return-value]
    seen: list[float] = []

    def see(snapshots: list[dict[str, Any]]) -> None:
        seen.append(max(snapshot["now_ns"] - snapshot["spans"][-1][3] for snapshot in snapshots) / 1e9)

    end, began = feed.subscribe(see), time.monotonic()
    time.sleep(4.0)
    came, took = sum(ranks.came), time.monotonic() - began
    end()
    feed.close()
    assert came < 1.25 * BYTES_PER_S * took <= 1e6 * took
    recorded = size * events_per_s * took * 100
    assert recorded > 1.5 * BYTES_PER_S * took, "there was more to tell"
    assert seen and max(seen) < 1.0, "the newest is there"


def fallen_behind(pulls: int) -> tuple[Ranks, Feed]:
    """Ranks that had more to tell than fits, and are idle now."""
    ranks = Ranks(8, 2000)
    feed = Feed(lambda: ranks)  # type: ignore[arg-type, return-value]
    for _ in range(pulls):
        time.sleep(0.2)
        feed.pull(every_s=0.2, busy=True)
    ranks.busy = False
    return ranks, feed


def test_what_did_not_fit_comes_once_the_ranks_are_idle() -> None:
    ranks, feed = fallen_behind(4)

    def told(rank: int) -> set[int]:
        return {event[4] for event in feed._snapshots[rank]["spans"]}

    assert not any(told(rank) >= ranks.recorded(rank) for rank in range(8)), "not all of it fitted"
    pulls = 0
    while feed._gaps:
        feed.pull(every_s=0.2)
        assert ranks.came[-1] < 1.25 * BYTES_PER_S * 0.2
        pulls += 1
        assert pulls < 40
    assert all(told(rank) >= ranks.recorded(rank) for rank in range(8))
    for snapshot in feed._snapshots:
        ends = [span[3] for span in snapshot["spans"]]
        assert ends == sorted(ends)
        assert len(ends) == len({tuple(span) for span in snapshot["spans"]})
        assert len(snapshot["span_threads"]) == len(ends)
        numbers = [row["number"] for row in snapshot["operations"]]
        assert numbers == sorted(set(numbers)) and len(numbers) > 20


def test_an_explicit_look_brings_what_did_not_fit() -> None:
    ranks, feed = fallen_behind(3)
    whole = feed.snapshots()
    for rank in range(8):
        assert {event[4] for event in whole[rank]["spans"]} >= ranks.recorded(rank)
