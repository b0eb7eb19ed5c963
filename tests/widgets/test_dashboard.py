"""The composed dashboard: live, paced, silent when unseen, freed when closed."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
import weakref
from typing import Any

import pytest
from replay import Replay, ReplaySource, eventually, settle

from gcylon_lab.errors import ArgumentError, GcylonError
from gcylon_lab.ui.dashboard import Dashboard, as_source
from gcylon_lab.ui.figures.figures import figure_dict
from gcylon_lab.ui.figures.theme import DARK, LIGHT
from gcylon_lab.ui.figures.view import make_view
from gcylon_lab.ui.live import following, page_visibility
from gcylon_lab.ui.live.live import LiveFigure


def points(dashboard: Dashboard) -> int:
    lines = dashboard.live.widget.data  # none for a moment, while the number of ranks changes
    return len(lines[0].x) if lines and lines[0].x is not None else 0


def drawn_to(dashboard: Dashboard) -> float:
    """Up to when the figure of memory has been drawn; ranks are sampled twenty times a second."""
    lines = dashboard.live._shown["data"]
    return float(lines[0]["x"][-1]) if lines and lines[0]["x"] else -1.0


def shown(dashboard: Dashboard, source: ReplaySource, at_s: float) -> None:
    """Show it at a time, and wait until it has been drawn."""
    dashboard.start()
    source.tell(at_s)
    assert eventually(lambda: points(dashboard) and drawn_to(dashboard) >= at_s - 0.06, 20)


def drawings(dashboard: Dashboard) -> tuple[int, ...]:
    """How often it was drawn, and what was sent for it."""
    return dashboard.draws, *(live.messages for live in dashboard.lives)


def test_it_listens_only_once_it_is_shown(dashboard: Dashboard, source: ReplaySource) -> None:
    assert source.callbacks == []
    bundle = dashboard._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in (bundle[0] if isinstance(bundle, tuple) else bundle)
    assert len(source.callbacks) == 1
    dashboard.start()
    assert len(source.callbacks) == 1


def test_the_figure_gains_points_while_the_ranks_work(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 3.0)
    before = points(dashboard)
    shown(dashboard, source, 7.0)
    assert points(dashboard) == before + 80
    assert eventually(lambda: "#3 allgather" in dashboard.headline.value)
    assert eventually(lambda: "#2 shuffle" in dashboard.numbers.html)
    assert eventually(lambda: "MPI" in dashboard.headline.value or not source.tell())


def test_at_most_ten_updates_a_second_whatever_the_feed(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 1.0)
    settle(lambda: drawings(dashboard))
    before, began = dashboard.live.messages, time.monotonic()
    for k in range(300):
        source.at_s = 1.0 + k / 100
        dashboard._news(source.snapshots())
    assert eventually(lambda: drawn_to(dashboard) >= 3.94)
    took = time.monotonic() - began
    assert 1 <= dashboard.live.messages - before <= 10 * took + 3


def test_unseen_it_sends_nothing(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 2.0)
    dashboard.page.visible = False
    settle(lambda: drawings(dashboard))
    before, drawn = dashboard.live.messages, dashboard.draws
    assert source.callbacks == [], "the ranks are not asked for what nobody sees"
    for k in range(10):
        source.tell(3.0 + k / 10)
        time.sleep(0.02)
    time.sleep(0.3)
    assert (dashboard.live.messages, dashboard.draws) == (before, drawn)
    dashboard.page.visible = True
    assert eventually(lambda: dashboard.live.messages > before)
    assert len(source.callbacks) == 1


def test_the_brush_rests_while_an_operation_runs(dashboard: Dashboard, source: ReplaySource) -> None:
    def drawn() -> bool:
        return bool(dashboard.live.widget.layout.xaxis4.rangeslider.visible)

    running = next(t / 10 for t in range(20, 150) if _runs(source, t / 10))
    shown(dashboard, source, running)
    assert not drawn()
    shown(dashboard, source, 15.9)
    assert eventually(drawn)
    dashboard.live.widget.zoomed = True  # whoever looks back by it keeps it
    source.tell(running)
    time.sleep(0.3)
    assert drawn()


def _runs(source: ReplaySource, at_s: float) -> bool:
    return any(s["progress"] for s in source.replay.at(at_s))


def test_a_plot_in_use_or_frozen_is_not_redrawn(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 2.0)
    for hold, free in (
        (lambda: setattr(dashboard.page, "busy", True), lambda: setattr(dashboard.page, "busy", False)),
        (lambda: setattr(dashboard.freeze, "value", True), lambda: setattr(dashboard.freeze, "value", False)),
    ):
        hold()
        settle(lambda: drawings(dashboard))
        before, drawn = dashboard.live.messages, dashboard.draws
        source.tell(source.at_s + 1)
        assert eventually(lambda drawn=drawn: dashboard.draws > drawn)  # type: ignore[misc]
        assert dashboard.live.messages == before
        free()
        assert eventually(lambda before=before: dashboard.live.messages > before)  # type: ignore[misc]


def test_a_page_that_lags_is_not_flooded_and_catches_up(
    dashboard: Dashboard, source: ReplaySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_visibility, "_PATIENCE_S", 60.0)  # however long this takes
    shown(dashboard, source, 1.0)
    dashboard.page.theme = "light"

    def keeps_up() -> bool:
        dashboard.page.tock = dashboard.page.tick
        settle(lambda: drawings(dashboard))
        return bool(dashboard.page.tock == dashboard.page.tick)

    assert eventually(keeps_up)
    before, asked = dashboard.live.messages, dashboard.page.tick
    for k in range(10):
        source.tell(2.0 + k)
        time.sleep(0.12)
    settle(lambda: drawings(dashboard))
    assert dashboard.page.tick - asked == 2 and 1 <= dashboard.live.messages - before <= 2
    assert drawn_to(dashboard) < 10.9
    dashboard.page.tock = dashboard.page.tick
    assert eventually(lambda: drawn_to(dashboard) > 10.9)


def move_axis(dashboard: Dashboard, said: str, **moved: Any) -> None:
    """Say what a page says of a hand on the time axis."""
    data = {name.replace("_", "."): value for name, value in moved.items()}
    message = {"relayout_data": data, "source_view_id": "a view"}
    hand = {"said": said, "zoomed": "xaxis_autorange" not in moved, "range": moved.get("xaxis_range")}
    dashboard.live.widget.set_state({"hand": hand, "_js2py_relayout": message})


def test_a_stretch_chosen_by_hand_stays(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 4.0)
    for said, at_s in (("1", 8.0), ("2", 10.0)):
        move_axis(dashboard, f"{said} in", xaxis_range=[1.0, 2.0])
        assert dashboard.live.zoomed
        assert dashboard.live.widget.heard == f"{said} in"
        before = points(dashboard)
        source.tell(at_s)
        assert eventually(lambda before=before: points(dashboard) > before)  # type: ignore[misc]
        assert list(dashboard.live.widget.layout.xaxis.range) == [1.0, 2.0]
        move_axis(dashboard, f"{said} out", xaxis_autorange=True)
        source.tell(at_s + 1)
        end = [0.0, at_s + 2]  # the next whole step
        assert eventually(lambda end=end: list(dashboard.live.widget.layout.xaxis.range) == end)  # type: ignore[misc]


def test_a_stretch_chosen_in_one_figure_is_that_of_all_with_time(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 4.0)
    memory, others, rest = dashboard.lives
    for said, moved, other in (("1", memory, others), ("2", others, memory)):
        _say_hand(moved, said, [1.0, 2.0])
        assert eventually(lambda other=other: list(other.widget.layout.xaxis.range) == [1.0, 2.0])  # type: ignore[misc]
        source.tell(source.at_s + 1)
        assert eventually(lambda: drawn_to(dashboard) > source.at_s - 0.1)
        time.sleep(0.2)
        assert list(other.widget.layout.xaxis.range) == [1.0, 2.0], "no drawing takes it back"
        _say_hand(moved, f"{said} out", None)
        end = [0.0, source.at_s + 1]
        assert eventually(lambda end=end: list(memory.widget.layout.xaxis.range) == end)  # type: ignore[misc]
        assert eventually(lambda end=end: list(others.widget.layout.xaxis.range) == end)  # type: ignore[misc]
    assert rest.messages


def _say_hand(live: LiveFigure, said: str, stretch: list[float] | None) -> None:
    moved = {"xaxis.range": stretch} if stretch else {"xaxis.autorange": True}
    message = {"relayout_data": moved, "source_view_id": "a view"}
    hand = {"said": said, "zoomed": bool(stretch), "range": stretch}
    live.widget.set_state({"hand": hand, "_js2py_relayout": message})


def test_while_an_operation_runs_memory_is_drawn_most_often(
    dashboard: Dashboard, source: ReplaySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.replay = Replay(2, busy=4)
    idle = next(t for t in range(50, 900) if not _runs(source, t / 10))
    begins = next(t for t in range(idle, 900) if _runs(source, t / 10)) / 10
    ends = next(t for t in range(round(10 * begins), 900) if not _runs(source, t / 10)) / 10
    assert ends > begins + 2.2
    shown(dashboard, source, begins + 0.1)
    settle(lambda: drawings(dashboard))
    memory, others, _ = dashboard.lives
    before, began = (memory.messages, others.messages), time.monotonic()
    for k in range(1, 11):
        sent = memory.messages
        source.tell(begins + 0.1 + k / 5)
        assert eventually(lambda sent=sent: memory.messages > sent)  # type: ignore[misc]
        time.sleep(max(0.0, began + k / 5 - time.monotonic()))
    settle(lambda: drawings(dashboard))
    took = time.monotonic() - began
    assert 1 <= others.messages - before[1] <= 2.5 + took / following._ALL_EVERY_S
    assert memory.until_s == others.until_s, "the axes are aligned"
    monkeypatch.setattr(following, "_ALL_EVERY_S", 60.0)
    late = others.messages
    source.tell(ends)
    assert eventually(lambda: others.messages > late), "an operation's end is shown at once"


def test_a_hand_is_not_heard_in_the_middle_of_an_update(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 4.0)
    widget = dashboard.live.widget
    with widget.lock:  # as while an update is made
        hand = threading.Thread(target=move_axis, args=(dashboard, "1"), kwargs={"xaxis_range": [1.0, 2.0]})
        hand.start()
        time.sleep(0.2)
        assert (widget.heard, list(widget.layout.xaxis.range)) == ("", [0.0, 5.0])
    hand.join(20)
    assert (widget.heard, list(widget.layout.xaxis.range)) == ("1", [1.0, 2.0])


def test_a_page_that_opens_is_told_the_figure_as_it_is(
    dashboard: Dashboard, source: ReplaySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown(dashboard, source, 7.0)
    widget, sent = dashboard.live.widget, []
    with widget.lock:
        figure = dashboard.live._shown
        monkeypatch.setattr(widget, "_send", lambda message, **_more: sent.append(message["state"]))
        widget.set_state({"asked": "a page"})
        told = [widget.get_state(), {name: value for state in sent for name, value in state.items()}]
        monkeypatch.undo()
    names = [name for state in sent for name in state]
    assert names.index("_widget_data") < names.index("answered"), "a page draws when it is answered"
    for state in told:
        assert [trace["meta"] for trace in state["_widget_data"]] == [trace["meta"] for trace in figure["data"]]
        assert state["_widget_data"][0]["x"] == list(figure["data"][0]["x"])
        assert state["_widget_layout"]["xaxis"]["range"] == list(figure["layout"]["xaxis"]["range"])
        assert state["answered"] == "a page"


def answering(dashboard: Dashboard) -> None:
    """Answer every tick at once, as a page that keeps up does."""
    dashboard.page.observe(lambda change: setattr(dashboard.page, "tock", change["new"]), "tick")


def test_the_page_chooses_the_theme(dashboard: Dashboard, source: ReplaySource) -> None:
    answering(dashboard)
    shown(dashboard, source, 2.0)
    for theme in (DARK, LIGHT):
        dashboard.page.theme = theme.name
        assert eventually(lambda theme=theme: dashboard.live.widget.layout.font.color == theme.text)  # type: ignore[misc]


def test_other_numbers_of_ranks_are_taken_up(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 4.0)
    source.replay = Replay(12)
    source.tell(5.0)
    assert eventually(lambda: dashboard.live.widget.data and dashboard.live.widget.data[0].meta == "low")
    whole = figure_dict(make_view(source.snapshots()), LIGHT)["data"]
    drawn = lambda: sorted(t.meta for live in dashboard.lives for t in live.widget.data)  # noqa: E731
    assert eventually(lambda: drawn() == sorted(t["meta"] for t in whole))


def test_the_axis_stays_where_it_was_when_old_samples_fall_out(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 2.0)
    late = source.replay.at(6.0)
    for s in late:
        s["samples"] = {name: column[60:] for name, column in s["samples"].items()}
    dashboard._news(late)
    assert eventually(lambda: drawn_to(dashboard) > 5.9)
    assert dashboard.live.widget.data[0].x[0] == 3.0


def test_interrupt_acts_at_once_and_restart_asks_first(dashboard: Dashboard, source: ReplaySource) -> None:
    dashboard.interrupt.click()
    assert eventually(lambda: source.calls == ["interrupt"])
    dashboard.restart.click()
    assert dashboard.restart.description == "lose tables?"
    time.sleep(0.1)
    assert source.calls == ["interrupt"]
    dashboard.restart.click()
    assert eventually(lambda: source.calls == ["interrupt", "restart"])
    assert eventually(lambda: dashboard.restart.description == "restart" and not dashboard.restart.disabled)


def test_an_interrupt_does_not_wait_for_the_drawing(dashboard: Dashboard, source: ReplaySource) -> None:
    stuck = threading.Event()
    dashboard._worker.request("stuck", lambda: stuck.wait(60) and None)
    dashboard.interrupt.click()
    assert eventually(lambda: source.calls == ["interrupt"])
    stuck.set()


def test_what_fails_behind_a_button_is_shown(dashboard: Dashboard, source: ReplaySource) -> None:
    def broken() -> None:
        raise GcylonError("The engines <are> gone.", advice="Call restart().")

    source.interrupt = broken  # type: ignore[method-assign]
    dashboard.interrupt.click()
    assert eventually(lambda: "The engines &lt;are&gt; gone. Call restart()." in dashboard.errors.value)


def test_the_report_button_writes_the_file(
    dashboard: Dashboard, source: ReplaySource, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown(dashboard, source, 6.0)
    dashboard.save.click()
    assert eventually(lambda: "written" in dashboard.saved.value)
    assert (tmp_path / "gcylon_lab_report.html").stat().st_size > 1_000_000


def test_compact_is_memory_phases_and_what_runs(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 10.5)
    memory, others, _ = dashboard.lives
    assert eventually(lambda: others.widget.layout.yaxis3.visible)
    high = memory.widget.layout.height + others.widget.layout.height
    dashboard.compact.value = True
    assert eventually(lambda: memory.widget.layout.height + others.widget.layout.height < min(high, 560))
    assert "gcylon-compact" in dashboard._root._dom_classes
    assert others.widget.layout.yaxis2.visible and not others.widget.layout.yaxis3.visible
    assert eventually(lambda: dashboard.running.value.startswith('<div class="gcylon-running">▶ <b>#4 shuffle'))
    assert "<progress" in dashboard.running.value
    dashboard.compact.value = False
    assert eventually(lambda: others.widget.layout.yaxis3.visible)
    assert not dashboard.errors.value


def test_an_operation_of_the_table_is_shown_in_the_panels(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 16.0)
    titles = lambda: " ".join(a.text for a in dashboard.lives[2].widget.layout.annotations)  # noqa: E731
    assert eventually(lambda: "Peaks: which rank in #" in titles())
    for number in (2, 5):
        dashboard.numbers.chosen = number  # as a click does
        assert eventually(lambda number=number: f"Peaks: which rank in #{number}?" in titles())


def test_without_sidecar_docking_says_what_to_install_and_what_to_do_instead(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sidecar", None)
    with pytest.raises(GcylonError, match=r"gcylon-lab\[dock\].* Create New View for Output"):
        dashboard.dock()
    with pytest.raises(ArgumentError, match="Expected 'right', 'left'"):
        dashboard.dock("middle")


def test_nothing_shown_is_no_json(dashboard: Dashboard, source: ReplaySource) -> None:
    shown(dashboard, source, 6.0)
    json.dumps(dashboard.live.widget.to_plotly_json(), default=lambda a: a.tolist(), allow_nan=False)


def test_closed_it_is_freed_with_all_its_widgets_and_threads(source: ReplaySource) -> None:
    gc.collect()
    widgets_before, threads_before = _instances().keys(), _workers()
    dashboard = Dashboard(source)
    shown(dashboard, source, 6.0)
    dashboard.interrupt.click()
    references = [weakref.ref(o) for o in (dashboard, dashboard.live.widget, dashboard.tuner, dashboard.page)]
    dashboard.close()
    dashboard.close()
    assert source.callbacks == []
    assert dashboard._repr_mimebundle_() == {"text/plain": "<Dashboard, closed>"}
    source.tell(7.0)
    del dashboard
    assert eventually(lambda: _workers() <= threads_before), "a job that was under way ends first"
    gc.collect()
    assert [r() for r in references] == [None] * 4
    assert _instances().keys() <= widgets_before


def _workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "gcylon_lab dashboard" in thread.name}


def _instances() -> dict[str, Any]:
    from ipywidgets.widgets import widget

    return dict(widget._instances)


def test_what_is_no_cluster_is_refused() -> None:
    with pytest.raises(GcylonError, match="Expected a cluster, got"):
        as_source(42)
