"""One panel of the dashboard in a cell of its own: live, paced, silent when unseen, freed when closed."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from replay import Replay, ReplaySource, eventually, settle

import gcylon_lab as gl
from gcylon_lab.errors import ArgumentError, GcylonError
from gcylon_lab.ui.figures.figures import PAGES


@pytest.fixture
def memory(source: ReplaySource) -> Iterator[gl.Panel]:
    with gl.Panel(source, "memory") as made:
        yield made


def drawn_to(panel: gl.Panel) -> float:
    return float(panel.live._shown["layout"]["xaxis"]["range"][1])


def shown(panel: gl.Panel, source: ReplaySource, at_s: float) -> None:
    panel.start()
    source.tell(at_s)
    assert eventually(lambda: drawn_to(panel) >= at_s - 0.01, 20)


def said(panel: gl.Panel) -> str:
    return " ".join(a.text for a in panel.live.widget.layout.annotations)


def test_it_listens_once_it_is_shown_and_gains_points(memory: gl.Panel, source: ReplaySource) -> None:
    assert source.callbacks == []
    bundle = memory._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in (bundle[0] if isinstance(bundle, tuple) else bundle)
    assert len(source.callbacks) == 1
    shown(memory, source, 3.0)
    assert [t.meta for t in memory.live.widget.data][:4] == ["rank0", "rank1", "rank2", "rank3"]
    before = len(memory.live.widget.data[0].x)
    shown(memory, source, 7.0)
    assert len(memory.live.widget.data[0].x) == before + 80
    memory.ranks.value = "the worst rank"
    assert eventually(lambda: memory.live.widget.data and memory.live.widget.data[0].meta == "worst")


def test_at_most_ten_updates_a_second_and_none_unseen(memory: gl.Panel, source: ReplaySource) -> None:
    shown(memory, source, 1.0)
    settle(lambda: (memory.draws, memory.live.messages))
    before, began = memory.live.messages, time.monotonic()
    for k in range(100):
        source.at_s = 1.0 + k / 50
        memory._news(source.snapshots())
    assert eventually(lambda: drawn_to(memory) >= 2.97)
    took = time.monotonic() - began
    assert 1 <= memory.live.messages - before <= 10 * took + 3
    memory.page.visible = False
    settle(lambda: (memory.draws, memory.live.messages))
    before = memory.live.messages
    source.tell(5.0)
    time.sleep(0.3)
    assert memory.live.messages == before
    memory.page.visible = True
    assert eventually(lambda: memory.live.messages > before)


def test_the_brush_is_a_hand_too(memory: gl.Panel, source: ReplaySource) -> None:
    shown(memory, source, 4.0)
    message = {"relayout_data": {"xaxis4.range": [1.0, 2.0]}, "source_view_id": "a view"}
    memory.live.widget.set_state({"hand": {"said": "1", "zoomed": True}, "_js2py_relayout": message})
    source.tell(6.0)
    assert eventually(lambda: max(memory.live.widget.data[0].x) > 5.9)
    layout = memory.live.widget.layout
    assert list(layout.xaxis4.range) == [1.0, 2.0], "no jump while somebody looks back"
    assert list(layout.xaxis4.rangeslider.range) == [0.0, 7.0]
    over = {"relayout_data": {"xaxis.autorange": True, "xaxis4.autorange": True}, "source_view_id": "a view"}
    memory.live.widget.set_state({"hand": {"said": "2", "zoomed": False}, "_js2py_relayout": over})
    source.tell(7.0)
    assert eventually(lambda: list(layout.xaxis.range) == list(layout.xaxis4.range) == [0.0, 8.0])


def test_an_operation_may_be_chosen_and_stays_while_others_come(source: ReplaySource) -> None:
    with gl.Panel(source, "traffic", operation=3) as panel:
        panel.start()
        source.tell(10.0)
        assert eventually(lambda: "#3 allgather: " in said(panel))
        names = ["runs, or took longest", "#4 shuffle", "#3 allgather", "#2 shuffle", "#1 shuffle"]
        assert eventually(lambda: [label for label, _ in panel.operation.options] == names), "after the figure"
        assert eventually(lambda: panel.operation.value == 3), "new options take it away for a moment"
        source.tell(16.0)
        assert eventually(lambda: len(panel.operation.options) == 6)
        assert eventually(lambda: panel.operation.value == 3) and "#3 allgather: " in said(panel)
        panel.operation.value = None
        assert eventually(lambda: "#3 allgather: " not in said(panel)), "what took longest"


def workers() -> set[threading.Thread]:
    """Threads of panels and dashboards; clusters of other tests have threads too, which come and go."""
    return {thread for thread in threading.enumerate() if "gcylon_lab dashboard" in thread.name}


@pytest.mark.parametrize("name", list(PAGES))
def test_every_panel_lives_and_is_freed(name: str) -> None:
    gc.collect()
    source, widgets_before = ReplaySource(Replay(12, gpus=2)), _instances().keys()
    threads_before = workers()
    references = live_and_close(source, name)
    assert eventually(lambda: workers() <= threads_before), "a job that was under way ends first"
    gc.collect()
    assert [r() for r in references] == [None] * 3
    assert _instances().keys() <= widgets_before


def live_and_close(source: ReplaySource, name: str) -> list[weakref.ref[Any]]:
    panel = gl.Panel(source, name)
    panel.start()
    source.tell(16.0)
    assert eventually(lambda: panel.draws > 1 and panel.live.messages > 0, 20) and panel.errors.value == ""
    panel.close()
    panel.close()
    assert source.callbacks == [] and panel._repr_mimebundle_() == {"text/plain": "<Panel, closed>"}
    return [weakref.ref(o) for o in (panel, panel.live.widget, panel.page)]


def test_what_there_is_not_is_refused(source: ReplaySource) -> None:
    with pytest.raises(ArgumentError, match="There is no panel 'pie'.*memory, peaks"):
        gl.Panel(source, "pie")
    with pytest.raises(ArgumentError, match="ranks='few' is invalid. Expected 'all'"):
        gl.Panel(source, "memory", ranks="few")
    with pytest.raises(GcylonError, match="Expected a cluster, got"):
        gl.Panel(42, "memory")


def _instances() -> dict[str, Any]:
    from ipywidgets.widgets import widget

    return dict(widget._instances)
