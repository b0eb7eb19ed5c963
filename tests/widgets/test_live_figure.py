"""A figure on the screen: what it sends, what it holds, what comes and goes."""

from __future__ import annotations

from typing import Any

import pytest
from plotly.graph_objects import Figure
from replay import Replay

from gcylon_lab.ui.figures.figures import figure_dict
from gcylon_lab.ui.figures.theme import DARK, LIGHT
from gcylon_lab.ui.figures.view import make_view
from gcylon_lab.ui.live.live import LiveFigure


def test_an_update_of_all_panels_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Replay(4)
    live = LiveFigure(figure_dict(make_view(replay.at(3.0)), LIGHT))
    sent: list[Any] = []
    monkeypatch.setattr(live.widget, "_send", lambda message, **_more: sent.append(message["state"]))
    live.show(figure_dict(make_view(replay.at(9.5)), LIGHT))
    assert [list(state) for state in sent] == [["_py2js_update"]]
    live.show(figure_dict(make_view(replay.at(9.5)), LIGHT))
    assert len(sent) == 1
    monkeypatch.undo()
    live.close()


def test_what_changes_past_plotly_is_what_plotly_holds() -> None:
    """Also of lists that become longer and shorter, and of what is gone again."""
    replay = Replay(4, gpus=2)
    live = LiveFigure(figure_dict(make_view([]), DARK))
    for at_s, theme in ((3.0, DARK), (9.5, LIGHT), (15.9, DARK), (1.2, DARK), (9.5, DARK)):
        figure = figure_dict(make_view(replay.at(at_s)), theme)
        live.show(figure)
        held, checked = live.widget.to_plotly_json(), Figure(figure).to_plotly_json()
        assert [t | {"uid": ""} for t in plain(held["data"])] == [t | {"uid": ""} for t in plain(checked["data"])]
        assert [held["layout"][axis].pop("autorange") for axis in ("xaxis", "xaxis4")] == [False] * 2
        assert plain(held["layout"]) == plain(checked["layout"])
        for name in ("annotations", "shapes"):
            told = [item.to_plotly_json() for item in live.widget.layout[name]]
            assert plain(told) == plain(checked["layout"].get(name, []))
    live.close()


def plain(values: Any) -> Any:
    """Return values without what is not given, and without plotly's ways to hold lists."""
    if isinstance(values, dict):
        return {name: plain(value) for name, value in values.items() if value is not None and plain(value) != {}}
    return [plain(value) for value in values] if isinstance(values, (list, tuple)) else values


def test_a_panel_comes_and_goes_with_what_it_shows() -> None:
    figures = [figure_dict(make_view(snapshots), LIGHT) for snapshots in ([], Replay(4, gpus=2).at(3.0), [])]
    live = LiveFigure(figures[0])
    without = live.widget.layout.height
    live.show(figures[1])
    live.show(figure_dict(make_view(Replay(4, gpus=2).at(9.5)), DARK))
    assert live.widget.layout.height > without
    axis = live.widget.layout.yaxis7
    assert (axis.title.text, axis.anchor, axis.tickfont.color) == ("% busy", "x", DARK.text)
    assert live.widget.layout.legend6.orientation == "h" and live.widget.layout.xaxis.anchor == "y7"
    assert [trace.yaxis for trace in live.widget.data if trace.meta in ("gpu0", "gpu1")] == ["y7", "y7"]
    live.show(figures[2])
    assert live.widget.layout.height == without and live.widget.layout.xaxis.anchor == "y2"
    assert not [trace for trace in live.widget.data if trace.yaxis == "y7"]
    assert live.widget.layout.yaxis7.domain is None, "an axis without a trace takes no room"
    live.show(figures[1])
    assert live.widget.layout.yaxis7.domain is not None
    live.close()
