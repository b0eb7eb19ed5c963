"""Figures as plain values: their parts and axes, windows and themes, and what an empty one says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from drawn import draw, keys, texts, trace
from replay import Replay, Snapshot

from gcylon_lab.errors import ArgumentError
from gcylon_lab.ui.controls.running import running_html
from gcylon_lab.ui.figures.downsampling import Downsampler
from gcylon_lab.ui.figures.figures import (
    PAGES,
    figure_dict,
    memory_dict,
    panel_dict,
    panel_figure,
    rest_dict,
    time_dict,
)
from gcylon_lab.ui.figures.plotly_io import _Later
from gcylon_lab.ui.figures.theme import DARK, LIGHT
from gcylon_lab.ui.figures.view import make_view
from gcylon_lab.units import GIB, MIB

BESIDE_TIME = ("peak", "plan", "traffic", "moved", "brush", "use")


@pytest.mark.parametrize("more", [{"ranks": 4}, {"ranks": 12, "gpus": 4}])
def test_a_dashboards_figures_are_the_whole_one_in_parts(more: dict[str, int]) -> None:
    view = make_view(Replay(**more).at(12.3), ahead=True)
    whole, parts = figure_dict(view, LIGHT), [part(view, LIGHT) for part in (memory_dict, time_dict, rest_dict)]
    assert sorted(key for part in parts for key in keys(part)) == sorted(keys(whole))
    titles = [{a["text"] for a in figure["layout"]["annotations"] if a["text"].startswith("<b>")} for figure in parts]
    assert set().union(*titles) == {a["text"] for a in whole["layout"]["annotations"] if a["text"].startswith("<b>")}
    memory, others, _ = (part["layout"] for part in parts)
    assert memory["xaxis"]["range"] == others["xaxis"]["range"] == [0.0, 13.0]
    assert memory["margin"] == others["margin"] and memory["xaxis"]["domain"] == others["xaxis"]["domain"]
    assert not memory["xaxis"]["showticklabels"] and others["xaxis"]["showticklabels"]
    assert rest_dict(view, LIGHT, 900)["layout"]["height"] == 900


@pytest.mark.parametrize(("at_s", "window_s", "shown"), [
    (3.2, 120.0, (0.0, 4.0)), (3.9, 120.0, (0.0, 4.0)), (14.1, 5.0, (10.0, 15.0)),
])  # fmt: skip
def test_an_axis_that_is_ahead_moves_in_steps(at_s: float, window_s: float, shown: tuple[float, float]) -> None:
    view = make_view(Replay(2).at(at_s), window_s=window_s, ahead=True)
    assert (view.start_s, view.right_s) == shown
    assert view.end_s == pytest.approx(at_s), "what is drawn goes up to now"


def test_the_brush_spans_the_run_and_marks_nothing_but_the_stretch_shown() -> None:
    layout = figure_dict(make_view(Replay(4).at(16.0), window_s=4.0), LIGHT)["layout"]
    assert layout["xaxis4"]["matches"] == "x" and layout["xaxis4"]["range"] == layout["xaxis"]["range"] == [12.0, 16.0]
    assert layout["xaxis4"]["rangeslider"]["range"] == [0.0, 16.0]
    whole = figure_dict(make_view(Replay(4).at(16.0)), LIGHT)
    assert max(trace(whole, "brush")["y"]) == pytest.approx(max(trace(whole, "near")["y"]), rel=1e-3), "in its unit"
    assert not figure_dict(make_view([]), LIGHT)["layout"]["xaxis4"]["rangeslider"]["visible"]


@pytest.mark.parametrize(("budget", "unit"), [(64 * MIB, "MiB"), (8 * GIB, "GiB")])
def test_an_axis_says_its_unit_once(budget: int, unit: str) -> None:
    figure = draw(budget=budget)
    assert figure["layout"]["yaxis"]["title"]["text"] == unit
    assert max(trace(figure, "budget")["y"]) == budget / {"MiB": MIB, "GiB": GIB}[unit]
    assert figure["layout"]["xaxis"]["title"]["text"] == "s"
    assert figure["layout"]["yaxis6"]["tickvals"] == [0, 25, 50, 75, 100]


@pytest.mark.parametrize("snapshots", [[], Replay(4).at(0.0)], ids=["no rank", "no operation"])
def test_an_empty_panel_says_what_will_appear_and_how(snapshots: list[dict[str, Any]]) -> None:
    figure = figure_dict(make_view(snapshots), LIGHT)
    said = texts(figure)
    assert 't.shuffle("key")' in said
    assert said.count("nothing yet") == (6 if not snapshots else 5), "and folds where it stands among others"
    pointed_at = " ".join(a.get("hovertext", "") for a in figure["layout"]["annotations"])
    assert "Nothing has been staged" in pointed_at and "Nothing has been staged" in texts(
        panel_dict("staging", make_view(snapshots), LIGHT)
    )
    assert ("%%px" in said) == (not snapshots)


@pytest.mark.parametrize("ranks", [1, 4, 12])
def test_nothing_that_is_no_json_gets_into_a_figure(ranks: int) -> None:
    snapshots = Replay(ranks).at(12.0)
    snapshots[0]["samples"]["used_bytes"][3] = math.nan
    snapshots[0]["samples"]["disk_bytes"][4] = math.inf
    text = json.dumps(figure_dict(make_view(snapshots), DARK), allow_nan=False)
    assert "NaN" not in text


def test_the_same_traces_at_any_time_so_that_they_can_be_updated_in_place() -> None:
    replay = Replay(4)
    every = [keys(figure_dict(make_view(replay.at(t)), LIGHT)) for t in (0.0, 1.1, 5.0, 16.0)]
    assert all(k == every[0] for k in every)
    assert len(set(every[0])) == len(every[0])


def test_ranks_are_drawn_on_one_axis_whatever_order_they_come_in() -> None:
    snapshots = Replay(4).at(12.0)
    assert figure_dict(make_view(snapshots[::-1]), LIGHT) == figure_dict(make_view(snapshots), LIGHT)
    assert {t["xaxis"] for t in draw()["data"] if t["meta"].split("-")[0] not in BESIDE_TIME} == {"x"}


def test_what_ran_last_is_told_when_it_has_left_the_window() -> None:
    snapshots = Downsampler().thin(later(Replay(2).at(30.0), 600), 30.0)
    view = make_view(snapshots, window_s=30.0)
    assert not view.operations and "✓ last:" in running_html(view)
    for panel in ("peak", "traffic"):
        traces = [one for one in figure_dict(view, LIGHT)["data"] if one["meta"].split("-")[0] == panel]
        assert any(len(one["x"]) and max(filter(None, one["x"]), default=0) for one in traces), panel
    budget = view.ranks[0].of("budget_bytes")[1]
    assert budget.max() == make_view(Replay(2).at(30.0)).ranks[0].of("budget_bytes")[1][-1]
    assert "Nothing has run yet" in running_html(make_view([one | {"operations": []} for one in snapshots]))


def later(snapshots: Sequence[Snapshot], seconds: float) -> list[Snapshot]:
    """The same, when nothing has run since for some time."""
    made = []
    for one in snapshots:
        assert not one.get("progress")
        now = int(one["now_ns"]) + int(seconds * 1e9)
        samples = {name: [*values, values[-1]] for name, values in one["samples"].items()}
        samples["t_ns"][-1] = now
        made.append(one | {"now_ns": now, "samples": samples})
    return made


def test_a_window_shows_its_stretch_only() -> None:
    view = make_view(Replay(2).at(16.0), window_s=3.0)
    figure = figure_dict(view, LIGHT)
    assert figure["layout"]["xaxis"]["range"] == [13.0, 16.0]
    assert min(trace(figure, "rank0")["x"]) >= 13.0 - 0.1
    assert all(s["x1"] >= 13.0 for s in figure["layout"]["shapes"])


def test_backgrounds_are_clear_and_text_follows_the_theme() -> None:
    replay = Replay(2).at(5.0)
    for theme in (LIGHT, DARK):
        layout = figure_dict(make_view(replay), theme)["layout"]
        assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"
        assert layout["font"]["color"] == theme.text


@pytest.mark.parametrize("ranks", [3, 12])
@pytest.mark.parametrize("key", list(PAGES))
def test_a_panel_stands_alone(key: str, ranks: int) -> None:
    figure = panel_figure(key, Replay(ranks).at(16.0), ranks="worst" if ranks == 12 else "all")
    assert figure.data
    for t in figure.data:
        across, up = figure.layout[t.xaxis.replace("x", "xaxis")], figure.layout[t.yaxis.replace("y", "yaxis")]
        assert across.domain and (up.domain or up.overlaying == "y")
    tops = [a.y for a in figure.layout.annotations if a.text.startswith("<b>")]
    assert tops and max(tops) < 1.1
    with pytest.raises(ArgumentError, match="ranks='few' is invalid. Expected 'all'"):
        panel_figure(key, [], ranks="few")


@pytest.mark.parametrize("ranks", [0, 2, 12, 64])
def test_no_two_panels_overlap(ranks: int) -> None:
    layout = figure_dict(make_view(Replay(ranks, gpus=2).at(16.0) if ranks else []), LIGHT)["layout"]
    for right in (False, True):
        columns = [axis["domain"] for name, axis in layout.items() if name.startswith("yaxis") and "domain" in axis
                   and (layout[f"xaxis{axis['anchor'][1:]}"]["domain"][0] > 0.5) == right]  # fmt: skip
        ordered = sorted(columns)
        assert all(a[1] < b[0] for a, b in zip(ordered, ordered[1:], strict=False))
        assert 0 < ordered[0][0] and ordered[-1][1] < 1


def test_an_unknown_panel_is_refused_by_name() -> None:
    with pytest.raises(ArgumentError, match="There is no panel 'pie'.*memory, peaks"):
        panel_figure("pie", [])
    with pytest.raises(ArgumentError, match="There is no panel 'trafic'. Did you mean traffic"):
        panel_figure("trafic", [])


def test_figures_and_reports_load_nothing_heavy() -> None:
    code = "import sys, gcylon_lab.ui.figures.figures, gcylon_lab.ui.report\n"
    code += "print([m for m in 'plotly ipywidgets mpi4py cudf pandas'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_plotly_gets_instead_of_a_module_is_that_module_once_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where somebody calls ``show`` of a figure; `tests/test_package.py` looks that nothing loads it before."""
    later = _Later("colorsys")
    monkeypatch.setitem(sys.modules, "colorsys", later)
    assert later.rgb_to_hsv(1, 1, 1) == (0.0, 0.0, 1)
    assert sys.modules["colorsys"] is not later
