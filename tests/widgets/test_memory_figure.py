"""The memory panel: lines of few ranks and bands of many, budget, operations."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from drawn import draw, keys, texts, trace
from replay import START_NS, Replay

from gcylon_lab.ui.figures.figures import figure_dict, panel_dict
from gcylon_lab.ui.figures.panels.memory import near_budget
from gcylon_lab.ui.figures.theme import BUDGET_COLOUR, LIGHT, RANK_COLOURS, rank_style
from gcylon_lab.ui.figures.view import make_view
from gcylon_lab.units import GIB, MIB


@pytest.mark.parametrize("ranks", [1, 4, 8])
def test_up_to_eight_ranks_have_a_line_each(ranks: int) -> None:
    figure = draw(ranks)
    assert [k for k in keys(figure) if k.startswith("rank")] == [f"rank{r}" for r in range(ranks)]
    styles = {(t["line"]["color"], t["line"]["dash"]) for t in figure["data"] if t["meta"].startswith("rank")}
    assert len(styles) == ranks


@pytest.mark.parametrize("ranks", [9, 40])
def test_above_eight_ranks_there_is_a_band_a_median_and_the_worst_by_name(ranks: int) -> None:
    figure = draw(ranks)
    assert not [k for k in keys(figure) if k.startswith("rank")]
    low, high, median, worst = (trace(figure, k) for k in ("low", "high", "median", "worst"))
    assert high["fill"] == "tonexty"
    for a, b, c in zip(low["y"], median["y"], high["y"], strict=True):
        assert a <= b <= c
    named = int(worst["name"].removeprefix("worst: rank "))
    peaks = [max(s["samples"]["used_bytes"]) for s in Replay(ranks).at(12.0)]
    assert peaks[named] == max(peaks)
    assert worst["line"]["color"] == rank_style(named)[0]


def test_numbers_alone_are_called_ranks() -> None:
    assert [trace(draw(2), f"rank{r}")["name"] for r in range(2)] == ["rank 0", "rank 1"]
    few, many = (re.sub("<.*?>", "", texts(draw(ranks))) for ranks in (4, 5))
    assert "━━ rank 0  ╍╍ rank 1  ┅┅ rank 2" in few and "rank ━━ 0  ╍╍ 1  ┅┅ 2" in many


def test_a_legend_that_would_need_several_rows_is_a_row_of_text() -> None:
    key = "gpus"
    few, many = (panel_dict(key, make_view(Replay(n, gpus=n).at(12.0)), LIGHT) for n in (3, 8))
    for figure, legends in ((few, 3), (many, 0)):
        lines = [t for t in figure["data"] if re.fullmatch(r"(rank|gpu)\d", t["meta"])]
        assert sum(t["showlegend"] for t in lines) == legends
    keyed = next(a["text"] for a in many["layout"]["annotations"] if a["text"].count(RANK_COLOURS[0]) == 1)
    assert all(f'color:{RANK_COLOURS[r]}">' in keyed and f"</span> {r}" in keyed for r in range(8))
    assert not [a for a in few["layout"]["annotations"] if RANK_COLOURS[0] in a["text"]]


def test_many_ranks_have_a_heat_map_of_their_share_and_few_have_none() -> None:
    snapshots = Replay(64).at(12.0)
    figure = figure_dict(make_view(snapshots), LIGHT)
    heat = trace(figure, "memory-heat")
    assert len(heat["z"]) == 64 and heat["y"] == list(range(64))
    peaks = [int(100 * max(s["samples"]["used_bytes"]) / (64 * MIB)) for s in snapshots]
    assert [max(row) for row in heat["z"]] == peaks
    assert figure["layout"]["height"] > draw(4)["layout"]["height"]
    assert "memory-heat" not in keys(draw(8)) and "yaxis8" not in draw(8)["layout"]


def test_only_the_worst_rank_where_that_is_asked_for() -> None:
    snapshots = Replay(12).at(12.0)
    figure = panel_dict("memory", make_view(snapshots, worst_only=True), LIGHT)
    assert [k for k in keys(figure) if k in ("low", "median", "worst", "memory-heat")] == ["worst"]
    assert keys(panel_dict("memory", make_view(Replay(2).at(12.0), worst_only=True), LIGHT))[0] == "worst"


def test_the_foot_of_the_memory_panel_says_what_most_ranks_are_in() -> None:
    strip = trace(draw(4), "phase-strip")
    said = dict(zip(strip["x"], strip["text"][0], strict=True))
    assert said[min(said)] == "" and {"exchange", "waiting"} <= set(said.values())
    assert strip["y"][1] < 5, "no more than a strip of 77 MiB"


def test_the_budget_is_a_red_dash_at_the_limit() -> None:
    budget = trace(draw(budget=64 * MIB), "budget")
    assert (budget["line"]["color"], budget["line"]["dash"]) == (BUDGET_COLOUR, "dash")
    assert set(budget["y"]) == {64.0}
    assert "budget 64 MiB" in texts(draw(budget=64 * MIB))


def test_a_budget_far_above_use_is_said_instead_of_flattening_the_lines() -> None:
    replay = Replay(2)
    snapshots = replay.at(12.0)
    for s in snapshots:
        s["samples"]["limit_bytes"] = [8 * GIB] * len(s["samples"]["t_ns"])
        s["operations"] = [o | {"budget_bytes": 8 * GIB} for o in s["operations"]]
    figure = figure_dict(make_view(snapshots), LIGHT)
    assert figure["layout"]["yaxis"]["range"][1] < 200
    assert "budget 8 GiB, above this scale; 1% used" in texts(figure)
    used = snapshots[0]["samples"]["used_bytes"]
    snapshots[0]["samples"]["limit_bytes"][used.index(max(used))] = max(used)  # for a moment, within the first one
    said = texts(figure_dict(make_view(snapshots), LIGHT))
    assert "budget 8 GiB, above this scale" in said and "used" not in said
    assert figure["layout"]["yaxis6"]["visible"] is False


def test_the_budget_that_operations_keep_is_the_one_shown_and_holds_between_two_of_them() -> None:
    snapshots = Replay(2).at(15.9)
    for s in snapshots:
        s["operations"][0]["budget_bytes"] = 8 * GIB
        spans = [(o["start_ns"], o["end_ns"]) for o in s["operations"][1:]]
        t = s["samples"]["t_ns"]
        s["samples"]["limit_bytes"] = [64 * MIB if any(a <= n <= b for a, b in spans) else 8 * GIB for n in t]
    peak = max(s["operations"][4]["measured_peak_bytes"] for s in snapshots)
    figure = figure_dict(make_view(snapshots), LIGHT)
    assert f"budget of #5 64 MiB; {peak / (64 * MIB):.0%} used" in texts(figure)
    assert figure["layout"]["yaxis6"]["range"][1] == pytest.approx(125) and figure["layout"]["yaxis6"]["visible"]
    line = trace(figure, "budget")
    since = (snapshots[0]["operations"][1]["start_ns"] - snapshots[0]["samples"]["t_ns"][0]) / 1e9
    assert {y for x, y in zip(line["x"], line["y"], strict=True) if x > since + 0.1} == {64.0}
    assert line["y"][0] is None, "what is above the scale is not drawn up to its edge"
    assert max(trace(figure, "brush")["y"]) == pytest.approx(max(max(trace(figure, f"rank{r}")["y"]) for r in (0, 1)))


def test_percent_axis_is_aligned_with_the_budget() -> None:
    layout = draw(budget=64 * MIB)["layout"]
    assert layout["yaxis6"]["range"][1] / layout["yaxis"]["range"][1] == pytest.approx(100 / 64)


def test_operations_are_shaded_where_they_ran_and_named() -> None:
    snapshots = Replay(4).at(12.0)
    figure = figure_dict(make_view(snapshots), LIGHT)
    first = [min(s["operations"][i]["start_ns"] for s in snapshots) for i in range(4)]
    last = [max(s["operations"][i]["end_ns"] for s in snapshots) for i in range(3)]
    origin = snapshots[0]["samples"]["t_ns"][0]
    shapes = figure["layout"]["shapes"]
    assert [s["x0"] for s in shapes] == pytest.approx([(n - origin) / 1e9 for n in first], abs=1e-3)
    assert [s["x1"] for s in shapes][:3] == pytest.approx([(n - origin) / 1e9 for n in last], abs=1e-3)
    said = [n.partition(" ·")[0] for n in texts(figure).splitlines() if n.startswith("#")]
    assert said[:4] == ["#1", "#2 shuffle", "#3", "#4 shuffle"], "those without room for a name have their number"


@pytest.mark.parametrize("window_s", [3.0, 20.0, None])
def test_names_and_numbers_of_many_operations_do_not_meet_in_a_narrow_panel(window_s: float | None) -> None:
    plot_pixels, character = 260, 6.3  # as in a dashboard beside a file browser, in 11 pixels high text
    snapshots = Replay(2).at(16.0)
    for s in snapshots:
        # Of unlike lengths and distances, so that some have room for a name, some for a number, and some for none.
        starts = [START_NS + int(1e9 * 16 * (n / 36) ** 0.5) for n in range(36)]
        s["operations"] = [
            s["operations"][0] | {"number": n + 1, "start_ns": t, "end_ns": t + 10**8, "error": "lost" * (n % 5 == 0)}
            for n, t in enumerate(starts)
        ]
    view = make_view(snapshots, window_s=window_s)
    annotations = figure_dict(view, LIGHT)["layout"]["annotations"]
    names = sorted((a for a in annotations if re.match(r"#\d", a["text"]) and a["xref"] == "x"), key=lambda a: a["x"])
    scale = plot_pixels / (view.right_s - view.start_s)
    boxes = []
    for a in names:
        at, wide = (a["x"] - view.start_s) * scale, character * len(a["text"])
        boxes.append((at - wide, at) if a["xanchor"] == "right" else (at, at + wide))
    assert len(boxes) >= 3 and boxes[0][0] >= -1 and boxes[-1][1] <= plot_pixels + 1
    assert all(right + character <= left for (_, right), (left, _) in pairwise(boxes))
    least = 3 if window_s else 8
    assert len(names) >= least, "most have their number at least"


def test_a_running_operation_reaches_to_now_and_says_its_round() -> None:
    figure = figure_dict(make_view(Replay(4).at(10.5), window_s=1.5), LIGHT)
    assert figure["layout"]["shapes"][-1]["x1"] == pytest.approx(10.5)
    assert "#4 shuffle · round" in texts(figure)


def test_a_failed_operation_is_marked() -> None:
    snapshots = Replay(2).at(16.0)
    snapshots[1]["operations"][1]["error"] = "disk full"
    assert "#2 ✗" in texts(figure_dict(make_view(snapshots), LIGHT)).splitlines()
    snapshots[1]["operations"][4]["error"] = "disk full"
    assert re.search(r"^#5.* ✗$", texts(figure_dict(make_view(snapshots), LIGHT)), re.MULTILINE)


def test_samples_above_ninety_percent_are_marked_and_named() -> None:
    figure = draw()
    near = trace(figure, "near")
    assert near["y"] and min(near["y"]) > 0.9 * 64
    assert near["marker"]["symbol"] == "triangle-up"
    note = next(a for a in figure["layout"]["annotations"] if "over 90%: raise limit" in a["text"])
    assert note["yref"] == "paper" and note["y"] > figure["layout"]["yaxis"]["domain"][1], "beside the curves"
    quiet = Replay(2).at(0.5)
    assert near_budget(make_view(quiet)) == []
    quiet[1]["samples"]["used_bytes"][-1] = 63 * MIB
    assert near_budget(make_view(quiet)) == [(1, pytest.approx(63 / 64))]


def test_the_measured_peak_is_marked_also_where_samples_missed_it() -> None:
    snapshots = Replay(2).at(16.0)
    figure = figure_dict(make_view(snapshots), LIGHT)
    assert trace(figure, "peak")["y"] == [max(max(trace(figure, f"rank{r}")["y"]) for r in (0, 1))]
    third = snapshots[1]["operations"][2]
    third["measured_peak_bytes"] = 70 * MIB
    figure = figure_dict(make_view(snapshots), LIGHT)
    assert trace(figure, "peak")["y"] == [70.0] and "○ peak 70 MiB in #3" in texts(figure)
    start = (third["start_ns"] - snapshots[0]["samples"]["t_ns"][0]) / 1e9
    assert start - 0.3 <= trace(figure, "peak")["x"][0] <= start + (third["end_ns"] - third["start_ns"]) / 1e9 + 0.3


def test_lines_are_bounded_and_keep_the_peak() -> None:
    snapshots = Replay(2, hz=400).at(16.0)
    figure = figure_dict(make_view(snapshots), LIGHT)
    assert len(snapshots[0]["samples"]["t_ns"]) > 6000
    assert len(trace(figure, "rank0")["x"]) <= 600
    assert max(trace(figure, "rank0")["y"]) == pytest.approx(max(snapshots[0]["samples"]["used_bytes"]) / MIB, abs=1e-3)
