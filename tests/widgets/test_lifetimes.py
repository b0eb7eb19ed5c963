"""How long a dashboard lives: until its last name goes; once shown, until it is closed or its cell runs again."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from ipywidgets.widgets import widget as ipywidgets_module
from replay import Replay, ReplaySource

import gcylon_lab as gl
from gcylon_lab.ui.live import live_widget


@pytest.fixture
def source() -> ReplaySource:
    return ReplaySource(Replay(2))


def left() -> int:
    gc.collect()
    return len(ipywidgets_module._instances)


def test_a_cell_that_makes_one_over_and_over_leaves_none(source: ReplaySource) -> None:
    before, made = left(), []
    for _ in range(5):
        dash = gl.Dashboard(source)
        made.append(weakref.ref(dash))
    assert left() > before  # the last one
    dash.tuner  # noqa: B018
    assert [ref() is not None for ref in made] == [False] * 4 + [True]
    del dash
    assert left() == before and made[-1]() is None


def test_one_that_was_not_shown_lives_as_long_as_a_name(source: ReplaySource) -> None:
    first, second = gl.Dashboard(source), gl.Dashboard(source)
    gc.collect()
    for dash in (first, second):
        assert not dash._closed and dash._root.children[1] is dash.page
        dash.window.value = "everything"  # its widgets hear
        dash.page.comm.handle_msg(
            {"content": {"data": {"method": "update", "state": {"theme": "dark"}}}, "buffers": []}
        )
        assert dash.page.theme == "dark"
        dash.close()


def test_to_show_one_no_figure_is_read(source: ReplaySource) -> None:
    """ipywidgets asks for the repr, and that of a figure copies what another thread may be drawing on."""
    dash = gl.Dashboard(source)
    assert repr(dash.widget).startswith("<Root of ") and len(repr(dash.widget)) < 40
    dash.close()


def test_what_a_page_shows_lives_without_a_name(source: ReplaySource, monkeypatch: pytest.MonkeyPatch) -> None:
    cell: list[Any] = [("", "")]
    monkeypatch.setattr(live_widget, "running_cell", lambda: cell[0])
    before, shown = left(), []
    # Two cells show one each; the second is run again, twice, with another one.
    for where in (("a", "1"), ("b", "2"), ("b", "3"), ("b", "4")):
        cell[0] = where
        dash = gl.Dashboard(source)
        dash._repr_mimebundle_()
        shown.append(weakref.ref(dash))
        del dash
    alive = [ref() for ref in shown]
    assert [one is not None and not one._closed for one in alive] == [True, False, False, True]
    for one in alive:
        if one is not None:
            one.close()
    del one, alive
    assert left() == before


def test_one_that_several_cells_show_ends_with_the_last(source: ReplaySource, monkeypatch: pytest.MonkeyPatch) -> None:
    cell: list[Any] = [("", "")]
    monkeypatch.setattr(live_widget, "running_cell", lambda: cell[0])
    one, other = gl.Dashboard(source), gl.Dashboard(source)
    closed = []
    for where, dash in (
        (("c", "1"), one),
        (("d", "2"), one),
        (("c", "3"), other),
        (("d", "4"), one),
        (("d", "5"), other),
    ):
        cell[0] = where
        dash._repr_mimebundle_()
        closed.append(one._closed)
    assert closed == [False, False, False, False, True]
    other.close()
