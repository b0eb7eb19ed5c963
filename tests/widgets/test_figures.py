"""Figures as plain values: what is drawn, in which unit, for how many ranks."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from replay import START_NS, Replay

from gcylon_lab.errors import ArgumentError
from gcylon_lab.units import GIB, MIB, format_rate
from gcylon_lab.widgets.figures import (
    PAGES,
    figure_dict,
    memory_dict,
    panel_dict,
    panel_figure,
    rest_dict,
    time_dict,
)
from gcylon_lab.widgets.memory_panel import near_budget
from gcylon_lab.widgets.moves import moves_of, rate
from gcylon_lab.widgets.phases_panel import NAMES, phase_at
from gcylon_lab.widgets.series import readable
from gcylon_lab.widgets.theme import BUDGET_COLOUR, DARK, LIGHT, PHASES, RANK_COLOURS, rank_style
from gcylon_lab.widgets.view import make_view

Figure = dict[str, Any]
BESIDE_TIME = ("peak", "plan", "traffic", "moved", "brush")


def draw(ranks: int = 4, at_s: float = 12.0, **more: Any) -> Figure:
    return figure_dict(make_view(Replay(ranks, **more).at(at_s)), LIGHT)


def trace(figure: Figure, key: str) -> dict[str, Any]:
    return next(t for t in figure["data"] if t["meta"] == key)


def keys(figure: Figure) -> list[str]:
    return [t["meta"] for t in figure["data"]]


def texts(figure: Figure) -> str:
    return "\n".join(a["text"] for a in figure["layout"]["annotations"])


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


@pytest.mark.parametrize("ranks", [9, 64])
def test_above_eight_ranks_each_has_a_thin_lane_in_the_colour_of_its_phase(ranks: int) -> None:
    figure = draw(ranks)
    lanes = trace(figure, "phase-map")
    assert len(lanes["z"]) == ranks and not trace(figure, "phase-exchange")["x"]
    assert 3 <= len(figure["layout"]["yaxis2"]["ticktext"]) <= 8
    key = next(a["text"] for a in figure["layout"]["annotations"] if "partition" in a["text"])
    assert re.sub("<.*?>", "", key).split() == "■ partition ▨ exchange ▒ waiting ▧ stage".split()
    # The rank made slow is at work while the others wait at the end of an operation.
    end = max(i for i, t in enumerate(lanes["x"]) if t < figure["layout"]["shapes"][1]["x1"] - 0.1)
    assert {NAMES[row[end]] for row in lanes["z"][: ranks // 2]} == {"waiting"}
    assert NAMES[lanes["z"][-1][end]] in ("exchange", "partition")


def test_a_lane_has_the_colour_of_what_took_most_of_a_cell() -> None:
    spans = {"exchange": [(0.0, 0.7), (2.0, 2.1)], "waiting": [(0.7, 1.4)], "stage": [(1.4, 1.9), (1.5, 1.6)]}
    places = phase_at(spans, np.array([0.0, 1.0, 2.0, 3.0, 4.0]))
    assert [NAMES[p] if p >= 0 else "" for p in places] == ["exchange", "stage", "exchange", ""]


def test_numbers_alone_are_called_ranks() -> None:
    assert [trace(draw(2), f"rank{r}")["name"] for r in range(2)] == ["rank 0", "rank 1"]
    assert [trace(draw(4), f"rank{r}")["name"] for r in range(4)] == ["rank 0", "1", "2", "3"]


@pytest.mark.parametrize("key", ["memory", "gpus"])
def test_a_legend_that_would_need_several_rows_is_a_row_of_text(key: str) -> None:
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


def test_the_brush_spans_the_run_and_marks_nothing_but_the_stretch_shown() -> None:
    layout = figure_dict(make_view(Replay(4).at(16.0), window_s=4.0), LIGHT)["layout"]
    assert layout["xaxis4"]["matches"] == "x" and layout["xaxis4"]["range"] == layout["xaxis"]["range"] == [12.0, 16.0]
    assert layout["xaxis4"]["rangeslider"]["range"] == [0.0, 16.0]
    whole = figure_dict(make_view(Replay(4).at(16.0)), LIGHT)
    assert max(trace(whole, "brush")["y"]) == pytest.approx(max(trace(whole, "near")["y"]) / 0.64, rel=1e-3)
    assert not figure_dict(make_view([]), LIGHT)["layout"]["xaxis4"]["rangeslider"]["visible"]


@pytest.mark.parametrize("ranks", [2, 8])
def test_traffic_of_few_ranks_stands_as_numbers_and_what_stayed_has_no_colour(ranks: int) -> None:
    snapshots = Replay(ranks).at(16.0)
    figure = panel_dict("traffic", make_view(snapshots, operation=3), LIGHT)
    sent = [s["operations"][2]["sent_to"] for s in snapshots]
    heat, numbers = trace(figure, "traffic-heat"), trace(figure, "traffic-numbers")
    assert [heat["z"][i][i] for i in range(ranks)] == [None] * ranks
    assert heat["z"][0][1] == pytest.approx(sent[0][1] / MIB, abs=1e-3)
    assert len(numbers["text"]) == ranks * ranks
    shown = {(y, x): text for x, y, text in zip(numbers["x"], numbers["y"], numbers["text"], strict=True)}
    assert shown[0, 1] == f"{sent[0][1] / MIB:.2g}" and shown[1, 1] == f"({sent[1][1] / MIB:.2g})"
    kept = sum(sent[i][i] for i in range(ranks))
    assert f"#3 allgather: {readable(sum(map(sum, sent)) - kept)} sent" in texts(figure)
    assert "rank 1 got most" in texts(figure)


def test_traffic_of_64_ranks_is_a_heat_map_with_the_hot_rank_as_a_column() -> None:
    snapshots = Replay(64).at(8.2)
    snapshots[5]["operations"][2]["sent_to"] = []  # has not told yet
    figure = figure_dict(make_view(snapshots), LIGHT)
    heat = trace(figure, "traffic-heat")
    assert trace(figure, "traffic-numbers")["text"] == [] and heat["showscale"]
    totals = [sum(row[to] or 0 for row in heat["z"]) for to in range(64)]
    assert totals[1] > 20 * sorted(totals)[-2]
    assert heat["z"][5] == [None] * 64
    assert "#3 allgather: " in texts(figure) and "rank 1 got most, 32 × the mean" in texts(figure)


def test_traffic_of_one_rank_is_none() -> None:
    assert "There is one rank" in texts(draw(1))


def test_staging_by_rank_says_how_fast_and_beside_it_what_the_machine_copies() -> None:
    snapshots = Replay(3).at(16.0)
    figure = figure_dict(make_view(snapshots), LIGHT)
    down = trace(figure, "moved-down-disk")
    assert down["y"] == [-34.0] * 3, "24 and 10 rounds of 1 MiB"
    up = trace(figure, "moved-up-disk")["marker"]
    assert up["color"] == down["marker"]["color"] and up["pattern"]["shape"] and up["pattern"]["fillmode"] == "overlay"
    spent = sum(s[3] - s[2] for each in snapshots for s in each["spans"] if s[0] == "stage") / 1e9
    said = f"disk: 102 MiB down at {format_rate(102 * MIB / spent)}<br>the machine's disk: 1.90 GB/s down"
    assert said in texts(figure)
    for s in snapshots:
        s["copy_rates"] = {}
    assert "machine" not in texts(figure_dict(make_view(snapshots), LIGHT)), "no rate is invented"


def test_pinned_copies_are_timed_by_what_copied_not_by_their_spans() -> None:
    snapshot = Replay(1, gpus=1).at(16.0)[0]
    snapshot["spans"] = [["stage", "io", 0, 5, 4, 30 * MIB, "pinned"], ["unstage", "io", 0, 5, 4, 10 * MIB, "pinned"]]
    snapshot["operations"][3] |= {
        "staged_bytes": 30 * MIB, "unstaged_bytes": 10 * MIB, "staging_copy_ns": 2_000_000_000,
    }  # fmt: skip
    moves = moves_of(snapshot)
    assert rate([moves], "down", "pinned") == rate([moves], "up", "pinned") == pytest.approx(20 * MIB)
    snapshot["spans"].append(["stage", "io", 0, 10**9, 4, MIB, "disk"])  # then nobody can tell whose time it was
    assert rate([moves_of(snapshot)], "down", "pinned") is None


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
    assert "budget 8 GiB now, above this scale" in said and "used" not in said
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
    assert f"budget of #5: 64 MiB, {peak / (64 * MIB):.0%} used" in texts(figure)
    assert figure["layout"]["yaxis6"]["range"][1] == pytest.approx(125) and figure["layout"]["yaxis6"]["visible"]
    line = trace(figure, "budget")
    since = (snapshots[0]["operations"][1]["start_ns"] - snapshots[0]["samples"]["t_ns"][0]) / 1e9
    assert {y for x, y in zip(line["x"], line["y"], strict=True) if x > since + 0.1} == {64.0}
    assert line["y"][0] is None, "what is above the scale is not drawn up to its edge"
    assert max(trace(figure, "brush")["y"]) > 60, "percent of that budget, not of the ranks' own"


@pytest.mark.parametrize(("budget", "unit"), [(64 * MIB, "MiB"), (8 * GIB, "GiB")])
def test_an_axis_says_its_unit_once(budget: int, unit: str) -> None:
    figure = draw(budget=budget)
    assert figure["layout"]["yaxis"]["title"]["text"] == unit
    assert max(trace(figure, "budget")["y"]) == budget / {"MiB": MIB, "GiB": GIB}[unit]
    assert figure["layout"]["xaxis"]["title"]["text"] == "s"
    assert figure["layout"]["yaxis6"]["tickvals"] == [0, 25, 50, 75, 100]


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
    assert said[:4] == ["#4 shuffle", "#3", "#2 shuffle", "#1"], "those without room for a name have their number"


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
    assert any("shuffle" in a["text"] for a in names), "the latest has its name"


def test_a_running_operation_reaches_to_now_and_says_its_round() -> None:
    figure = figure_dict(make_view(Replay(4).at(10.5), window_s=1.5), LIGHT)
    assert figure["layout"]["shapes"][-1]["x1"] == pytest.approx(10.5)
    assert "#4 shuffle · round" in texts(figure)


def test_a_failed_operation_is_marked() -> None:
    snapshots = Replay(2).at(16.0)
    snapshots[1]["operations"][1]["error"] = "disk full"
    assert "#2 ✗" in texts(figure_dict(make_view(snapshots), LIGHT)).splitlines()
    snapshots[1]["operations"][4]["error"] = "disk full"
    assert "#5 repartition ✗" in texts(figure_dict(make_view(snapshots), LIGHT)).splitlines()


def test_samples_above_ninety_percent_are_marked_and_named() -> None:
    figure = draw()
    near = trace(figure, "near")
    assert near["y"] and min(near["y"]) > 0.9 * 64
    assert near["marker"]["symbol"] == "triangle-up"
    note = next(a for a in figure["layout"]["annotations"] if "over 90%: raise limit" in a["text"])
    assert note["xref"] == "x domain" and 0 <= note["x"] <= 1 - 0.02 * len(note["text"]), "it stays in its panel"
    quiet = Replay(2).at(0.5)
    assert near_budget(make_view(quiet)) == []
    quiet[1]["samples"]["used_bytes"][-1] = 63 * MIB
    assert near_budget(make_view(quiet)) == [(1, pytest.approx(63 / 64))]


def test_lines_are_bounded_and_keep_the_peak() -> None:
    snapshots = Replay(2, hz=400).at(16.0)
    figure = figure_dict(make_view(snapshots), LIGHT)
    assert len(snapshots[0]["samples"]["t_ns"]) > 6000
    assert len(trace(figure, "rank0")["x"]) <= 600
    assert max(trace(figure, "rank0")["y"]) == pytest.approx(max(snapshots[0]["samples"]["used_bytes"]) / MIB, abs=1e-3)


def test_phases_have_their_own_colour_pattern_and_row() -> None:
    figure = draw()
    bars = {name: trace(figure, f"phase-{name}") for name in PHASES}
    assert len({b["fillcolor"] for b in bars.values()}) == len(PHASES)
    assert not {b["fillcolor"] for b in bars.values()} & set(RANK_COLOURS)
    looks = {(s.pattern, s.row) for s in PHASES.values()}
    assert len(looks) == len(PHASES)
    assert bars["stage"]["x"] and not bars["unstage"]["x"]


def test_phase_bars_hold_the_time_that_was_spent() -> None:
    snapshots = Replay(2).at(16.0)
    figure = figure_dict(make_view(snapshots), LIGHT)
    bar = trace(figure, "phase-exchange")
    corners = range(0, len(bar["x"]), 6)
    areas = [(bar["x"][i + 1] - bar["x"][i]) * (bar["y"][i + 2] - bar["y"][i]) for i in corners]
    drawn = sum(areas) / (0.8 / 4)  # the thickness of a bar that is all one phase
    spent = sum(s[3] - s[2] for snapshot in snapshots for s in snapshot["spans"] if s[0] == "exchange") / 1e9
    assert drawn == pytest.approx(spent, rel=0.02)


def test_staging_sums_the_ranks_by_tier() -> None:
    snapshots = Replay(3).at(16.0)
    disk = trace(figure_dict(make_view(snapshots), LIGHT), "tier-disk")
    total = sum(s["samples"]["disk_bytes"][-1] for s in snapshots)
    assert disk["y"][-1] == pytest.approx(total / GIB, rel=1e-3)
    assert disk["name"].startswith("disk: now ")


def test_peaks_stand_beside_prediction_and_budget() -> None:
    snapshots = Replay(4).at(16.0)
    figure = figure_dict(make_view(snapshots), LIGHT)
    records = [s["operations"][-1] for s in snapshots]
    measured = trace(figure, "peak-measured")
    assert measured["y"] == pytest.approx([r["measured_peak_bytes"] / MIB for r in records], abs=1e-3)
    predicted = [r["predicted_peak_bytes"] / MIB for r in records]
    assert trace(figure, "peak-predicted")["y"] == pytest.approx(predicted, abs=1e-3)
    assert trace(figure, "peak-budget")["y"] == [64.0] * 4
    worst = max(r["measured_peak_bytes"] for r in records)
    assert trace(figure, "plan-ratios")["text"][-1] == f"{worst / records[0]['predicted_peak_bytes']:.0%}"
    chosen = panel_dict("peak_ranks", make_view(snapshots), LIGHT)
    assert "which rank in #5?" in texts(chosen)
    earlier = panel_dict("peaks", make_view(snapshots, operation=2), LIGHT)
    assert "which rank in #2?" in texts(earlier) and "was the plan right?" in texts(earlier)


def test_numbers_over_bars_stand_clear_of_bars_and_diamonds_however_low() -> None:
    snapshots = Replay(4).at(16.0)
    for s in snapshots:
        s["operations"][1] |= {"measured_peak_bytes": 3 * MIB, "predicted_peak_bytes": 5 * MIB}
    figure = figure_dict(make_view(snapshots), LIGHT)
    for panel, numbers in (("peak", "peak-numbers"), ("plan", "plan-ratios")):
        others = [trace(figure, f"{panel}-{name}")["y"] for name in ("measured", "predicted", "budget")]
        assert min(trace(figure, numbers)["y"]) > 1.1 * max(max(y) for y in others)
    assert trace(figure, "plan-ratios")["text"][1] == "60%"


def test_a_budget_lowered_for_one_operation_is_shown_though_the_others_are_above_the_scale() -> None:
    snapshots = Replay(2).at(16.0)
    for s in snapshots:
        for record in s["operations"][:3]:
            record["budget_bytes"] = 8 * GIB
    figure = figure_dict(make_view(snapshots), LIGHT)
    budget, top = trace(figure, "plan-budget"), figure["layout"]["yaxis5"]["range"][1]
    assert top < 100 and budget["x"] == ["#4", "#5"] and max(budget["y"]) < top
    assert budget["showlegend"] and budget["mode"] == "markers", "nothing leads to those above the scale"
    assert "budget 64 MiB now, dashed" in texts(figure)
    assert min(trace(figure, "plan-ratios")["y"]) > 1.1 * max(budget["y"])
    for s in snapshots:
        s["operations"][4]["budget_bytes"] = 8 * GIB
    assert "budget 8 GiB ↑ off the scale" in texts(figure_dict(make_view(snapshots), LIGHT))


def test_a_peak_that_is_not_known_yet_is_not_said_to_be_none() -> None:
    snapshots = Replay(4).at(16.0)
    for s in snapshots:
        s["operations"][4] |= {"measured_peak_bytes": 0, "end_ns": 0}
    figure = figure_dict(make_view(snapshots), LIGHT)
    assert trace(figure, "peak-numbers")["text"] == ["…"] * 4 and trace(figure, "plan-ratios")["text"][-1] == "…"


def test_what_has_not_ended_on_all_ranks_or_has_failed_says_nothing_of_its_plan() -> None:
    def judged(snapshots: list[dict[str, Any]]) -> list[str]:
        return list(trace(figure_dict(make_view(snapshots), LIGHT), "plan-ratios")["text"])

    snapshots = Replay(4).at(16.0)
    before = judged(snapshots)
    assert len(before) == 5 and all(text.endswith("%") for text in before)
    snapshots[1]["operations"][2]["error"] = "Revoked: interrupted"
    assert judged(snapshots) == [*before[:2], "✗", *before[3:]]
    for s in snapshots:  # little was taken so far
        s["operations"][4] |= {"measured_peak_bytes": 5_000, "end_ns": 0}
    assert judged(snapshots) == [*before[:2], "✗", before[3], "…"]
    peaks = figure_dict(make_view(snapshots, operation=5), LIGHT)
    assert trace(peaks, "peak-numbers")["text"] == ["…"] * 4


def test_what_a_rank_has_not_told_of_yet_is_not_judged_by_what_others_did() -> None:
    snapshots = Replay(4).at(16.0)
    late = Replay(4).at(10.5)[3]  # its news are of before the end of the fourth operation
    late["operations"], late["progress"] = late["operations"][:3], None
    view = make_view([*snapshots[:3], late])
    assert [op.complete for op in view.operations] == [True] * 3 + [False] * 2
    assert trace(figure_dict(view, LIGHT), "plan-ratios")["text"][3:] == ["…", "…"]
    snapshots[3]["operations"] = snapshots[3]["operations"][1:]  # of long ago
    assert all(op.complete for op in make_view(snapshots).operations)


def test_what_had_no_plan_is_not_judged() -> None:
    snapshots = Replay(2).at(16.0)
    for s in snapshots:
        s["operations"][0] |= {"predicted_peak_bytes": 0, "budget_bytes": 0}
    assert trace(figure_dict(make_view(snapshots), LIGHT), "plan-measured")["x"][0] == "#2"


@pytest.mark.parametrize("snapshots", [[], Replay(4).at(0.0)], ids=["no rank", "no operation"])
def test_an_empty_panel_says_what_will_appear_and_how(snapshots: list[dict[str, Any]]) -> None:
    said = texts(figure_dict(make_view(snapshots), LIGHT))
    assert 't.shuffle("key")' in said
    assert "Nothing has been staged" in said
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
    with pytest.raises(ArgumentError, match="Of 'few' ranks"):
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
    with pytest.raises(ArgumentError, match="'pie' is no panel.*memory, peaks"):
        panel_figure("pie", [])
    with pytest.raises(ArgumentError, match="'trafic' is no panel. Did you mean traffic"):
        panel_figure("trafic", [])


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("gcylon_lab.widgets.figures", "plotly ipywidgets mpi4py cudf pandas"),
        ("gcylon_lab.widgets.report", "plotly ipywidgets mpi4py cudf pandas"),
        ("gcylon_lab.widgets.dashboard, gcylon_lab.widgets.cluster_source", "mpi4py cudf"),
    ],
)
def test_what_a_notebook_imports_loads_nothing_heavy(module: str, absent: str) -> None:
    code = f"import sys; import {module}\nprint([m for m in '{absent}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_on_gpus_what_is_in_use_outside_the_budget_is_a_thin_line_of_its_own() -> None:
    snapshots = Replay(4, gpus=2).at(12.0)
    figure = figure_dict(make_view(snapshots), LIGHT)
    outside = trace(figure, "outside")
    # GPU 1 has the most: 20 + 6 + 1 MiB beside what two ranks hold.
    assert outside["y"][-1] == pytest.approx(27) and outside["line"]["width"] == 1
    assert "outside the budget: up to 27 MiB a GPU" in texts(figure)
    without = figure_dict(make_view([s | {"gpu": None} for s in snapshots]), LIGHT)
    for key in ("rank0", "rank3", "budget", "percent"):
        assert trace(figure, key) == trace(without, key), "never mixed into the budget's bytes"
    assert figure["layout"]["yaxis"]["range"] == without["layout"]["yaxis"]["range"]
    for s in snapshots:
        s["gpu"]["samples"]["used_bytes"] = [8 * GIB for _ in s["gpu"]["samples"]["t_ns"]]
    assert "a GPU, above this scale" in texts(figure_dict(make_view(snapshots), LIGHT))
    assert "outside the budget: 26 MiB" in texts(draw(2, gpus=1))


def test_each_gpu_has_one_line_in_its_lowest_ranks_colour() -> None:
    figure = draw(4, gpus=2)
    lines = [t for t in figure["data"] if t["yaxis"] == "y7"]
    assert [(t["meta"], t["name"], t["line"]["color"]) for t in lines] == [
        ("gpu0", "0, 2: 88%", RANK_COLOURS[0]),
        ("gpu1", "1, 3: 79%", RANK_COLOURS[1]),
    ]
    assert set(lines[0]["y"]) == {0, 88}
    assert figure["layout"]["xaxis"]["anchor"] == "y7" and "how busy is each rank's" in texts(figure)


def test_above_eight_gpus_there_is_their_mean_and_the_least_busy_one() -> None:
    figure = draw(12, gpus=12)
    mean, least = trace(figure, "gpu-mean"), trace(figure, "gpu-least")
    assert mean["name"] == "mean of 12 GPUs" and least["name"] == "least busy: rank 7's GPU"
    assert max(least["y"]) == 88 - 9 * 7 < max(mean["y"])


def test_on_cpus_nothing_speaks_of_gpus() -> None:
    figure = draw()
    assert not [k for k in keys(figure) if "gpu" in k or k == "outside"] and "yaxis7" not in figure["layout"]
    assert "GPU" not in texts(figure) and "hidden" not in texts(figure)


def test_what_nvml_does_not_tell_is_not_drawn() -> None:
    snapshots = Replay(2, gpus=2).at(12.0)
    for name in ("used_bytes", "utilisation"):
        snapshots[1]["gpu"]["samples"][name] = [None] * len(snapshots[1]["gpu"]["samples"]["t_ns"])
    figure = figure_dict(make_view(snapshots), LIGHT)
    assert trace(figure, "gpu1")["x"] == [] and trace(figure, "gpu1")["name"] == "1: not told"
    assert trace(figure, "outside")["y"][-1] == pytest.approx(26)
    snapshots[0]["gpu"]["samples"] = snapshots[1]["gpu"]["samples"]
    figure = figure_dict(make_view(snapshots), LIGHT)
    assert trace(figure, "outside")["x"] == [] and "outside the budget" not in texts(figure)


def test_phases_say_how_much_of_the_transfers_was_hidden() -> None:
    note = "transfers hidden in #5 repartition: 66%"
    figure = draw(4, gpus=4, at_s=16.0)
    [placed] = [a for a in figure["layout"]["annotations"] if a["text"] == note]
    assert placed["y"] < figure["layout"]["yaxis2"]["domain"][0], "under the lanes"
    alone = panel_dict("phases", make_view(Replay(4, gpus=4).at(16.0)), LIGHT)
    [placed] = [a for a in alone["layout"]["annotations"] if a["text"] == note]
    assert placed["y"] > alone["layout"]["yaxis2"]["domain"][1], "beside the title"


def test_staging_shows_pinned_and_disk_apart() -> None:
    snapshots = Replay(3, gpus=3).at(16.0)
    figure = figure_dict(make_view(snapshots), LIGHT)
    for tier in ("pinned", "disk"):
        total = sum(s["samples"][f"{tier}_bytes"][-1] for s in snapshots)
        assert total and trace(figure, f"tier-{tier}")["y"][-1] == pytest.approx(total / GIB, rel=1e-3)
