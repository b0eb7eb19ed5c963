"""The panels of traffic, staging and phases."""

from __future__ import annotations

import re

import numpy as np
import pytest
from drawn import draw, texts, trace
from replay import Replay

from gcylon_lab.ui.figures.figures import figure_dict, panel_dict
from gcylon_lab.ui.figures.numbers import traffic_table
from gcylon_lab.ui.figures.panels.phases import NAMES, phase_at
from gcylon_lab.ui.figures.series import readable
from gcylon_lab.ui.figures.theme import LIGHT, PHASES, RANK_COLOURS
from gcylon_lab.ui.figures.tier_traffic import moves_of, rate
from gcylon_lab.ui.figures.view import make_view
from gcylon_lab.units import GIB, MIB, format_rate


@pytest.mark.parametrize("ranks", [9, 64])
def test_above_eight_ranks_each_has_a_thin_lane_in_the_colour_of_its_phase(ranks: int) -> None:
    figure = draw(ranks)
    lanes = trace(figure, "phase-map")
    assert len(lanes["z"]) == ranks and not trace(figure, "phase-exchange")["x"]
    assert 3 <= len(figure["layout"]["yaxis2"]["ticktext"]) <= 8
    key = next(a["text"] for a in figure["layout"]["annotations"] if "partition" in a["text"])
    assert re.sub("<.*?>", "", key).split() == "■ partition ▨ exchange ▧ stage ▒ waiting".split()
    # The rank made slow is at work while the others wait at the end of an operation.
    end = max(i for i, t in enumerate(lanes["x"]) if t < figure["layout"]["shapes"][1]["x1"] - 0.1)
    assert {NAMES[row[end]] for row in lanes["z"][: ranks // 2]} == {"waiting"}
    assert NAMES[lanes["z"][-1][end]] in ("exchange", "partition")


def test_a_lane_has_the_colour_of_what_took_most_of_a_cell() -> None:
    spans = {"exchange": [(0.0, 0.7), (2.0, 2.1)], "waiting": [(0.7, 1.4)], "stage": [(1.4, 1.9), (1.5, 1.6)]}
    places = phase_at(spans, np.array([0.0, 1.0, 2.0, 3.0, 4.0]))
    assert [NAMES[p] if p >= 0 else "" for p in places] == ["exchange", "stage", "exchange", ""]


def test_a_lane_has_no_phase_where_nothing_was_done() -> None:
    # So many and so late that sums of their times are off by more than nothing.
    begun = 1e5 + np.arange(20_000) / 3
    spans = {"waiting": [(t, t + 0.01) for t in begun]}
    edges = np.linspace(1e5, begun[-1] + 300.0, 161)
    places = phase_at(spans, edges)
    assert set(places[edges[:-1] > begun[-1] + 1]) == {-1} and set(places[:50]) == {NAMES.index("waiting")}


def test_all_that_ranks_record_is_drawn_as_a_phase() -> None:
    snapshots = Replay(2).at(16.0)
    start, end = snapshots[0]["spans"][-1][2:4]
    names = {
        "read": "io", "sort": "algorithm", "merge": "algorithm", "group": "algorithm", "match": "algorithm",
        "gather": "algorithm", "write": "io", "sample": "algorithm", "filter": "algorithm", "my model": "user",
    }  # fmt: skip
    snapshots[0]["spans"] += [[name, kind, start, end, 5, 0, ""] for name, kind in names.items()]
    figure = figure_dict(make_view(snapshots), LIGHT)
    drawn = {name for name in NAMES if trace(figure, f"phase-{name}")["x"]}
    assert drawn >= {"read", "sort", "merge", "group", "match", "gather", "write", "compute", "your own"}


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
    figure = figure_dict(make_view(snapshots, operation=3), LIGHT)
    heat = trace(figure, "traffic-heat")
    assert trace(figure, "traffic-numbers")["text"] == [] and heat["showscale"]
    totals = [sum(row[to] or 0 for row in heat["z"]) for to in range(64)]
    assert totals[1] > 20 * sorted(totals)[-2]
    assert heat["z"][5] == [None] * 64
    assert "#3 allgather: " in texts(figure) and "rank 1 got most, 32 × the mean" in texts(figure)


def test_ranks_stand_by_host_with_lines_between_hosts_and_their_traffic_apart() -> None:
    snapshots = Replay(64).at(8.2)
    for snapshot in snapshots:
        snapshot["host"] = f"node{snapshot['rank'] // 8}.cluster"
    figure = figure_dict(make_view(snapshots, operation=3), LIGHT)
    layout = figure["layout"]
    between = [n + 0.5 for n in range(7, 56, 8)]
    lines = [shape for shape in layout["shapes"] if shape["type"] == "line"]
    for axis in ("y", "x"):
        places = {place: count for place in between if (count := sum(s[f"{axis}0"] == place for s in lines))}
        assert places == dict.fromkeys(between, 3 if axis == "y" else 1), "memory, phases and traffic"
    assert layout["yaxis2"]["ticktext"] == [f"node{n}" for n in range(8)]
    assert layout["yaxis2"]["tickvals"] == [8 * n + 3.5 for n in range(8)]
    sent = np.array([s["operations"][2]["sent_to"] for s in snapshots])
    hosts = np.arange(64) // 8
    far = int(sent[hosts[:, None] != hosts].sum())
    assert f"sent, {readable(far)} between hosts<br>" in texts(figure)
    head, rows = traffic_table(snapshots)
    near = int(sent.sum() - np.trace(sent)) - far
    assert dict(zip(head, rows[2], strict=True)) | {
        "within hosts": readable(near), "between hosts": readable(far)
    } == dict(zip(head, rows[2], strict=True))  # fmt: skip


def test_of_one_host_and_of_hosts_whose_ranks_take_turns_no_line_is_drawn() -> None:
    snapshots = Replay(16).at(8.2)
    for hosts in (1, 2):
        for snapshot in snapshots:
            snapshot["host"] = f"node{snapshot['rank'] % hosts}"
        figure = figure_dict(make_view(snapshots), LIGHT)
        assert not [shape for shape in figure["layout"]["shapes"] if shape["type"] == "line"]
        assert ("between hosts" in texts(figure)) == (hosts == 2)
        assert ("within hosts" in traffic_table(snapshots)[0]) == (hosts == 2)


def test_traffic_of_one_rank_is_none() -> None:
    assert "there is one rank" in texts(draw(1))
    assert "There is one rank" in texts(panel_dict("traffic", make_view(Replay(1).at(9.0)), LIGHT))


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


def test_phases_have_their_own_colour_pattern_and_row() -> None:
    figure = draw()
    bars = {name: trace(figure, f"phase-{name}") for name in PHASES}
    assert len({b["fillcolor"] for b in bars.values()}) == len(PHASES)
    assert not {b["fillcolor"] for b in bars.values()} & set(RANK_COLOURS)
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
