"""What figures show of GPUs, and leave out on CPUs."""

from __future__ import annotations

import pytest
from drawn import draw, keys, texts, trace
from replay import Replay

from gcylon_lab.ui.figures.figures import figure_dict
from gcylon_lab.ui.figures.theme import LIGHT, RANK_COLOURS
from gcylon_lab.ui.figures.view import make_view
from gcylon_lab.units import GIB


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
    assert trace(figure, "gpu1")["x"] == [] and trace(figure, "gpu1")["name"] == "1: not reported"
    assert trace(figure, "outside")["y"][-1] == pytest.approx(26)
    snapshots[0]["gpu"]["samples"] = snapshots[1]["gpu"]["samples"]
    figure = figure_dict(make_view(snapshots), LIGHT)
    assert trace(figure, "outside")["x"] == [] and "outside the budget" not in texts(figure)
