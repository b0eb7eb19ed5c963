"""The cluster card: each rank's health in words, what a click will do, what came of it; alone and freed."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from replay import Replay, ReplaySource, eventually, settle
from test_strip_and_plan import RANKS, waiting, working

import gcylon_lab as gl
from gcylon_lab.errors import GcylonError
from gcylon_lab.ui.controls.status_bar import chips_html, rank_states


def told(state: str = "idle", **more: Any) -> list[dict[str, Any]]:
    """What a status says of rank 0, with the others idle."""
    rows = [{"rank": r, "state": "idle", "since_s": 0.0, "running": ""} for r in range(4)]
    rows[0] |= {"state": state, **more}
    return rows


@pytest.fixture
def card(source: ReplaySource) -> Iterator[gl.ClusterCard]:
    with gl.ClusterCard(source) as made:
        made.start()
        assert eventually(lambda: made.cluster.chips.value)
        yield made


def test_a_rank_that_waits_for_idle_ones_is_stuck_and_says_for_whom() -> None:
    snapshots = Replay(4).at(0.5)
    waiting(snapshots[0], 4.0)
    states = rank_states(RANKS, snapshots, (), told("waiting", running="cell"))
    assert (states[0].kind, states[0].text) == ("stuck", "stuck 4.0 s in shuffle: ranks 1, 2, 3 are idle")
    assert [s.kind for s in states[1:]] == ["idle"] * 3
    assert "■" in chips_html(states) and "#E5252A" in chips_html(states)


def test_a_rank_that_does_not_answer_is_stuck_after_two_seconds() -> None:
    for since_s, kind in ((1.0, "idle"), (2.5, "stuck")):
        state = rank_states(RANKS, Replay(4).at(0.5), (), told("silent", since_s=since_s))[0]
        assert state.kind == kind
    assert state.text == "no answer for 2.5 s"


def test_who_waits_for_a_dead_rank_says_so() -> None:
    snapshots = working()
    for rank in (0, 1, 3):
        waiting(snapshots[rank], 3.1)
    states = rank_states(RANKS, snapshots, [{"rank": 2, "exit": "signal Killed"}])
    assert states[2].text == "dead, signal Killed"
    assert {states[rank].text for rank in (0, 1, 3)} == {"waiting 3.1 s for rank 2 (dead)"}


def test_old_news_of_a_rank_that_waits_age() -> None:
    snapshots = working()
    waiting(snapshots[0], 1.0)
    assert rank_states(RANKS, snapshots)[0].kind == "working"
    assert rank_states(RANKS, snapshots, age_s=3.0)[0].text.startswith("waiting 4.0 s")


def test_a_rank_in_a_cell_is_at_work_though_no_operation_runs() -> None:
    state = rank_states(RANKS, Replay(4).at(0.5), (), told("busy", running="cell"))[0]
    assert (state.kind, state.text) == ("working", "in a cell")


def test_a_click_says_before_what_it_will_do(card: gl.ClusterCard, source: ReplaySource) -> None:
    cluster = card.cluster
    assert eventually(lambda: "Nothing runs" in cluster.interrupt.tooltip and "Nothing runs" in cluster.revoke.tooltip)
    source.tell(10.5)
    assert eventually(lambda: "Ends #4 shuffle with an error on all ranks" in cluster.interrupt.tooltip)
    assert "#4 shuffle ends where it next meets the others" in cluster.revoke.tooltip
    cluster.restart.click()
    assert eventually(lambda: "Lost: lineitem (122 MiB)" in cluster.said.value)
    assert "ends all 4 processes and #4 shuffle ends" in cluster.said.value
    assert source.calls == []


@pytest.mark.parametrize(
    ("button", "said"),
    [
        ("revoke", "revoked: no rank is at work any more"),
        ("interrupt", r"Interrupted: shuffle stopped after \d\.\d s; tables are unchanged\."),
    ],
)
def test_what_came_of_a_click_is_said(card: gl.ClusterCard, source: ReplaySource, button: str, said: str) -> None:
    source.tell(10.5)
    assert eventually(lambda: "shuffle" in card.cluster.interrupt.tooltip)
    getattr(card.cluster, button).click()
    assert eventually(lambda: source.calls == [button])
    source.tell(10.6)
    assert eventually(lambda: "still at work: ranks 0, 1, 2, 3" in card.cluster.said.value)
    source.tell(0.5)
    assert eventually(lambda: re.search(said, card.cluster.said.value))


def test_without_a_revoke_its_button_is_off_and_says_why(card: gl.ClusterCard, source: ReplaySource) -> None:
    source.status = lambda: {"state": "ready", "dead": [], "transport": "MPICH", "revocable": False}  # type: ignore[method-assign]
    source.tell(0.6)
    assert eventually(lambda: card.cluster.revoke.disabled or source.tell(), 10)
    assert "has no revoke" in card.cluster.revoke.tooltip


def test_a_status_that_takes_long_holds_up_neither_drawing_nor_buttons(
    card: gl.ClusterCard, source: ReplaySource
) -> None:
    stuck = threading.Event()
    asked = threading.Event()

    def status() -> dict[str, Any]:
        asked.set()
        stuck.wait(60)
        return {"state": "ready", "dead": []}

    source.status = status  # type: ignore[method-assign]
    source.tell(0.6)
    assert asked.wait(20)
    source.tell(10.5)
    assert eventually(lambda: "round" in card.cluster.chips.value)
    card.cluster.interrupt.click()
    assert eventually(lambda: source.calls == ["interrupt"])
    stuck.set()


def test_what_fails_is_shown_and_a_restart_that_worked_clears_it(card: gl.ClusterCard, source: ReplaySource) -> None:
    def broken() -> None:
        raise GcylonError("The controller <is> gone.")

    source.interrupt = broken  # type: ignore[method-assign]
    card.cluster.interrupt.click()
    assert eventually(lambda: "The controller &lt;is&gt; gone." in card.errors.value)
    card.cluster.restart.click()
    card.cluster.restart.click()
    assert eventually(lambda: source.calls == ["restart"] and card.errors.value == "")


@pytest.mark.parametrize("kind", [gl.ClusterCard, gl.Tuner], ids=lambda kind: kind.__name__)
def test_it_stands_alone_listens_once_shown_and_is_freed(source: ReplaySource, kind: Any) -> None:
    from ipywidgets.widgets import widget

    gc.collect()
    before, threads_before = set(widget._instances), workers()
    made = kind(source)
    assert source.callbacks == []
    bundle = made._repr_mimebundle_()
    assert f"<{kind.__name__} of 4 ranks" in str(bundle) and len(source.callbacks) == 1
    assert eventually(lambda: made.draws)
    made.page.visible = False
    settle(lambda: made.draws)  # one may be under way
    drawn = made.draws
    source.tell(5.0)
    assert not eventually(lambda: made.draws > drawn, 0.3)
    made.close()
    assert source.callbacks == [] and made._repr_mimebundle_() == {"text/plain": f"<{kind.__name__}, closed>"}
    made = None
    assert eventually(lambda: workers() <= threads_before), "a job that was under way ends first"
    gc.collect()
    assert set(widget._instances) <= before


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "gcylon_lab dashboard" in thread.name}
