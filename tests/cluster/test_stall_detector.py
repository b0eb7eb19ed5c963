"""An operation that some ranks never join: it is said who waits for whom, and those that wait are freed."""

from __future__ import annotations

import time
from typing import Any

import pytest

import gcylon_lab as gl
from gcylon_lab.cluster.channel import stall_detector
from gcylon_lab.cluster.channel.progress import describe
from gcylon_lab.cluster.channel.stall_detector import StallDetector, find_stalled
from gcylon_lab.errors import Revoked


def state(rank: int, operation: int, *, verb: str = "", running: str = "", requests: int = 1) -> dict[str, Any]:
    progress = {"verb": verb, "number": operation, "round": 0, "rounds": 0, "phase": ""} if verb else None
    return {
        "rank": rank, "operation": operation, "running": running or ("cell" if verb else ""),
        "revoked": False, "progress": progress, "requests": requests,
    }  # fmt: skip


def test_who_waits_for_whom() -> None:
    states = [state(0, 5, verb="shuffle"), state(1, 4), state(2, 4)]
    stranded = find_stalled(states)
    assert stranded is not None
    assert stranded.describe() == "rank 0 waits in shuffle; ranks 1-2 are idle"
    assert describe(states, 2.0).text.startswith("rank 0 waits in shuffle; ranks 1-2 are idle, 2")


@pytest.mark.parametrize(
    "states",
    [
        [state(0, 5, verb="shuffle"), state(1, 4, running="cell")],  # it may come to it
        [state(0, 5, running="cell"), state(1, 5)],  # works for itself
        [state(0, 5, verb="shuffle"), state(1, 5)],  # is done a moment before
        [state(0, 5), state(1, 4)],  # both idle
        [state(0, 5, verb="shuffle") | {"revoked": True}, state(1, 4)],  # is on its way out
    ],
)
def test_nobody_waits_in_vain(states: list[dict[str, Any]]) -> None:
    assert find_stalled(states) is None


def test_patience_starts_again_when_anything_happens() -> None:
    now = [state(0, 5, verb="shuffle"), state(1, 4)]
    freed: list[str] = []
    look = StallDetector(lambda: now, lambda: True, lambda ranks, why, advice: freed.append(why)).look
    look(0.0)
    look(3.0)
    now[1] = state(1, 4, requests=2)  # another cell went through meanwhile
    look(4.0)
    look(7.0)
    assert freed == []
    look(7.5)
    assert freed == ["Rank 0 waits in shuffle; rank 1 is idle with nothing queued, for 3.5 s: nobody would have joined"]


def test_an_error_while_it_looks_is_logged_and_it_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[int] = []

    def ask() -> list[dict[str, Any]]:
        asked.append(1)
        if len(asked) == 1:
            raise RuntimeError("on purpose")
        return [state(0, 5), state(1, 5)]

    looks = StallDetector(ask, lambda: True, lambda ranks, why, advice: None)
    looks.watch()
    deadline = time.monotonic() + 20
    while len(asked) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    looks.close()
    assert len(asked) >= 3
    assert "on purpose" in caplog.text and "goes on" in caplog.text


@pytest.mark.mpi
def test_who_waits_alone_is_freed_in_the_time_that_is_promised(lab: gl.Cluster) -> None:
    began = time.monotonic()
    with pytest.raises(Revoked, match="Rank 1 waits in from_pandas"):
        lab.run(_calls_on, 1)
    assert stall_detector.IDLE_S + 2 * stall_detector._EVERY_S < 5
    assert time.monotonic() - began < 15  # on a busy machine a look takes longer


@pytest.mark.mpi
def test_a_verb_that_one_rank_calls_alone(lab: gl.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_detector, "IDLE_S", 60.0)
    code = "import pandas as pd\nif gl.current().rank == 0:\n    gl.from_local(pd.DataFrame({'a': [1]})).shuffle('a')"
    began = time.monotonic()
    sent = lab.view.execute(code, block=False)
    while True:
        rows = lab.status()
        if [(row["state"], row["operation"]) for row in rows] == [("waiting", "from_local"), ("idle", "")]:
            break
        assert not sent.ready()
        time.sleep(0.05)
    monkeypatch.setattr(stall_detector, "IDLE_S", 2.0)
    with pytest.raises(Exception, match="Rank 0 waits in from_local; rank 1 is idle"):
        sent.get()
    assert time.monotonic() - began < 40
    assert lab.run(_alone, 1) == [None, 1]


@pytest.mark.mpi
def test_a_function_in_which_one_rank_calls_a_verb(lab: gl.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_detector, "IDLE_S", 2.0)
    with pytest.raises(Revoked, match=r"Rank 1 waits in from_pandas; rank 0 is idle.*all ranks"):
        lab.run(_calls_on, 1)
    assert lab.run(_alone, 0) == [0, None]


@pytest.mark.mpi
def test_a_rank_that_works_for_itself_is_left_alone(lab: gl.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_detector, "IDLE_S", 0.5)
    assert lab.run(_alone, 1, 2.5) == [None, 1]


def _alone(rank: int, wait_s: float = 0.0) -> int | None:
    if gl.current().rank != rank:
        return None
    time.sleep(wait_s)
    return rank


def _calls_on(rank: int) -> None:
    import pandas as pd

    if gl.current().rank == rank:
        gl.from_pandas(pd.DataFrame({"a": [1]}), root=rank)
