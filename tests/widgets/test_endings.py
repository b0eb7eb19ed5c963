"""A rank that is gone runs nothing, whatever it told last: in the figures, and for the brush."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from replay import Replay, ReplaySource, eventually

import gcylon_lab as gl
from gcylon_lab.ui.figures.figures import figure_dict
from gcylon_lab.ui.figures.finalize_dead_ranks import with_dead_ended
from gcylon_lab.ui.figures.theme import LIGHT
from gcylon_lab.ui.figures.view import make_view

DIED_S, NOW_S = 10.5, 13.0


def after_a_death(ranks: int = 4, *, gone: int = 2) -> list[dict[str, Any]]:
    """Rank 2 told its last in operation 4; the others were freed half a second later, and tell until now."""
    replay = Replay(ranks)
    died, freed, now = replay.at(DIED_S), replay.at(DIED_S + 0.5), replay.at(NOW_S)
    for before, after in zip(freed, now, strict=True):
        after |= {"operations": before["operations"], "spans": before["spans"], "progress": None}
        after["operations"][-1] |= {"end_ns": before["now_ns"], "error": "RankLost: rank 2 is gone"}
    now[gone] = died[gone]
    return now


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_shading_ends_with_the_last_rank_that_told_of_an_end(ranks: int) -> None:
    gone = 2 if ranks > 1 else 0
    snapshots = after_a_death(ranks, gone=gone)
    view = make_view(with_dead_ended(snapshots, [gone]))
    op = view.operations[-1]
    assert (op.number, op.running, op.end_s) == (4, False, pytest.approx(DIED_S + 0.5 * (ranks > 1)))
    assert op.error and figure_dict(view, LIGHT)["layout"]["shapes"][-1]["x1"] == pytest.approx(op.end_s)
    assert not [s for s in view.snapshots if s["progress"]]
    assert make_view(snapshots).operations[-1].running, "nobody knows yet that the rank is gone"
    assert snapshots[gone]["progress"] and not snapshots[gone]["operations"][-1]["end_ns"], (
        "what was given is as it was"
    )


def test_what_others_still_wait_in_runs_on() -> None:
    snapshots = Replay(4).at(DIED_S)
    op = make_view(with_dead_ended(snapshots, [2])).operations[-1]
    assert (op.running, op.end_s, op.records[2]["end_ns"]) == (True, DIED_S, snapshots[2]["now_ns"])


@pytest.fixture(params=["dashboard", "panel"])
def following(request: pytest.FixtureRequest) -> Iterator[Any]:
    source = ReplaySource(Replay(4))
    source.snapshots = after_a_death  # type: ignore[method-assign]
    source.status = lambda: {"state": "a rank is gone", "dead": [{"rank": 2, "exit": -9}]}  # type: ignore[method-assign]
    made = gl.Dashboard(source) if request.param == "dashboard" else gl.Panel(source, "memory")
    with made:
        yield made


def test_the_brush_is_there_once_a_rank_is_known_to_be_gone(following: Any) -> None:
    following.start()
    layout = following.live.widget.layout
    assert eventually(lambda: layout.shapes and layout.shapes[-1].x1 == pytest.approx(DIED_S + 0.5), 20)
    assert layout.xaxis4.rangeslider.visible
