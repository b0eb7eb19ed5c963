"""Peaks beside their plans: when one is judged, and when not."""

from __future__ import annotations

from typing import Any

import pytest
from drawn import texts, trace
from replay import Replay

from gcylon_lab.ui.figures.figures import figure_dict, panel_dict
from gcylon_lab.ui.figures.theme import LIGHT
from gcylon_lab.ui.figures.view import make_view
from gcylon_lab.units import GIB, MIB


def test_peaks_stand_beside_prediction_and_budget() -> None:
    snapshots = Replay(4).at(16.0)
    figure = figure_dict(make_view(snapshots, operation=5), LIGHT)
    records = [s["operations"][-1] for s in snapshots]
    measured = trace(figure, "peak-measured")
    assert measured["y"] == pytest.approx([r["measured_peak_bytes"] / MIB for r in records], abs=1e-3)
    predicted = [r["predicted_peak_bytes"] / MIB for r in records]
    assert trace(figure, "peak-predicted")["y"] == pytest.approx(predicted, abs=1e-3)
    assert trace(figure, "peak-budget")["y"] == [64.0] * 4
    worst = max(r["measured_peak_bytes"] for r in records)
    assert trace(figure, "plan-ratios")["text"][-1] == f"{worst / records[0]['predicted_peak_bytes']:.0%}"
    chosen = panel_dict("peak_ranks", make_view(snapshots), LIGHT)
    longest = max(snapshots[0]["operations"], key=lambda o: o["end_ns"] - o["start_ns"])["number"]
    assert f"which rank in #{longest}?" in texts(chosen), "what took longest, not what came last"
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
